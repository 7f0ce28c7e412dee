// SPDX-License-Identifier: Apache-2.0
//! The files of the daemon that are not written: one finding for all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::agent::signal_board::SignalBoard;
use crate::facts::observation::ObservationIssue;
use crate::sys::disk::{Content, FileWriter, Outcome};
use crate::sys::escape::chain;
use crate::sys::root::Root;

/// How long a round waits for a file that is usually written in less than a millisecond, so that a reader who saw the labels sees it too.
pub(super) const SETTLE: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 50 });

/// The problems of files, by file.
#[derive(Debug, Clone)]
pub(super) struct Files {
    root: Root,
    health: SignalBoard,
    problems: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Files {
    /// Creates the value of a process that has just started.
    pub(super) fn new(root: &Root, health: &SignalBoard) -> Self {
        Self {
            root: root.clone(),
            health: health.clone(),
            problems: Arc::default(),
        }
    }

    /// Creates the writer of a file.
    pub(super) fn writer(&self, file: &'static str) -> FileWriter {
        let files = self.clone();
        FileWriter::new(&self.root, move |content, outcome| {
            files.set(file, problem(content, &outcome));
        })
    }

    /// Creates the writer of metrics. Prometheus does not detect that a file is missing.
    pub(super) fn metrics_writer(&self, file: &'static str) -> FileWriter {
        let files = self.clone();
        FileWriter::new(&self.root, move |content, outcome| {
            let problem = problem(content, &outcome);
            let (stalled, failed) = match outcome {
                Outcome::Stalled => (problem, None),
                Outcome::Failed(_) | Outcome::Written => (None, problem),
            };
            files.set(file, stalled);
            let issue = failed.map(|what| ObservationIssue::MetricsUnavailable {
                source: file,
                what,
                forbidden: None,
            });
            files.health.issue(file, issue);
        })
    }

    fn set(&self, file: &'static str, problem: Option<String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => problems.insert(file, problem),
            None => problems.remove(file),
        };
        let all: Vec<&str> = problems.values().map(String::as_str).collect();
        let issue = (!all.is_empty()).then(|| ObservationIssue::FilesNotWritten {
            what: all.join("; "),
        });
        // In the lock: a later state must not be overwritten by an earlier one.
        self.health.issue("own-files", issue);
    }
}

fn problem(content: &Content, outcome: &Outcome) -> Option<String> {
    let path = content.path.display();
    match outcome {
        Outcome::Written => None,
        Outcome::Failed(error) => Some(chain(error)),
        Outcome::Stalled => Some(format!("the disk of `{path}` does not respond")),
    }
}
