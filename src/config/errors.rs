// SPDX-License-Identifier: Apache-2.0
//! The errors of the configuration, all of them reported at once.

use std::fmt;
use std::path::PathBuf;

use crate::sys::escape::one_line;

/// All errors in the configuration, in the order in which the files are read.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.lines().collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors {
    /// The errors; at least one.
    pub problems: Vec<ConfigError>,
    /// The warnings about values without an error; one line each.
    pub warnings: Vec<String>,
}

/// One error in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file and line, unless the error is about a whole file.
    pub place: Option<FileLine>,
    /// The error, on one line of printable characters.
    pub text: String,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileLine {
    /// The path, relative to the root.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

impl ConfigError {
    pub(super) fn new(place: Option<FileLine>, text: &str) -> Self {
        let text = printable(text);
        Self { place, text }
    }
}

impl fmt::Display for FileLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(&self.path.to_string_lossy());
        write!(formatter, "{path}:{}", self.line)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(formatter, "{place}: ")?;
        }
        formatter.write_str(&self.text)
    }
}

impl ConfigErrors {
    /// Returns each error on one line.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(ToString::to_string)
    }
}

/// Replaces every character that is not printable with its escape.
pub(super) fn printable(text: &str) -> String {
    one_line(text, usize::MAX).into_owned()
}
