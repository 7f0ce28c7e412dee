// SPDX-License-Identifier: Apache-2.0
//! One entry in the journal for each change of state.
//!
//! Entries are events of `tracing`, which `tracing-journald` writes to journald, or text lines to stderr. Both can block. So a
//! separate thread writes them, behind a bounded queue: a sender never waits. Entries that do not fit are counted, and the count
//! is logged as soon as the queue is empty again.

mod lines;
mod record;
mod subscriber;
mod writer;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use record::{MESSAGE_LIMIT, Priority, Record};

use super::sink::Sink;
use crate::config::LogLevel;
use subscriber::Level;
use writer::Writer;

/// The sending end, for any thread. Sending never waits for the journal and never fails.
#[derive(Debug, Clone)]
pub struct Journal {
    level: Level,
    /// `None` after it was closed.
    writer: Arc<Mutex<Option<Writer>>>,
}

impl Journal {
    /// Starts the thread that writes entries of `level` or more severe.
    pub fn new(sink: Sink, level: LogLevel) -> Self {
        let level = Level::new(level);
        let filter = level.clone();
        // Without the thread there is no journal; the agent works nevertheless.
        let writer = Writer::start(move || subscriber::of(sink, filter)).ok();
        Self {
            level,
            writer: Arc::new(Mutex::new(writer)),
        }
    }

    /// Changes the level of the entries that are written.
    pub fn set_level(&self, level: LogLevel) {
        self.level.set(level);
    }

    /// Queues an entry, or counts it as lost.
    pub fn send(&self, record: Record) {
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
