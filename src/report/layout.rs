// SPDX-License-Identifier: Apache-2.0
//! The layout of `doctor` and `bake-check`, which do not use [`Text`](super::text::Text) yet.

use std::fmt::Write;
use std::iter::repeat_n;

pub use super::text::{Charset, Mark, TermStyle, visible};

impl TermStyle {
    /// Returns the number of columns of a [`symbol`](Self::symbol).
    pub fn symbol_width(self) -> usize {
        match self.charset {
            Charset::Ascii => 4,
            Charset::Unicode => 1,
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
}
