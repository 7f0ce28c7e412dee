// SPDX-License-Identifier: Apache-2.0
//! `once`: reconciles the Node once and prints what changed.

use serde_json::json;

use super::answer::{Answer, Exit, Output, with};
use super::process::Process;
use super::run::one_round;
use crate::agent::{Mode, Round};
use crate::catalog::{Flag, Severity};
use crate::decide::label_state::LabelState;
use crate::decide::{Action, WriteResult};
use crate::report::status::Status;
use crate::sys::escape::json_text;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "\
Exit status: 0 no error; 1 an error; 3 warnings with --strict; 4 not a KubeVirt virtual machine; 75 an API is unreachable \
and no other error lasts, or the service is running; 78 invalid configuration.";

/// Reconciles the Node, or with `is_dry` only prints what would change.
pub fn run(process: &Process, is_dry: bool, is_strict: bool) -> Answer {
    let mode = if is_dry { Mode::DryRun } else { Mode::Write };
    one_round(process, mode, false, |round, status| {
        answer(round, status, mode, process.output).with_warnings(is_strict, status)
    })
}

/// Returns the changes of `round` in the style of kubectl; problems go to standard error.
fn answer(round: &Round, status: &Status, mode: Mode, output: Output) -> Answer {
    let is_dry = mode == Mode::DryRun;
    let node = match &status.labels.node {
        Some(node) => format!("node/{node}"),
        None => "node".to_owned(),
    };
    let mut lines = Vec::new();
    let mut stderr = String::new();
    for (index, action) in round.plan.actions.iter().enumerate() {
        match round.results.get(index) {
            Some(Err(refusal)) => stderr.push_str(&format!("error: {}\n", refusal.text)),
            _ => lines.extend(changes(&node, action)),
        }
    }
    let text = if output == Output::Json {
        let value = with(status.to_json(), "changes", json!(lines));
        json_text(&with(value, "dryRun", json!(is_dry)))
    } else {
        let findings = status.findings.iter();
        for problem in findings.filter(|problem| problem.severity >= Severity::Warning) {
            stderr.push_str(&format!("{}\n", problem.line()));
        }
        if lines.is_empty() {
            let what = match round.observation.node.known() {
                None => "not checked",
                // The response may be lost, and not the change.
                Some(_) if round.tried().any(is_passing) => "unknown",
                Some(_) => "unchanged",
            };
            lines.push(format!("{node} {what}"));
        }
        let note = if is_dry { " (dry run)" } else { "" };
        lines.iter().map(|line| format!("{line}{note}\n")).collect()
    };
    Answer {
        text,
        stderr,
        exit: exit(round),
    }
}

/// Returns one line for each change: `node/NAME labeled: KEY=VALUE`.
fn changes(node: &str, action: &Action) -> Vec<String> {
    match action {
        Action::StartUnit(unit) => vec![format!("unit {unit} started")],
        // Only the service runs them.
        Action::RunHooks(_) => Vec::new(),
        Action::SendEvents(events) => vec![format!("{} Events sent", events.announce.len())],
        Action::PatchNode(patch) => {
            let labels = patch.labels.iter().map(|(key, value)| match value {
                Some(value) => format!("{node} labeled: {key}={value}"),
                None => format!("{node} unlabeled: {key}"),
            });
            let annotations = patch.annotations.iter();
            let annotations =
                annotations.map(|(key, value)| format!("{node} annotated: {key}={value}"));
            labels.chain(annotations).collect()
        }
        Action::PatchConditions(patch) => {
            let conditions = patch.conditions.iter().map(|(wanted, _)| {
                let (kind, status, reason) = (&wanted.kind, &wanted.status, &wanted.reason);
                format!("{node} condition set: {kind}={status} ({reason})")
            });
            conditions.collect()
        }
    }
}

/// Reports whether a patch failed that may be accepted later.
fn is_passing((action, result): (&Action, &WriteResult)) -> bool {
    action.is_sent() && result.as_ref().is_err_and(|refusal| refusal.passing)
}

/// Returns 75 if an API was unreachable and no error lasts, or one temporarily rejected a request, 1 if there is an error or a write or
/// start failed, 0 otherwise.
fn exit(round: &Round) -> Exit {
    let findings = round.plan.findings.iter().map(|finding| finding.code);
    let mut errors = findings.filter(|code| code.entry().severity == Severity::Error);
    let is_lasting = errors.clone().any(|code| !code.is(Flag::MayPass));
    if round.is_unanswered() && !is_lasting || round.tried().any(is_passing) {
        return Exit::TryAgain;
    }
    // Any other reason has a finding.
    let is_settled = round.plan.sync != LabelState::HarvesterNotRead;
    let is_written = round.results.iter().all(Result::is_ok);
    if is_written && is_settled && errors.next().is_none() {
        Exit::Ok
    } else {
        Exit::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::{VM, World};
    use crate::decide::{ConditionsPatch, Refusal, WriteResult};
    use crate::facts::names::NodeName;
    use crate::facts::{Fact, UnavailableKind};
    use crate::report::compose::Context;
    use crate::report::tests::round;

    fn refused(passing: bool) -> WriteResult {
        let refusal = Refusal::passing("denied");
        Err(Refusal { passing, ..refusal })
    }

    /// Returns the exit status of a round with these writes, of a node without any problem.
    fn code(actions: Vec<Action>, results: Vec<WriteResult>) -> Exit {
        let mut round = round(&World::settled(), &[]);
        (round.plan.actions, round.results) = (actions, results);
        exit(&round)
    }

    #[test]
    fn an_error_that_lasts_is_no_reason_to_try_again() {
        for (kind, expected) in [
            (None, Exit::TryAgain),
            (Some(UnavailableKind::Missing), Exit::TryAgain),
            (Some(UnavailableKind::Credential), Exit::Failed),
        ] {
            let mut world = World::settled();
            world.observation.node = Fact::failed(UnavailableKind::Unreachable, "away");
            if let Some(kind) = kind {
                world.observation.harvester = Fact::failed(kind, "of no use");
                world.observation.candidates = Fact::failed(UnavailableKind::NotAsked, "");
            }
            assert_eq!(exit(&round(&world, &[])), expected, "{kind:?}");
        }
    }

    #[test]
    fn whether_a_patch_without_a_response_changed_the_node_is_unknown() {
        for (passing, expected) in [(true, "unknown"), (false, "unchanged")] {
            let round = round(&World::new(), &[refused(passing)]);
            let status = Status::new(&round, &Context::default());
            let text = answer(&round, &status, Mode::Write, Output::Text).text;
            assert_eq!(text, format!("node/{VM} {expected}\n"));
        }
    }

    #[test]
    fn what_could_not_be_written_or_started_is_a_failure() {
        assert_eq!(code(Vec::new(), Vec::new()), Exit::Ok);
        let start = || Action::StartUnit("qemu-guest-agent.service".to_owned());
        let node = NodeName::parse("vm-1").unwrap();
        let (conditions, announce) = (Vec::new(), Vec::new());
        let patch = ConditionsPatch {
            node,
            conditions,
            announce,
        };
        let patch = || Action::PatchConditions(patch.clone());
        let both = || vec![start(), patch()];
        for (actions, results, expected) in [
            (vec![start()], vec![refused(false)], Exit::Failed),
            (vec![start()], vec![refused(true)], Exit::Failed),
            (both(), vec![Ok(()), refused(false)], Exit::Failed),
            (vec![patch()], vec![refused(true)], Exit::TryAgain),
            (both(), vec![Ok(()), Ok(())], Exit::Ok),
        ] {
            assert_eq!(code(actions, results), expected);
        }
    }
}
