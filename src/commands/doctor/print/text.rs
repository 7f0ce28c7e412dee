// SPDX-License-Identifier: Apache-2.0
//! The diagnosis as text: the verdict, the problems by severity, and the checks.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::skipped::{collapsed, skipped_checks};
use super::{SHOWN_MAX, View};
use crate::catalog::{Code, Expiry, Finding, PLACEHOLDERS, Severity};
use crate::commands::doctor::diagnosis::{DoctorOutcome, Privileges, Section};
use crate::commands::doctor::facts::Gap;
use crate::report::layout::{Charset, Mark, TermStyle, paragraph, steps, table, visible};
use crate::report::relative::{relative, span};
use crate::report::text::many;
use crate::sys::escape::one_line;

/// The indentation of the texts of a problem, in columns.
const INDENT: usize = 12;

/// The width of the columns before the summary of a check: a symbol and the longest title.
const TITLES: usize = 20;

/// The notice for a user who cannot read what the agent reads.
const NOT_ROOT: &str = "Not run as root: files that only root can read were not checked. Run: sudo harvester-node-agent doctor";

/// All findings with one code.
struct ProblemBlock<'a> {
    code: Code,
    severity: Severity,
    findings: Vec<&'a Finding>,
}

/// Returns the verdict, the problems, and the checks. With `is_verbose`, also lists all checked and skipped items.
pub fn text(view: &View<'_>, style: TermStyle, is_verbose: bool, privileges: Privileges) -> String {
    let mut text = String::new();
    headline(&mut text, view, style);
    if privileges == Privileges::Unprivileged {
        paragraph(&mut text, "", 0, NOT_ROOT, style.width);
    }
    let problems = problems(view);
    for problem in &problems {
        text.push('\n');
        block(&mut text, view, problem, style, is_verbose);
    }
    text.push('\n');
    let is_bad = |problem: &ProblemBlock<'_>| problem.severity > Severity::Notice;
    if is_verbose || !problems.iter().any(is_bad) {
        checks(&mut text, view, style, is_verbose);
    } else {
        flow(&mut text, view, style);
    }
    let skipped: Vec<&Gap> = view.diagnosis.gaps().collect();
    if is_verbose {
        skipped_checks(&mut text, view, style, privileges);
    } else if !skipped.is_empty() {
        let line = collapsed(view, &skipped, privileges);
        paragraph(&mut text, "  ", 2, &line, style.width);
    }
    text.push('\n');
    paragraph(&mut text, "", 0, &closing(view), style.width);
    text
}

/// Returns the problems, by severity, then in the order of the groups.
fn problems<'a>(view: &'a View<'_>) -> Vec<ProblemBlock<'a>> {
    let mut problems: Vec<ProblemBlock<'a>> = Vec::new();
    for finding in view.diagnosis.findings() {
        match problems.iter_mut().find(|one| one.code == finding.code) {
            Some(problem) => problem.findings.push(finding),
            None => problems.push(ProblemBlock {
                code: finding.code,
                severity: finding.code.entry().severity,
                findings: vec![finding],
            }),
        }
    }
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    problems
}

fn headline(text: &mut String, view: &View<'_>, style: TermStyle) {
    let worst = problems(view).into_iter().next();
    let worst = worst.filter(|problem| problem.severity > Severity::Notice);
    let name = view.node_name();
    let (mark, value) = match (worst, view.outcome) {
        (Some(problem), _) => {
            let title = problem.code.entry().title;
            let mark = Mark::Found(problem.severity);
            (
                mark,
                format!("{name}: {}. {}", counts(view), capital(title)),
            )
        }
        (None, DoctorOutcome::Unreachable) => {
            let value = format!("{name}: incomplete. Not everything could be checked");
            (Mark::Skipped, value)
        }
        (None, _) => {
            let notices = match view.diagnosis.count(Severity::Notice) {
                0 => String::new(),
                count => format!(", {}", many(count, "notice")),
            };
            let place = view.place().map(|place| format!(". {place}"));
            let place = place.unwrap_or_default();
            (Mark::Ok, format!("{name}: healthy{notices}{place}"))
        }
    };
    let symbol = match (style.charset, mark) {
        (Charset::Unicode, Mark::Ok) => style.paint(mark, "●"),
        _ => style.symbol(mark),
    };
    let value = one_line(&value, SHOWN_MAX);
    let indent = style.symbol_width() + 1;
    paragraph(text, &format!("{symbol} "), indent, &value, style.width);
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

fn block(
    text: &mut String,
    view: &View<'_>,
    problem: &ProblemBlock<'_>,
    style: TermStyle,
    is_verbose: bool,
) {
    let entry = problem.code.entry();
    let mark = Mark::Found(problem.severity);
    let word = match problem.severity {
        Severity::Error => "ERROR",
        Severity::Warning => "WARN",
        Severity::Notice => "NOTE",
    };
    let symbol = match style.charset {
        Charset::Unicode => format!("{} ", style.symbol(mark)),
        Charset::Ascii => String::new(),
    };
    let expiring: Vec<&Expiry> = problem
        .findings
        .iter()
        .filter_map(|finding| finding.expiry.as_ref())
        .collect();
    let title = match expiring.len() {
        0 | 1 => entry.title.to_owned(),
        count => format!("{count} certificates or tokens expire within 30 days"),
    };
    let lead = format!("{symbol}{} ", style.paint(mark, &format!("{word:<6}")));
    let code = format!("[{}]", entry.name);
    let taken = visible(&lead) + title.len() + code.len();
    let gap = style.width.saturating_sub(taken);
    if gap >= 2 {
        let _ = writeln!(text, "{lead}{title}{:gap$}{code}", "");
    } else {
        let value = format!("{title} {code}");
        paragraph(text, &lead, visible(&lead), &value, style.width);
    }
    // A notice is not a problem; `explain` has the details.
    if problem.severity == Severity::Notice && !is_verbose {
        return;
    }
    let limit = if is_verbose { usize::MAX } else { SHOWN_MAX };
    observed(text, view, problem, &expiring, style, limit);
    row(text, "Impact", entry.impact, style, SHOWN_MAX);
    if expiring.len() < 2 {
        let all = unique(problem.findings.iter().flat_map(|finding| finding.fix()));
        let all: Vec<_> = all.iter().map(|step| one_line(step, SHOWN_MAX)).collect();
        let all: Vec<&str> = all.iter().map(AsRef::as_ref).collect();
        steps(text, &lead_of("Fix"), INDENT, &all, style.width);
        // In a table, each row has its renewal.
        commands(text, view, problem, style);
    }
    let suppressed: BTreeSet<&str> = view
        .diagnosis
        .sections
        .iter()
        .flat_map(|section| &section.suppressed)
        .filter(|suppressed| suppressed.by == problem.code)
        .map(|suppressed| suppressed.finding.code.as_str())
        .collect();
    if !suppressed.is_empty() {
        let suppressed: Vec<&str> = suppressed.into_iter().collect();
        row(text, "Also", &suppressed.join(", "), style, SHOWN_MAX);
    }
}

/// Returns the items without repetitions, in their order.
fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique
}

fn lead_of(name: &str) -> String {
    let width = INDENT.saturating_sub(2);
    format!("  {name:<width$}")
}

/// Appends one row, truncated to `limit` characters of its value.
fn row(text: &mut String, name: &str, value: &str, style: TermStyle, limit: usize) {
    let value = one_line(value, limit);
    paragraph(text, &lead_of(name), INDENT, &value, style.width);
}

/// Appends the observations, with the time when the service first made them: a table for expirations, or one line for each.
fn observed(
    text: &mut String,
    view: &View<'_>,
    problem: &ProblemBlock<'_>,
    expiring: &[&Expiry],
    style: TermStyle,
    limit: usize,
) {
    if expiring.len() > 1 {
        let head = ["EXPIRES", "CERTIFICATE OR TOKEN", "SEEN IN", "RENEW WITH"];
        let mut rows = vec![head.map(str::to_owned)];
        let now = view.now.unix_timestamp();
        for expiry in expiring {
            let left = expiry.at.saturating_sub(now);
            let when = match left {
                ..=0 => format!("{} ago", span(left)),
                left => span(left),
            };
            // Only the last component of a path is displayed, to limit the width of the table.
            let origin = match expiry.origin.strip_prefix('/') {
                Some(path) => path.rsplit('/').next().unwrap_or(path),
                None => &expiry.origin,
            };
            let cells = [&*when, &*expiry.what, origin, expiry.renew];
            rows.push(cells.map(|cell| one_line(cell, SHOWN_MAX).into_owned()));
        }
        return table(text, 2, &rows, style.width);
    }
    let since = view.service.since(problem.code);
    let since = since.map(|since| format!(" (first observed {})", relative(view.now, since)));
    let mut since = since.unwrap_or_default();
    let mut name = "Observed";
    for seen in unique(problem.findings.iter().map(|finding| finding.seen.as_str())) {
        let value = format!("{seen}{since}");
        row(text, name, &value, style, limit);
        since.clear();
        name = "";
    }
}

/// Appends the commands, never wrapped, below the place where they run, and what to put in the place of unknown words.
fn commands(text: &mut String, view: &View<'_>, problem: &ProblemBlock<'_>, style: TermStyle) {
    let findings = problem.findings.iter();
    let all = unique(findings.flat_map(|finding| view.commands(finding)));
    let mut place = None;
    let shown: String = all.iter().map(|(_, command)| command.as_str()).collect();
    for (run_on, command) in all {
        if place != Some(run_on) {
            place = Some(run_on);
            let _ = writeln!(text, "{:INDENT$}# {}", "", run_on.title());
        }
        // A command that is cut would be another command.
        let command = one_line(&command, usize::MAX);
        let _ = writeln!(text, "{:INDENT$}{command}", "");
    }
    let explained = PLACEHOLDERS
        .iter()
        .filter(|(_, meaning)| !meaning.is_empty());
    let unknown = explained.filter(|(placeholder, _)| shown.contains(placeholder));
    let unknown: Vec<String> = unknown
        .map(|(placeholder, meaning)| format!("{placeholder} = {meaning}"))
        .collect();
    if !unknown.is_empty() {
        let line = format!("Replace {}", unknown.join(", "));
        paragraph(text, &" ".repeat(INDENT), INDENT, &line, style.width);
    }
}

/// Appends one line for each group, with its summary.
fn checks(text: &mut String, view: &View<'_>, style: TermStyle, is_verbose: bool) {
    for section in &view.diagnosis.sections {
        let symbol = style.symbol(view.state(section));
        let lead = format!("  {symbol} {:<TITLES$} ", section.group.title());
        let summary = match is_verbose {
            true => view.summary(section.group),
            false => view.brief(section.group),
        };
        let summary = one_line(&summary, SHOWN_MAX);
        paragraph(text, &lead, visible(&lead), &summary, style.width);
    }
}

/// Appends all groups in a few lines, without their summaries.
fn flow(text: &mut String, view: &View<'_>, style: TermStyle) {
    let mut taken = 0;
    for section in &view.diagnosis.sections {
        let symbol = style.symbol(view.state(section));
        let item = format!("  {symbol} {}", section.group.title());
        let width = visible(&item);
        if taken > 0 && taken + width > style.width {
            text.push('\n');
            taken = 0;
        }
        text.push_str(&item);
        taken += width;
    }
    text.push('\n');
}

/// Returns the number of errors, warnings and notices; findings with the same code count as one.
fn counts(view: &View<'_>) -> String {
    let counts = [
        (Severity::Error, "error"),
        (Severity::Warning, "warning"),
        (Severity::Notice, "notice"),
    ];
    let problems = problems(view);
    let counts = counts.map(|(severity, word)| {
        let same = problems.iter().filter(|one| one.severity == severity);
        (same.count(), word)
    });
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, word)| many(count, word)).collect();
    counts.join(", ")
}

/// Returns the last line: the result, and how to get details.
fn closing(view: &View<'_>) -> String {
    // The headline has the counts.
    if let Some(problem) = problems(view).first() {
        return format!("Details: harvester-node-agent explain {}", problem.code);
    }
    let sections = &view.diagnosis.sections;
    let is_ok = |section: &&Section| view.state(section) == Mark::Ok;
    let (ok, all) = (sections.iter().filter(is_ok).count(), sections.len());
    // A group is not a check: it has several, and is ok when none of them was skipped.
    if ok == all {
        return format!("No problem found, all {all} groups checked.");
    }
    match view.diagnosis.gaps().count() {
        0 => format!("No problem found, {ok} of {all} groups checked."),
        skipped => format!("No problem found, {} skipped.", many(skipped, "check")),
    }
}
