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

/// Creates the writers of these files.
pub(super) fn writers<const COUNT: usize>(
    root: &Root,
    board: &SourceBoard,
    files: [&'static str; COUNT],
) -> [FileWriter; COUNT] {
    let problems = Arc::new(Mutex::new(BTreeMap::new()));
    files.map(|file| {
        let (board, problems) = (board.clone(), Arc::clone(&problems));
        FileWriter::new(root, move |content, outcome| {
            let path = content.path.display();
            let (problem, of_metrics) = match outcome {
                Outcome::Written => (None, None),
                Outcome::Failed(error) if file == METRICS => (None, Some(chain(&error))),
                Outcome::Failed(error) => (Some(chain(&error)), None),
                Outcome::Stalled => (Some(format!("the disk of `{path}` does not respond")), None),
            };
            let finding = |what| Finding::new(Code::MetricsUnavailable, what).of_source(file);
            board.report(file, of_metrics.map(finding));
            let mut problems = problems.lock().unwrap_or_else(PoisonError::into_inner);
            match problem {
                Some(problem) => problems.insert(file, problem),
                None => problems.remove(file),
            };
            let all: Vec<&str> = problems.values().map(String::as_str).collect();
            let finding = Finding::new(Code::FileNotWritten, all.join("; "));
            // In the lock: a later state must not be overwritten by an earlier one.
            board.report("own-files", (!all.is_empty()).then_some(finding));
        })
    })
}
