// SPDX-License-Identifier: Apache-2.0
//! Every version of the guest's Node.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;
use tokio::task::JoinHandle;

use super::{POLL, text};
use crate::Endpoint;
use crate::admin::{Admin, WatchEvent, paths};

/// One version of a Node.
#[derive(Debug, Clone)]
pub struct NodeVersion {
    /// When the recorder saw it.
    pub at: Instant,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: String,
    /// The Node. Shared, because waiting tests take all versions again and again.
    pub node: Arc<Value>,
}

impl NodeVersion {
    /// A label of this version.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<String> {
        text(&self.node["metadata"]["labels"][key])
    }
}

/// What the watch has brought.
#[derive(Debug, Default)]
struct Seen {
    versions: Vec<NodeVersion>,
    /// Nothing up to this resource version is taken any more.
    last: u64,
}

/// Watches the guest's Node and keeps every version, since a mixture of two hosts' labels must not be visible even once.
#[derive(Debug)]
pub struct Recorder {
    seen: Arc<Mutex<Seen>>,
    admin: Admin,
    path: String,
    task: JoinHandle<()>,
}

impl Recorder {
    pub(super) async fn start(endpoint: &Endpoint, node: &str) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let admin = Admin::named(endpoint, "lab-recorder");
        let path = format!("{}?fieldSelector=metadata.name%3D{node}", paths::NODES);
        // From here on nothing is missed, whenever the watch stands.
        let mut list = admin.get(&path).await.expect("the guest side is there");
        if let Value::Array(present) = list["items"].take() {
            for object in present {
                let kind = "ADDED".to_owned();
                keep(&seen, WatchEvent { kind, object });
            }
        }
        let mut last = text(&list["metadata"]["resourceVersion"]).unwrap_or_default();
        let (watcher, watched, into) = (admin.clone(), path.clone(), seen.clone());
        let task = tokio::spawn(async move {
            loop {
                // From where it ended; from now on when that is too long ago.
                match watcher.watch(&watched, &last).await {
                    Ok(mut watch) => loop {
                        match watch.next().await {
                            Some(Ok(event)) => {
                                last = text(&event.object["metadata"]["resourceVersion"])
                                    .unwrap_or_default();
                                keep(&into, event);
                            }
                            Some(Err(error)) => {
                                if error.code().is_some() {
                                    last.clear();
                                }
                                break;
                            }
                            None => break,
                        }
                    },
                    Err(error) if error.code().is_some() => last.clear(),
                    Err(_) => {}
                }
                tokio::time::sleep(POLL).await;
            }
        });
        Self {
            seen,
            admin,
            path,
            task,
        }
    }

    /// All versions so far, oldest first.
    #[must_use]
    pub fn versions(&self) -> Vec<NodeVersion> {
        self.seen.lock().unwrap().versions.clone()
    }

    /// Forgets all versions up to the present one, also those that the watch has yet to bring.
    ///
    /// # Panics
    /// When the guest side is away.
    pub async fn clear(&self) {
        let list = self.admin.get(&self.path).await;
        let present = number(&list.expect("the guest side is there"));
        let mut seen = self.seen.lock().unwrap();
        seen.last = seen.last.max(present);
        seen.versions
            .retain(|version| number(&version.node) > present);
    }

    /// The values of these labels that were ever visible together, oldest first, without repetition in a row.
    #[must_use]
    pub fn combinations(&self, keys: &[&str]) -> Vec<Vec<Option<String>>> {
        let mut all: Vec<Vec<Option<String>>> = self
            .versions()
            .iter()
            .filter(|version| version.kind != "DELETED")
            .map(|version| keys.iter().map(|key| version.label(key)).collect())
            .collect();
        all.dedup();
        all
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The resource version of an object or a list, which a server counts up.
fn number(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

fn keep(seen: &Mutex<Seen>, event: WatchEvent) {
    let version = number(&event.object);
    let mut seen = seen.lock().unwrap();
    // A watch from now on repeats the present one.
    let is_new = version > seen.last;
    seen.last = seen.last.max(version);
    if event.kind != "BOOKMARK" && is_new {
        seen.versions.push(NodeVersion {
            at: Instant::now(),
            kind: event.kind,
            node: Arc::new(event.object),
        });
    }
}
