// SPDX-License-Identifier: Apache-2.0
//! The files of the daemon that are not written: one finding for all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::agent::source_board::SourceBoard;
use crate::catalog::{Code, Finding};
use crate::sys::disk::{FileWriter, Outcome};
use crate::sys::escape::chain;
use crate::sys::root::Root;

/// How long a round waits for a file that is usually written in less than a millisecond, so that a reader who saw the labels sees it too.
pub(super) const SETTLE: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 50 });

/// The file of metrics. A failed write of it is a finding of its own: Prometheus does not detect that it is missing.
pub(super) const METRICS: &str = "textfile";

/// The problems of files, by file.
#[derive(Debug, Clone)]
pub(super) struct Files {
    root: Root,
    board: SourceBoard,
    problems: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Files {
    /// Creates the value of a process that has just started.
    pub(super) fn new(root: &Root, board: &SourceBoard) -> Self {
        Self {
            root: root.clone(),
            board: board.clone(),
            problems: Arc::default(),
        }
    }

    /// Creates the writer of a file.
    pub(super) fn writer(&self, file: &'static str) -> FileWriter {
        let files = self.clone();
        FileWriter::new(&self.root, move |content, outcome| {
            let path = content.path.display();
            let (failed, stalled) = match outcome {
                Outcome::Written => (None, None),
                Outcome::Failed(error) => (Some(chain(&error)), None),
                Outcome::Stalled => (None, Some(format!("the disk of `{path}` does not respond"))),
            };
            let (failed, metrics) = match file {
                METRICS => (None, failed),
                _ => (failed, None),
            };
            files.set(file, failed.or(stalled));
            let finding =
                metrics.map(|what| Finding::new(Code::MetricsUnavailable, what).of_source(file));
            files.board.report(file, finding);
        })
    }

    fn set(&self, file: &'static str, problem: Option<String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => problems.insert(file, problem),
            None => problems.remove(file),
        };
        let all: Vec<&str> = problems.values().map(String::as_str).collect();
        let finding = (!all.is_empty()).then(|| Finding::new(Code::FileNotWritten, all.join("; ")));
        // In the lock: a later state must not be overwritten by an earlier one.
        self.board.report("own-files", finding);
    }
}
