// SPDX-License-Identifier: Apache-2.0
//! Detects that a component between the agent and the API server interrupts watches. An API server also ends watches, each after
//! at least half an hour, and all at once when it restarts.

use std::time::Duration;

use tokio::time::Instant;

/// The number of interruptions within [`WINDOW`] that indicates a component in between. Fewer can be caused by restarts of the
/// server.
const CUTS_MAX: usize = 4;

/// The time in which interruptions are counted. A watch that lasts this long shows that there are no more interruptions. Each
/// interruption is followed by the delay that spreads a fleet.
const WINDOW: Duration = Duration::from_secs(10 * 60);

/// The duration from which a watch counts as established. If it ends sooner, the server itself may have ended it.
pub(super) const LIFE_LEAST: Duration = Duration::from_secs(1);

/// The interruptions of one watch.
#[derive(Debug, Clone, Default)]
pub(super) struct Interruptions {
    /// The times of the last interruptions, at most [`CUTS_MAX`].
    cuts: Vec<Instant>,
    /// Whether there are too many.
    pub(super) is_known: bool,
}

impl Interruptions {
    /// Records that an established watch was interrupted. Returns whether repeated interruptions are now detected.
    pub(super) fn cut(&mut self, began: Instant, now: Instant) -> bool {
        if now.duration_since(began) < LIFE_LEAST {
            return false;
        }
        self.cuts.retain(|cut| now.duration_since(*cut) < WINDOW);
        if self.cuts.len() >= CUTS_MAX {
            self.cuts.remove(0);
        }
        self.cuts.push(now);
        let is_new = !self.is_known && self.cuts.len() >= CUTS_MAX;
        self.is_known |= is_new;
        is_new
    }

    /// Records that a watch is alive. Returns whether there are no known interruptions.
    pub(super) fn alive(&mut self, began: Instant, now: Instant) -> bool {
        if self.is_known && now.duration_since(began) >= WINDOW {
            *self = Self::default();
        }
        !self.is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates consecutive watches of this duration. Returns after how many of them the interruptions are detected.
    fn known_after(life: Duration, count: u32) -> Option<u32> {
        let (mut interruptions, start) = (Interruptions::default(), Instant::now());
        let ends = |number| start + life * number;
        (1..=count).find(|number| interruptions.cut(ends(number - 1), ends(*number)))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_fourth_cut_within_ten_minutes_makes_it_known_once() {
        assert_eq!(known_after(seconds(1), 50), Some(4));
        assert_eq!(known_after(seconds(120), 50), Some(4));
        let (mut interruptions, start) = (Interruptions::default(), Instant::now());
        let at = |number| start + seconds(number);
        let times = (1..50).map(|number| interruptions.cut(at(number * 2), at(number * 2 + 1)));
        assert_eq!(times.filter(|is_new| *is_new).count(), 1);
        assert!(interruptions.is_known);
    }

    #[test]
    fn a_server_that_ends_its_watches_in_time_or_at_once_is_not_in_between() {
        assert_eq!(known_after(seconds(30 * 60), 50), None);
        assert_eq!(known_after(seconds(201), 50), None);
        assert_eq!(known_after(Duration::from_millis(999), 50), None);
    }

    #[test]
    fn a_watch_that_lives_for_ten_minutes_takes_it_back() {
        let (mut interruptions, start) = (Interruptions::default(), Instant::now());
        let at = |number| start + seconds(number);
        for number in 1..=4 {
            interruptions.cut(at(number), at(number + 1));
        }
        assert!(!interruptions.alive(at(5), at(604)));
        assert!(interruptions.alive(at(5), at(605)));
        assert!(!interruptions.is_known);
    }
}
