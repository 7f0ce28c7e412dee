// SPDX-License-Identifier: Apache-2.0
//! The queue between event sources and the wait for all of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::decide::schedule::Random;
use crate::facts::trigger::Trigger;

/// The reasons that were sent and not taken yet, with the time of each: at most one for each trigger.
#[derive(Debug, Default)]
struct Queue {
    reasons: Mutex<VecDeque<(Trigger, Instant)>>,
    news: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Trigger, Instant)>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends reasons to the queue. A trigger that is already queued is not queued again.
#[derive(Debug, Clone)]
pub struct Sender {
    queue: Arc<Queue>,
    random: fn() -> Random,
}

impl Sender {
    /// Queues a reason.
    pub fn send(&self, trigger: Trigger) {
        let mut reasons = self.queue.lock();
        if !reasons.iter().any(|(queued, _)| *queued == trigger) {
            reasons.push_back((trigger, Instant::now()));
            self.queue.news.notify_one();
        }
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
        let queue = Arc::new(Queue::default());
        let inbox = Self {
            queue: Arc::clone(&queue),
        };
        (Sender { queue, random }, inbox)
    }

    /// Returns the next reason and the time at which it was queued. Cancel-safe.
    pub async fn recv(&mut self) -> (Trigger, Instant) {
        loop {
            if let Some(reason) = self.try_recv() {
                return reason;
            }
            self.queue.news.notified().await;
        }
    }

    /// Returns the next reason that is already queued.
    pub(super) fn try_recv(&mut self) -> Option<(Trigger, Instant)> {
        self.queue.lock().pop_front()
    }
}
