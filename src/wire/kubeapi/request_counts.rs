// SPDX-License-Identifier: Apache-2.0
//! Counts the requests to an API server by their result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Error, Kind};

/// The head of a successful response arrived.
const OK: &str = "ok";

/// We no longer waited for the response: something else was more urgent, or took too long as a whole.
const CANCELED: &str = "canceled";

/// The number of requests by their result, since the start of the process. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct Tally(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Default for Tally {
    /// Creates a counter of zero for every result: a first failure is then an increase, and not a new series that starts at one.
    fn default() -> Self {
        let results = [OK, CANCELED].into_iter().chain(Kind::NAMES);
        let counts = results.map(|result| (result, 0)).collect();
        Self(Arc::new(Mutex::new(counts)))
    }
}

impl Tally {
    /// Returns the numbers.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Registers a request that is about to be sent.
    pub(super) fn begin(&self) -> Pending<'_> {
        Pending {
            tally: self,
            result: CANCELED,
        }
    }
}

/// A request that was sent. It is counted when it is dropped, so that a canceled request is counted too.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    tally: &'a Tally,
    result: &'static str,
}

impl Pending<'_> {
    /// Records the result of a request that was not dropped early.
    pub(super) fn end<T>(mut self, outcome: &Result<T, Error>) {
        self.result = match outcome {
            Ok(_) => OK,
            Err(error) => error.kind.as_str(),
        };
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut counts = self.tally.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(self.result).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_times_out_and_one_that_is_dropped_are_counted_apart() {
        let tally = Tally::default();
        assert!(tally.counts().values().all(|count| *count == 0));
        drop(tally.clone().begin());
        tally.begin().end(&Ok(()));
        let counts = tally.counts();
        assert_eq!((counts["canceled"], counts["ok"]), (1, 1));
        assert_eq!(counts["timeout"], 0);
        assert_eq!(counts.len(), Kind::NAMES.len() + 2);
        let late = Error::new(Kind::TimedOut, "late");
        tally.begin().end::<()>(&Err(late));
        let counts = tally.counts();
        assert_eq!((counts["timeout"], counts["unreachable"]), (1, 0));
    }
}
