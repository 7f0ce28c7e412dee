// SPDX-License-Identifier: Apache-2.0
//! The delay before a failed event source restarts.

use std::time::Duration;

/// The first delay.
const FIRST: Duration = Duration::from_secs(1);

/// The longest delay, and the time that a source must run before the delay is reset.
const LONGEST: Duration = Duration::from_secs(60);

/// Delays that double. They need no jitter because they only wait for the kernel of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    next: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Waits {
    /// Returns the delay after a source that ran for `lived`.
    pub fn after(&mut self, lived: Duration) -> Duration {
        if lived >= LONGEST {
            self.next = FIRST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_begin_anew_after_a_life_of_one() {
        let mut waits = Waits::default();
        let mut after = |lived| waits.after(Duration::from_secs(lived)).as_secs();
        let short: Vec<u64> = (0..8).map(|_| after(59)).collect();
        assert_eq!(short, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(after(60), 1);
        assert_eq!(after(0), 2);
    }
}
