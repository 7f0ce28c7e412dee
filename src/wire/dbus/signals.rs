// SPDX-License-Identifier: Apache-2.0
//! The signals that match rules select, which are read by a task of their own.
//!
//! A connection with 64 unread messages reads no more, so that no call on it gets its response. Any user of this system can send
//! us that many signals, regardless of match rules, but only to us alone: these have a destination and are dropped. The bus delivers
//! all others by our rules, so their sender is the one that a rule names.

use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use zbus::message::Type;
use zbus::{Connection, Message, MessageStream};

/// The signals of a connection.
#[derive(Debug)]
pub struct Signals {
    received: UnboundedReceiver<Message>,
    /// Ends when it is dropped.
    _reader: JoinSet<()>,
}

impl Signals {
    /// Returns the signals that are received from now on.
    pub(super) fn new(connection: &Connection) -> Self {
        let mut stream = MessageStream::from(connection);
        let (sender, received) = unbounded_channel();
        let mut reader = JoinSet::new();
        reader.spawn(async move {
            while let Some(Ok(message)) =
                poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await
            {
                let is_signal = message.message_type() == Type::Signal;
                if is_signal && message.header().destination().is_none() {
                    let _ = sender.send(message);
                }
            }
        });
        Self {
            received,
            _reader: reader,
        }
    }

    /// Returns the next signal; `None` when the connection ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Message> {
        self.received.recv().await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use harvester_lab::bus::{Bus as Daemon, Hostnamed};
    use harvester_lab::guest::GuestTree;
    use harvester_lab::world::SOON;
    use tokio::time::timeout;
    use zbus::wire::Variant;

    use super::*;

    const DRIVER: Option<&str> = Some("org.freedesktop.DBus");

    #[tokio::test]
    async fn a_flood_stops_no_call_is_not_kept_and_hides_no_signal() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(&GuestTree::new(dir.path())).await;
        let connection = daemon.connect().await;
        let ours = connection.unique_name().unwrap().to_string();
        let mut signals = Signals::new(&connection);
        let impostor = Hostnamed::impostor(&daemon).await;
        let hostnamed = Hostnamed::start(&daemon).await;
        let rule = "type='signal',sender='org.freedesktop.hostname1'";
        let added = connection.call_method(DRIVER, "/", DRIVER, "AddMatch", &rule);
        added.await.unwrap();
        // Before and after the true one more than a connection keeps unread.
        let flood = async || {
            impostor.announce(None, "evil").await;
            for _ in 0..128 {
                impostor.announce(Some(&ours), "evil").await;
            }
        };
        flood().await;
        hostnamed.announce(None, "true").await;
        flood().await;
        let call = connection.call_method(DRIVER, "/", DRIVER, "GetId", &());
        let called = timeout(SOON, call).await;
        called.expect("the call hangs").unwrap();
        let signal = timeout(SOON, signals.next()).await.unwrap().unwrap();
        let body = signal.body();
        let body: (&str, HashMap<&str, Variant<'_>>, Vec<&str>) = body.deserialize().unwrap();
        assert_eq!(body.1["Hostname"], Variant::from("true"));
        assert!(signals.received.is_empty());
    }
}
