// SPDX-License-Identifier: Apache-2.0
//! What a watch delivered and no round has used yet: the newest object, and whether its API can be reached. The keeper of the
//! watch puts it here and gives a reason to reconcile; the round takes it, and reads only what is not here.

use std::sync::{Arc, Mutex, PoisonError};

use crate::facts::observation::Api;
use crate::facts::trigger::Trigger;
use crate::wire::kubeapi::Error;

/// What a watch says of its object.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivered<T> {
    /// The object as it is.
    Object {
        /// The object.
        object: T,
        /// Its resource version.
        version: String,
    },
    /// It is gone, or what became of it is not known: it must be read.
    Unknown,
}

/// What a watch says of its API.
#[derive(Debug)]
pub enum Reach {
    /// The watch is kept.
    Reached,
    /// The watch cannot be opened because its API cannot be used at all. Its keeper goes on trying, so that no one else has to.
    Away(Error),
}

/// One watch's deliveries. Clones share them. It holds one object at most: the newest.
#[derive(Debug)]
pub struct Feed<T>(Arc<Mutex<Waiting<T>>>);

/// What waits to be used.
#[derive(Debug)]
pub struct Waiting<T> {
    /// The newest that was said of the object.
    pub delivered: Option<Delivered<T>>,
    /// The newest that was said of the API.
    pub reach: Option<Reach>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            delivered: None,
            reach: None,
        }
    }
}

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Feed<T> {
    /// Puts what a watch says of its object in the place of what it said before.
    pub fn deliver(&self, delivered: Delivered<T>) {
        self.with(|waiting| waiting.delivered = Some(delivered));
    }

    /// Puts what a watch says of its API in the place of what it said before.
    pub fn reach(&self, reach: Reach) {
        self.with(|waiting| waiting.reach = Some(reach));
    }

    /// Takes what waits.
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
