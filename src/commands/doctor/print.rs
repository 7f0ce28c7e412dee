// SPDX-License-Identifier: Apache-2.0
//! The diagnosis as text: the verdict, the problems by severity, and the groups.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::case::Gap;
use super::diagnosis::{Diagnosis, Outcome, Section};
use crate::catalog::{Code, Severity};
use crate::report::problem::Problem;
use crate::report::show::counted;
use crate::report::text::{Mark, Show, Text, grouped, many};
use crate::sys::escape::one_line;

/// The maximum length of the reason of most skipped checks, in characters.
const REASON_MAX: usize = 40;

/// The width of the longest title of a group.
const TITLES: usize = 20;

/// Returns the verdict, the problems, and the groups. In verbose mode, also lists all groups and skipped checks.
pub(super) fn text(diagnosis: &Diagnosis, show: Show) -> String {
    let mut out = Text::new(show);
    let blocks = blocks(diagnosis);
    let worst = blocks.first().and_then(|same| same.first().copied());
    let bad = worst.filter(|worst| worst.severity > Severity::Notice);
    headline(&mut out, diagnosis, bad);
    for same in &blocks {
        out.blank();
        Problem::write(same, &mut out);
        consequences(&mut out, diagnosis, same);
    }
    out.blank();
    if show.verbose || bad.is_none() {
        for section in &diagnosis.groups {
            let symbol = show.style.symbol(section.state);
            let lead = format!("  {symbol} {:<TITLES$} ", section.title);
            out.put(&lead, &summary(section));
        }
    } else {
        let groups = diagnosis.groups.iter();
        let groups = groups.map(|section| (section.state, section.title));
        out.parts(&groups.collect::<Vec<_>>());
    }
    if show.verbose {
        list_skipped(&mut out, diagnosis);
    } else {
        count_skipped(&mut out, diagnosis);
    }
    out.blank();
    out.put("", &closing(diagnosis, worst));
    out.finish()
}

/// Returns the problems, those with the same code together: by severity, then by how many findings and skipped checks each explains,
/// then in the order of the groups.
fn blocks(diagnosis: &Diagnosis) -> Vec<Vec<&Problem>> {
    let blocks = grouped(diagnosis.findings(), |problem| problem.code);
    let mut blocks: Vec<Vec<&Problem>> = blocks.into_iter().map(|(_, same)| same).collect();
    let skipped = diagnosis.skipped_checks().filter_map(|gap| gap.due_to);
    let causes = diagnosis.suppressed().map(|one| one.suppressed_by);
    let causes: Vec<Code> = causes.chain(skipped).collect();
    let explained = |code| causes.iter().filter(|cause| **cause == code).count();
    let weight = |first: &&Problem| (first.severity, explained(first.code));
    blocks.sort_by_key(|same| Reverse(same.first().map(weight)));
    blocks
}

/// Appends the verdict. Problems with the same code count as one.
fn headline(out: &mut Text, diagnosis: &Diagnosis, bad: Option<&Problem>) {
    let (name, counts) = (&diagnosis.name, counted(diagnosis.findings()));
    let (mark, value) = match (bad, diagnosis.outcome) {
        (Some(worst), _) => (
            Mark::Found(worst.severity),
            format!("{name}: {counts}. {}", capital(&worst.title)),
        ),
        (None, Outcome::Unreachable) => (
            Mark::Skipped,
            format!("{name}: incomplete. Not everything could be checked"),
        ),
        (None, _) => {
            let separator = if counts.is_empty() { "" } else { ", " };
            let place = diagnosis.place.as_ref();
            let place = place.map_or_else(String::new, |place| format!(". {place}"));
            let value = format!("{name}: healthy{separator}{counts}{place}");
            (Mark::Ok, value)
        }
    };
    out.headline(mark, &value);
}

/// Appends the codes of the findings that a problem causes.
fn consequences(out: &mut Text, diagnosis: &Diagnosis, same: &[&Problem]) {
    let is_shown = |one: &Problem| one.severity > Severity::Notice || out.show.verbose;
    let cause = same.first().filter(|first| is_shown(first));
    let suppressed = diagnosis.suppressed();
    let suppressed =
        suppressed.filter(|one| cause.is_some_and(|cause| cause.code == one.suppressed_by));
    let codes: BTreeSet<&str> = suppressed.map(|one| one.code.as_str()).collect();
    if !codes.is_empty() {
        out.item("Also", &Vec::from_iter(codes).join(", "));
    }
}

/// Returns the summary of a group, and what was not checked or is only a consequence of another finding.
fn summary(section: &Section) -> String {
    let consequences = section.suppressed.iter();
    let consequences = consequences.map(|one| format!("{} due to {}", one.code, one.suppressed_by));
    let mut parts = vec![section.summary.clone()];
    parts.extend(consequences.collect::<BTreeSet<_>>());
    match section.skipped_checks.len() {
        0 => {}
        count => parts.push(format!("{} skipped", many(count, "check"))),
    }
    parts.join("; ")
}

/// Appends the skipped checks of each group with their reasons.
fn list_skipped(out: &mut Text, diagnosis: &Diagnosis) {
    for section in &diagnosis.groups {
        if !section.skipped_checks.is_empty() {
            out.blank();
            out.put("  ", &format!("Skipped: {}", section.title));
        }
        let checks = section.skipped_checks.iter();
        for (reason, checks) in grouped(checks, |check| reason(check)) {
            let checks: Vec<&str> = checks.iter().map(|one| one.check).collect();
            out.put("    - ", &format!("{}: {reason}", checks.join(", ")));
        }
    }
}

/// Appends the number of skipped checks and the most frequent reason, without the details that the verbose mode shows.
fn count_skipped(out: &mut Text, diagnosis: &Diagnosis) {
    let mut reasons = grouped(diagnosis.skipped_checks(), |check| {
        let reason = reason(check);
        let short = reason.split(": ").next().unwrap_or_default();
        one_line(short, REASON_MAX).into_owned()
    });
    reasons.sort_by_key(|(_, checks)| Reverse(checks.len()));
    let Some((reason, checks)) = reasons.first() else {
        return;
    };
    let all = diagnosis.skipped_checks().count();
    let reasons = match all - checks.len() {
        0 => reason.clone(),
        others => format!("{reason} ({}), other reasons ({others})", checks.len()),
    };
    let line = format!("{} skipped: {reasons}; -v lists them.", many(all, "check"));
    out.put("  ", &line);
}

/// Returns why a check was skipped: due to a finding, or the error.
fn reason(check: &Gap) -> String {
    match check.due_to {
        Some(code) => format!("due to {code}"),
        None => check.message.clone(),
    }
}

/// Capitalizes the first letter of a text, except for names of programs and files.
fn capital(title: &str) -> String {
    let word = title.split(' ').next().unwrap_or_default();
    let mut letters = title.chars();
    match letters.next() {
        Some(first) if !word.contains(['-', '/']) => {
            first.to_ascii_uppercase().to_string() + letters.as_str()
        }
        _ => title.to_owned(),
    }
}

/// Returns the last line: the result, and how to get details.
fn closing(diagnosis: &Diagnosis, worst: Option<&Problem>) -> String {
    // The headline has the counts.
    if let Some(worst) = worst {
        let code = worst.code;
        return format!("Details: harvester-node-agent explain {code}");
    }
    match diagnosis.skipped_checks().count() {
        0 => format!(
            "No problem found, all {} groups checked.",
            diagnosis.groups.len()
        ),
        skipped => format!("No problem found, {} skipped.", many(skipped, "check")),
    }
}

#[cfg(test)]
mod tests;
