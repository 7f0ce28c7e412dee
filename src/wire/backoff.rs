// SPDX-License-Identifier: Apache-2.0
//! The backoff of one API after a failure. Its reads, its writes and its watch share one [`Backoff`]: a failure of
//! one delays the others, a success of one ends the delay for all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::decide::schedule::{Random, retry};

/// The maximum time for which a watch waits for a read that was deferred, after the backoff has ended.
const READ_FIRST: Duration = Duration::from_secs(15);

/// The interval at which a watch checks whether that read was sent.
const READ_CHECK: Duration = Duration::from_millis(250);

/// The consecutive failures of an API. A pure value: the time and the randomness are arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    count: u32,
    /// The time at which the last failure was counted.
    counted: Option<Instant>,
    until: Option<Instant>,
    /// Whether a read was deferred since then.
    read_is_due: bool,
}

impl Failures {
    /// Records the failure at `now` of a request that was sent at `sent`. `asked` is the server's `Retry-After`.
    pub fn failed(&mut self, sent: Instant, now: Instant, asked: Option<Duration>, random: Random) {
        // A request that was in progress when another one failed belongs to the same failure.
        if self.counted.is_none_or(|counted| sent >= counted) {
            self.count = self.count.saturating_add(1);
            self.counted = Some(now);
        }
        let until = now + retry(self.count, asked, random);
        self.until = Some(self.until.map_or(until, |earlier| earlier.max(until)));
        self.read_is_due = false;
    }

    /// Returns the remaining time of the backoff.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Returns the time after which a watch asks again whether it may be opened. A read that was deferred goes first: a watch that
    /// fails while reads are answered would otherwise begin the next backoff each time, and the read would never be sent.
    pub fn left_for_watch(&self, now: Instant) -> Option<Duration> {
        self.left(now).or_else(|| {
            let until = self.until.filter(|_| self.read_is_due)?;
            let left = (until + READ_FIRST).saturating_duration_since(now);
            (!left.is_zero()).then_some(left.min(READ_CHECK))
        })
    }
}

/// The failures of one API, shared by all of its users. The default value never delays a request, as needed for a
/// command with a user waiting.
#[derive(Debug, Clone, Default)]
pub struct Backoff(Option<Shared>);

/// The failures, and what returns new random bits.
type Shared = (Arc<Mutex<Failures>>, fn() -> Random);

impl Backoff {
    /// Creates a backoff that delays requests.
    pub fn new(random: fn() -> Random) -> Self {
        Self(Some((Arc::default(), random)))
    }

    /// Returns the remaining time of the backoff.
    pub fn left(&self) -> Option<Duration> {
        self.with(|failures| failures.left(Instant::now()))?
    }

    /// Returns the time after which a watch asks again whether it may be opened.
    pub fn left_for_watch(&self) -> Option<Duration> {
        self.with(|failures| failures.left_for_watch(Instant::now()))?
    }

    /// Records that a read was deferred: it precedes the watch when the backoff ends.
    pub fn read_deferred(&self) {
        self.with(|failures| failures.read_is_due = true);
    }

    /// Records the failure of a request that was sent at `sent`. `asked` is the server's `Retry-After`.
    pub fn failed(&self, sent: Instant, asked: Option<Duration>) {
        if let Some((_, random)) = &self.0 {
            self.with(|failures| failures.failed(sent, Instant::now(), asked, random()));
        }
    }

    /// Allows the next request at once. If it fails, the count of failures continues.
    pub fn skip_backoff(&self) {
        self.with(|failures| failures.until = None);
    }

    /// Records a request that got a response.
    pub fn succeeded(&self) {
        self.with(|failures| *failures = Failures::default());
    }

    fn with<T>(&self, act: impl FnOnce(&mut Failures) -> T) -> Option<T> {
        let (failures, _) = self.0.as_ref()?;
        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
        Some(act(&mut failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most() -> Random {
        Random::from_bits(u64::MAX)
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_that_lasts_a_minute_is_asked_less_and_less() {
        for random in [0, u64::MAX / 2, u64::MAX].map(Random::from_bits) {
            let mut failures = Failures::default();
            let began = Instant::now();
            let mut now = began;
            let mut sent = Vec::new();
            while now - began < Duration::from_secs(60) {
                sent.push(now);
                failures.failed(now, now, Some(Duration::from_secs(1)), random);
                now += failures.left(now).unwrap();
            }
            // With the smallest random value, only the server's own second remains as the delay.
            let limit = if random.value() == 0.0 { 60 } else { 14 };
            assert!(sent.len() <= limit, "{random:?}: {}", sent.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_migration_hint_does_not_wait_and_makes_no_new_beginning() {
        let (mut hinted, mut other) = (Failures::default(), Failures::default());
        for failures in [&mut hinted, &mut other] {
            (0..5).for_each(|_| failures.failed(Instant::now(), Instant::now(), None, most()));
        }
        hinted.until = None;
        assert_eq!(hinted.left(Instant::now()), None);
        let now = Instant::now();
        for failures in [&mut hinted, &mut other] {
            failures.failed(now, now, None, most());
        }
        assert_eq!(hinted.left(now), other.left(now));
    }

    #[tokio::test(start_paused = true)]
    async fn one_failure_that_meets_several_requests_counts_once() {
        let (mut one, mut several) = (Failures::default(), Failures::default());
        let sent = Instant::now();
        let now = sent + Duration::from_millis(10);
        one.failed(sent, now, None, most());
        for _ in 0..10 {
            several.failed(sent, now, None, most());
        }
        assert_eq!(one, several);
        let later = now + Duration::from_secs(1);
        several.failed(later, later, None, most());
        assert!(several.left(later) > one.left(now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_was_deferred_is_sent_before_the_watch() {
        let mut failures = Failures::default();
        let now = Instant::now();
        failures.failed(now, now, None, most());
        let ended = now + failures.left(now).unwrap();
        assert_eq!(failures.left_for_watch(now), failures.left(now));
        assert_eq!(failures.left_for_watch(ended), None);
        failures.read_is_due = true;
        assert_eq!(failures.left(ended), None);
        assert_eq!(failures.left_for_watch(ended), Some(READ_CHECK));
        assert_eq!(failures.left_for_watch(ended + READ_FIRST), None);
        failures.failed(ended, ended, None, most());
        let ended = ended + failures.left(ended).unwrap();
        assert_eq!(failures.left_for_watch(ended), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_one_delays_all_and_a_success_of_one_ends_it() {
        let (reads, watch) = {
            let backoff = Backoff::new(most);
            (backoff.clone(), backoff)
        };
        assert_eq!(watch.left(), None);
        reads.failed(Instant::now(), Some(Duration::from_secs(30)));
        assert!(watch.left() >= Some(Duration::from_secs(30)));
        watch.succeeded();
        assert_eq!(reads.left(), None);
        let never = Backoff::default();
        never.failed(Instant::now(), Some(Duration::from_secs(30)));
        assert_eq!(never.left(), None);
    }
}
