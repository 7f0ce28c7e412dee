// SPDX-License-Identifier: Apache-2.0
//! `once`: reconciles the Node once and prints what changed.

use std::fmt::Write;

use serde_json::json;

use super::{Answer, Exit, Output};
use crate::agent::{Mode, Round};
use crate::decide::Action;
use crate::decide::sync::Sync;
use crate::findings::{Finding, Severity};
use crate::report::status::Status;
use crate::report::text;

/// Returns what `rounds` changed, like kubectl; problems go to standard error.
pub fn answer(rounds: &[Round], status: &Status, mode: Mode, output: Output) -> Answer {
    let node = match &status.labels.node {
        Some(node) => format!("node/{node}"),
        None => "node".to_owned(),
    };
    let mut lines = Vec::new();
    let mut complaint = String::new();
    for round in rounds {
        for (index, change) in round.plan.registration.changes.iter().enumerate() {
            let path = change.kind.path().display();
            let verb = match change.text {
                Some(_) => "written",
                None => "removed",
            };
            match (mode, round.kept.get(index)) {
                (Mode::Write, Some(Ok(()))) | (Mode::DryRun, _) => {
                    lines.push(format!("file {path} {verb}"));
                }
                (Mode::Write, Some(Err(refusal))) => {
                    let _ = writeln!(complaint, "error: {}", refusal.text);
                }
                (Mode::Write, None) => {}
            }
        }
        for (index, action) in round.plan.actions.iter().enumerate() {
            match (mode, round.outcomes.get(index)) {
                (Mode::Write, Some(Ok(()))) | (Mode::DryRun, _) => {
                    lines.extend(changes(&node, action));
                }
                (Mode::Write, Some(Err(refusal))) => {
                    let _ = writeln!(complaint, "error: {}", refusal.text);
                }
                (Mode::Write, None) => {}
            }
        }
    }
    let text = match output {
        Output::Json => {
            let key = if mode == Mode::DryRun {
                "wouldChange"
            } else {
                "changed"
            };
            let mut value = status.to_json();
            if let Some(fields) = value.as_object_mut() {
                fields.insert(key.to_owned(), json!(lines));
            }
            format!("{value:#}\n")
        }
        Output::Text | Output::Short => {
            let note = if mode == Mode::DryRun {
                " (dry run)"
            } else {
                ""
            };
            if lines.is_empty() {
                lines.push(format!("{node} unchanged"));
            }
            lines.iter().fold(String::new(), |mut text, line| {
                let _ = writeln!(text, "{line}{note}");
                text
            })
        }
    };
    if output != Output::Json {
        complaint.push_str(&text::problem_lines(&status.findings, Severity::Warning));
    }
    Answer {
        text,
        complaint,
        exit: rounds.last().map_or(Exit::TryAgain, exit),
    }
}

/// Returns a write as lines: `node/NAME labeled: KEY=VALUE`.
fn changes(node: &str, action: &Action) -> Vec<String> {
    match action {
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

/// 75 when an API did not answer or refused for now, 1 when something is wrong or could not be written, 0 otherwise.
fn exit(round: &Round) -> Exit {
    let refusals: Vec<_> = round
        .outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().err())
        .collect();
    if round.is_unanswered() || refusals.iter().any(|refusal| refusal.passing) {
        return Exit::TryAgain;
    }
    let is_error = |finding: &Finding| finding.code.entry().severity == Severity::Error;
    let errors = round.plan.findings.iter().any(is_error);
    let settled = !matches!(round.plan.sync, Sync::NoVm { .. } | Sync::WriteFailed(_));
    if !refusals.is_empty() || errors || !settled || !round.identity.verdict.is_match() {
        Exit::Failed
    } else {
        Exit::Ok
    }
}
