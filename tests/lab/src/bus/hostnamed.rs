// SPDX-License-Identifier: Apache-2.0
//! A stand-in for systemd-hostnamed: what it says when a name is set through it.

use std::collections::HashMap;

use tokio::task::JoinSet;
use zbus::Connection;
use zbus::wire::Variant;

use super::Bus;

const NAME: &str = "org.freedesktop.hostname1";
const PATH: &str = "/org/freedesktop/hostname1";

/// A connection that speaks as systemd-hostnamed, by right or not.
#[derive(Debug)]
pub struct Hostnamed {
    connection: Connection,
}

impl Hostnamed {
    /// The real one: it owns the name.
    ///
    /// # Panics
    /// When another process does.
    pub async fn start(bus: &Bus) -> Self {
        let connection = bus.connect().await;
        let request = connection.request_name(NAME).await;
        request.expect("no other process has the name");
        Self { connection }
    }

    /// A liar: it does not own the name.
    pub async fn impostor(bus: &Bus) -> Self {
        let connection = bus.connect().await;
        Self { connection }
    }

    /// Sends signals past all rules to one client, from eight connections, until the returned tasks are dropped.
    pub async fn flood(bus: &Bus, to: &str) -> JoinSet<()> {
        let mut flood = JoinSet::new();
        for _ in 0..8 {
            let (impostor, to) = (Self::impostor(bus).await, to.to_owned());
            flood.spawn(async move {
                loop {
                    impostor.announce(Some(&to), "evil").await;
                }
            });
        }
        flood
    }

    /// Says that the names changed, to everybody, or past all rules to one client alone. Returns when the bus has it.
    ///
    /// # Panics
    /// When the bus has gone.
    pub async fn announce(&self, to: Option<&str>, hostname: &str) {
        let changed = HashMap::from([("Hostname", Variant::from(hostname))]);
        let body = (NAME, changed, Vec::<&str>::new());
        let properties = "org.freedesktop.DBus.Properties";
        let sent = self
            .connection
            .emit_signal(to, PATH, properties, "PropertiesChanged", &body)
            .await;
        sent.expect("the bus takes a signal");
        // The bus works off what a client sends in order: its answer comes after the signal.
        let driver = "org.freedesktop.DBus";
        let call = self
            .connection
            .call_method(Some(driver), "/", Some(driver), "GetId", &());
        call.await.expect("the bus answers");
    }
}
