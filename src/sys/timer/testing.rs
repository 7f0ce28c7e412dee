// SPDX-License-Identifier: Apache-2.0
//! For tests only: marks the system of this thread as simulated, and provides its timer on tokio's paused clock.

use std::cell::Cell;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Kernel;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
}

/// Declares that the system of this thread is simulated: no kernel events are received.
pub(crate) fn turn_on() {
    ON.set(true);
}

/// Reports whether the system of this thread is simulated.
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// A timer of the kernel, or of a simulated system.
#[derive(Debug)]
pub(crate) enum Timer<K> {
    /// The kernel's timer.
    Kernel(K),
    /// A timer on tokio's clock.
    Simulated(Paused),
}

/// A timer on tokio's clock.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    due: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Timer<Kernel> {
    /// Creates the timer for the system of this thread.
    pub(crate) fn new(kernel: impl FnOnce() -> io::Result<Kernel>) -> io::Result<Self> {
        Ok(match is_on() {
            true => Self::Simulated(Paused::default()),
            false => Self::Kernel(kernel()?),
        })
    }

    /// Sets the timer.
    pub(crate) fn set(&self, wait: Duration) {
        match self {
            Self::Kernel(timer) => timer.set(wait),
            Self::Simulated(timer) => {
                timer.put(Some(Instant::now() + wait));
                timer.changed.notify_one();
            }
        }
    }

    /// Waits until the timer expires.
    pub(crate) async fn ring(&self) {
        match self {
            Self::Kernel(timer) => timer.ring().await,
            Self::Simulated(timer) => timer.ring().await,
        }
    }
}

impl Paused {
    fn put(&self, due: Option<Instant>) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = due;
    }

    fn due(&self) -> Option<Instant> {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ring(&self) {
        loop {
            match self.due() {
                Some(due) if due <= Instant::now() => {
                    self.put(None);
                    return;
                }
                Some(due) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }
}
