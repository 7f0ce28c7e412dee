// SPDX-License-Identifier: Apache-2.0
//! One entry in the journal for each change of state.
//!
//! A record goes straight to journald's socket, which takes it or says at once that it cannot. Then, and where records go to
//! stderr, a thread does the waiting, behind a bounded queue that never makes the sender wait; what does not fit is counted, and
//! the count is written down as soon as something fits again. On a machine whose journal keeps up there is no such thread.

mod native;
mod record;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use record::{MESSAGE_LIMIT, Priority, Record};

use super::sink::Sink;
use native::Connection;
use writer::{Queued, Writer};

/// The sending end, for any thread. Sending never waits for a journal and never fails.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Mutex<Outlet>>);

#[derive(Debug)]
struct Outlet {
    sink: Sink,
    /// `None` where records go to stderr, and where the journal cannot be reached.
    direct: Option<Connection>,
    writer: Option<Writer>,
    /// Lost since the last record that fitted.
    lost: Arc<AtomicU64>,
}

impl Journal {
    /// A journal that nobody wrote to yet.
    pub fn new(sink: Sink) -> Self {
        let direct = match sink {
            Sink::Journal => Connection::open_nonblocking().ok(),
            Sink::Stderr(_) => None,
        };
        Self(Arc::new(Mutex::new(Outlet {
            sink,
            direct,
            writer: None,
            lost: Arc::default(),
        })))
    }

    /// Writes a record, queues it, or counts it as lost.
    pub fn send(&self, record: Record) {
        let mut outlet = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outlet.send(record);
    }

    /// Waits until all records are written, but no longer than `timeout`. Returns whether they were.
    pub fn close(self, timeout: Duration) -> bool {
        let mut outlet = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = outlet.writer.take();
        drop(outlet);
        writer.is_none_or(|writer| writer.close(timeout))
    }
}

impl Outlet {
    fn send(&mut self, record: Record) {
        // Records must not overtake those that wait.
        let is_in_turn = self.lost.load(Ordering::Relaxed) == 0
            && self.writer.as_ref().is_none_or(Writer::is_idle);
        if is_in_turn
            && let Some(journal) = &mut self.direct
            && journal.send(&record.to_native()).is_ok()
        {
            return;
        }
        let lost_before = self.lost.swap(0, Ordering::Relaxed);
        let queued = Queued {
            record,
            lost_before,
        };
        if self.writer.is_none() {
            self.writer = Writer::start(self.sink, &self.lost).ok();
        }
        if !self
            .writer
            .as_ref()
            .is_some_and(|writer| writer.queue(queued))
        {
            self.lost.fetch_add(lost_before + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
