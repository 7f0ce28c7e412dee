// SPDX-License-Identifier: Apache-2.0
//! Data for commands after a round: permissions, connections, and the path prefix.

use super::Observer;
use tokio::time::{Instant, timeout_at};

use super::limit::{READ_LIMIT, too_slow_text};
use crate::config::Settings;
use crate::facts::permissions::Permission;
use crate::facts::{Fact, UnavailableKind};
use crate::observe::api_access::Connections;
use crate::observe::permissions::{self, Objects};
use crate::observe::why;
use crate::sys::root::Root;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::{Client, ResourceAttributes};

impl Observer {
    /// Returns the prefix of all paths.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns the system bus.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Returns the connections to both API servers.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Returns the permissions of the Harvester credential; empty if there is none.
    pub async fn permissions(&self, settings: &Settings) -> Vec<Permission> {
        let until = Instant::now() + READ_LIMIT;
        let slow = |_| Fact::failed(UnavailableKind::Unreachable, too_slow_text("Harvester"));
        let ask = async |client: &Client, attributes: &ResourceAttributes| {
            let review = timeout_at(until, client.may(attributes)).await;
            let allowed = review.map(|review| match review {
                Ok(review) => Fact::Known(review.allowed),
                Err(error) => Fact::Failed(why(&error)),
            });
            allowed.unwrap_or_else(slow)
        };
        self.permissions_by(settings, ask).await
    }

    /// Returns the permissions of the Harvester credential according to `ask`; empty if there is none.
    pub async fn permissions_by(
        &self,
        settings: &Settings,
        ask: impl AsyncFn(&Client, &ResourceAttributes) -> Fact<bool>,
    ) -> Vec<Permission> {
        let (Ok(link), Some(harvester)) =
            (self.connections.harvester.link(), self.harvester.known())
        else {
            return Vec::new();
        };
        let objects = Objects {
            namespace: &harvester.namespace,
            vm: self.own.as_ref().map(|found| &found.vmi.name),
            host: self.reads.as_ref().map(|reads| &reads.host),
            configmap: &settings.topology.configmap,
        };
        permissions::read(&objects, async |attributes| {
            ask(&link.client, attributes).await
        })
        .await
    }
}
