// SPDX-License-Identifier: Apache-2.0
//! Counts of events since the process started. They are kept in memory only: a restart begins at zero, as Prometheus expects of
//! counters.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::agent::Round;
use crate::decide::resync::WindowOutcome;
use crate::decide::scheduled_events::{ScheduledEventState, ScheduledEventType};
use crate::facts::trigger::Trigger;

/// Bounds of the histograms, in seconds: from an immediate read, or a short interruption, to the last read of a fast-poll window.
pub const BOUNDS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// The counters.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Live migrations, by the trigger that detected them.
    pub migrations: BTreeMap<&'static str, u64>,
    /// Migration hints, by trigger and outcome.
    pub hints: BTreeMap<(&'static str, &'static str), u64>,
    /// States of scheduled events, by type and state.
    pub scheduled: BTreeMap<(ScheduledEventType, ScheduledEventState), u64>,
    /// Time from the first hint to the labels of the new host.
    pub latency: Histogram,
    /// Time for which live migrations interrupted the guest.
    pub interruption: Histogram,
}

impl Default for Counters {
    /// Returns counters that list the usual triggers and outcomes with zero: `increase()` misses the first event of a series that
    /// begins at one.
    fn default() -> Self {
        let detecting = [Trigger::Link, Trigger::Port, Trigger::Vmi, Trigger::Timer];
        let hints = [Trigger::Link, Trigger::Port].into_iter();
        let outcomes = hints
            .flat_map(|hint| WindowOutcome::NAMES.map(|outcome| ((hint.as_str(), outcome), 0)));
        Self {
            migrations: BTreeMap::from(detecting.map(|trigger| (trigger.as_str(), 0))),
            hints: outcomes.collect(),
            scheduled: ScheduledEventType::ALL
                .iter()
                .flat_map(|kind| ScheduledEventState::ALL.iter().map(|state| (*kind, *state)))
                .map(|key| (key, 0))
                .collect(),
            latency: Histogram::default(),
            interruption: Histogram::default(),
        }
    }
}

impl Counters {
    /// Adds the events of one round.
    pub fn note(&mut self, round: &Round) {
        if round.plan.moved.is_some() {
            let migrations = self.migrations.entry(round.trigger().as_str());
            *migrations.or_default() += 1;
        }
        for event in &round.plan.scheduled {
            *self.scheduled.entry((event.kind, event.state)).or_default() += 1;
        }
        if let Some(window_end) = &round.plan.window_end {
            let key = (window_end.trigger.as_str(), window_end.outcome.as_str());
            *self.hints.entry(key).or_default() += 1;
        }
    }
}

/// The number of observations up to each of [`BOUNDS`].
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// The number of observations up to each bound, shorter ones included.
    pub buckets: [u64; BOUNDS.len()],
    /// The number of all observations.
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
