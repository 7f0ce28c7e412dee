// SPDX-License-Identifier: Apache-2.0
//! Counts of events since the process started, and their metrics. They are kept in memory only: a restart begins at zero, as
//! Prometheus expects of counters.

use std::collections::BTreeMap;

use super::exposition::{Histogram, Page};
use crate::agent::Round;
use crate::decide::fast_poll::WindowOutcome;
use crate::decide::scheduled_events::{ScheduledEventState, ScheduledEventType};
use crate::facts::trigger::Trigger;

/// The counters.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Live migrations, by the trigger that detected them.
    migrations: BTreeMap<&'static str, u64>,
    /// Migration hints, by trigger and outcome.
    hints: BTreeMap<(&'static str, &'static str), u64>,
    /// States of scheduled events, by type and state.
    scheduled: BTreeMap<(ScheduledEventType, ScheduledEventState), u64>,
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
        let outcomes = hints.flat_map(|hint| {
            let outcomes = WindowOutcome::ALL.iter();
            outcomes.map(move |outcome| ((hint.as_str(), outcome.as_str()), 0))
        });
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

    /// Adds the families of all counters.
    pub fn write(&self, page: &mut Page) {
        let migrations = self.migrations.iter();
        let migrations = migrations.map(|(trigger, count)| ([("trigger", *trigger)], count));
        let help = "Changes of the Harvester host, by live migration or restart, by the trigger that detected them.";
        page.family("migrations_total", help, migrations);
        let hints = self.hints.iter();
        let hints = hints.map(|((trigger, outcome), count)| {
            ([("trigger", *trigger), ("outcome", *outcome)], count)
        });
        let help =
            "Migration hints, by trigger and by whether the Harvester API confirmed a migration.";
        page.family("migration_hints_total", help, hints);
        let states = self.scheduled.iter().map(|((kind, state), count)| {
            ([("type", kind.as_str()), ("state", state.as_str())], count)
        });
        let help = "Published states of scheduled events, by type of the event.";
        page.family("scheduled_events_total", help, states);
        let help = "Time from the first hint of a live migration to the labels of the new host.";
        page.histogram("label_update_duration_seconds", help, &self.latency);
        let help = "Time for which live migrations interrupted the guest, estimated from the next clock step.";
        page.histogram("migration_interruption_seconds", help, &self.interruption);
    }
}
