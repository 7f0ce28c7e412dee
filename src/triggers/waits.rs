// SPDX-License-Identifier: Apache-2.0
//! How long a source that died stays away before it starts again.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait, and how long a source must live to begin with the first again.
const LONGEST: Duration = Duration::from_secs(60);

/// Waits that double. What they wait for is the kernel of this machine alone, so they need no jitter.
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
    /// The wait after a source that lived so long.
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
