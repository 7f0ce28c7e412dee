// SPDX-License-Identifier: Apache-2.0
//! One entry in the journal for each change of state.
//!
//! `tracing-journald` writes them to journald; without it they are lines of text on stderr. Both can block. So a separate thread
//! writes them, behind a bounded queue: a sender never waits. Entries that do not fit are counted, and the count is logged as soon
//! as the queue is empty again.

mod record;
mod writer;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use record::{MESSAGE_LIMIT, Priority, Record};

use super::sink::Sink;
use crate::config::LogLevel;
use writer::Writer;

/// The sending end, for any thread. Sending never waits for the journal and never fails.
#[derive(Debug, Clone)]
pub struct Journal {
    /// The least severe [`Priority`] that is written.
    level: Arc<AtomicU8>,
    /// `None` after it was closed.
    writer: Arc<Mutex<Option<Writer>>>,
}

impl Journal {
    /// Starts the thread that writes entries of `level` or more severe.
    pub fn new(sink: Sink, level: LogLevel) -> Self {
        Self {
            level: Arc::new(AtomicU8::new(level as u8)),
            // Without the thread there is no journal; the agent works nevertheless.
            writer: Arc::new(Mutex::new(Writer::start(sink).ok())),
        }
    }

    /// Changes the level of the entries that are sent from now on.
    pub fn set_level(&self, level: LogLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Queues an entry, or counts it as lost.
    pub fn send(&self, record: Record) {
        if record.priority as u8 > self.level.load(Ordering::Relaxed) {
            return;
        }
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = &*writer {
            writer.queue(record);
        }
    }

    /// Waits until all entries are written, for at most `timeout`. Reports whether they were.
    pub fn close(self, timeout: Duration) -> bool {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = writer.take();
        writer.is_none_or(|writer| writer.close(timeout))
    }
}

#[cfg(test)]
mod tests;
