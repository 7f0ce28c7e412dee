// SPDX-License-Identifier: Apache-2.0
//! Detects migrations. The guest notices a migration before the API reports it, so a migration hint opens a window of reads, at
//! short intervals at first, until the API reports the new host or has reported no change for a minute.

use std::time::Duration;

use super::input::Now;
use super::schedule::Random;
use crate::facts::names::HostName;
use crate::facts::trigger::Trigger;
use crate::sys::named::named;

/// The times of reads in the window, since the first hint. Each offset is used at most once; offsets that pass during a slow
/// response are skipped.
pub const OFFSETS: [Duration; 11] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// The fraction by which each read but the first is randomly earlier or later, so that the VMs of a drained host do not send
/// requests at the same time.
const JITTER: f64 = 0.2;

/// Hints within this interval belong to the same migration: QEMU sends five announcements within a second, on every NIC.
const BURST: Duration = Duration::from_secs(2);

/// A hint within this time after a migration that was already detected belongs to that migration.
const LATE: Duration = Duration::from_secs(2);

/// A response within this time after the first hint may be older than the migration.
const CAUGHT_UP: Duration = Duration::from_secs(10);

/// The maximum number of restarts of one window. Continuous hints must not keep it open indefinitely.
const RESTARTS_MAX: u8 = 3;

/// A watch that delivers nothing within this time after a hint may have lost its connection in the migration.
const PROVE_AFTER: Duration = Duration::from_secs(2);

/// An open window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The first hint.
    pub trigger: Trigger,
    /// The time when it arrived, since the start of the process.
    pub opened: Duration,
    /// The previous host of this VM, if known.
    pub from: Option<HostName>,
    last_sign: Duration,
    restarts: u8,
    /// The index of the next offset.
    next: usize,
    due: Duration,
    reads: usize,
    /// Whether a response arrived after [`CAUGHT_UP`].
    is_answered: bool,
    is_proven: bool,
}

/// The results of a round that are relevant for the window.
#[derive(Debug, Clone, Copy)]
pub struct ProbeResult<'a> {
    /// The current host of this VM, reported by an API or by the host itself.
    pub host: Option<&'a HostName>,
    /// Whether the host was requested and the request succeeded.
    pub is_answered: bool,
    /// Whether the VM was read.
    pub is_read: bool,
    /// Whether the labels are final for that host.
    pub is_settled: bool,
}

/// The end of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowEnd {
    /// The first hint.
    pub trigger: Trigger,
    /// The outcome.
    pub outcome: WindowOutcome,
    /// The previous host, if known.
    pub from: Option<HostName>,
    /// The time from the first hint to the end.
    pub took: Duration,
    /// The number of reads in the window; none if the migration was already known.
    pub reads: usize,
}

named! {
    /// The outcome of a migration hint.
    WindowOutcome {
        /// The VM runs on another host.
        Confirmed = "confirmed",
        /// The VM runs on the same host.
        Unconfirmed = "unconfirmed",
        /// No source reported the host.
        ApiUnavailable = "api-unavailable",
    }
}

/// Handles a hint: it opens a window, belongs to the open one, or restarts it.
///
/// `host` is the last known host of this VM, `moved` the time of the last migration that was observed.
pub fn admit(
    open: Option<Window>,
    hint: Option<(Trigger, Duration)>,
    host: Option<&HostName>,
    moved: Option<Duration>,
) -> Option<Window> {
    let Some((trigger, at)) = hint else {
        return open;
    };
    if let Some(window) = open {
        let is_same = at.saturating_sub(window.last_sign) < BURST;
        return Some(if is_same || window.restarts == RESTARTS_MAX {
            Window {
                last_sign: at,
                ..window
            }
        } else {
            // Another migration or restore: the API may report it as late as the first one.
            Window {
                restarts: window.restarts + 1,
                ..Window::new(trigger, at, host.cloned().or(window.from))
            }
        });
    }
    let is_late = moved.is_some_and(|moved| at.saturating_sub(moved) < LATE);
    (!is_late).then(|| Window::new(trigger, at, host.cloned()))
}

impl Window {
    fn new(trigger: Trigger, at: Duration, from: Option<HostName>) -> Self {
        Self {
            trigger,
            opened: at,
            from,
            last_sign: at,
            restarts: 0,
            next: 0,
            due: at,
            reads: 0,
            is_answered: false,
            is_proven: false,
        }
    }

    /// Returns how long to wait for the next read.
    pub fn wait(&self, uptime: Duration) -> Duration {
        self.due.saturating_sub(uptime)
    }

    /// Advances the window after a round. Returns its end, if it ends.
    pub fn step(&mut self, found: ProbeResult<'_>, now: Now) -> Option<WindowEnd> {
        let elapsed = now.uptime.saturating_sub(self.opened);
        self.is_answered |= found.is_answered && elapsed >= CAUGHT_UP;
        let mut is_over = false;
        // A read for another reason counts as well, if one is due.
        if found.is_read && now.uptime >= self.due {
            self.reads += 1;
            let later = OFFSETS.iter().enumerate().skip(self.next + 1);
            let next = later
                .map(|(index, offset)| (index, spread(*offset, now.random)))
                .find(|(_, offset)| *offset > elapsed);
            match next {
                Some((index, offset)) => (self.next, self.due) = (index, self.opened + offset),
                None => is_over = true,
            }
        }
        let is_left = |host: &&HostName| self.from.as_ref().is_some_and(|from| from != *host);
        let outcome = match found.host.filter(is_left) {
            Some(_) if found.is_settled || is_over => WindowOutcome::Confirmed,
            None if is_over && self.is_answered => WindowOutcome::Unconfirmed,
            None if is_over => WindowOutcome::ApiUnavailable,
            _ => return None,
        };
        Some(WindowEnd {
            trigger: self.trigger,
            outcome,
            from: self.from.clone(),
            took: elapsed,
            reads: self.reads,
        })
    }

    /// Returns the time since which a watch must have delivered something, once: some time after the hint, or at the end of the
    /// window. Other watches are re-established.
    pub fn verify(&mut self, is_over: bool, now: Now) -> Option<Duration> {
        let is_time = is_over || now.uptime.saturating_sub(self.opened) >= PROVE_AFTER;
        let is_first = is_time && !self.is_proven;
        self.is_proven |= is_time;
        is_first.then_some(self.opened)
    }
}

fn spread(offset: Duration, random: Random) -> Duration {
    offset.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.value())
}

#[cfg(test)]
mod tests;
