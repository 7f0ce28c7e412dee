// SPDX-License-Identifier: Apache-2.0
//! Counts the requests to an API server by their result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Class, Error};
use super::warning::Warnings;

/// The head of a successful response arrived.
const OK: &str = "ok";

/// The head of the response did not arrive before the deadline.
const TIMEOUT: &str = "timeout";

/// We no longer waited for the response: something else was more urgent, or took too long as a whole.
const CANCELED: &str = "canceled";

/// The number of requests with the same result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// The number of requests.
    pub requests: u64,
    /// The number of warnings that the server sent with its responses.
    pub warnings: u64,
}

/// The number of requests by their result, since the start of the process. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct Tally(Arc<TallyData>);

#[derive(Debug)]
struct TallyData {
    counts: Mutex<BTreeMap<&'static str, Count>>,
    warnings: Warnings,
}

impl Default for Tally {
    /// Creates a counter of zero for every result: a first failure is then an increase, and not a new series that starts at one.
    fn default() -> Self {
        let classes = Class::ALL.iter().map(|class| class.as_str());
        let mut counts = BTreeMap::new();
        for result in [OK, TIMEOUT, CANCELED].into_iter().chain(classes) {
            counts.insert(result, Count::default());
        }
        Self(Arc::new(TallyData {
            counts: Mutex::new(counts),
            warnings: Warnings::default(),
        }))
    }
}

impl Tally {
    /// Returns the numbers.
    pub fn counts(&self) -> BTreeMap<&'static str, Count> {
        let counts = self.0.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Registers a request that is about to be sent.
    pub(super) fn begin(&self) -> Pending<'_> {
        Pending {
            tally: self,
            result: CANCELED,
            warnings: 0,
        }
    }

    /// Returns the warnings that were logged.
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

/// A request that was sent. It is counted when it is dropped, so that a canceled request is counted too.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    tally: &'a Tally,
    result: &'static str,
    warnings: u64,
}

impl Pending<'_> {
    /// Adds the warnings that the server sent with its response.
    pub(super) fn warned(&mut self, warnings: u64) {
        self.warnings = warnings;
    }

    /// Records the result of a request that was not dropped early.
    pub(super) fn end<T>(mut self, outcome: &Result<T, Error>) {
        self.result = match outcome {
            Ok(_) => OK,
            Err(Error::Timeout { .. }) => TIMEOUT,
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
    use super::super::error::{RequestPhase, RequestTarget};
    use super::*;

    #[test]
    fn a_request_that_times_out_and_one_that_is_dropped_are_counted_apart() {
        let tally = Tally::default();
        let none = Count::default();
        assert!(tally.counts().values().all(|count| *count == none));
        drop(tally.clone().begin());
        let mut warned = tally.begin();
        warned.warned(2);
        warned.end(&Ok(()));
        let counts = tally.counts();
        let of = |result: &str| (counts[result].requests, counts[result].warnings);
        assert_eq!((of("canceled"), of("ok")), ((1, 0), (1, 2)));
        assert_eq!(of("timeout"), (0, 0));
        assert_eq!(counts.len(), Class::ALL.len() + 3);
        let target = std::sync::Arc::new(RequestTarget {
            server: "https://api".into(),
            verb: "get",
            path: "/x".into(),
        });
        let late = target.timeout(RequestPhase::Headers, std::time::Duration::from_secs(10));
        tally.begin().end::<()>(&Err(late));
        let counts = tally.counts();
        assert_eq!(counts["timeout"].requests, 1);
        assert_eq!(counts["unreachable"].requests, 0);
    }
}
