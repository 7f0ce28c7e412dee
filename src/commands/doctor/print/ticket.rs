// SPDX-License-Identifier: Apache-2.0
//! The diagnosis in a few lines, for a ticket.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::text::{SHORT_SEEN, counts, problems};
use super::{View, by_reason};
use crate::catalog::Finding;
use crate::commands::doctor::diagnosis::DoctorOutcome;
use crate::commands::doctor::facts::Gap;
use crate::sys::escape::one_line;

/// The maximum number of lines in a ticket.
const SHORT_LINES: usize = 15;

/// The maximum number of lines for findings: with the first and last lines, this leaves one for skipped checks.
const SHORT_FINDINGS: usize = 10;

/// Returns a few lines for a ticket: the verdict with name, version and time, where the VM runs, and the problems.
pub fn short(view: &View<'_>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let counts = counts(view);
    let verdict = match (counts.as_str(), view.outcome) {
        ("", DoctorOutcome::Unreachable) => "incomplete",
        ("", _) => "healthy",
        (counts, _) => counts,
    };
    let name = view.node_name();
    let mut text = format!(
        "{}: {verdict} (harvester-node-agent {version}, {})\n",
        one_line(&name, SHORT_SEEN),
        view.at
    );
    if view.status.is_some() {
        let place = view.place().unwrap_or_else(|| "VM unknown".to_owned());
        for summary in [Some(place), view.versions(&[])].into_iter().flatten() {
            let _ = writeln!(text, "{}", one_line(&summary, SHORT_SEEN));
        }
    }
    let problems = problems(view);
    let findings: Vec<&Finding> = problems
        .iter()
        .flat_map(|problem| problem.findings.iter().copied())
        .collect();
    for finding in findings.iter().take(SHORT_FINDINGS) {
        let entry = finding.code.entry();
        let seen = one_line(&finding.seen, SHORT_SEEN);
        let _ = writeln!(text, "{} {}: {seen}", entry.severity.as_str(), entry.name);
    }
    let more = findings.len().saturating_sub(SHORT_FINDINGS);
    if more > 0 {
        let _ = writeln!(text, "and {more} more: harvester-node-agent doctor");
    }
    let missed = view.diagnosis.gaps();
    let missed: Vec<Gap> = missed
        .filter(|gap| view.cause(gap).is_none())
        .cloned()
        .collect();
    let room = SHORT_LINES.saturating_sub(text.lines().count());
    for (what, gap) in by_reason(&missed).into_iter().take(room) {
        let what: BTreeSet<&str> = what.into_iter().collect();
        let what: Vec<&str> = what.into_iter().collect();
        let line = format!("skipped: {}: {}", what.join(", "), gap.why.text);
        let _ = writeln!(text, "{}", one_line(&line, SHORT_SEEN));
    }
    text
}
