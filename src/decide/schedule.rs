// SPDX-License-Identifier: Apache-2.0
//! When to look again. Time and randomness are arguments; the loop is the only place that waits.

use std::time::Duration;

use crate::config::{Mode, Settings};
use crate::reason::Scope;

/// The shortest ceiling of a retry.
const RETRY_FLOOR: Duration = Duration::from_millis(500);

/// The longest ceiling of a retry: an API that is away for an hour is asked about a dozen times.
const RETRY_CEILING: Duration = Duration::from_secs(5 * 60);

/// The least wait before a retry, so that full jitter never makes a busy loop.
const RETRY_LEAST: Duration = Duration::from_millis(100);

/// Without standing watches, and with none that could break, a rare look must do.
const POLL_OF_SIGNALS: Duration = Duration::from_secs(60 * 60);

/// After a sign of a move that nobody confirmed, where no watch would tell of the move later.
pub const DOUBT: Duration = Duration::from_secs(2 * 60);

/// A random number in [0, 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Random(f64);

impl Random {
    /// From 64 random bits.
    pub fn from_bits(bits: u64) -> Self {
        // 53 bits are what an f64 holds exactly.
        Self((bits >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// The number, at least 0 and less than 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// Full jitter: anything between nothing and a ceiling that doubles with each failure in a row (`failures` >= 1). What the
/// server asked for (`Retry-After`) is the least.
pub fn retry(failures: u32, asked: Option<Duration>, random: Random) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let ceiling = RETRY_FLOOR
        .saturating_mul(1 << doublings)
        .min(RETRY_CEILING);
    let wait = ceiling.mul_f64(random.0).max(RETRY_LEAST);
    // Many agents are told the same number: spread them over as much again, at most ten seconds.
    asked.map_or(wait, |asked| {
        asked + asked.min(Duration::from_secs(10)).mul_f64(random.0)
    })
}

/// The wait until the next look when all is well: one interval, at a phase of it that each machine keeps for itself, so that
/// a fleet that was started together does not ask together, and a tenth of jitter.
pub fn poll(interval: Duration, machine: u64, uptime: Duration, random: Random) -> Duration {
    let whole = interval.as_millis().max(1);
    let phase = u128::from(machine) % whole;
    let position = uptime.as_millis() % whole;
    let until_phase = (phase + whole - position) % whole;
    // Never a second look right after the first.
    let until_phase = if until_phase < whole / 10 {
        until_phase + whole
    } else {
        until_phase
    };
    let wait = Duration::from_millis(u64::try_from(until_phase).unwrap_or(u64::MAX));
    wait + interval.mul_f64(random.0 / 10.0)
}

/// How often everything is read although nothing called for it, and what that reads. A very large fleet without standing
/// watches asks rarely, and what the API servers' caches hold is new enough for it.
pub fn backstop(settings: &Settings) -> (Duration, Scope) {
    match settings.mode {
        Mode::Watch => (settings.timing.poll, Scope::KNOWN),
        Mode::Signals => (settings.timing.poll.max(POLL_OF_SIGNALS), Scope::CACHED),
    }
}

/// Looks that may follow each other at once; more of them wait.
const PACE_BURST: u32 = 20;

/// The time after which one more look may follow at once.
const PACE_PERIOD: Duration = Duration::from_millis(500);

/// Limits how often reasons become looks, so that a storm of events costs two looks a second and not a busy loop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pace {
    /// When all that was taken so far is paid for.
    paid_at: Duration,
}

impl Pace {
    /// Takes one look at `now` (since the start of the process). Answers how long to wait before it.
    pub fn take(&mut self, now: Duration) -> Duration {
        self.paid_at = self.paid_at.max(now) + PACE_PERIOD;
        self.paid_at.saturating_sub(now + PACE_PERIOD * PACE_BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Random = Random(0.999_999);
    const LEAST: Random = Random(0.0);

    #[test]
    fn retries_double_up_to_five_minutes_and_never_hurry() {
        for (failures, ceiling_ms) in [
            (1, 500),
            (2, 1000),
            (3, 2000),
            (10, 256_000),
            (11, 300_000),
            (4_000_000, 300_000),
        ] {
            let wait = retry(failures, None, MOST).as_millis();
            assert!(
                wait <= ceiling_ms && wait + 1 >= ceiling_ms - 1,
                "{failures}: {wait}"
            );
            assert_eq!(retry(failures, None, LEAST), RETRY_LEAST);
        }
    }

    #[test]
    fn what_the_server_asks_for_is_the_least() {
        let asked = Duration::from_secs(7);
        assert_eq!(retry(1, Some(asked), LEAST), asked);
        assert!(retry(1, Some(asked), MOST) < asked * 2 + Duration::from_millis(1));
    }

    #[test]
    fn a_poll_is_never_sooner_than_a_tenth_nor_later_than_two_intervals() {
        let interval = Duration::from_secs(600);
        for machine in [0, 1, 12_345, u64::MAX] {
            for uptime in [0, 1, 599, 600, 86_400] {
                for random in [LEAST, MOST] {
                    let wait = poll(interval, machine, Duration::from_secs(uptime), random);
                    assert!(
                        wait >= interval / 10 && wait <= interval * 2,
                        "{machine} {uptime}: {wait:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn machines_that_start_together_look_at_different_times() {
        let interval = Duration::from_secs(600);
        let waits: std::collections::BTreeSet<Duration> = (0u64..100)
            .map(|machine| {
                poll(
                    interval,
                    machine.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                    Duration::from_secs(5),
                    LEAST,
                )
            })
            .collect();
        assert!(waits.len() > 90, "{}", waits.len());
    }

    #[test]
    fn a_storm_of_reasons_is_slowed_to_two_looks_a_second_and_a_few_are_not() {
        let mut pace = Pace::default();
        let mut now = Duration::from_secs(1000);
        let mut waited = Duration::ZERO;
        for look in 0..100 {
            let wait = pace.take(now);
            assert!(look >= PACE_BURST || wait.is_zero(), "{look}: {wait:?}");
            waited += wait;
            now += wait;
        }
        assert_eq!(waited, PACE_PERIOD * (100 - PACE_BURST));
        assert!(pace.take(now + Duration::from_secs(60)).is_zero());
    }

    #[test]
    fn random_bits_become_a_number_below_one() {
        assert_eq!(Random::from_bits(0).0, 0.0);
        assert!(Random::from_bits(u64::MAX).0 < 1.0);
    }
}
