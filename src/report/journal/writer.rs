// SPDX-License-Identifier: Apache-2.0
//! A thread for blocking writes: to a slow journal, or to stderr, which may be a full pipe. It sleeps while its queue is empty.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing::Dispatch;
use tracing::dispatcher::with_default;

use super::record::Record;

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
    /// Starts the thread. It creates the subscriber in the thread, and writes the entry that this returns first.
    pub(super) fn start(
        stack: impl FnOnce() -> (Dispatch, Option<Record>) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE_LENGTH);
        let (alive, ended) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || {
                let (stack, first) = stack();
                with_default(&stack, || {
                    if let Some(first) = first {
                        first.emit();
                    }
                    drain(&records, &counted, Record::emit);
                });
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

/// Writes the queued entries, and the count of lost ones whenever the queue is empty.
pub(super) fn drain(records: &Receiver<Queued>, lost: &AtomicU64, mut write: impl FnMut(&Record)) {
    loop {
        let queued = match records.try_recv() {
            Err(TryRecvError::Empty) => {
                let count = lost.swap(0, Ordering::Relaxed);
                if count > 0 {
                    write(&Record::lost(count));
                }
                records.recv().ok()
            }
            queued => queued.ok(),
        };
        match queued {
            Some(Some(record)) => write(&record),
            Some(None) => {}
            None => break,
        }
    }
    // The queue is closed: report the last lost entries now.
    let count = lost.swap(0, Ordering::Relaxed);
    if count > 0 {
        write(&Record::lost(count));
    }
}
