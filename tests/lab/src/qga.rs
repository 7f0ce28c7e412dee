// SPDX-License-Identifier: Apache-2.0
//! A client of the QEMU guest agent's protocol, as a host has one (`docs/interop/qemu-ga.rst` of QEMU). It knows nothing of
//! whom it talks to.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::world::SOON;

/// Makes the parser of either side forget what it has.
const RESET: u8 = 0xFF;

/// An error that the agent answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QgaError {
    /// `CommandNotFound`, `GenericError`.
    pub class: String,
    /// For people.
    pub description: String,
}

/// A client on a stream.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    received: Vec<u8>,
    syncs: i64,
    limit: Duration,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// A client that has not said anything yet.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            received: Vec::new(),
            syncs: 1000,
            limit: SOON,
        }
    }

    /// The same that waits this long for each reply, for an agent on a slow machine.
    #[must_use]
    pub fn patient(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The stream, to do to it what happens to streams.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends bytes as they are, in one write where the stream takes them.
    ///
    /// # Panics
    /// When the agent does not take them.
    pub async fn send(&mut self, bytes: &[u8]) {
        let sent = tokio::time::timeout(self.limit, self.stream.write_all(bytes)).await;
        sent.expect("the agent reads").expect("the stream is open");
    }

    /// The next reply.
    ///
    /// # Panics
    /// When there is none soon, or it is not JSON.
    pub async fn reply(&mut self) -> Value {
        let line = self.until(b'\n').await;
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("`{}` is no reply: {error}", line.escape_ascii()))
    }

    /// Makes both sides forget what was before: 0xFF, `guest-sync-delimited`, and all is dropped up to the 0xFF of its
    /// reply, where an agent may say that it wonders about ours.
    ///
    /// # Panics
    /// When the reply is not the one to this very request.
    pub async fn sync(&mut self) {
        self.syncs += 1;
        let arguments = json!({"id": self.syncs});
        let request = json!({"execute": "guest-sync-delimited", "arguments": arguments});
        let bytes = [&[RESET], request.to_string().as_bytes(), b"\n"].concat();
        self.send(&bytes).await;
        loop {
            self.until(RESET).await;
            // A reply to an earlier one may still be under way.
            if self.reply().await == json!({"return": self.syncs}) {
                return;
            }
        }
    }

    /// Waits until the agent answers a ping on its own channel, which begins with the next line, and drops all replies before that.
    ///
    /// # Panics
    /// When there is none soon.
    pub async fn ping(&mut self) {
        self.syncs += 1;
        let request = json!({"execute": "guest-ping", "id": self.syncs});
        self.send(format!("\n{request}\n").as_bytes()).await;
        while self.reply().await != json!({"return": {}, "id": self.syncs}) {}
    }

    /// Sends one request, with an `id` of its own, and gives the reply to it.
    ///
    /// # Errors
    /// The agent's own.
    ///
    /// # Panics
    /// When the reply is not one to this request.
    pub async fn execute(&mut self, name: &str, arguments: Value) -> Result<Value, QgaError> {
        self.syncs += 1;
        let id = json!({"request": self.syncs});
        let mut request = Map::new();
        request.insert("execute".to_owned(), json!(name));
        request.insert("id".to_owned(), id.clone());
        if !arguments.is_null() {
            request.insert("arguments".to_owned(), arguments);
        }
        self.send(format!("{}\n", Value::Object(request)).as_bytes())
            .await;
        let mut reply = self.reply().await;
        assert_eq!(reply["id"], id, "a reply to something else: {reply}");
        outcome(&mut reply)
    }

    /// All that comes before this byte, which is dropped.
    async fn until(&mut self, end: u8) -> Vec<u8> {
        loop {
            if let Some(at) = self.received.iter().position(|byte| *byte == end) {
                let rest = self.received.split_off(at + 1);
                let mut before = std::mem::replace(&mut self.received, rest);
                before.pop();
                return before;
            }
            let mut buffer = [0; 4096];
            let read = tokio::time::timeout(self.limit, self.stream.read(&mut buffer)).await;
            let so_far = self.received.escape_ascii();
            let count = match read {
                Ok(Ok(count)) if count > 0 => count,
                ended => panic!("{ended:?} where a reply should be, after `{so_far}`"),
            };
            self.received.extend_from_slice(&buffer[..count]);
        }
    }
}

/// What a reply says.
///
/// # Errors
/// The agent's own.
///
/// # Panics
/// When it is neither an answer nor an error.
pub fn outcome(reply: &mut Value) -> Result<Value, QgaError> {
    if let Some(value) = reply.get_mut("return") {
        return Ok(value.take());
    }
    let word = |key: &str| reply["error"][key].as_str().map(str::to_owned);
    let (Some(class), Some(description)) = (word("class"), word("desc")) else {
        panic!("neither an answer nor an error: {reply}");
    };
    Err(QgaError { class, description })
}
