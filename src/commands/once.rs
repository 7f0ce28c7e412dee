// SPDX-License-Identifier: Apache-2.0
//! `once`: reconciles the Node once and prints what changed.

use serde_json::json;

use super::answer::{Answer, Exit, Output, with};
use super::process::Process;
use super::run::one_round;
use crate::agent::{Mode, Round};
use crate::catalog::{Finding, Severity};
use crate::decide::label_state::LabelState;
use crate::decide::{Action, WriteResult};
use crate::report::status::Status;
use crate::sys::escape::json_text;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "\
Exit status: 0 no error; 1 an error; 3 warnings with --strict; 4 not a KubeVirt virtual machine; 75 an API is unreachable, \
or the service is running; 78 invalid configuration.";

/// Reconciles the Node, or with `is_dry` only prints what would change.
pub fn run(process: &Process, is_dry: bool, is_strict: bool) -> Answer {
    let mode = if is_dry { Mode::DryRun } else { Mode::Write };
    one_round(process, mode, false, |round, status| {
        answer(round, status, mode, process.output).with_warnings(is_strict, status)
    })
}

/// Returns the changes of `round` in the style of kubectl; problems go to standard error.
fn answer(round: &Round, status: &Status, mode: Mode, output: Output) -> Answer {
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
        json_text(&with(value, "dryRun", json!(mode == Mode::DryRun)))
    } else {
        let findings = status.findings.iter();
        for problem in findings.filter(|problem| problem.severity >= Severity::Warning) {
            stderr.push_str(&format!("{}\n", problem.line()));
        }
        if lines.is_empty() {
            let is_read = round.observation.node.known().is_some();
            let what = if is_read { "unchanged" } else { "not checked" };
            lines.push(format!("{node} {what}"));
        }
        let note = if mode == Mode::DryRun {
            " (dry run)"
        } else {
            ""
        };
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
            let annotations = patch
                .annotations
                .iter()
                .map(|(key, value)| format!("{node} annotated: {key}={value}"));
            labels.chain(annotations).collect()
        }
        Action::PatchConditions(patch) => patch
            .conditions
            .iter()
            .map(|(wanted, _)| {
                format!(
                    "{node} condition set: {}={} ({})",
                    wanted.kind, wanted.status, wanted.reason
                )
            })
            .collect(),
    }
}

/// Returns 75 if an API was unreachable or temporarily rejected a request, 1 if there is an error or a write or start failed, 0
/// otherwise.
fn exit(round: &Round) -> Exit {
    let is_passing = |(action, result): (&Action, &WriteResult)| {
        action.is_sent() && result.as_ref().is_err_and(|refusal| refusal.passing)
    };
    if round.is_unanswered() || round.tried().any(is_passing) {
        return Exit::TryAgain;
    }
    let is_error = |finding: &Finding| finding.code.entry().severity == Severity::Error;
    // Any other reason has a finding.
    let is_settled = round.plan.sync != LabelState::HarvesterNotRead;
    let is_written = round.results.iter().all(Result::is_ok);
    if is_written && is_settled && !round.plan.findings.iter().any(is_error) {
        Exit::Ok
    } else {
        Exit::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Answer as Answered, Apply, Clock, Observe, Scope, once};
    use crate::config::Settings;
    use crate::decide::fixtures::{World as Facts, now};
    use crate::decide::identity::Identity;
    use crate::decide::placement::Located;
    use crate::decide::{ConditionsPatch, Memory, Now, Refusal};
    use crate::facts::names::NodeName;
    use crate::facts::observation::Observation;
    use crate::facts::placement::PlacementReads;
    use crate::facts::requests::Requests;

    /// An observer of a node without any problem.
    struct Settled(Facts);

    impl Observe for Settled {
        type Targets = ();

        fn targets(&self, _: &Settings, _: &Identity) {}

        async fn observation(
            &mut self,
            _: &Settings,
            _: Scope,
            _: Now,
            _: &mut dyn FnMut(),
        ) -> Observation {
            self.0.observation.clone()
        }

        async fn placement(&mut self, _: &Settings, _: &Located<'_>, _: Now) -> PlacementReads {
            self.0.reads.clone()
        }

        fn requests(&self) -> Vec<Requests> {
            Vec::new()
        }
    }

    impl Apply for Settled {
        async fn apply(&mut self, _: &Action, _: Now) -> Answered {
            Ok(None)
        }

        async fn announce(&mut self) {}
    }

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Now {
            now(std::time::Duration::from_secs(100))
        }
    }

    /// Returns the exit status of a round with these writes.
    async fn code(actions: Vec<Action>, results: Vec<WriteResult>) -> Exit {
        let mut facts = Facts::new();
        facts.settle();
        let settings = facts.settings.clone();
        let (mut world, memory) = (Settled(facts), Memory::default());
        let mut silent = crate::commands::run::Silent;
        let mode = Mode::Write;
        let round = once(&settings, &mut world, &mut silent, &Stopped, memory, mode);
        let mut round = Box::pin(round).await;
        assert!(round.results.is_empty());
        (round.plan.actions, round.results) = (actions, results);
        exit(&round)
    }

    #[tokio::test]
    async fn what_could_not_be_written_or_started_is_a_failure() {
        let refused = |passing| {
            Err(Refusal {
                text: "denied".to_owned(),
                passing,
                retry_after: None,
                is_deferred: false,
            })
        };
        assert_eq!(code(Vec::new(), Vec::new()).await, Exit::Ok);
        let start = || Action::StartUnit("qemu-guest-agent.service".to_owned());
        let patch = || {
            Action::PatchConditions(ConditionsPatch {
                node: NodeName::parse("vm-1").unwrap(),
                conditions: Vec::new(),
                announce: Vec::new(),
            })
        };
        for (actions, results, expected) in [
            (vec![start()], vec![refused(false)], Exit::Failed),
            (vec![start()], vec![refused(true)], Exit::Failed),
            (
                vec![start(), patch()],
                vec![Ok(()), refused(false)],
                Exit::Failed,
            ),
            (vec![patch()], vec![refused(true)], Exit::TryAgain),
            (vec![start(), patch()], vec![Ok(()), Ok(())], Exit::Ok),
        ] {
            assert_eq!(code(actions, results).await, expected);
        }
    }
}
