// SPDX-License-Identifier: Apache-2.0
//! What a process costs, for the footprint benchmark.

use std::path::PathBuf;
use std::time::Duration;

/// What a process costs, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in KiB.
    pub rss_kib: u64,
    /// The most of it that there ever was, in KiB.
    pub peak_rss_kib: u64,
    /// Resident memory in KiB, shared pages divided by the number of their users.
    pub pss_kib: u64,
    /// Threads.
    pub threads: u64,
    /// Times that a thread gave up the processor by itself, of all threads: the wake-ups.
    pub voluntary_switches: u64,
    /// Time on a processor, of all threads that live.
    pub cpu: Duration,
}

impl Usage {
    /// Reads `/proc/PID`; `None` when the process is gone.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let status = std::fs::read_to_string(proc.join("status")).ok()?;
        let rollup = std::fs::read_to_string(proc.join("smaps_rollup")).unwrap_or_default();
        let mut usage = Self {
            rss_kib: number_after(&status, "VmRSS:")?,
            peak_rss_kib: number_after(&status, "VmHWM:")?,
            pss_kib: number_after(&rollup, "Pss:").unwrap_or_default(),
            threads: number_after(&status, "Threads:")?,
            voluntary_switches: 0,
            cpu: Duration::ZERO,
        };
        for task in std::fs::read_dir(proc.join("task")).ok()?.flatten() {
            let text = |name: &str| std::fs::read_to_string(task.path().join(name));
            // A thread may end between the listing and the reading.
            let (Ok(status), Ok(schedule)) = (text("status"), text("schedstat")) else {
                continue;
            };
            usage.voluntary_switches +=
                number_after(&status, "voluntary_ctxt_switches:").unwrap_or_default();
            let nanoseconds = schedule.split_whitespace().next();
            usage.cpu += Duration::from_nanos(
                nanoseconds
                    .and_then(|word| word.parse().ok())
                    .unwrap_or_default(),
            );
        }
        Some(usage)
    }
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}
