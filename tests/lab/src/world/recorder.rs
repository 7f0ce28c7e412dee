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

/// Watches the guest's Node and keeps every version, since a mixture of two hosts' labels must not be visible even once.
#[derive(Debug)]
pub struct Recorder {
    versions: Arc<Mutex<Vec<NodeVersion>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub(super) async fn start(endpoint: &Endpoint, node: &str) -> Self {
        let versions: Arc<Mutex<Vec<NodeVersion>>> = Arc::default();
        let seen = versions.clone();
        let admin = Admin::named(endpoint, "lab-recorder");
        let path = format!("{}?fieldSelector=metadata.name%3D{node}", paths::NODES);
        // From here on nothing is missed, whenever the watch stands.
        let mut list = admin.get(&path).await.expect("the guest side is there");
        let mut last = String::new();
        if let Value::Array(present) = list["items"].take() {
            for object in present {
                let kind = "ADDED".to_owned();
                keep(&seen, WatchEvent { kind, object }, &mut last);
            }
        }
        last = text(&list["metadata"]["resourceVersion"]).unwrap_or_default();
        let task = tokio::spawn(async move {
            loop {
                // From where it ended; from now on when that is too long ago.
                match admin.watch(&path, &last).await {
                    Ok(mut watch) => loop {
                        match watch.next().await {
                            Some(Ok(event)) => keep(&seen, event, &mut last),
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
        Self { versions, task }
    }

    /// All versions so far, oldest first.
    #[must_use]
    pub fn versions(&self) -> Vec<NodeVersion> {
        self.versions.lock().unwrap().clone()
    }

    /// Forgets what it saw.
    pub fn clear(&self) {
        self.versions.lock().unwrap().clear();
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

fn keep(versions: &Mutex<Vec<NodeVersion>>, event: WatchEvent, last: &mut String) {
    let version = text(&event.object["metadata"]["resourceVersion"]).unwrap_or_default();
    let repeated = *last == version;
    *last = version;
    if event.kind != "BOOKMARK" && !repeated {
        versions.lock().unwrap().push(NodeVersion {
            at: Instant::now(),
            kind: event.kind,
            node: Arc::new(event.object),
        });
    }
}
