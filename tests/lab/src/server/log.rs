// SPDX-License-Identifier: Apache-2.0
//! What clients asked, and when watch events went out to them.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use serde_json::Value;

/// One request.
#[derive(Debug, Clone)]
pub struct RequestRecord {
    /// When its head had arrived.
    pub at: Instant,
    /// The authenticated user; empty when it was answered before authentication.
    pub user: String,
    /// The User-Agent header.
    pub user_agent: String,
    /// Kubernetes verb: get, list, watch, create, update, patch, delete; the method in lower case for other paths.
    pub verb: String,
    /// HTTP method.
    pub method: String,
    /// Path as sent.
    pub path: String,
    /// Query as sent, without the question mark.
    pub query: String,
    /// Body, null when empty or no JSON.
    pub body: Value,
    /// Status code of the answer; 0 while there is none.
    pub status: u16,
}

impl RequestRecord {
    /// Whether it asked for a change. Reviews of access are POSTs, but change nothing.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let write = matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete");
        write && !self.path.starts_with("/apis/authorization.k8s.io/")
    }
}

/// One watch event that was handed to the connection for writing.
#[derive(Debug, Clone)]
pub struct WatchWrite {
    /// When its bytes were handed over; the write to the socket follows at once.
    pub at: Instant,
    /// User-Agent of the watching client.
    pub user_agent: String,
    /// Path of the watch.
    pub path: String,
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub event: String,
    /// Name of the object; empty for bookmarks and errors.
    pub name: String,
    /// Resource version of the object; 0 for errors.
    pub revision: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Number of the first record that is still here.
    first: usize,
    requests: Vec<RequestRecord>,
    watch_writes: Vec<WatchWrite>,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().expect("no holder of the log panics")
    }

    /// Keeps a record; the number is for [`Log::amend`].
    pub(crate) fn begin(&self, record: RequestRecord) -> usize {
        let mut entries = self.lock();
        entries.requests.push(record);
        entries.first + entries.requests.len() - 1
    }

    /// Changes a record, unless it was cleared away.
    pub(crate) fn amend(&self, number: usize, change: impl FnOnce(&mut RequestRecord)) {
        let mut entries = self.lock();
        let index = number.checked_sub(entries.first);
        if let Some(record) = index.and_then(|index| entries.requests.get_mut(index)) {
            change(record);
        }
    }

    pub(crate) fn wrote(&self, write: WatchWrite) {
        self.lock().watch_writes.push(write);
    }

    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        self.lock().requests.clone()
    }

    pub(crate) fn watch_writes(&self) -> Vec<WatchWrite> {
        self.lock().watch_writes.clone()
    }

    pub(crate) fn clear(&self) {
        let mut entries = self.lock();
        entries.first += entries.requests.len();
        entries.requests.clear();
        entries.watch_writes.clear();
    }
}
