// SPDX-License-Identifier: Apache-2.0
//! Counts the requests to an API server by their result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Class, Error};

/// The head of a successful response came.
const OK: &str = "ok";

/// The deadline passed before the head of the response came.
const TIMEOUT: &str = "timeout";

/// Requests by their result, since the start of the process. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct Tally(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Default for Tally {
    /// Every result is there, with zero: a first failure is a growth, and not a new number that began at one.
    fn default() -> Self {
        let classes = Class::ALL.iter().map(|class| class.as_str());
        let results = [OK, TIMEOUT].into_iter().chain(classes);
        Self(Arc::new(Mutex::new(
            results.map(|result| (result, 0)).collect(),
        )))
    }
}

impl Tally {
    /// The numbers.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }

    /// One request that is about to be sent.
    pub(super) fn begin(&self) -> Pending<'_> {
        Pending {
            tally: self,
            result: TIMEOUT,
        }
    }

    fn count(&self, result: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(result).or_default() += 1;
    }
}

/// A request that was sent. It is counted when it is dropped, so that one that times out is counted too.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    tally: &'a Tally,
    result: &'static str,
}

impl Pending<'_> {
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
        self.tally.count(self.result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_dropped_before_its_response_counts_as_a_timeout() {
        let tally = Tally::default();
        assert!(tally.counts().values().all(|count| *count == 0));
        drop(tally.clone().begin());
        tally.begin().end(&Ok(()));
        let counts = tally.counts();
        assert_eq!((counts["timeout"], counts["ok"]), (1, 1));
        assert_eq!(counts.len(), Class::ALL.len() + 2);
    }
}
