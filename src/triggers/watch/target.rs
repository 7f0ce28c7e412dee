// SPDX-License-Identifier: Apache-2.0
//! The target of a watch: the object, its feed, and the client of the API server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::triggers::feed::Feed;
use crate::wire::kubeapi::{Client, Error, ObjectPath, Watch, WatchEvent};

/// The object to watch.
#[derive(Debug, Clone)]
pub struct Target<T> {
    /// The client; a new one after each change of the credential.
    pub client: Client,
    /// The number of credential changes, so that a watch with an old client is replaced.
    pub generation: u64,
    /// The object.
    pub path: ObjectPath,
    /// The feed for the deliveries.
    pub feed: Feed<T>,
    /// The maximum delay before the watch is re-established.
    pub delay: Duration,
}

impl<T> Target<T> {
    /// Reports whether a watch of `other` also serves this target.
    pub fn is_same(&self, other: &Self) -> bool {
        self.generation == other.generation && self.path == other.path && self.delay == other.delay
    }
}

/// An object as a watch delivers it.
pub trait Watched: DeserializeOwned + Clone + Send + 'static {
    /// The part whose change is a reason to reconcile.
    type Snapshot: PartialEq + Send + Sync;

    /// Whether only the metadata is requested.
    const METADATA_ONLY: bool;

    /// Returns the part whose change is a reason to reconcile.
    fn snapshot(&self) -> Self::Snapshot;
}

/// The liveness of a watch. A connection may not survive a migration, and TCP detects that a minute later.
#[derive(Debug, Clone, Default)]
pub struct Pulse {
    /// When the server last sent data.
    heard: Arc<Mutex<Option<Instant>>>,
    pub(super) redial: Arc<Notify>,
}

impl Pulse {
    /// Re-establishes the watch at its current version, unless the server has sent data since `since`.
    pub fn verify(&self, since: Instant) {
        if *self.heard.lock().unwrap_or_else(PoisonError::into_inner) < Some(since) {
            // Only a keeper that follows a stream is notified: one without a stream opens a new one anyway.
            self.redial.notify_waiters();
        }
    }

    pub(super) fn beat(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Returns the next event. If none arrives within `silence`, or the first is a bookmark, as on Kubernetes 1.36, the object was
/// deleted after it was read: `gone` is called once. Must not be canceled in the middle of an event.
pub(super) async fn next<T: Watched>(
    stream: &mut Watch<T>,
    silence: &mut Option<Duration>,
    gone: impl FnOnce(),
) -> Result<WatchEvent<T>, Error> {
    let event = stream.next();
    let Some(silence) = silence.take() else {
        return event.await;
    };
    let mut event = std::pin::pin!(event);
    if let Ok(event) = timeout(silence, &mut event).await {
        if matches!(event, Ok(WatchEvent::Bookmark { .. })) {
            gone();
        }
        return event;
    }
    gone();
    event.await
}
