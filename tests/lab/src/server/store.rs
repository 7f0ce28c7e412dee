// SPDX-License-Identifier: Apache-2.0
//! Every object of the cluster, one counter of resource versions, and the history that watches are served from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::status::Failure;

/// How many changes are kept before the oldest are compacted away by themselves; far more than any test makes.
const HISTORY_LIMIT: usize = 100_000;

/// What identifies an object. The version is absent: all versions of a kind are one set of objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub group: String,
    pub plural: String,
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
    /// Changes up to and with this revision are no longer known.
    compacted: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Arc<Change>>,
}

impl Store {
    pub(crate) fn new() -> Self {
        // Not 1: a client that takes small numbers for "the beginning" should be found out.
        let revision = 1000;
        Self {
            inner: Mutex::new(Inner {
                revision,
                compacted: revision,
                objects: BTreeMap::new(),
                history: VecDeque::new(),
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
    ) -> (u64, Vec<(Key, Arc<Value>)>) {
        let inner = self.lock();
        let start = Key {
            group: group.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: String::new(),
        };
        let objects = inner
            .objects
            .range(start..)
            .take_while(|(key, _)| key.group == group && key.plural == plural)
            .filter(|(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
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
        let (mut object, deleted) = match decide(previous.as_ref())? {
            Step::Keep => {
                return Ok(previous.unwrap_or_default());
            }
            Step::Put(object) => (object, false),
            Step::Remove => {
                let Some(last) = previous.as_ref() else {
                    return Ok(Arc::default());
                };
                (last.as_ref().clone(), true)
            }
        };
        inner.revision += 1;
        let revision = inner.revision;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        let object = Arc::new(object);
        if deleted {
            inner.objects.remove(key);
        } else {
            inner.objects.insert(key.clone(), object.clone());
        }
        inner.history.push_back(Arc::new(Change {
            revision,
            key: key.clone(),
            object: object.clone(),
            previous,
            deleted,
        }));
        if inner.history.len() > HISTORY_LIMIT {
            inner.compacted = inner
                .history
                .pop_front()
                .map_or(0, |change| change.revision);
        }
        drop(inner);
        self.changed.send_replace(revision);
        Ok(object)
    }

    /// The changes after `revision`, or 410 when some of them are no longer known.
    pub(crate) fn since(&self, revision: u64) -> Result<Vec<Arc<Change>>, Failure> {
        let inner = self.lock();
        if revision < inner.compacted {
            return Err(Failure::too_old(revision, inner.compacted + 1));
        }
        let first = inner
            .history
            .partition_point(|change| change.revision <= revision);
        Ok(inner.history.range(first..).cloned().collect())
    }

    /// Forgets the whole history; moves the revision on, so that also a watch that has seen everything is behind
    /// and ends with 410.
    pub(crate) fn compact(&self) {
        let mut inner = self.lock();
        inner.revision += 1;
        inner.compacted = inner.revision;
        inner.history.clear();
        let revision = inner.revision;
        drop(inner);
        self.changed.send_replace(revision);
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.lock().compacted
    }
}
