// SPDX-License-Identifier: Apache-2.0
//! `once`: reconciles the Node once and prints what changed.

use serde_json::json;

use super::answer::{Answer, Exit, Output, with};
use super::process::Process;
use super::run::rounds;
use crate::agent::{Mode, Round};
use crate::catalog::{Finding, Severity};
use crate::decide::label_state::LabelState;
use crate::decide::{self, Action};
use crate::report::status::Status;
use crate::sys::escape::json_text;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "\
Exit status: 0 no error; 1 an error; 3 warnings with --strict; 4 not a KubeVirt virtual machine; 75 an API is unreachable, \
or the service is running; 78 invalid configuration.";

/// Reconciles the Node, or with `is_dry` only prints what would change.
pub fn run(process: &Process, is_dry: bool, is_strict: bool) -> Answer {
    let mode = if is_dry { Mode::DryRun } else { Mode::Write };
    rounds(process, mode, false, |rounds, last, status| {
        answer(rounds, last, status, mode, process.output).with_warnings(is_strict, status)
    })
}

/// Returns the changes of `rounds` in the style of kubectl; problems go to standard error.
fn answer(rounds: &[Round], last: &Round, status: &Status, mode: Mode, output: Output) -> Answer {
    let node = match &status.labels.node {
        Some(node) => format!("node/{node}"),
        None => "node".to_owned(),
    };
    let mut lines = Vec::new();
    let mut stderr = String::new();
    for round in rounds {
        for (index, action) in round.plan.actions.iter().enumerate() {
            match round.results.get(index) {
                Some(Err(refusal)) => stderr.push_str(&format!("error: {}\n", refusal.text)),
                None if mode == Mode::Write => {}
                _ => lines.extend(changes(&node, action)),
            }
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
            let is_read = last.observation.node.known().is_some();
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
        exit: exit(rounds, last),
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
fn exit(rounds: &[Round], last: &Round) -> Exit {
    let failed = |round: &Round, is_concerned: fn(&Action) -> bool| {
        let tried = round.plan.tried(&round.results);
        let concerned = tried.filter(|(action, _)| is_concerned(action));
        concerned
            .filter_map(|(_, result)| result.clone().err())
            .collect::<Vec<_>>()
    };
    let refusals = failed(last, Action::is_sent);
    if last.is_unanswered() || refusals.iter().any(|refusal| refusal.passing) {
        return Exit::TryAgain;
    }
    let is_error = |finding: &Finding| finding.code.entry().severity == Severity::Error;
    // Any other reason has a finding.
    let is_settled = last.plan.sync != LabelState::HarvesterNotRead;
    // A patch is sent again in each round, but a unit is started in only one of them.
    let is_unit = |action: &Action| action.write() == decide::Write::Unit;
    let is_started = rounds.iter().all(|round| failed(round, is_unit).is_empty());
    let is_written = failed(last, |_| true).is_empty() && is_started;
    if is_written && is_settled && !last.plan.findings.iter().any(is_error) {
        Exit::Ok
    } else {
        Exit::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Apply, Clock, Observe, Scope, once};
    use crate::config::Settings;
    use crate::decide::fixtures::{World as Facts, now};
    use crate::decide::identity::Identity;
    use crate::decide::placement::{Located, Placement};
    use crate::decide::{ConditionsPatch, Memory, Now, Refusal, WriteResult};
    use crate::facts::names::NodeName;
    use crate::facts::observation::Observation;
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

        async fn placement(&mut self, settings: &Settings, at: &Located<'_>, _: Now) -> Placement {
            self.0.place(settings, at)
        }

        fn requests(&self) -> Vec<Requests> {
            Vec::new()
        }
    }

    impl Apply for Settled {
        async fn apply(&mut self, _: &Action, _: Now) -> WriteResult {
            Ok(())
        }

        async fn announce(&mut self) {}
    }

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Now {
            now(std::time::Duration::from_secs(100))
        }
    }

    /// Two rounds without changes.
    async fn rounds() -> Vec<Round> {
        let mut facts = Facts::new();
        facts.settle();
        let settings = facts.settings.clone();
        let mut rounds = Vec::new();
        for _ in 0..2 {
            let mut world = Settled(facts.clone());
            let memory = Memory::default();
            let mut silent = crate::commands::run::Silent;
            let mode = Mode::Write;
            let more = once(&settings, &mut world, &mut silent, &Stopped, memory, mode);
            rounds.extend(Box::pin(more).await);
        }
        assert_eq!(rounds.len(), 2);
        rounds
    }

    fn code(rounds: &[Round]) -> Exit {
        exit(rounds, rounds.last().unwrap())
    }

    #[tokio::test]
    async fn what_could_not_be_written_or_started_is_a_failure() {
        let refused = || {
            Err(Refusal {
                text: "denied".to_owned(),
                passing: false,
                retry_after: None,
                is_deferred: false,
            })
        };
        assert_eq!(code(&rounds().await), Exit::Ok);
        let start = || Action::StartUnit("qemu-guest-agent.service".to_owned());
        let patch = || {
            Action::PatchConditions(ConditionsPatch {
                node: NodeName::parse("vm-1").unwrap(),
                conditions: Vec::new(),
                announce: Vec::new(),
            })
        };
        let tried = |round: &mut Round, actions: Vec<Action>, results: Vec<WriteResult>| {
            round.plan.actions = actions;
            round.results = results;
        };
        let mut unstarted = rounds().await;
        tried(&mut unstarted[0], vec![start()], vec![refused()]);
        assert_eq!(code(&unstarted), Exit::Failed);
        let mut unwritten = rounds().await;
        tried(
            &mut unwritten[1],
            vec![patch(), patch()],
            vec![Ok(()), refused()],
        );
        assert_eq!(code(&unwritten), Exit::Failed);
        // The second round writes them.
        let mut written = rounds().await;
        tried(&mut written[0], vec![patch()], vec![refused()]);
        tried(&mut written[1], vec![patch()], vec![Ok(())]);
        assert_eq!(code(&written), Exit::Ok);
    }
}
