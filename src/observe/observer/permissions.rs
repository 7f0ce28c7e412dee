// SPDX-License-Identifier: Apache-2.0
//! Data for commands after a round: permissions, connections, and the path prefix.

use super::Observer;
use super::limit::limited;
use crate::config::Settings;
use crate::facts::permissions::Permission;
use crate::observe::api_access::Connections;
use crate::observe::permissions::{self, Objects};
use crate::sys::root::Root;
use crate::wire::dbus::Bus;

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
        limited(permissions::read(&link.client, &objects))
            .await
            .unwrap_or_default()
    }
}
