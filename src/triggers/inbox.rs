// SPDX-License-Identifier: Apache-2.0
//! The queue between event sources and the wait for all of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::decide::schedule::Random;
use crate::facts::trigger::Trigger;

/// Where sources put their reasons. One that waits to be taken already is not put again: it says nothing more.
#[derive(Debug, Clone)]
pub struct Sender {
    queue: mpsc::UnboundedSender<(Trigger, Instant)>,
    /// The reasons that wait to be taken.
    waiting: Arc<Mutex<BTreeSet<Trigger>>>,
    random: fn() -> Random,
}

impl Sender {
    /// Gives a reason.
    pub fn send(&self, trigger: Trigger) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.insert(trigger) {
            let _ = self.queue.send((trigger, Instant::now()));
        }
    }

    /// Fresh randomness.
    pub fn random(&self) -> Random {
        (self.random)()
    }
}

/// Where reasons are taken: at most one of each kind waits.
#[derive(Debug)]
pub struct Inbox {
    pub(super) queue: mpsc::UnboundedReceiver<(Trigger, Instant)>,
    waiting: Arc<Mutex<BTreeSet<Trigger>>>,
}

impl Inbox {
    /// Two ends of one queue.
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

    /// The next reason, and when it was given. Cancel-safe.
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
