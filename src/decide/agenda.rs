// SPDX-License-Identifier: Apache-2.0
//! The deadlines of the agent. A round that does not serve a job never postpones it: a deadline is a time, not a delay.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a round is scheduled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// The next read of the re-sync window.
    Window,
    /// The retry of reads that failed.
    Retry,
    /// The periodic read of everything.
    Poll,
    /// The end of the wait for Harvester's annotations.
    Settle,
    /// The verdict on host names that do not change any more.
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
    /// The update of the Node that was withheld because there were too many.
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

/// The deadlines, at most one of each job. Times are since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agenda(BTreeMap<Job, Duration>);

impl Agenda {
    /// Returns when a job is due.
    pub fn due(&self, job: Job) -> Option<Duration> {
        self.0.get(&job).copied()
    }

    /// Sets when a job is due, or removes it.
    pub fn set(&mut self, job: Job, due: Option<Duration>) {
        match due {
            Some(due) => self.0.insert(job, due),
            None => self.0.remove(&job),
        };
    }
}
