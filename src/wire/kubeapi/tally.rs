// SPDX-License-Identifier: Apache-2.0
//! Counts the requests to an API server by their result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Class, Error};
use super::warning::Warnings;

/// The head of a successful response came.
const OK: &str = "ok";

/// The deadline passed before the head of the response came.
const TIMEOUT: &str = "timeout";

/// The requests that ended in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How many.
    pub requests: u64,
    /// How many warnings the server sent with its responses.
    pub warnings: u64,
}

/// Requests by their result, since the start of the process. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct Tally(Arc<TallyData>);

#[derive(Debug)]
struct TallyData {
    counts: Mutex<BTreeMap<&'static str, Count>>,
    warnings: Warnings,
}

impl Default for Tally {
    /// Every result is there, with zero: a first failure is a growth, and not a new number that began at one.
    fn default() -> Self {
        let classes = Class::ALL.iter().map(|class| class.as_str());
        let results = [OK, TIMEOUT].into_iter().chain(classes);
        Self(Arc::new(TallyData {
            counts: Mutex::new(results.map(|result| (result, Count::default())).collect()),
            warnings: Warnings::default(),
        }))
    }
}

impl Tally {
    /// The numbers.
    pub fn counts(&self) -> BTreeMap<&'static str, Count> {
        let counts = self.0.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One request that is about to be sent.
    pub(super) fn begin(&self) -> Pending<'_> {
        Pending {
            tally: self,
            result: TIMEOUT,
            warnings: 0,
        }
    }

    /// The warnings that were logged.
    pub(super) fn warnings(&self) -> &Warnings {
        &self.0.warnings
    }

    fn count(&self, result: &'static str, warnings: u64) {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(result).or_default();
        count.requests += 1;
        count.warnings += warnings;
    }
}

/// A request that was sent. It is counted when it is dropped, so that one that times out is counted too.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    tally: &'a Tally,
    result: &'static str,
    warnings: u64,
}

impl Pending<'_> {
    /// The server sent so many warnings with its response.
    pub(super) fn warned(&mut self, warnings: u64) {
        self.warnings = warnings;
    }

    /// It has ended by itself.
    pub(super) fn end<T>(mut self, outcome: &Result<T, Error>) {
        self.result = match outcome {
            Ok(_) => OK,
            Err(error) => error.class().as_str(),
        };
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.tally.count(self.result, self.warnings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_dropped_before_its_response_counts_as_a_timeout() {
        let tally = Tally::default();
        let none = Count::default();
        assert!(tally.counts().values().all(|count| *count == none));
        drop(tally.clone().begin());
        let mut warned = tally.begin();
        warned.warned(2);
        warned.end(&Ok(()));
        let counts = tally.counts();
        let of = |result: &str| (counts[result].requests, counts[result].warnings);
        assert_eq!((of("timeout"), of("ok")), ((1, 0), (1, 2)));
        assert_eq!(counts.len(), Class::ALL.len() + 2);
    }
}
