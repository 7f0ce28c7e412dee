// SPDX-License-Identifier: Apache-2.0
//! The state of each event source: whether it works on this machine, and why not. `triggers` writes it, `report` reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::facts::clock::{ClockStep, ClockSteps};
use crate::facts::observation::ObservationIssue;

/// The state of one event source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Whether it works on this machine.
    pub live: bool,
    /// The state as human-readable text.
    pub detail: String,
}

/// The states that the event sources share with the report.
#[derive(Debug, Clone, Default)]
pub struct SignalBoard {
    inner: Arc<Mutex<Inner>>,
    /// Notified when an issue was added or removed that is not reported yet.
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    signals: BTreeMap<&'static str, Signal>,
    issues: BTreeMap<&'static str, ObservationIssue>,
    clock: ClockSteps,
}

impl SignalBoard {
    /// Sets the state of an event source.
    pub fn set(&self, name: &'static str, live: bool, detail: impl Into<String>) {
        self.lock(|inner| {
            inner.signals.insert(
                name,
                Signal {
                    live,
                    detail: detail.into(),
                },
            )
        });
    }

    /// Adds or removes the issue of an event source.
    pub fn issue(&self, name: &'static str, issue: Option<ObservationIssue>) {
        let is_new = self.lock(|inner| match issue {
            Some(issue) => {
                let is_same = inner.issues.get(name) == Some(&issue);
                inner.issues.insert(name, issue);
                !is_same
            }
            None => inner.issues.remove(name).is_some(),
        });
        if is_new {
            self.news.notify_one();
        }
    }

    /// Adds the issue that an event source does not work.
    pub fn unavailable(&self, source: &'static str, what: String) {
        let issue = ObservationIssue::SignalUnavailable { source, what };
        self.issue(source, Some(issue));
    }

    /// Records a step of the wall clock. Returns the number of steps.
    pub fn note_clock_step(&self, step: ClockStep) -> u64 {
        self.lock(|inner| {
            inner.clock.count += 1;
            inner.clock.last = Some(step);
            inner.clock.count
        })
    }

    /// Returns the steps of the wall clock.
    pub fn clock_steps(&self) -> ClockSteps {
        self.lock(|inner| inner.clock)
    }

    /// Waits until an issue is added or removed. Cancel-safe.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// Returns all event sources.
    pub fn signals(&self) -> BTreeMap<&'static str, Signal> {
        self.lock(|inner| inner.signals.clone())
    }

    /// Returns all issues.
    pub fn issues(&self) -> Vec<ObservationIssue> {
        self.lock(|inner| inner.issues.values().cloned().collect())
    }

    fn lock<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
