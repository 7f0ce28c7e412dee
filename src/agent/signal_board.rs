// SPDX-License-Identifier: Apache-2.0
//! The state of each event source: whether it works here, and why not. Written by `triggers`, read by `report`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::facts::clock::{ClockStep, ClockSteps};
use crate::facts::observation::ObservationIssue;

/// The state of one signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Whether it works here.
    pub live: bool,
    /// The same for people.
    pub detail: String,
}

/// Shared by the sources and the report.
#[derive(Debug, Clone, Default)]
pub struct SignalBoard {
    inner: Arc<Mutex<Inner>>,
    /// An issue came or went, and no report has said so.
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    signals: BTreeMap<&'static str, Signal>,
    issues: BTreeMap<&'static str, ObservationIssue>,
    clock: ClockSteps,
}

impl SignalBoard {
    /// Says how a signal stands.
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

    /// Reports an issue of a signal, or withdraws it.
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

    /// Takes note of a step of the wall clock. Returns how many there were.
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

    /// Waits until an issue came or went. Cancel-safe.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// All signals.
    pub fn signals(&self) -> BTreeMap<&'static str, Signal> {
        self.lock(|inner| inner.signals.clone())
    }

    /// All issues.
    pub fn issues(&self) -> Vec<ObservationIssue> {
        self.lock(|inner| inner.issues.values().cloned().collect())
    }

    fn lock<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
