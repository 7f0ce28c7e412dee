// SPDX-License-Identifier: Apache-2.0
//! The skipped checks, and the reason for each: in one line, or as a list.

use std::fmt::Write;

use super::text::problems;
use super::{SHOWN_MAX, View, by_reason};
use crate::catalog::{Code, Severity};
use crate::commands::doctor::diagnosis::Privileges;
use crate::commands::doctor::facts::Gap;
use crate::facts::UnavailableKind;
use crate::facts::observation::Api;
use crate::report::layout::{TermStyle, paragraph};
use crate::report::text::many;
use crate::sys::escape::one_line;

/// The maximum length of one of these reasons, in characters.
const REASON_MAX: usize = 40;

/// Returns one line for all skipped checks: their number, and the most frequent reason.
pub(super) fn collapsed(view: &View<'_>, skipped: &[&Gap], privileges: Privileges) -> String {
    // What makes the Harvester API unusable is the reason for each request to it that failed.
    let root = problems(view).into_iter().find(|problem| {
        let mut findings = problem.findings.iter();
        let is_unusable =
            problem.severity == Severity::Error || problem.code == Code::HarvesterUnreachable;
        is_unusable
            && findings
                .any(|finding| finding.api() == Some(Api::Harvester) && finding.expiry.is_none())
    });
    let root = root.map(|problem| problem.code);
    let root = |gap: &Gap| {
        let is_failed = match view.first(gap).unwrap_or(gap).why.kind {
            UnavailableKind::Credential | UnavailableKind::Tls | UnavailableKind::Unreachable => {
                true
            }
            UnavailableKind::Forbidden => root == Some(Code::HarvesterForbidden),
            _ => false,
        };
        let is_of_harvester = gap.group.api() != Some(Api::Guest);
        root.filter(|_| is_failed && is_of_harvester)
    };
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for gap in skipped {
        let first = view.first(gap).unwrap_or(gap);
        let is_denied =
            first.why.kind == UnavailableKind::Forbidden && privileges == Privileges::Unprivileged;
        let reason = match view.cause(gap).or_else(|| root(gap)) {
            _ if is_denied => "run as root".to_owned(),
            Some(code) => format!("due to {code}"),
            // Without its details, which `-v` shows.
            None => {
                let reason = gap.why.text.split(": ").next().unwrap_or_default();
                one_line(reason, REASON_MAX).into_owned()
            }
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown = match reasons.as_slice() {
        [] => String::new(),
        [(only, _)] => only.clone(),
        [(first, count), ..] => format!("{first} ({count})"),
    };
    format!(
        "{} skipped: {shown}; -v lists them.",
        many(skipped.len(), "check")
    )
}

/// Appends all skipped checks with their reasons.
pub(super) fn skipped_checks(
    text: &mut String,
    view: &View<'_>,
    style: TermStyle,
    privileges: Privileges,
) {
    let sections = view.diagnosis.sections.iter();
    for section in sections.filter(|section| !section.gaps.is_empty()) {
        let _ = writeln!(text, "\n  Skipped: {}", section.group.title());
        for (what, gap) in by_reason(&section.gaps) {
            let hint = match (gap.why.kind, privileges) {
                (UnavailableKind::Forbidden, Privileges::Unprivileged) => " (run as root)",
                _ => "",
            };
            let why = match (view.cause(gap), view.first(gap)) {
                (Some(code), _) => format!("due to {code}"),
                (None, Some(first)) => format!("depends on {}", first.what),
                (None, None) => one_line(&gap.why.text, SHOWN_MAX).into_owned(),
            };
            let line = format!("{}: {why}{hint}", what.join(", "));
            paragraph(text, "    ", 6, &line, style.width);
        }
    }
}
