// SPDX-License-Identifier: Apache-2.0
//! A thread for blocking writes: to a slow journal, or to stderr, which may be a full pipe. It sleeps while its queue is empty.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing::Dispatch;
use tracing::dispatcher::with_default;
use tracing_journald::{Priority as Syslog, PriorityMappings};
use tracing_subscriber::layer::SubscriberExt;

use super::record::{Priority, Record};
use crate::report::sink::Sink;

/// The name of the service in the journal.
const SYSLOG_IDENTIFIER: &str = "harvester-node-agent";

/// The priority of each level, as [`Record::emit`] uses it.
const PRIORITIES: PriorityMappings = PriorityMappings {
    error: Syslog::Error,
    warn: Syslog::Warning,
    info: Syslog::Notice,
    debug: Syslog::Informational,
    trace: Syslog::Debug,
};

/// The maximum number of queued entries: more than one change of every reported state. journald's socket holds as many or more.
pub(super) const QUEUE_LENGTH: usize = 64;

/// An entry, or `None`: a request to read the count of lost entries.
pub(super) type Queued = Option<Box<Record>>;

/// The sending end. The thread exits when this is dropped and all entries are written.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Queued>,
    /// The number of lost entries since it was last reported.
    lost: Arc<AtomicU64>,
    /// Disconnected when the thread has exited.
    ended: Receiver<Infallible>,
}

impl Writer {
    /// Starts the thread, which opens the sink.
    pub(super) fn start(sink: Sink) -> io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE_LENGTH);
        let (alive, ended) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || {
                let output = Output::open(sink);
                drain(&records, &counted, |record| output.write(record));
                drop::<SyncSender<Infallible>>(alive);
            })?;
        Ok(Self { queue, lost, ended })
    }

    /// Queues an entry, or counts it as lost.
    pub(super) fn queue(&self, record: Record) {
        if self.queue.try_send(Some(Box::new(record))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            // The thread may have emptied the queue in the meantime, and would sleep without reading the count.
            let _ = self.queue.try_send(None);
        }
    }

    /// Waits until all entries are written, for at most `timeout`. Reports whether they were.
    pub(super) fn close(self, timeout: Duration) -> bool {
        drop(self.queue);
        matches!(
            self.ended.recv_timeout(timeout),
            Err(RecvTimeoutError::Disconnected)
        )
    }
}

/// Writes the queued entries, and the count of lost ones whenever the queue is empty or closed.
pub(super) fn drain(records: &Receiver<Queued>, lost: &AtomicU64, mut write: impl FnMut(&Record)) {
    loop {
        let queued = records.try_recv();
        if queued.is_err() {
            let count = lost.swap(0, Ordering::Relaxed);
            if count > 0 {
                write(&Record::lost(count));
            }
        }
        let queued = match queued {
            // If the queue is closed meanwhile, the last lost entries are reported next.
            Err(TryRecvError::Empty) => records.recv().unwrap_or_default(),
            Err(TryRecvError::Disconnected) => break,
            Ok(queued) => queued,
        };
        if let Some(record) = queued {
            write(&record);
        }
    }
}

/// An open sink. Blocks while journald or the reader of stderr is stalled.
enum Output {
    Journald(Dispatch),
    Stderr { is_prefixed: bool },
}

impl Output {
    fn open(sink: Sink) -> Self {
        let journald = match sink {
            Sink::Stderr { is_prefixed } => return Self::Stderr { is_prefixed },
            Sink::Journal => tracing_journald::layer(),
        };
        match journald {
            Ok(journald) => {
                let journald = journald
                    .with_field_prefix(None)
                    .with_priority_mappings(PRIORITIES)
                    .with_syslog_identifier(SYSLOG_IDENTIFIER.to_owned());
                Self::Journald(Dispatch::new(tracing_subscriber::registry().with(journald)))
            }
            Err(error) => {
                // systemd forwards stderr to the journal when it is available again.
                let output = Self::Stderr { is_prefixed: true };
                let text =
                    format!("failed to connect to the journal, writing to stderr instead: {error}");
                output.write(&Record::new(Priority::Warning, text));
                output
            }
        }
    }

    /// Writes an entry in one write, so that lines of other writers do not interleave.
    fn write(&self, record: &Record) {
        match self {
            Self::Journald(journald) => with_default(journald, || record.emit()),
            Self::Stderr { is_prefixed } => {
                // An error of stderr cannot be reported anywhere.
                let _ = io::stderr().write_all(record.text(*is_prefixed).as_bytes());
            }
        }
    }
}
