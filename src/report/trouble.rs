// SPDX-License-Identifier: Apache-2.0
//! The error of a report that could not be written. It changes no decision; the caller may log it once.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::sys::escape::chain;

/// The error of a report. Equal values are the same error, which the caller logs only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The error, with its causes.
    pub what: String,
    /// The file or socket.
    pub path: PathBuf,
}

impl Trouble {
    /// Creates the value for `path` from `error` and all its causes.
    pub fn new(path: impl AsRef<Path>, error: &(dyn Error + 'static)) -> Self {
        Self {
            what: chain(error),
            path: path.as_ref().to_owned(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::atomic_file::WriteError;

    #[test]
    fn a_trouble_reports_the_whole_chain_of_causes_once() {
        let error = WriteError::Io {
            action: "write",
            path: "/run/x".into(),
            source: std::io::Error::other("no more room"),
        };
        let trouble = Trouble::new("/run/x", &error);
        assert_eq!(
            trouble.to_string(),
            "failed to write `/run/x`: no more room"
        );
    }
}
