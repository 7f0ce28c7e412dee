// SPDX-License-Identifier: Apache-2.0
//! What a watch is kept of, and by what: the object, where it is delivered, and the API server behind two traits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::triggers::feed::Feed;
use crate::wire::backoff::Backoff;
use crate::wire::kubeapi::{Client, Error, Watch, WatchEvent, WatchRequest};

/// Opens watches: the client of an API server, or a model of one.
pub trait OpenWatch: Clone + Send + Sync + 'static {
    /// An open watch.
    type Stream<T: Watched>: EventStream<T>;

    /// Opens a watch.
    fn open<T: Watched>(
        &self,
        request: &WatchRequest,
    ) -> impl Future<Output = Result<Self::Stream<T>, Error>> + Send;

    /// The failures of the API, shared with all others that talk to it.
    fn backoff(&self) -> &Backoff;

    /// The API server, for messages.
    fn server(&self) -> &str;
}

/// The events of an open watch.
pub trait EventStream<T>: Send {
    /// The next event. After an error and after [`WatchEvent::Ended`] the stream is over. May be dropped at any time without
    /// losing an event.
    fn next(&mut self) -> impl Future<Output = Result<WatchEvent<T>, Error>> + Send;
}

impl OpenWatch for Client {
    type Stream<T: Watched> = Watch<T>;

    async fn open<T: Watched>(&self, request: &WatchRequest) -> Result<Watch<T>, Error> {
        self.watch(request).await
    }

    fn backoff(&self) -> &Backoff {
        self.backoff()
    }

    fn server(&self) -> &str {
        self.server()
    }
}

impl<T: Watched> EventStream<T> for Watch<T> {
    async fn next(&mut self) -> Result<WatchEvent<T>, Error> {
        self.next().await
    }
}

/// What is watched.
#[derive(Debug)]
pub struct Target<T, C = Client> {
    /// The client; a new one after each change of the credential.
    pub client: C,
    /// Counts the credential's changes, so that a watch on an old client is replaced.
    pub generation: u64,
    /// The path of the collection.
    pub path: String,
    /// The name of the object.
    pub name: String,
    /// Where the object is delivered.
    pub feed: Feed<T>,
    /// The longest delay before the watch is opened again after its end.
    pub delay: Duration,
}

impl<T, C: Clone> Clone for Target<T, C> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            generation: self.generation,
            path: self.path.clone(),
            name: self.name.clone(),
            feed: self.feed.clone(),
            delay: self.delay,
        }
    }
}

impl<T, C> Target<T, C> {
    /// Whether a watch of `other` serves this target as well.
    pub fn is_same(&self, other: &Self) -> bool {
        self.generation == other.generation
            && self.path == other.path
            && self.name == other.name
            && self.delay == other.delay
    }
}

/// An object as a watch delivers it.
pub trait Watched: DeserializeOwned + Send + 'static {
    /// The part of it whose change is a reason to reconcile.
    type Snapshot: PartialEq + Send + Sync;

    /// Whether its metadata is all that is asked for.
    const METADATA_ONLY: bool;

    /// Its name.
    fn name(&self) -> &str;

    /// The part of it whose change is a reason to reconcile.
    fn snapshot(&self) -> Self::Snapshot;
}

/// Whether a watch is known to be alive. A connection may not survive a move, and TCP notices that a minute later.
#[derive(Debug, Clone)]
pub struct Pulse {
    heard: Arc<Mutex<Instant>>,
    pub(super) redial: Arc<Notify>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            heard: Arc::new(Mutex::new(Instant::now())),
            redial: Arc::default(),
        }
    }
}

impl Pulse {
    /// Re-establishes the watch, from where it stands, unless the server has said something since `since`.
    pub fn verify(&self, since: Instant) {
        if *self.heard.lock().unwrap_or_else(PoisonError::into_inner) < since {
            // Only to one that listens: one that is between two connections starts again anyway.
            self.redial.notify_waiters();
        }
    }

    pub(super) fn beat(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}
