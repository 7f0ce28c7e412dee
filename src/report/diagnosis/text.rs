// SPDX-License-Identifier: Apache-2.0
//! The diagnosis for people: a table by group, and a few lines for a ticket.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::iter::repeat_n;

use super::{SHOWN_MAX, State, View, by_reason};
use crate::decide::diagnosis::{Rights, Section};
use crate::escape::one_line;
use crate::facts::WhyKind;
use crate::facts::examination::{Gap, Need};
use crate::findings::{Finding, Group, Severity};
use crate::report::layout::{Charset, TermStyle};
use crate::report::text::Style;

/// Lines of a ticket.
const SHORT_LINES: usize = 15;

/// Lines of findings in it: with head and end they leave one for what was not seen.
const SHORT_FINDINGS: usize = 10;

/// What is shown of one finding in a ticket, in characters.
const SHORT_SEEN: usize = 160;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dress {
    /// Whether words may be coloured.
    pub style: Style,
    /// Whether signs outside ASCII may be used.
    pub symbols: Symbols,
    /// Where a line ends that people read; a file has lines of any length.
    pub columns: Option<usize>,
}

/// Signs for the state of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbols {
    /// Letters and punctuation.
    Ascii,
    /// One sign of Unicode for each state.
    Unicode,
}

impl Dress {
    /// Returns the same for a layout.
    pub fn term(self) -> TermStyle {
        TermStyle {
            color: self.style == Style::Colour,
            charset: match self.symbols {
                Symbols::Ascii => Charset::Ascii,
                Symbols::Unicode => Charset::Unicode,
            },
            width: self.columns.unwrap_or(TermStyle::PLAIN.width),
        }
    }

    /// The sign of a state, in its colour.
    fn sign(self, state: State) -> String {
        let sign = match (self.symbols, state) {
            (Symbols::Unicode, State::Well) => "✔",
            (Symbols::Unicode, State::Unseen) => "?",
            (Symbols::Unicode, State::Found(Severity::Notice)) => "•",
            (Symbols::Unicode, State::Found(Severity::Warning)) => "▲",
            (Symbols::Unicode, State::Found(Severity::Error)) => "✖",
            (Symbols::Ascii, State::Well) => "ok     ",
            (Symbols::Ascii, State::Unseen) => "unseen ",
            (Symbols::Ascii, State::Found(Severity::Notice)) => "notice ",
            (Symbols::Ascii, State::Found(Severity::Warning)) => "warning",
            (Symbols::Ascii, State::Found(Severity::Error)) => "ERROR  ",
        };
        let colour = match state {
            State::Well => "32",
            State::Unseen => "36",
            State::Found(Severity::Notice) => "34",
            State::Found(Severity::Warning) => "33",
            State::Found(Severity::Error) => "1;31",
        };
        match self.style {
            Style::Plain => sign.to_owned(),
            Style::Colour => format!("\u{1b}[{colour}m{sign}\u{1b}[0m"),
        }
    }
}

/// The table: a line for each group, and below it what is wrong and what could not be seen.
pub fn text(view: &View<'_>, dress: Dress, rights: Rights) -> String {
    let mut text = String::new();
    for section in &view.diagnosis.sections {
        let summary = view.summary(section.group);
        let _ = writeln!(
            text,
            "{} {:<21} {}",
            dress.sign(view.state(section)),
            section.group.title(),
            one_line(&summary, SHOWN_MAX)
        );
        for finding in &section.findings {
            found(&mut text, view, finding, dress);
        }
        for silenced in &section.silenced {
            let (code, by) = (silenced.finding.code, silenced.by);
            let _ = writeln!(text, "      found too: {code}, because of {by}");
        }
        gaps(&mut text, view, section, dress, rights);
    }
    let _ = writeln!(text, "\n{}", counts(view));
    text
}

fn found(text: &mut String, view: &View<'_>, finding: &Finding, dress: Dress) {
    let entry = finding.code.entry();
    let sign = dress.sign(State::Found(entry.severity));
    let _ = writeln!(text, "\n    {sign} {} [{}]", entry.title, entry.name);
    let rows = [
        ("seen", finding.seen.as_str()),
        ("impact", entry.impact),
        ("fix", &finding.remedy()),
    ];
    for (name, value) in rows {
        let value = one_line(value, SHOWN_MAX);
        let _ = writeln!(
            text,
            "      {name:<6}{}",
            wrapped(&value, 12, dress.columns)
        );
    }
    let mut place = None;
    for (typed_at, command) in view.commands(finding) {
        if place != Some(typed_at) {
            place = Some(typed_at);
            let _ = writeln!(text, "      {}:", typed_at.title());
        }
        let _ = writeln!(text, "          {}", one_line(&command, SHOWN_MAX));
    }
    if let Some(since) = view.service.since(finding.code) {
        let _ = writeln!(text, "      since {}", one_line(since, SHOWN_MAX));
    }
    let _ = writeln!(
        text,
        "      more  harvester-node-agent explain {}\n",
        entry.name
    );
}

/// `value` in lines of so many columns, of which the first begins at `indent` and all others are moved there. No word is cut: it
/// may be a path to copy.
fn wrapped(value: &str, indent: usize, columns: Option<usize>) -> Cow<'_, str> {
    let Some(columns) = columns else {
        return Cow::Borrowed(value);
    };
    let room = columns.saturating_sub(indent).max(20);
    let mut text = String::new();
    let mut taken = 0;
    for word in value.split(' ') {
        let length = word.chars().count();
        if taken > 0 && taken + 1 + length > room {
            text.push('\n');
            text.extend(repeat_n(' ', indent));
            taken = 0;
        } else if taken > 0 {
            text.push(' ');
            taken += 1;
        }
        text.push_str(word);
        taken += length;
    }
    Cow::Owned(text)
}

fn gaps(text: &mut String, view: &View<'_>, section: &Section, dress: Dress, rights: Rights) {
    for (what, gap) in by_reason(&section.gaps) {
        let hint = match (gap.why.kind, rights) {
            (WhyKind::Forbidden, Rights::Few) => " (run as root)",
            _ => "",
        };
        let why = match (view.cause(gap), view.first(gap)) {
            (Some(code), _) => format!("because of {code}"),
            (None, Some(first)) => format!("for want of {}", first.what),
            (None, None) => one_line(&gap.why.text, SHOWN_MAX).into_owned(),
        };
        let line = format!("not seen: {}: {why}{hint}", what.join(", "));
        let _ = writeln!(text, "      {}", wrapped(&line, 8, dress.columns));
    }
}

/// What it comes to, in one line.
fn counts(view: &View<'_>) -> String {
    let many = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let diagnosis = view.diagnosis;
    let counts = [
        (Severity::Error, "error"),
        (Severity::Warning, "warning"),
        (Severity::Notice, "notice"),
    ];
    let counts = counts.map(|(severity, word)| many(diagnosis.count(severity), word));
    let missed = diagnosis.gaps().filter(|gap| gap.need == Need::Usual);
    let unseen = match missed.count() {
        0 => String::new(),
        count => format!("; {} could not be looked at", many(count, "thing")),
    };
    format!("{}{unseen}", counts.join(", "))
}

/// A few lines for a ticket: version, who and where, and one line for each finding.
pub fn short(view: &View<'_>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "harvester-node-agent {version}, {}: {}\n",
        view.at,
        counts(view)
    );
    if view.status.is_some() {
        for groups in [
            [Group::Identity, Group::Placement],
            [Group::Node, Group::Versions],
        ] {
            let summaries = groups.map(|group| view.summary(group));
            let _ = writeln!(text, "{}", one_line(&summaries.join("; "), SHORT_SEEN));
        }
    }
    let mut findings: Vec<&Finding> = view.diagnosis.findings().collect();
    crate::few::sort_by_key(&mut findings, |finding| {
        std::cmp::Reverse(finding.code.entry().severity)
    });
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
    let missed = missed.filter(|gap| gap.need == Need::Usual && view.cause(gap).is_none());
    let missed: Vec<Gap> = missed.cloned().collect();
    let room = SHORT_LINES.saturating_sub(text.lines().count());
    for (what, gap) in by_reason(&missed).into_iter().take(room) {
        let what: BTreeSet<&str> = what.into_iter().collect();
        let what: Vec<&str> = what.into_iter().collect();
        let line = format!("not seen: {}: {}", what.join(", "), gap.why.text);
        let _ = writeln!(text, "{}", one_line(&line, SHORT_SEEN));
    }
    text
}
