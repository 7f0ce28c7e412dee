// SPDX-License-Identifier: Apache-2.0
//! What happened since the process started, counted. It is kept in memory only: a restart begins at zero, as Prometheus
//! expects of counters.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::agent::Report;
use crate::decide::window::Outcome;
use crate::few::Few;
use crate::reason::Trigger;

/// Bounds of the histogram of latencies, in seconds: from a read at once to the last read of a re-sync window.
pub const BOUNDS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// What became of a move, or of a sign of one, where that is known in one word.
const CONFIRMED: &str = "confirmed";

/// The numbers.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Moves and signs of moves, by what told of them first and by what became of them.
    pub migrations: BTreeMap<(&'static str, &'static str), u64>,
    /// From that to the labels of the new host.
    pub latency: Histogram,
}

impl Default for Counters {
    /// What may well happen is there with zero: the first one is a growth, and not a new number that began at one.
    fn default() -> Self {
        let seen = [Trigger::Link, Trigger::Port, Trigger::Vmi, Trigger::Timer];
        let confirmed = seen.map(|trigger| (trigger.as_str(), CONFIRMED));
        let signs = [Trigger::Link, Trigger::Port].into_iter();
        let others = signs.flat_map(|sign| {
            [Outcome::Unconfirmed, Outcome::ApiUnavailable]
                .map(|outcome| (sign.as_str(), outcome.as_str()))
        });
        let zeros = confirmed.into_iter().chain(others);
        Self {
            migrations: zeros.map(|key| (key, 0)).into_map(),
            latency: Histogram::default(),
        }
    }
}

impl Counters {
    /// Adds what one round saw.
    pub fn note(&mut self, report: &Report<'_>) {
        if report.plan.moved.is_some() {
            self.count(report.trigger, CONFIRMED);
        }
        if let Some(epoch) = &report.plan.epoch {
            match epoch.outcome {
                // The move itself was counted when it was seen.
                Outcome::Confirmed { .. } => {}
                Outcome::Unconfirmed | Outcome::ApiUnavailable => {
                    self.count(epoch.trigger, epoch.outcome.as_str());
                }
            }
        }
    }

    fn count(&mut self, trigger: Trigger, outcome: &'static str) {
        *self
            .migrations
            .entry((trigger.as_str(), outcome))
            .or_default() += 1;
    }
}

/// How many observations were at most as long as each of [`BOUNDS`].
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Observations up to each bound, shorter ones included.
    pub buckets: [u64; BOUNDS.len()],
    /// All observations.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Adds an observation.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (bucket, bound) in self.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_holds_what_is_not_longer_than_its_bound() {
        let mut histogram = Histogram::default();
        for milliseconds in [0, 50, 51, 7_000, 60_000, 60_001] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        assert_eq!(histogram.buckets, [2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 5]);
        assert_eq!(histogram.count, 6);
        assert!((histogram.sum - 127.102).abs() < 1e-9, "{histogram:?}");
    }
}
