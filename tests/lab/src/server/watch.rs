// SPDX-License-Identifier: Apache-2.0
//! Watches: the changes of the store as lines of JSON, with selectors and bookmarks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use super::Shared;
use super::body::{Body, Piece};
use super::handler::metadata_of;
use super::log::WatchWrite;
use super::objects::Call;
use super::resource::{Kind, Query};
use super::status::Failure;
use super::store::Change;
use crate::faults::{Fault, Seen};

/// Time between the bookmarks of a watch.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// How long a watch lives that asks for no time: kube-apiserver takes a random one between 30 and 60 minutes.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(45 * 60);

/// What the lab does to open watches.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// End cleanly, as at the end of `timeoutSeconds`.
    End,
    /// Cut the connection.
    Abort,
    /// Send these bytes as they are.
    Bytes(Bytes),
    /// Stay open and say nothing more.
    Hush,
}

/// All open watches of a server.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// The User-Agent of each, and how to command it.
    watches: BTreeMap<u64, (String, UnboundedSender<Command>)>,
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no holder of the watches panics")
    }

    fn add(&self, user_agent: &str) -> (u64, UnboundedReceiver<Command>) {
        let mut open = self.lock();
        let (sender, receiver) = unbounded_channel();
        open.next += 1;
        let number = open.next;
        open.watches.insert(number, (user_agent.to_owned(), sender));
        (number, receiver)
    }

    pub(crate) fn count_of(&self, user_agent_prefix: &str) -> usize {
        let open = self.lock();
        let agents = open.watches.values().map(|(agent, _)| agent);
        agents
            .filter(|agent| agent.starts_with(user_agent_prefix))
            .count()
    }

    pub(crate) fn tell_all(&self, command: &Command) {
        for (_, sender) in self.lock().watches.values() {
            // A watch that has just ended needs no telling.
            let _ = sender.send(command.clone());
        }
    }
}

/// Starts the watch that a call asks for.
pub(crate) fn start(call: &Call<'_>, is_metadata: bool) -> Body {
    let shared = call.shared;
    let number = |name: &str| call.query.get(name)?.parse::<u64>().ok();
    let asked = number("resourceVersion").unwrap_or_default();
    let lifetime = number("timeoutSeconds").map_or(DEFAULT_LIFETIME, Duration::from_secs);
    let (pieces, receiver) = unbounded_channel();
    let mut stream = Stream {
        shared: shared.clone(),
        kind: call.kind,
        namespace: call.namespace().map(str::to_owned),
        selected: call.query.clone(),
        is_metadata,
        bookmarks: call.query.is_set("allowWatchBookmarks"),
        path: call.raw_path.to_owned(),
        query: call.raw_query.to_owned(),
        user_agent: call.user_agent.to_owned(),
        seen: asked,
        pieces,
    };
    if asked == 0 {
        let (revision, objects) = call.selected();
        stream.seen = revision;
        for object in objects {
            stream.send_object("ADDED", &object);
        }
        let is_from_cache = call.query.get("resourceVersion").is_some() || call.kind.is_custom();
        if stream.bookmarks && is_from_cache {
            stream.send_bookmark(json!({"k8s.io/initial-events-end": "true"}));
        }
    }
    let (number, commands) = shared.watches.add(call.user_agent);
    let shared = shared.clone();
    let watching = shared.clone();
    tokio::spawn(async move {
        stream.run(commands, lifetime).await;
        watching.watches.lock().watches.remove(&number);
    });
    Body::stream(receiver, shared)
}

struct Stream {
    shared: Arc<Shared>,
    kind: Kind,
    namespace: Option<String>,
    /// Which objects it is about.
    selected: Query,
    is_metadata: bool,
    bookmarks: bool,
    path: String,
    query: String,
    user_agent: String,
    /// All changes up to this revision were sent or were none of ours.
    seen: u64,
    pieces: UnboundedSender<Piece>,
}

/// Whether the stream goes on.
#[derive(PartialEq, Eq)]
enum Go {
    On,
    End,
}

impl Stream {
    async fn run(&mut self, mut commands: UnboundedReceiver<Command>, lifetime: Duration) {
        let mut changed = self.shared.store.subscribe();
        let mut bookmark = interval_at(tokio::time::Instant::now() + BOOKMARKS, BOOKMARKS);
        bookmark.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = sleep(lifetime);
        tokio::pin!(end);
        let mut is_behind = true;
        loop {
            let pieces = self.pieces.clone();
            tokio::select! {
                // What the lab does comes before the changes that it makes after it.
                biased;
                command = commands.recv() => match command {
                    None | Some(Command::End) => return,
                    Some(Command::Abort) => {
                        let _ = self.pieces.send(Piece::Abort);
                        return;
                    }
                    Some(Command::Bytes(bytes)) => {
                        let _ = self.pieces.send(Piece::Bytes(bytes, None));
                    }
                    Some(Command::Hush) => {
                        tokio::select! {
                            () = pieces.closed() => {}
                            () = &mut end => {}
                        }
                        return;
                    }
                },
                () = std::future::ready(()), if is_behind => {
                    // Marked as seen before the history is read: a change in between wakes the loop once more, and none is
                    // lost.
                    changed.borrow_and_update();
                    is_behind = false;
                    if self.send_changes() == Go::End {
                        return;
                    }
                }
                () = pieces.closed() => return,
                () = &mut end => return,
                result = changed.changed() => match result {
                    Ok(()) => is_behind = true,
                    Err(_) => return,
                },
                _ = bookmark.tick(), if self.bookmarks => {
                    // A watch from a version that the server has not reached yet gets none, as from kube-apiserver.
                    if self.seen <= self.shared.store.revision() {
                        self.send_bookmark(Value::Null);
                    }
                }
            }
        }
    }

    fn send_changes(&mut self) -> Go {
        for change in self.shared.store.since(self.seen) {
            self.seen = change.revision;
            let Some((event, object)) = self.translate(&change) else {
                continue;
            };
            if self.send_with_faults(event, &object) == Go::End {
                return Go::End;
            }
        }
        Go::On
    }

    /// The event that a change is for this selection, if any.
    fn translate(&self, change: &Change) -> Option<(&'static str, Value)> {
        let key = &change.key;
        let ours = key.group == self.kind.storage_group()
            && key.plural == self.kind.plural
            && self
                .namespace
                .as_ref()
                .is_none_or(|own| *own == key.namespace);
        if !ours {
            return None;
        }
        let before = change
            .previous
            .as_ref()
            .filter(|old| self.selected.selects(old));
        let after = !change.deleted && self.selected.selects(&change.object);
        match (before, after) {
            (None, false) => None,
            (None, true) => Some(("ADDED", change.object.as_ref().clone())),
            (Some(_), true) => Some(("MODIFIED", change.object.as_ref().clone())),
            // The last state that the watcher knew, under the resource version at which it left.
            (Some(last), false) => {
                let mut object = last.as_ref().clone();
                object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                Some(("DELETED", object))
            }
        }
    }

    fn send_with_faults(&self, event: &str, object: &Value) -> Go {
        let seen = Seen {
            method: "GET",
            path: &self.path,
            query: &self.query,
            user_agent: &self.user_agent,
            verb: "watch",
        };
        match self.shared.faults.of_watch_event(&seen) {
            Some(Fault::WatchCutLine) => {
                let line = self.line(event, object);
                let _ = self
                    .pieces
                    .send(Piece::Bytes(line.slice(..line.len() / 2), None));
                let _ = self.pieces.send(Piece::Abort);
                return Go::End;
            }
            Some(Fault::WatchAbort) => {
                let _ = self.pieces.send(Piece::Abort);
                return Go::End;
            }
            Some(Fault::WatchGone) => {
                self.send_error(&Failure::too_old(self.seen, self.seen + 1));
                return Go::End;
            }
            Some(Fault::WatchGarbage(text)) => {
                let _ = self
                    .pieces
                    .send(Piece::Bytes(Bytes::from(text + "\n"), None));
            }
            Some(Fault::WatchWrongObject(wrong)) => {
                let line = json!({"type": "MODIFIED", "object": wrong}).to_string() + "\n";
                let _ = self.pieces.send(Piece::Bytes(Bytes::from(line), None));
            }
            _ => {}
        }
        self.send_object(event, object);
        Go::On
    }

    fn send_object(&self, event: &str, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let revision = object["metadata"]["resourceVersion"].as_str();
        let revision = revision.and_then(|text| text.parse().ok()).unwrap_or(0);
        self.send(self.line(event, object), event, name, revision);
    }

    fn line(&self, event: &str, object: &Value) -> Bytes {
        let object = self.shown(self.kind.present(object));
        Bytes::from(format!("{{\"type\":\"{event}\",\"object\":{object}}}\n"))
    }

    fn shown(&self, object: Value) -> Value {
        match self.is_metadata {
            true => metadata_of(&object),
            false => object,
        }
    }

    fn send_bookmark(&self, annotations: Value) {
        // The store may be ahead of what was looked at; a bookmark promises no more than what was sent.
        let mut metadata =
            json!({"resourceVersion": self.seen.to_string(), "creationTimestamp": null});
        if !annotations.is_null() {
            metadata["annotations"] = annotations;
        }
        let object = self.shown(json!({
            "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata,
        }));
        let line = format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n");
        self.send(Bytes::from(line), "BOOKMARK", "", self.seen);
    }

    fn send_error(&self, failure: &Failure) {
        let line = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", failure.body);
        self.send(Bytes::from(line), "ERROR", "", 0);
    }

    fn send(&self, line: Bytes, event: &str, name: &str, revision: u64) {
        let write = WatchWrite {
            at: Instant::now(),
            user_agent: self.user_agent.clone(),
            path: self.path.clone(),
            event: event.to_owned(),
            name: name.to_owned(),
            revision,
        };
        // A client that has gone is noticed by the loop.
        let _ = self.pieces.send(Piece::Bytes(line, Some(write)));
    }
}
