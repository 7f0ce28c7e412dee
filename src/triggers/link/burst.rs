// SPDX-License-Identifier: Apache-2.0
//! Combines the announcements of one migration into one reason to reconcile.

use std::time::Duration;

use tokio::time::Instant;

/// The silence that ends a burst. QEMU makes each NIC announce itself five times within 0.8 s.
const SILENCE: Duration = Duration::from_secs(2);

/// The maximum length of a burst. No migration causes a longer one: noise must not hide a second migration indefinitely.
const LONGEST: Duration = Duration::from_secs(10);

/// A burst of events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Burst {
    /// The times of the first and the last event.
    now: Option<(Instant, Instant)>,
}

impl Burst {
    /// Records an event at `at`. Reports whether it is the first of a burst.
    pub fn begins(&mut self, at: Instant) -> bool {
        let began = self.now.and_then(|(began, last)| {
            let goes_on = at.duration_since(last) < SILENCE && at.duration_since(began) < LONGEST;
            goes_on.then_some(began)
        });
        self.now = Some((began.unwrap_or(at), at));
        began.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of events that are reported; the times are in milliseconds.
    fn reported(events: impl IntoIterator<Item = u64>) -> usize {
        let (mut burst, start) = (Burst::default(), Instant::now());
        let begins = |at: &u64| burst.begins(start + Duration::from_millis(*at));
        events.into_iter().filter(begins).count()
    }

    /// Five announcements with the intervals of QEMU.
    const ANNOUNCEMENTS: [u64; 5] = [0, 50, 200, 450, 800];

    #[test]
    fn five_announcements_of_each_of_three_nics_are_reported_once() {
        let mut events: Vec<u64> = (0..3)
            .flat_map(|nic| ANNOUNCEMENTS.map(|at| at + nic * 3))
            .collect();
        events.sort_unstable();
        assert_eq!(events.len(), 15);
        assert_eq!(reported(events), 1);
    }

    #[test]
    fn a_second_move_after_two_seconds_of_silence_is_reported_and_one_before_is_not() {
        assert_eq!(reported([0, 800, 2800]), 2);
        assert_eq!(reported([0, 800, 2799]), 1);
    }

    #[test]
    fn noise_without_end_is_reported_every_ten_seconds() {
        assert_eq!(reported((0..30_000).step_by(100)), 3);
    }
}
