// SPDX-License-Identifier: Apache-2.0
//! Deliveries of a watch that no round has used yet: the newest object, and whether its API can be reached. The keeper of the
//! watch stores them and queues a reason to reconcile; the round takes them, and reads only what is missing.

use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::Api;
use crate::facts::trigger::Trigger;
use crate::wire::kubeapi::Error;

/// The state of the object that a watch delivers.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivered<T> {
    /// The current object.
    Object {
        /// The object.
        object: T,
        /// Its resource version.
        version: String,
    },
    /// It is gone or its state is unknown: it must be read.
    Unknown,
}

/// The state of the API that a watch reports: it is established, or cannot be opened because its API cannot be used at all. Its keeper
/// retries then, so other requests need not.
pub type Reach = Result<(), Error>;

/// The deliveries of one watch. Clones share them. Holds at most one object: the newest.
#[derive(Debug, Clone)]
pub struct Feed<T>(Arc<Mutex<Waiting<T>>>);

/// The deliveries that are not used yet: the newest state of the object, and that of the API.
type Waiting<T> = (Option<Delivered<T>>, Option<Reach>);

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Feed<T> {
    /// Replaces the state of the object.
    pub fn deliver(&self, delivered: Delivered<T>) {
        self.with(|waiting| waiting.0 = Some(delivered));
    }

    /// Replaces the state of the API.
    pub fn reach(&self, reach: Reach) {
        self.with(|waiting| waiting.1 = Some(reach));
    }

    /// Takes the deliveries.
    pub fn take(&self) -> Waiting<T> {
        self.with(std::mem::take)
    }

    fn with<R>(&self, act: impl FnOnce(&mut Waiting<T>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the API that the watch of a trigger belongs to.
pub fn api_of(trigger: Trigger) -> Api {
    match trigger {
        Trigger::Node => Api::Guest,
        _ => Api::Harvester,
    }
}
