// SPDX-License-Identifier: Apache-2.0
//! Detects that something between the agent and the API server interrupts watches. An API server ends its watches too, each after half
//! an hour at least, and all at once when it restarts.

use std::time::Duration;

/// Cuts within [`WINDOW`] after which something in between is at fault. Fewer are a server that restarts.
const CUTS_MAX: usize = 4;

/// The time in which cuts are counted, and after which a watch that is still there shows that nothing cuts it off any more.
/// Between two of them is the delay with which a fleet spreads.
pub const WINDOW: Duration = Duration::from_secs(10 * 60);

/// A watch that ends sooner has not begun well: anyone who ended it may be the server itself.
const LIFE_LEAST: Duration = Duration::from_secs(1);

/// The cuts of one watch. Times are on any clock that never jumps.
#[derive(Debug, Clone, Default)]
pub struct Interruptions {
    /// When the last ones were; never more than it takes to know.
    cuts: Vec<Duration>,
    is_known: bool,
}

impl Interruptions {
    /// Takes note that a watch that had begun well is cut off. Answers whether this makes it known that something does so.
    pub fn cut(&mut self, began: Duration, now: Duration) -> bool {
        if now.saturating_sub(began) < LIFE_LEAST {
            return false;
        }
        self.cuts.retain(|cut| now.saturating_sub(*cut) < WINDOW);
        if self.cuts.len() >= CUTS_MAX {
            self.cuts.remove(0);
        }
        self.cuts.push(now);
        let is_new = !self.is_known && self.cuts.len() >= CUTS_MAX;
        self.is_known |= is_new;
        is_new
    }

    /// Takes note of a watch that is alive. Answers whether nothing is known of an interruption, or no more.
    pub fn alive(&mut self, began: Duration, now: Duration) -> bool {
        if self.is_known && now.saturating_sub(began) >= WINDOW {
            *self = Self::default();
        }
        !self.is_known
    }

    /// How many cuts there were lately, once they are known to be too many: so many failures to wait for.
    pub fn count(&self) -> u32 {
        let count = if self.is_known { self.cuts.len() } else { 0 };
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches that live so long, one after the other; answers after how many of them it is known.
    fn known_after(life: Duration, count: u32) -> Option<u32> {
        let mut interruptions = Interruptions::default();
        (1..=count).find(|number| interruptions.cut(life * (number - 1), life * *number))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_fourth_cut_within_ten_minutes_makes_it_known_once() {
        assert_eq!(known_after(seconds(1), 50), Some(4));
        assert_eq!(known_after(seconds(120), 50), Some(4));
        let mut interruptions = Interruptions::default();
        let times =
            (1..50).map(|number| interruptions.cut(seconds(number * 2), seconds(number * 2 + 1)));
        assert_eq!(times.filter(|is_new| *is_new).count(), 1);
        assert_eq!(interruptions.count(), 4);
    }

    #[test]
    fn a_server_that_ends_its_watches_in_time_or_at_once_is_not_in_between() {
        assert_eq!(known_after(seconds(30 * 60), 50), None);
        assert_eq!(known_after(seconds(201), 50), None);
        assert_eq!(known_after(Duration::from_millis(999), 50), None);
    }

    #[test]
    fn a_watch_that_lives_for_ten_minutes_takes_it_back() {
        let mut interruptions = Interruptions::default();
        for number in 1..=4 {
            interruptions.cut(seconds(number), seconds(number + 1));
        }
        assert!(!interruptions.alive(seconds(5), seconds(604)));
        assert!(interruptions.alive(seconds(5), seconds(605)));
        assert_eq!(interruptions.count(), 0);
    }
}
