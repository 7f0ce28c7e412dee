// SPDX-License-Identifier: Apache-2.0
//! The queue between event sources and the wait for all of them. It limits the rate of what others can cause at will.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::decide::schedule::{Pace, Random};
use crate::facts::trigger::Trigger;

/// A reason, the time when it was sent, and the time before which it is not taken.
type Queued = (Trigger, Instant, Instant);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The reasons that were sent and not taken yet: at most one for each trigger.
    reasons: VecDeque<Queued>,
    /// The pace of each trigger that others can cause at will, and the time from which it counts.
    paces: BTreeMap<Trigger, (Instant, Pace)>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends reasons to the queue. A trigger that is already queued is not queued again.
#[derive(Debug, Clone)]
pub struct Sender {
    queue: Arc<Queue>,
    random: fn() -> Random,
    is_paced: bool,
}

impl Sender {
    /// Returns a sender to the same queue. `is_paced`: others can cause its reasons at any rate, so one that exceeds the rate limit of its
    /// trigger is taken later.
    #[must_use]
    pub fn paced(self, is_paced: bool) -> Self {
        Self { is_paced, ..self }
    }

    /// Queues a reason.
    pub fn send(&self, trigger: Trigger) {
        let Waiting { reasons, paces } = &mut *self.queue.lock();
        if reasons.iter().any(|(queued, ..)| *queued == trigger) {
            return;
        }
        let now = Instant::now();
        let mut due = now;
        if self.is_paced {
            let first = || (now, Pace::of_outside_trigger());
            let (start, pace) = paces.entry(trigger).or_insert_with(first);
            due += pace.take(now.saturating_duration_since(*start));
        }
        reasons.push_back((trigger, now, due));
        self.queue.news.notify_one();
    }

    /// Returns new random bits.
    pub fn random(&self) -> Random {
        (self.random)()
    }
}

/// Receives reasons, in their order.
#[derive(Debug)]
pub struct Inbox {
    queue: Arc<Queue>,
}

impl Inbox {
    /// Creates both ends of a queue.
    pub fn new(random: fn() -> Random) -> (Sender, Self) {
        let queue = Arc::<Queue>::default();
        let sender = Sender {
            queue: Arc::clone(&queue),
            random,
            is_paced: false,
        };
        (sender, Self { queue })
    }

    /// Returns the next reason and the time at which it was queued. Cancel-safe.
    pub async fn recv(&mut self) -> (Trigger, Instant) {
        loop {
            if let Some(reason) = self.try_recv() {
                return reason;
            }
            let due = self.queue.lock().reasons.iter().map(|one| one.2).min();
            let news = self.queue.news.notified();
            match due {
                None => news.await,
                Some(due) => drop(timeout_at(due, news).await),
            }
        }
    }

    /// Returns the next reason that is already queued and due.
    pub(super) fn try_recv(&mut self) -> Option<(Trigger, Instant)> {
        let reasons = &mut self.queue.lock().reasons;
        let now = Instant::now();
        let first = reasons.iter().position(|(.., due)| *due <= now)?;
        let (trigger, at, _) = reasons.remove(first)?;
        Some((trigger, at))
    }
}
