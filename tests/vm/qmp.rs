// SPDX-License-Identifier: Apache-2.0
//! A client of QEMU's monitor (`docs/interop/qmp-spec.rst` of QEMU).

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};

use crate::LIMIT;

/// What QEMU tells unasked.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its name, such as `RESUME`.
    pub name: String,
    /// When it happened, by the host's clock.
    pub at: SystemTime,
    /// What belongs to it.
    pub data: Value,
}

/// A monitor.
#[derive(Debug)]
pub struct Monitor {
    requests: OwnedWriteHalf,
    replies: mpsc::UnboundedReceiver<Value>,
    events: watch::Receiver<Vec<Event>>,
}

impl Monitor {
    /// Waits for the socket of a QEMU that was just started.
    pub async fn connect(socket: &Path) -> Self {
        let stream = connect(socket).await;
        let (reader, mut requests) = stream.into_split();
        let (replied, mut replies) = mpsc::unbounded_channel();
        let (happened, events) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).unwrap();
                if let Some(event) = event(&message) {
                    happened.send_modify(|events| events.push(event));
                } else if replied.send(message).is_err() {
                    return;
                }
            }
        });
        let capabilities = json!({"execute": "qmp_capabilities"}).to_string();
        requests.write_all(capabilities.as_bytes()).await.unwrap();
        for expected in ["QMP", "return"] {
            let message = replies.recv().await.unwrap();
            assert!(message.get(expected).is_some(), "{message}");
        }
        Self {
            requests,
            replies,
            events,
        }
    }

    /// Executes a command.
    ///
    /// # Panics
    /// When QEMU refuses it.
    pub async fn execute(&mut self, command: &str, arguments: Value) -> Value {
        let request = json!({"execute": command, "arguments": arguments}).to_string();
        self.requests.write_all(request.as_bytes()).await.unwrap();
        let reply = tokio::time::timeout(LIMIT, self.replies.recv()).await;
        let mut reply = reply.unwrap().expect("QEMU has not ended");
        assert!(reply["error"].is_null(), "{command}: {reply}");
        reply["return"].take()
    }

    /// The last event of this name that `wanted` takes, or the next one where there was none yet.
    ///
    /// # Panics
    /// When there is none within `limit`.
    pub async fn event(
        &self,
        name: &str,
        limit: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Event {
        let mut events = self.events.clone();
        let is_it = |event: &&Event| event.name == name && wanted(event);
        let found = events.wait_for(|events| events.iter().any(|event| is_it(&event)));
        let found = match tokio::time::timeout(limit, found).await {
            // A second look while this one is held would wait for the writer, and the writer for this one.
            Ok(Ok(events)) => events.iter().rfind(is_it).cloned(),
            _ => None,
        };
        found.unwrap_or_else(|| {
            let seen = self.events.borrow();
            panic!("no event {name} within {limit:?}, but {:?}", *seen)
        })
    }

    /// Waits until the migration that was begun last is in a state.
    ///
    /// # Panics
    /// When it ends in another one, or does not get there.
    pub async fn migration_is(&mut self, wanted: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let state = self.execute("query-migrate", json!({})).await;
            match state["status"].as_str() {
                Some(status) if status == wanted => return,
                Some("completed" | "failed" | "cancelled") => panic!("not {wanted}: {state}"),
                _ => assert!(Instant::now() < deadline, "not {wanted}: {state}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn event(message: &Value) -> Option<Event> {
    let name = message["event"].as_str()?.to_owned();
    let time = &message["timestamp"];
    let micros = time["seconds"].as_u64()? * 1_000_000 + time["microseconds"].as_u64()?;
    Some(Event {
        name,
        at: SystemTime::UNIX_EPOCH + Duration::from_micros(micros),
        data: message["data"].clone(),
    })
}

/// Waits until a socket takes connections.
pub async fn connect(socket: &Path) -> UnixStream {
    let connected = async {
        loop {
            match UnixStream::connect(socket).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    let connected = tokio::time::timeout(LIMIT, connected).await;
    connected.unwrap_or_else(|_| panic!("no process listens on {}", socket.display()))
}
