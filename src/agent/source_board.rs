// SPDX-License-Identifier: Apache-2.0
//! The state of each event source: whether it is active on this machine, and why not. `triggers` writes it, `report` reads it.
//!
//! Other work beside the loop, such as hooks and the writing of files, adds its findings here too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::catalog::{Code, Finding};
use crate::facts::clock::{ClockStep, ClockSteps};

/// The state of one event source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    /// Whether it is active: it works on this machine.
    pub is_active: bool,
    /// The state as human-readable text.
    pub detail: String,
}

/// The states that the event sources share with the report.
#[derive(Debug, Clone, Default)]
pub struct SourceBoard {
    inner: Arc<Mutex<Inner>>,
    /// Notified when a finding was added or removed that is not reported yet.
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    sources: BTreeMap<&'static str, SourceState>,
    findings: BTreeMap<&'static str, Finding>,
    clock: ClockSteps,
}

impl SourceBoard {
    /// Sets the state of an event source.
    pub fn set(&self, name: &'static str, is_active: bool, detail: impl Into<String>) {
        let detail = detail.into();
        let state = SourceState { is_active, detail };
        self.lock(|inner| inner.sources.insert(name, state));
    }

    /// Adds or removes the finding of an event source.
    pub fn report(&self, name: &'static str, finding: Option<Finding>) {
        let is_new = self.lock(|inner| match finding {
            Some(finding) => inner.findings.insert(name, finding.clone()) != Some(finding),
            None => inner.findings.remove(name).is_some(),
        });
        if is_new {
            self.news.notify_one();
        }
    }

    /// Adds the finding that an event source does not work.
    pub fn unavailable(&self, source: &'static str, what: String) {
        let finding = Finding::new(Code::EventSourceUnavailable, what).of_source(source);
        self.report(source, Some(finding));
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

    /// Waits until a finding is added or removed. Cancel-safe.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// Returns all event sources.
    pub fn sources(&self) -> BTreeMap<&'static str, SourceState> {
        self.lock(|inner| inner.sources.clone())
    }

    /// Returns the findings.
    pub fn findings(&self) -> Vec<Finding> {
        self.lock(|inner| inner.findings.values().cloned().collect())
    }

    fn lock<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
