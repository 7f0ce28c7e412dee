// SPDX-License-Identifier: Apache-2.0
//! Text on a terminal: its width, color and symbols, and paragraphs and tables that fit in it.

use std::fmt::Write;
use std::iter::repeat_n;

use crate::catalog::Severity;

/// The capabilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermStyle {
    /// Whether colors are used.
    pub color: bool,
    /// The symbols that are used.
    pub charset: Charset,
    /// The number of columns of a line.
    pub width: usize,
}

/// The symbols that a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// Letters and punctuation only.
    Ascii,
    /// One Unicode symbol for each state.
    Unicode,
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
        charset: Charset::Ascii,
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
        let symbol = match (self.charset, mark) {
            (Charset::Unicode, Mark::Ok) => "✔",
            (Charset::Unicode, Mark::Skipped) => "–",
            (Charset::Unicode, Mark::Found(Severity::Notice)) => "•",
            (Charset::Unicode, Mark::Found(Severity::Warning)) => "▲",
            (Charset::Unicode, Mark::Found(Severity::Error)) => "✖",
            (Charset::Ascii, Mark::Ok) => "ok  ",
            (Charset::Ascii, Mark::Skipped) => "skip",
            (Charset::Ascii, Mark::Found(Severity::Notice)) => "note",
            (Charset::Ascii, Mark::Found(Severity::Warning)) => "warn",
            (Charset::Ascii, Mark::Found(Severity::Error)) => "fail",
        };
        self.paint(mark, symbol)
    }

    /// Returns the number of columns of a [`symbol`](Self::symbol).
    pub fn symbol_width(self) -> usize {
        match self.charset {
            Charset::Ascii => 4,
            Charset::Unicode => 1,
        }
    }

    /// Returns the symbol between an old and a new value.
    pub fn arrow(self) -> &'static str {
        match self.charset {
            Charset::Ascii => "->",
            Charset::Unicode => "→",
        }
    }
}

/// Appends `value` after `lead`, wrapped at `width` columns; further lines are indented by `indent`. Words are never split: one
/// may be a path to copy. `lead` takes `indent` columns and may contain escape sequences.
pub fn paragraph(text: &mut String, lead: &str, indent: usize, value: &str, width: usize) {
    text.push_str(lead);
    let mut taken = indent;
    let mut is_first = true;
    for word in value.split(' ') {
        let length = visible(word);
        if is_first {
        } else if taken + 1 + length > width {
            text.push('\n');
            text.extend(repeat_n(' ', indent));
            taken = indent;
        } else {
            text.push(' ');
            taken += 1;
        }
        is_first = false;
        text.push_str(word);
        taken += length;
    }
    text.push('\n');
}

/// Returns the number of columns of a text, without color sequences.
pub fn visible(text: &str) -> usize {
    let mut is_escape = false;
    let is_shown = |character: &char| {
        let is_hidden = is_escape || *character == '\u{1b}';
        is_escape = is_hidden && *character != 'm';
        !is_hidden
    };
    text.chars().filter(is_shown).count()
}

/// Appends steps: a single one without a number, several with numbers.
pub fn steps(text: &mut String, lead: &str, indent: usize, steps: &[&str], width: usize) {
    if let [only] = steps {
        return paragraph(text, lead, indent, only, width);
    }
    let blank = " ".repeat(indent);
    for (number, step) in (1..).zip(steps) {
        let lead = if number == 1 { lead } else { &blank };
        paragraph(text, &format!("{lead}{number}. "), indent + 3, step, width);
    }
}

/// Appends a table, indented by `indent` columns. The first row is the heading. If it does not fit, the widest columns are
/// narrowed and their cells are wrapped.
pub fn table<const N: usize>(text: &mut String, indent: usize, rows: &[[String; N]], width: usize) {
    const GAP: usize = 2;
    let mut columns = [0; N];
    for row in rows {
        for (column, cell) in columns.iter_mut().zip(row) {
            *column = (*column).max(cell.chars().count());
        }
    }
    let room = width.saturating_sub(indent + GAP * N.saturating_sub(1));
    while columns.iter().sum::<usize>() > room {
        let widest = columns.iter_mut().max().filter(|widest| **widest > 10);
        match widest {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    for row in rows {
        let cells: Vec<Vec<String>> = row
            .iter()
            .zip(columns)
            .map(|(cell, column)| {
                let mut lines = String::new();
                paragraph(&mut lines, "", 0, cell, column);
                lines.lines().map(str::to_owned).collect()
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        for line in 0..height {
            let mut out = " ".repeat(indent);
            for (cell, column) in cells.iter().zip(columns) {
                let part = cell.get(line).map_or("", String::as_str);
                let _ = write!(out, "{part:<column$}  ");
            }
            text.push_str(out.trim_end());
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_wrapped_and_no_word_is_cut() {
        let mut text = String::new();
        paragraph(
            &mut text,
            "  Fix ",
            6,
            "one two three /a/long/path/to/copy",
            14,
        );
        assert_eq!(
            text,
            "  Fix one two\n      three\n      /a/long/path/to/copy\n"
        );
    }

    #[test]
    fn several_steps_have_numbers_and_one_has_none() {
        let mut text = String::new();
        steps(&mut text, "Fix ", 4, &["Do it."], 40);
        steps(&mut text, "Fix ", 4, &["First.", "Then."], 40);
        assert_eq!(text, "Fix Do it.\nFix 1. First.\n    2. Then.\n");
    }

    #[test]
    fn a_table_that_does_not_fit_has_wrapped_cells() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        let rows = [
            row(["IN", "WHAT"]),
            row(["29d", "a certificate of a server"]),
        ];
        let (mut wide, mut narrow) = (String::new(), String::new());
        table(&mut wide, 2, &rows, 80);
        assert_eq!(wide, "  IN   WHAT\n  29d  a certificate of a server\n");
        table(&mut narrow, 2, &rows, 22);
        assert_eq!(
            narrow,
            "  IN   WHAT\n  29d  a certificate\n       of a server\n"
        );
    }

    #[test]
    fn color_and_symbols_are_used_only_where_they_are_allowed() {
        let error = Mark::Found(Severity::Error);
        assert_eq!(TermStyle::PLAIN.symbol(error), "fail");
        let style = TermStyle {
            color: true,
            charset: Charset::Unicode,
            width: 80,
        };
        assert_eq!(style.symbol(error), "\u{1b}[1;31m✖\u{1b}[0m");
    }
}
