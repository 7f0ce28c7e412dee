// SPDX-License-Identifier: Apache-2.0
//! What a command prints, and its exit code.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::catalog::Severity;
use crate::report::status::Status;

/// The exit codes of the process. They never change: units and scripts depend on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// A check failed.
    Failed = 1,
    /// The command line is invalid (the exit code of clap).
    Usage = 2,
    /// Warnings, with `--strict`.
    Warnings = 3,
    /// This machine is not a KubeVirt virtual machine.
    NotKubevirt = 4,
    /// Temporary failure: an API is unreachable, or another agent runs.
    TryAgain = 75,
    /// The configuration is invalid.
    Configuration = 78,
}

/// How output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Human-readable
    Text,
    /// Machine-readable
    Json,
}

/// The output of a command, and its exit code.
#[derive(Debug)]
pub struct Answer {
    /// The text for standard output.
    pub text: String,
    /// The text for standard error.
    pub stderr: String,
    /// The exit code.
    pub exit: Exit,
}

impl Answer {
    /// Creates an answer for standard output.
    pub fn new(text: impl Into<String>, exit: Exit) -> Self {
        Self {
            text: text.into(),
            stderr: String::new(),
            exit,
        }
    }

    /// Makes a success one with warnings if the status has any, with `--strict`.
    pub(super) fn with_warnings(mut self, is_strict: bool, status: &Status) -> Self {
        let mut findings = status.findings.iter();
        let has_warning = findings.any(|finding| finding.severity == Severity::Warning);
        if is_strict && self.exit == Exit::Ok && has_warning {
            self.exit = Exit::Warnings;
        }
        self
    }

    /// Writes the text, and reports a failure. A closed pipe (`| head`) is not a failure.
    pub fn printed(mut self, output: &mut impl Write) -> Self {
        let written = output.write_all(self.text.as_bytes());
        match written.and_then(|()| output.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let text = format!("error: failed to write to standard output: {error}\n");
                self.stderr.push_str(&text);
                self.exit = match self.exit {
                    Exit::Ok => Exit::Failed,
                    exit => exit,
                };
            }
            _ => {}
        }
        self
    }

    /// Creates an answer for standard error.
    pub fn stderr(text: impl Into<String>, exit: Exit) -> Self {
        Self {
            text: String::new(),
            stderr: text.into(),
            exit,
        }
    }
}

/// Adds a field to an object.
pub(super) fn with(mut object: Value, field: &str, value: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
    object
}
