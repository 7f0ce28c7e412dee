// SPDX-License-Identifier: Apache-2.0
//! A thread for what could make its writer wait: a journal that is slow, or stderr, which may be a full pipe. It sleeps in its
//! queue while nothing happens.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::native::Connection;
use super::record::{Priority, Record};
use crate::report::sink::{Sink, StderrStyle};

/// Records that wait: more than one change of everything that we report on.
const QUEUE_LENGTH: usize = 64;

/// A record for the thread.
#[derive(Debug)]
pub(super) struct Queued {
    /// What to write.
    pub(super) record: Record,
    /// Records that did not fit just before this one.
    pub(super) lost_before: u64,
}

/// The sending end. The thread ends when this is dropped and all is written.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Queued>,
    /// Records in the queue, and the one that is being written.
    unwritten: Arc<AtomicUsize>,
    /// Disconnected when the thread has ended.
    ended: Receiver<Infallible>,
}

impl Writer {
    /// Starts the thread. What `lost` counts at the end is told last.
    pub(super) fn start(sink: Sink, lost: &Arc<AtomicU64>) -> io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE_LENGTH);
        let (alive, ended) = sync_channel(0);
        let unwritten = Arc::new(AtomicUsize::new(0));
        let (lost, left) = (Arc::clone(lost), Arc::clone(&unwritten));
        thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || {
                let mut output = Output::new(sink);
                drain(&records, &lost, &left, |record| output.write(record));
                drop::<SyncSender<Infallible>>(alive);
            })?;
        Ok(Self {
            queue,
            unwritten,
            ended,
        })
    }

    /// Queues a record, unless there is no room.
    pub(super) fn queue(&self, queued: Queued) -> bool {
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        let fits = self.queue.try_send(queued).is_ok();
        if !fits {
            self.unwritten.fetch_sub(1, Ordering::AcqRel);
        }
        fits
    }

    /// Whether all is written.
    pub(super) fn is_idle(&self) -> bool {
        self.unwritten.load(Ordering::Acquire) == 0
    }

    /// Waits until all is written, but no longer than `timeout`. Returns whether it was.
    pub(super) fn close(self, timeout: Duration) -> bool {
        drop(self.queue);
        matches!(
            self.ended.recv_timeout(timeout),
            Err(RecvTimeoutError::Disconnected)
        )
    }
}

/// The thread, with its way of writing.
pub(super) fn drain(
    records: &Receiver<Queued>,
    lost: &AtomicU64,
    unwritten: &AtomicUsize,
    mut write: impl FnMut(&Record),
) {
    for queued in records {
        write(&queued.record);
        if queued.lost_before > 0 {
            write(&Record::lost(queued.lost_before));
        }
        unwritten.fetch_sub(1, Ordering::AcqRel);
    }
    // The queue is closed: nobody else will tell of what was lost last.
    let lost_last = lost.swap(0, Ordering::Relaxed);
    if lost_last > 0 {
        write(&Record::lost(lost_last));
    }
}

/// Where the thread writes to, and waits for as long as it takes.
enum Output {
    Journal(Connection),
    Stderr(StderrStyle),
}

impl Output {
    fn new(sink: Sink) -> Self {
        match sink {
            Sink::Stderr(style) => Self::Stderr(style),
            Sink::Journal => match Connection::open() {
                Ok(journal) => Self::Journal(journal),
                Err(error) => Self::without_a_journal(&error),
            },
        }
    }

    fn write(&mut self, record: &Record) {
        if let Self::Journal(journal) = self {
            match journal.send(&record.to_native()) {
                Ok(()) => return,
                Err(error) => *self = Self::without_a_journal(&error),
            }
        }
        if let Self::Stderr(style) = self {
            write_to_stderr(*style, record);
        }
    }

    /// systemd passes stderr on to the journal when there is one again.
    fn without_a_journal(error: &io::Error) -> Self {
        let text = format!("failed to connect to the journal, writing to stderr instead: {error}");
        write_to_stderr(StderrStyle::Prefixed, &Record::new(Priority::Warning, text));
        Self::Stderr(StderrStyle::Prefixed)
    }
}

fn write_to_stderr(style: StderrStyle, record: &Record) {
    // One write, so that lines of other writers do not get in between. Nobody can be told that stderr is gone.
    let _ = io::stderr()
        .lock()
        .write_all(record.to_text(style).as_bytes());
}
