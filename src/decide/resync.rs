// SPDX-License-Identifier: Apache-2.0
//! Did I just move? The guest sees a move before the API tells of it, so a hint of one opens a window of reads, close
//! together at first, until the API has caught up or says for a minute that nothing moved.

use std::time::Duration;

use super::Now;
use super::schedule::Random;
use crate::facts::names::HostName;
use crate::facts::trigger::Trigger;

/// When the window reads, counted from the first hint; each offset once at most, and one that a slow answer overtook not.
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

/// Each read but the first is earlier or later by up to this part, so that the VMs of a drained host do not ask together.
const JITTER: f64 = 0.2;

/// Signs that follow each other sooner are of one move: QEMU announces five times within a second, on every NIC.
const BURST: Duration = Duration::from_secs(2);

/// A hint so soon after a move that was seen already is a late one of that move.
const LATE: Duration = Duration::from_secs(2);

/// An answer that is younger than the first hint by less than this may be of the time before the API learnt of the move.
const CAUGHT_UP: Duration = Duration::from_secs(10);

/// How often one window is re-established. Hints that never end must not keep it open indefinitely.
const RESTARTS_MAX: u8 = 3;

/// A watch that reported nothing for so long after a hint may have lost its connection in the move.
const PROVE_AFTER: Duration = Duration::from_secs(2);

/// A window that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The first hint.
    pub trigger: Trigger,
    /// When it arrived, since the start of the process.
    pub opened: Duration,
    /// The host that ran us before, where it was known.
    pub from: Option<HostName>,
    last_sign: Duration,
    restarts: u8,
    /// Which of the offsets is due next.
    next: usize,
    due: Duration,
    reads: usize,
    /// Whether an answer came that the API had time for.
    is_answered: bool,
    is_proven: bool,
}

/// What a round found, as far as the window cares.
#[derive(Debug, Clone, Copy)]
pub struct ProbeResult<'a> {
    /// The host that runs us now, where an API or the host itself tells.
    pub host: Option<&'a HostName>,
    /// Whether that was asked and answered.
    pub is_answered: bool,
    /// Whether the VM was read.
    pub is_read: bool,
    /// Whether the labels are as they shall be for that host.
    pub is_settled: bool,
}

/// The end of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowId {
    /// The first hint.
    pub trigger: Trigger,
    /// What became of it.
    pub outcome: WindowOutcome,
    /// The host before, where it was known.
    pub from: Option<HostName>,
    /// From the first hint to the end.
    pub took: Duration,
    /// Reads that the window made.
    pub reads: usize,
}

/// What became of a migration hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowOutcome {
    /// The VM runs on another host.
    Confirmed {
        /// The host before.
        from: HostName,
        /// The host now.
        to: HostName,
    },
    /// It runs where it ran.
    Unconfirmed,
    /// No one could tell.
    ApiUnavailable,
}

impl WindowOutcome {
    /// Every name that [`WindowOutcome::as_str`] returns.
    pub const NAMES: [&'static str; 3] = ["confirmed", "unconfirmed", "api-unavailable"];

    /// The name used in reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Confirmed { .. } => "confirmed",
            Self::Unconfirmed => "unconfirmed",
            Self::ApiUnavailable => "api-unavailable",
        }
    }
}

/// How it goes on after a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeStep {
    /// The window, or how it ended.
    pub state: Result<Window, WindowId>,
    /// Watches that have said nothing since then are to be re-established.
    pub verify: Option<Duration>,
}

/// Takes note of a hint: it opens a window, belongs to the open one, or restarts it.
///
/// `host` is the host that ran us when that was last known, `moved` the time of the last move that was seen.
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
            // Another move, or another restore: its API answers are as far away as those of the first were.
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

    /// How long to wait for the next read.
    pub fn wait(&self, uptime: Duration) -> Duration {
        self.due.saturating_sub(uptime)
    }

    /// Goes on, or ends, after a round.
    pub fn step(mut self, found: ProbeResult<'_>, now: Now) -> ProbeStep {
        let elapsed = now.uptime.saturating_sub(self.opened);
        self.is_answered |= found.is_answered && elapsed >= CAUGHT_UP;
        let mut is_over = false;
        // A read for another reason serves as well, if one is due.
        if found.is_read && now.uptime >= self.due {
            self.reads += 1;
            let later = OFFSETS.iter().enumerate().skip(self.next + 1);
            let next = later
                .map(|(index, offset)| (index, spread(*offset, now.random)))
                .find(|(_, offset)| *offset > elapsed);
            is_over = next.is_none();
            let (index, offset) = next.unwrap_or((OFFSETS.len(), elapsed));
            self.next = index;
            self.due = self.opened + offset;
        }
        let moved = self
            .from
            .clone()
            .zip(found.host.cloned())
            .filter(|(from, to)| from != to);
        let end = |outcome| WindowId {
            trigger: self.trigger,
            outcome,
            from: self.from.clone(),
            took: elapsed,
            reads: self.reads,
        };
        let ended = match moved {
            Some((from, to)) if found.is_settled || is_over => {
                Some(end(WindowOutcome::Confirmed { from, to }))
            }
            None if is_over && self.is_answered => Some(end(WindowOutcome::Unconfirmed)),
            None if is_over => Some(end(WindowOutcome::ApiUnavailable)),
            _ => None,
        };
        let is_time = elapsed >= PROVE_AFTER || ended.is_some();
        let verify = (is_time && !self.is_proven).then_some(self.opened);
        self.is_proven |= is_time;
        ProbeStep {
            state: ended.map_or(Ok(self), Err),
            verify,
        }
    }
}

fn spread(offset: Duration, random: Random) -> Duration {
    offset.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.value())
}

#[cfg(test)]
mod tests;
