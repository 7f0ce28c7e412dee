// SPDX-License-Identifier: Apache-2.0
//! Text for a terminal: the only place that knows columns, colors and symbols, and that wraps lines.

use std::fmt::{Display, Write};
use std::iter::{repeat, repeat_n};

use time::UtcDateTime;

use crate::catalog::Severity;
use crate::sys::escape::one_line;

/// The maximum length of a value, in characters, unless all details are shown.
pub(super) const SHOWN_MAX: usize = 1000;

/// The number of columns of the names of rows.
const NAMES: usize = 13;

/// The number of columns before the texts of a problem.
const INDENT: usize = 12;

/// The capabilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermStyle {
    /// Whether colors are used.
    pub color: bool,
    /// Whether symbols of Unicode are used.
    pub unicode: bool,
    /// The number of columns of a line.
    pub width: usize,
}

/// The state that a symbol shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It was checked, and nothing is wrong.
    Ok,
    /// It was not checked.
    Skipped,
    /// The severity of the worst finding.
    Found(Severity),
}

impl TermStyle {
    /// The style for a file, and for a terminal with unknown capabilities.
    pub const PLAIN: Self = Self {
        color: false,
        unicode: false,
        width: 80,
    };

    /// Returns `text` in the color of a state.
    pub fn paint(self, mark: Mark, text: &str) -> String {
        let color = match mark {
            Mark::Ok => "32",
            Mark::Skipped => "2",
            Mark::Found(Severity::Notice) => "34",
            Mark::Found(Severity::Warning) => "33",
            Mark::Found(Severity::Error) => "1;31",
        };
        if self.color {
            format!("\u{1b}[{color}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Returns the symbol of a state, in its color.
    pub fn symbol(self, mark: Mark) -> String {
        let (unicode, ascii) = match mark {
            Mark::Ok => ("✔", "ok  "),
            Mark::Skipped => ("–", "skip"),
            Mark::Found(Severity::Notice) => ("•", "note"),
            Mark::Found(Severity::Warning) => ("▲", "warn"),
            Mark::Found(Severity::Error) => ("✖", "fail"),
        };
        let symbol = if self.unicode { unicode } else { ascii };
        self.paint(mark, symbol)
    }

    /// Returns the symbol between an old and a new value.
    pub fn arrow(self) -> &'static str {
        if self.unicode { "→" } else { "->" }
    }
}

/// The options of the output.
#[derive(Debug, Clone, Copy)]
pub struct Show {
    /// The style of the terminal.
    pub style: TermStyle,
    /// Whether all details are shown.
    pub verbose: bool,
    /// The current time, for relative times.
    pub now: UtcDateTime,
}

/// Lines that fit the terminal. Values may be untrusted: they are escaped here.
#[derive(Debug)]
pub struct Text {
    /// The options.
    pub show: Show,
    out: String,
}

impl Text {
    /// Creates an empty text.
    pub fn new(show: Show) -> Self {
        let out = String::new();
        Self { show, out }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.out
    }

    /// Appends an empty line.
    pub fn blank(&mut self) {
        self.out.push('\n');
    }

    /// Appends a value after the symbol of a state.
    pub fn headline(&mut self, mark: Mark, value: &str) {
        let lead = format!("{} ", self.show.style.symbol(mark));
        self.put(&lead, value);
    }

    /// Appends a row with a name and a value.
    pub fn row(&mut self, name: &str, value: &str) {
        self.put(&format!("{name:<NAMES$}"), value);
    }

    /// Appends a row with several parts, each after the symbol of its state; one part in each line if the row is too long for one.
    pub fn marks(&mut self, name: &str, parts: &[(Mark, String)]) {
        let style = self.show.style;
        let whole = parts.iter();
        let whole =
            whole.map(|(mark, value)| format!("{} {}", style.symbol(*mark), self.shown(value)));
        let whole = whole.collect::<Vec<_>>().join("   ");
        if NAMES + visible(&whole) <= style.width {
            return self.wrap(&format!("{name:<NAMES$}"), [whole.as_str()].into_iter());
        }
        let names = [name].into_iter().chain(repeat(""));
        for (name, (mark, value)) in names.zip(parts) {
            self.put(&format!("{name:<NAMES$}{} ", style.symbol(*mark)), value);
        }
    }

    /// Appends several parts, each after the symbol of its state. None is split.
    pub fn parts(&mut self, parts: &[(Mark, &str)]) {
        let style = self.show.style;
        let parts = parts.iter();
        let parts = parts.map(|(mark, name)| format!(" {} {name}", style.symbol(*mark)));
        let parts: Vec<String> = parts.collect();
        self.wrap(" ", parts.iter().map(String::as_str));
    }

    /// Appends the title of a problem, with its code at the right margin.
    pub fn title(&mut self, severity: Severity, title: &str, code: &str) {
        let (style, mark) = (self.show.style, Mark::Found(severity));
        let symbol = match style.unicode {
            true => format!("{} ", style.symbol(mark)),
            false => String::new(),
        };
        let word = match severity {
            Severity::Error => "ERROR ",
            Severity::Warning => "WARN  ",
            Severity::Notice => "NOTE  ",
        };
        let lead = format!("{symbol}{} ", style.paint(mark, word));
        let code = format!("[{code}]");
        let taken = visible(&lead) + visible(title) + visible(&code);
        let gap = style.width.saturating_sub(taken).max(1);
        self.wrap(&lead, format!("{title}{:gap$}{code}", "").split(' '));
    }

    /// Appends a row below the title of a problem.
    pub fn item(&mut self, name: &str, value: &str) {
        self.put(&lead_of(name), value);
    }

    /// Appends steps below the title of a problem: a single one without a number, several with numbers.
    pub fn steps<T: AsRef<str>>(&mut self, name: &str, steps: &[T]) {
        if let [only] = steps {
            return self.item(name, only.as_ref());
        }
        for (number, step) in (1..).zip(steps) {
            let name = if number == 1 { name } else { "" };
            self.put(&format!("{}{number}. ", lead_of(name)), step.as_ref());
        }
    }

    /// Appends a command below the title of a problem. It is neither wrapped nor cut: that would be another command.
    pub fn command(&mut self, name: &str, command: &str) {
        let (lead, command) = (lead_of(name), one_line(command, usize::MAX));
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{lead}{command}");
    }

    /// Appends a value after `lead`, which is our own text and may have colors. Further lines are indented by the width of `lead`.
    pub fn put(&mut self, lead: &str, value: &str) {
        let value = self.shown(value);
        self.wrap(lead, value.split(' '));
    }

    /// Returns the part of a value that is shown.
    fn shown(&self, value: &str) -> String {
        let limit = if self.show.verbose {
            usize::MAX
        } else {
            SHOWN_MAX
        };
        let line = one_line(value, limit);
        match self.show.style.unicode {
            true => line.into_owned(),
            false => line.replace('…', "..."),
        }
    }

    /// Appends words. None is split: it may be a path to copy.
    fn wrap<'a>(&mut self, lead: &str, words: impl Iterator<Item = &'a str>) {
        let indent = visible(lead);
        let mut taken = indent;
        self.out.push_str(lead);
        for (index, word) in words.enumerate() {
            let length = visible(word);
            if index > 0 && taken + 1 + length > self.show.style.width {
                self.blank();
                self.out.extend(repeat_n(' ', indent));
                taken = indent;
            } else if index > 0 {
                self.out.push(' ');
                taken += 1;
            }
            self.out.push_str(word);
            taken += length;
        }
        self.blank();
    }
}

fn lead_of(name: &str) -> String {
    format!("{:<INDENT$}", format!("  {name}"))
}

/// Returns the number of columns of a text, without color sequences.
fn visible(text: &str) -> usize {
    let mut is_escape = false;
    let is_shown = |character: &char| {
        let is_hidden = is_escape || *character == '\u{1b}';
        is_escape = is_hidden && *character != 'm';
        !is_hidden
    };
    text.chars().filter(is_shown).count()
}

/// Returns `1 error` or `2 errors`.
pub fn many(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

/// Names the first of many, and counts the others.
pub fn first(mut all: impl ExactSizeIterator<Item: Display>, most: usize, by: &str) -> String {
    let named = all.by_ref().take(most).map(|one| one.to_string());
    let named = named.collect::<Vec<_>>().join(by);
    match all.len() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Groups items by their key. The groups are in the order of their first items.
pub fn grouped<T, K: PartialEq>(
    items: impl Iterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, same)) => same.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Returns the items without repetitions, in their order.
pub fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique
}

/// Returns the number of findings of each severity, such as `1 error, 2 warnings`; empty if there are none.
pub fn counts(severities: impl Iterator<Item = Severity>) -> String {
    let severities: Vec<Severity> = severities.collect();
    let counts = [Severity::Error, Severity::Warning, Severity::Notice].map(|severity| {
        let same = severities.iter().filter(|one| **one == severity);
        (same.count(), severity.as_str())
    });
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, word)| many(count, word)).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a text with this width.
    fn text(width: usize) -> Text {
        let style = TermStyle {
            width,
            ..TermStyle::PLAIN
        };
        Text::new(Show {
            style,
            verbose: false,
            now: UtcDateTime::UNIX_EPOCH,
        })
    }

    #[test]
    fn a_value_is_wrapped_escaped_and_no_word_is_cut() {
        let mut text = text(14);
        text.put("  Fix ", "one two three /a/long/path/to/copy \u{1b}[2J");
        let lines = "  Fix one two\n      three\n      /a/long/path/to/copy\n      \\x1b[2J\n";
        assert_eq!(text.finish(), lines);
    }

    #[test]
    fn marks_that_do_not_fit_one_line_are_one_below_the_other() {
        let marks = |width| {
            let mut text = text(width);
            let skipped = (Mark::Skipped, "b not checked".to_owned());
            text.marks("Names", &[(Mark::Ok, "a".to_owned()), skipped]);
            text.finish()
        };
        let whole = "Names        ok   a   skip b not checked\n";
        assert_eq!(marks(whole.len() - 1), whole);
        let split = "Names        ok   a\n             skip b not\n                  checked\n";
        assert_eq!(marks(30), split);
    }
}
