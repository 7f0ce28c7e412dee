// SPDX-License-Identifier: Apache-2.0
//! Every object of the cluster, one counter of resource versions, and the history that watches are served from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::status::Failure;

/// What identifies an object. The version is absent: all versions of a kind are one set of objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub group: &'static str,
    pub plural: &'static str,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

/// One entry of the history.
#[derive(Debug)]
pub(crate) struct Change {
    pub revision: u64,
    pub key: Key,
    /// The object after the change; after a deletion its last state with the deletion's resource version.
    pub object: Arc<Value>,
    /// The object before the change, absent for a creation.
    pub previous: Option<Arc<Value>>,
    pub deleted: bool,
}

/// What a transaction decides.
pub(crate) enum Step {
    /// Leave the object as it is; no watch is told.
    Keep,
    /// Store this object under the next resource version.
    Put(Value),
    /// Remove the object.
    Remove,
}

#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    revision: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: Vec<Arc<Change>>,
}

impl Store {
    pub(crate) fn new() -> Self {
        // Not 1: a client that takes small numbers for "the beginning" should be found out.
        let revision = 1000;
        Self {
            inner: Mutex::new(Inner {
                revision,
                objects: BTreeMap::new(),
                history: Vec::new(),
            }),
            changed: watch::channel(revision).0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of the store panics")
    }

    pub(crate) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Told of each new revision.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.lock().objects.get(key).cloned()
    }

    /// The revision and all objects of a resource, in the order of namespace and name.
    pub(crate) fn list(
        &self,
        group: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> (u64, Vec<Arc<Value>>) {
        let inner = self.lock();
        let is_of = |key: &Key| {
            key.group == group
                && key.plural == plural
                && namespace.is_none_or(|namespace| key.namespace == namespace)
        };
        let objects = inner.objects.iter().filter(|(key, _)| is_of(key));
        let objects = objects.map(|(_, object)| object.clone()).collect();
        (inner.revision, objects)
    }

    /// Decides and stores in one step that no other request can come between; returns the object after it (its last state when it
    /// was removed).
    pub(crate) fn transact(
        &self,
        key: &Key,
        decide: impl FnOnce(Option<&Arc<Value>>) -> Result<Step, Failure>,
    ) -> Result<Arc<Value>, Failure> {
        let mut inner = self.lock();
        let previous = inner.objects.get(key).cloned();
        let last = || previous.as_deref().cloned().unwrap_or_default();
        let (mut object, deleted) = match decide(previous.as_ref())? {
            Step::Keep => return Ok(previous.unwrap_or_default()),
            Step::Put(object) => (object, false),
            Step::Remove => (last(), true),
        };
        inner.revision += 1;
        let revision = inner.revision;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        let object = Arc::new(object);
        match deleted {
            true => inner.objects.remove(key),
            false => inner.objects.insert(key.clone(), object.clone()),
        };
        inner.history.push(Arc::new(Change {
            revision,
            key: key.clone(),
            object: object.clone(),
            previous,
            deleted,
        }));
        drop(inner);
        self.changed.send_replace(revision);
        Ok(object)
    }

    /// The changes after `revision`.
    pub(crate) fn since(&self, revision: u64) -> Vec<Arc<Change>> {
        let inner = self.lock();
        let first = inner
            .history
            .partition_point(|change| change.revision <= revision);
        inner.history[first..].to_vec()
    }
}
