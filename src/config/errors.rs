// SPDX-License-Identifier: Apache-2.0
//! Everything that can be wrong with the configuration, all of it reported at once.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use crate::sys::escape::one_line;
use crate::sys::root::ReadError;

/// A value is shown up to this many characters: enough to recognise it, too few for a pasted file.
const MAX_VALUE: usize = 64;
/// A key is shown up to this many characters: the longest label key and the table that it stands in.
const MAX_KEY: usize = 340;

/// Every problem of one reading, in the order in which the files are read.
#[derive(Debug)]
pub struct ConfigErrors {
    /// At least one.
    pub problems: Vec<ConfigProblem>,
}

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigProblem {
    /// A file or directory cannot be read.
    #[error(transparent)]
    Unreadable(ReadError),
    /// Something other than a directory stands where drop-ins belong.
    #[error("`{}` is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The path of the only file does not begin with a slash.
    #[error("`{}` is not an absolute path", escaped(&.0.to_string_lossy()))]
    RelativePath(PathBuf),
    /// A file is not TOML.
    #[error("{place}:{column}: not valid TOML: {message}")]
    Syntax {
        /// The file and line.
        place: ErrorPlace,
        /// The column, from 1, in characters.
        column: usize,
        /// What the parser says.
        message: String,
    },
    /// Nothing of this name can be configured.
    #[error("{place}: unknown {what} `{}`; {hint}", one_line(key, MAX_KEY))]
    Unknown {
        /// The file and line.
        place: ErrorPlace,
        /// `key` or `table`.
        what: &'static str,
        /// The whole key.
        key: String,
        /// The name that was meant, or those that exist there.
        hint: String,
    },
    /// A value has the wrong type.
    #[error(
        "{place}: `{}`: expected {expected}, found {found} {value}; allowed: {allowed}",
        one_line(key, MAX_KEY)
    )]
    WrongType {
        /// The file and line.
        place: ErrorPlace,
        /// The whole key.
        key: String,
        /// The type that is needed.
        expected: &'static str,
        /// The type that is there.
        found: &'static str,
        /// The value, escaped.
        value: String,
        /// What the key takes.
        allowed: String,
    },
    /// A value has the right type and wrong content.
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
        /// What is wrong with it.
        why: String,
        /// What the key takes.
        allowed: String,
    },
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorPlace {
    /// The file, as seen inside the root.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

impl ConfigProblem {
    /// The file and line, where known.
    pub fn place(&self) -> Option<&ErrorPlace> {
        match self {
            Self::Unreadable(_) | Self::NotADirectory(_) | Self::RelativePath(_) => None,
            Self::Syntax { place, .. }
            | Self::Unknown { place, .. }
            | Self::WrongType { place, .. }
            | Self::Refused { place, .. } => Some(place),
        }
    }

    /// The whole key, where one is at fault.
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

/// One line for each problem, with its causes.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            let mut line = problem.to_string();
            let mut cause = problem.source();
            while let Some(error) = cause {
                line = format!("{line}: {error}");
                cause = error.source();
            }
            // Names of files are foreign text too.
            write!(formatter, "{separator}{}", printable(&line))?;
        }
        Ok(())
    }
}

/// The causes are part of every line of `Display`; there is no single one.
impl Error for ConfigErrors {}

/// A foreign text on one line, cut when long.
pub(super) fn escaped(text: &str) -> String {
    one_line(text, MAX_VALUE).into_owned()
}

/// A foreign text on one line in quotation marks, cut when long.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// The same text with every character that cannot be shown replaced by its escape.
pub(super) fn printable(text: &str) -> String {
    one_line(text, usize::MAX).into_owned()
}
