// SPDX-License-Identifier: Apache-2.0
//! Rows with a name and a value, for `status` and `whoami`.

use time::UtcDateTime;

use super::layout::{Mark, TermStyle, paragraph};
use crate::sys::escape::one_line;

/// The longest text shown in one row, in characters.
pub(super) const SHOWN_MAX: usize = 1000;

/// The number of columns of the row names.
const NAMES: usize = 13;

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

/// Rows with a name and a value, wrapped at the width of the terminal.
pub(super) struct Rows {
    pub(super) show: Show,
    pub(super) text: String,
}

impl Rows {
    pub(super) fn new(show: Show) -> Self {
        Self {
            show,
            text: String::new(),
        }
    }

    pub(super) fn headline(&mut self, mark: Mark, value: &str) {
        let style = self.show.style;
        let value = one_line(value, SHOWN_MAX);
        let lead = format!("{} ", style.symbol(mark));
        let indent = style.symbol_width() + 1;
        paragraph(&mut self.text, &lead, indent, &value, style.width);
    }

    /// Appends one row. The value may be untrusted and is escaped.
    pub(super) fn row(&mut self, name: &str, value: &str) {
        self.push(name, &one_line(value, SHOWN_MAX));
    }

    /// Appends one row with several parts, each after the symbol of its state.
    pub(super) fn marks(&mut self, name: &str, parts: &[(Mark, String)]) {
        let style = self.show.style;
        let parts = parts.iter().map(|(mark, text)| {
            let text = one_line(text, SHOWN_MAX);
            format!("{} {text}", style.symbol(*mark))
        });
        let parts: Vec<String> = parts.collect();
        self.push(name, &parts.join("   "));
    }

    fn push(&mut self, name: &str, value: &str) {
        let lead = format!("{name:<NAMES$}");
        paragraph(&mut self.text, &lead, NAMES, value, self.show.style.width);
    }
}
