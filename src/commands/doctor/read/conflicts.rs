// SPDX-License-Identifier: Apache-2.0
//! Reads the facts that may conflict with ours: our VM and the others of its namespace, the addresses of this machine.

use super::{Given, read_object, request};
use crate::commands::doctor::facts::conflicts::Conflicts;
use crate::commands::doctor::facts::instance::{InstanceFacts, Interface};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::harvester::collection;
use crate::sys::escape::chain;
use crate::wire::kubeapi::Selectors;
use crate::wire::netlink::addresses::{AddressError, list_addresses};

/// Reads all of these facts.
pub(super) async fn read(given: &Given<'_>) -> Conflicts {
    Conflicts {
        instance: instance(given).await,
        namespace: namespace(given).await,
        addresses: addresses(given),
    }
}

async fn instance(given: &Given<'_>) -> Fact<InstanceFacts> {
    let Some(vmi) = given.vm else {
        return Fact::failed(UnavailableKind::NotAsked, "the VM is unknown");
    };
    let path = format!("{}/{}", collection(&vmi.namespace), vmi.name);
    read_object(&given.harvester, &path).await
}

async fn namespace(given: &Given<'_>) -> Fact<Vec<Vmi>> {
    let Some(harvester) = given.observation.harvester.known() else {
        let unknown = Unavailable::new(UnavailableKind::NotAsked, "the namespace is unknown");
        return Fact::Failed(given.harvester.link.clone().err().unwrap_or(unknown));
    };
    let path = collection(&harvester.namespace);
    request(&given.harvester, async |client| {
        client.list(&path, &Selectors::default(), |_| true).await
    })
    .await
}

/// Reads the addresses from the running kernel; a file tree has none.
fn addresses(given: &Given<'_>) -> Fact<Vec<Interface>> {
    if !given.root.is_live() {
        return Fact::failed(UnavailableKind::NotAsked, "a file tree has no addresses");
    }
    let interface = |(name, addresses)| Interface { name, addresses };
    match list_addresses() {
        Ok(interfaces) => Fact::Known(interfaces.into_iter().map(interface).collect()),
        Err(error @ AddressError::Kernel(_)) => {
            Fact::failed(UnavailableKind::Forbidden, chain(&error))
        }
    }
}
