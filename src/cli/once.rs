// SPDX-License-Identifier: Apache-2.0
//! `once`: look, write what is to be written, say what changed.

use std::fmt::Write;

use serde_json::json;

use super::{Answer, Exit, Output};
use crate::agent::{Mode, Round};
use crate::decide::Action;
use crate::decide::sync::Sync;
use crate::findings::{Finding, Severity};
use crate::report::status::Status;
use crate::report::text::{self, Style};

/// What `rounds` did, and how it stands after the last of them.
pub fn answer(
    rounds: &[Round],
    status: &Status,
    mode: Mode,
    output: Output,
    style: Style,
) -> Answer {
    let mut lines = Vec::new();
    let mut complaint = String::new();
    for round in rounds {
        for (index, change) in round.plan.registration.changes.iter().enumerate() {
            let path = change.kind.path().display();
            match (mode, round.kept.get(index)) {
                (Mode::Write, Some(Ok(()))) | (Mode::DryRun, _) => {
                    lines.push(format!("file {path}"));
                }
                (Mode::Write, Some(Err(refusal))) => {
                    let _ = writeln!(complaint, "not written: {}", refusal.text);
                }
                (Mode::Write, None) => {}
            }
        }
        for (index, action) in round.plan.actions.iter().enumerate() {
            match (mode, round.outcomes.get(index)) {
                (Mode::Write, Some(Ok(()))) | (Mode::DryRun, _) => lines.extend(changes(action)),
                (Mode::Write, Some(Err(refusal))) => {
                    let _ = writeln!(complaint, "not written: {}", refusal.text);
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
            let verb = if mode == Mode::DryRun {
                "would change"
            } else {
                "changed"
            };
            let mut text = text::whoami(status, style);
            text.push('\n');
            if lines.is_empty() {
                text.push_str("nothing to change\n");
            }
            for line in &lines {
                let _ = writeln!(text, "{verb}: {line}");
            }
            text
        }
    };
    Answer {
        text,
        complaint,
        exit: rounds.last().map_or(Exit::TryAgain, exit),
    }
}

/// A write as lines: `label key=value`, `annotation …`, `condition …`, `event …`.
fn changes(action: &Action) -> Vec<String> {
    match action {
        Action::PatchNode(patch) => {
            let labels = patch.labels.iter().map(|(key, value)| match value {
                Some(value) => format!("label {key}={value}"),
                None => format!("label {key}-"),
            });
            let annotations = patch
                .annotations
                .iter()
                .map(|(key, value)| format!("annotation {key}={value}"));
            labels.chain(annotations).collect()
        }
        Action::PatchConditions(patch) => patch
            .conditions
            .iter()
            .map(|(wanted, _)| {
                format!(
                    "condition {}={} ({})",
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
