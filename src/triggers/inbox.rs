// SPDX-License-Identifier: Apache-2.0
//! The queue between event sources and the wait for all of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::decide::schedule::Random;
use crate::facts::trigger::Trigger;

/// Sends reasons to the queue. A trigger that is already queued is not queued again.
#[derive(Debug, Clone)]
pub struct Sender {
    queue: mpsc::UnboundedSender<(Trigger, Instant)>,
    /// The triggers in the queue.
    waiting: Arc<Mutex<BTreeSet<Trigger>>>,
    random: fn() -> Random,
}

impl Sender {
    /// Queues a reason.
    pub fn send(&self, trigger: Trigger) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.insert(trigger) {
            let _ = self.queue.send((trigger, Instant::now()));
        }
    }

    /// Returns new random bits.
    pub fn random(&self) -> Random {
        (self.random)()
    }
}

/// Receives reasons: the queue holds at most one for each trigger.
#[derive(Debug)]
pub struct Inbox {
    pub(super) queue: mpsc::UnboundedReceiver<(Trigger, Instant)>,
    waiting: Arc<Mutex<BTreeSet<Trigger>>>,
}

impl Inbox {
    /// Creates both ends of a queue.
    pub fn new(random: fn() -> Random) -> (Sender, Self) {
        let (sender, queue) = mpsc::unbounded_channel();
        let waiting = Arc::default();
        let inbox = Self {
            queue,
            waiting: Arc::clone(&waiting),
        };
        let queue = sender;
        (
            Sender {
                queue,
                waiting,
                random,
            },
            inbox,
        )
    }

    /// Returns the next reason and the time at which it was queued. Cancel-safe.
    pub async fn recv(&mut self) -> Option<(Trigger, Instant)> {
        let (trigger, at) = self.queue.recv().await?;
        self.taken(trigger);
        Some((trigger, at))
    }

    pub(super) fn taken(&self, trigger: Trigger) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&trigger);
    }
}
