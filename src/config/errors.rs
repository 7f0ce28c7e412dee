// SPDX-License-Identifier: Apache-2.0
//! The errors of the configuration, all of them reported at once.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use crate::sys::escape::one_line;
use crate::sys::root::ReadError;

/// The maximum length of a displayed value, in characters: enough to recognize it, too few for a pasted file.
const MAX_VALUE: usize = 64;
/// The maximum length of a displayed key, in characters: the longest label key and its table.
const MAX_KEY: usize = 340;

/// All errors in the configuration, in the order in which the files are read.
#[derive(Debug)]
pub struct ConfigErrors {
    /// The errors; at least one.
    pub problems: Vec<ConfigProblem>,
}

/// One error in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigProblem {
    /// A file or directory cannot be read.
    #[error(transparent)]
    Unreadable(ReadError),
    /// The path of a drop-in directory is not a directory.
    #[error("`{}` is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The path of the single file does not begin with a slash.
    #[error("`{}` is not an absolute path", escaped(&.0.to_string_lossy()))]
    RelativePath(PathBuf),
    /// A file is not valid TOML.
    #[error("{place}:{column}: not valid TOML: {message}")]
    Syntax {
        /// The file and line.
        place: ErrorPlace,
        /// The column, from 1, in characters.
        column: usize,
        /// The message of the parser.
        message: String,
    },
    /// The key or table does not exist.
    #[error("{place}: unknown {what} `{}`; {hint}", one_line(key, MAX_KEY))]
    Unknown {
        /// The file and line.
        place: ErrorPlace,
        /// `key` or `table`.
        what: &'static str,
        /// The whole key.
        key: String,
        /// The key or table that was probably meant, or those that exist there.
        hint: String,
    },
    /// The value has the wrong type.
    #[error(
        "{place}: `{}`: expected {expected}, found {found} {value}; allowed: {allowed}",
        one_line(key, MAX_KEY)
    )]
    WrongType {
        /// The file and line.
        place: ErrorPlace,
        /// The whole key.
        key: String,
        /// The expected type.
        expected: &'static str,
        /// The type in the file.
        found: &'static str,
        /// The value, escaped.
        value: String,
        /// The values that the key allows.
        allowed: String,
    },
    /// The value has the right type, but is not allowed.
    #[error(
        "{place}: `{}`: {value} {why}; allowed: {allowed}",
        one_line(key, MAX_KEY)
    )]
    Refused {
        /// The file and line.
        place: ErrorPlace,
        /// The whole key.
        key: String,
        /// The value, escaped.
        value: String,
        /// The reason why the value is not allowed.
        why: String,
        /// The values that the key allows.
        allowed: String,
    },
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorPlace {
    /// The path, relative to the root.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

impl ConfigProblem {
    /// Returns the file and line, if known.
    pub fn place(&self) -> Option<&ErrorPlace> {
        match self {
            Self::Unreadable(_) | Self::NotADirectory(_) | Self::RelativePath(_) => None,
            Self::Syntax { place, .. }
            | Self::Unknown { place, .. }
            | Self::WrongType { place, .. }
            | Self::Refused { place, .. } => Some(place),
        }
    }

    /// Returns the whole key, if the error is about a key.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Unreadable(_)
            | Self::NotADirectory(_)
            | Self::RelativePath(_)
            | Self::Syntax { .. } => None,
            Self::Unknown { key, .. } | Self::WrongType { key, .. } | Self::Refused { key, .. } => {
                Some(key)
            }
        }
    }
}

impl fmt::Display for ErrorPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(&self.path.to_string_lossy());
        write!(formatter, "{path}:{}", self.line)
    }
}

/// Prints one line for each error, with its causes.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.lines().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{line}")?;
        }
        Ok(())
    }
}

impl ConfigErrors {
    /// Returns each error with its causes, on one line.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(|problem| {
            let mut line = problem.to_string();
            let mut cause = problem.source();
            while let Some(error) = cause {
                line = format!("{line}: {error}");
                cause = error.source();
            }
            // File names are untrusted text too.
            printable(&line).to_string()
        })
    }
}

/// The causes are part of each line of `Display`; there is no single source.
impl Error for ConfigErrors {}

/// Escapes and truncates untrusted text, on one line.
pub(super) fn escaped(text: &str) -> String {
    one_line(text, MAX_VALUE).into_owned()
}

/// Escapes and truncates untrusted text, on one line and in quotation marks.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Replaces every character that is not printable with its escape.
pub(super) fn printable(text: &str) -> String {
    one_line(text, usize::MAX).into_owned()
}
