// SPDX-License-Identifier: Apache-2.0
//! The messages of a connection, which are read while a call on it is in progress.
//!
//! A connection with 64 unread messages reads no more, so that no call on it gets its response. Any user of this system can send
//! us that many signals, regardless of match rules.

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;

use futures_core::Stream;
use zbus::message::Type;
use zbus::{Connection, Message, MessageStream};

/// The maximum number of signals that are kept during calls, without those of trusted senders.
const KEPT_MAX: usize = 64;

/// The messages of a connection.
#[derive(Debug)]
pub struct Messages {
    stream: MessageStream,
    /// Signals that were received during calls: at most [`KEPT_MAX`], and those of trusted senders.
    kept: VecDeque<Message>,
    /// The names of senders that send only what our match rules select.
    trusted: BTreeSet<String>,
}

impl Messages {
    /// Returns the messages that are received from now on.
    pub(super) fn new(connection: &Connection) -> Self {
        Self {
            stream: MessageStream::from(connection),
            kept: VecDeque::new(),
            trusted: BTreeSet::new(),
        }
    }

    /// Keeps every signal of a sender. A flood of other signals hides none of them.
    pub fn trust(&mut self, sender: &str) {
        self.trusted.insert(sender.to_owned());
    }

    /// Waits for a call.
    pub async fn during<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        loop {
            let message = tokio::select! {
                biased;
                done = &mut call => return done,
                message = next(&mut self.stream) => message,
            };
            let Some(message) = message else {
                return call.await;
            };
            if message.message_type() == Type::Signal
                && (self.kept.len() < KEPT_MAX || self.is_trusted(&message))
            {
                self.kept.push_back(message);
            }
        }
    }

    /// Returns the next message; `None` when the connection ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Message> {
        match self.kept.pop_front() {
            Some(message) => Some(message),
            None => next(&mut self.stream).await,
        }
    }

    fn is_trusted(&self, message: &Message) -> bool {
        let header = message.header();
        header
            .sender()
            .is_some_and(|sender| self.trusted.contains(sender.as_str()))
    }
}

async fn next(stream: &mut MessageStream) -> Option<Message> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context))
        .await?
        .ok()
}

#[cfg(test)]
mod tests {
    use harvester_lab::bus::{Bus as Daemon, Hostnamed};
    use harvester_lab::guest::GuestTree;
    use harvester_lab::world::SOON;
    use tokio::time::timeout;

    use super::*;

    const DRIVER: Option<&str> = Some("org.freedesktop.DBus");

    #[tokio::test]
    async fn a_flood_during_a_call_neither_grows_nor_hides_a_trusted_sender() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(&GuestTree::new(dir.path())).await;
        let connection = daemon.connect().await;
        let ours = connection.unique_name().unwrap().to_string();
        let mut messages = Messages::new(&connection);
        let impostor = Hostnamed::impostor(&daemon).await;
        let hostnamed = Hostnamed::start(&daemon).await;
        let owner = connection
            .call_method(
                DRIVER,
                "/",
                DRIVER,
                "GetNameOwner",
                &"org.freedesktop.hostname1",
            )
            .await
            .unwrap();
        let owner: String = owner.body().deserialize().unwrap();
        messages.trust(&owner);
        // Before the trusted one more than are kept, and after it more than are unread when the call ends.
        let call = async {
            for _ in 0..2 * KEPT_MAX {
                impostor.announce(Some(&ours), "evil").await;
            }
            hostnamed.announce(Some(&ours), "true").await;
            for _ in 0..2 * KEPT_MAX {
                impostor.announce(Some(&ours), "evil").await;
            }
            connection
                .call_method(DRIVER, "/", DRIVER, "GetId", &())
                .await
        };
        let called = timeout(SOON, messages.during(call)).await;
        called.expect("the call hangs").unwrap();
        let kept = messages.kept.iter();
        let trusted = kept.filter(|message| messages.is_trusted(message));
        assert_eq!(trusted.count(), 1);
        assert_eq!(messages.kept.len(), KEPT_MAX + 1);
    }
}
