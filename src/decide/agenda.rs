// SPDX-License-Identifier: Apache-2.0
//! The deadlines that are kept; `next.rs` derives those of the other jobs. A round that does not serve a job never postpones it: a deadline is a time, not a delay.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a round is scheduled for. If several are due, the first one decides what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// The next read of the fast-poll window.
    Window,
    /// The retry of reads that failed.
    Retry,
    /// The periodic read of everything.
    Poll,
    /// The end of the wait for Harvester's annotations.
    Settle,
    /// The verdict on hostnames that do not change any more, and the search for the VMs that have them.
    Names,
    /// The start of the guest agent's unit.
    Start,
    /// The report of a state of the guest agent that may have passed by itself.
    GuestAgent,
    /// The read of the APIs after a reload of the configuration.
    Reload,
    /// The list of the namespace because no name identified the VM.
    List,
    /// The retry of a write that was refused.
    Refused,
    /// The update of the Node that was withheld because there were too many, or because another writer reverts them.
    Withheld,
    /// The conditions and Events that were withheld because there were too many.
    Reports,
    /// The read of the files of the pod, if they are the only source of the host. They change without an event.
    Pod,
    /// The read of files that the kernel could not read.
    Unread,
    /// The search for other VMs with our hostname.
    Search,
    /// The read of the Node to see whether only our kubelet reports it.
    Reporter,
}

/// The deadlines that last until a round serves them, at most one of each job, and the failures of jobs that are retried. Times are
/// since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agenda {
    due: BTreeMap<Job, Duration>,
    failures: BTreeMap<Job, u32>,
}

impl Agenda {
    /// Returns when a job is due.
    pub fn due(&self, job: Job) -> Option<Duration> {
        self.due.get(&job).copied()
    }

    /// Sets when a job is due, or removes it.
    pub fn set(&mut self, job: Job, due: Option<Duration>) {
        match due {
            Some(due) => self.due.insert(job, due),
            None => self.due.remove(&job),
        };
    }

    /// Plans a job, or removes one that is not wanted. Its time stays until a round serves it; `due` is the next one.
    pub fn plan(&mut self, job: Job, is_wanted: bool, is_served: bool, due: Duration) {
        let planned = self.due(job).filter(|_| !is_served);
        self.set(job, is_wanted.then(|| planned.unwrap_or(due)));
    }

    /// Returns all deadlines.
    pub fn all(&self) -> impl Iterator<Item = (Job, Duration)> {
        self.due.iter().map(|(job, due)| (*job, *due))
    }

    /// Returns the number of consecutive failures of a job.
    pub fn failures(&self, job: Job) -> u32 {
        self.failures.get(&job).copied().unwrap_or_default()
    }

    /// Counts the consecutive failures of a job, after an attempt if `is_tried`. Returns their number.
    pub fn count(&mut self, job: Job, is_failing: bool, is_tried: bool) -> u32 {
        let before = self.failures(job);
        let failures = match (is_failing, is_tried) {
            (true, true) => before.saturating_add(1),
            (true, false) => before.max(1),
            (false, _) => 0,
        };
        self.failures.insert(job, failures);
        failures
    }
}
