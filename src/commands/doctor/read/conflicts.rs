// SPDX-License-Identifier: Apache-2.0
//! Reads the facts that may conflict with ours: our VM and the others of its namespace, the hosts, the addresses of this machine.

use serde::Deserialize;

use super::{Given, read_object, request};
use crate::commands::doctor::facts::conflicts::{Conflicts, Host};
use crate::commands::doctor::facts::instance::{InstanceFacts, Interface};
use crate::facts::topology::ZONE;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::harvester::collection;
use crate::sys::escape::chain;
use crate::wire::kubeapi::{PartialObjectMetadata, ResourceAttributes, Selectors};
use crate::wire::netlink::addresses::{AddressError, list_addresses};

/// Reads all of these facts.
pub(super) async fn read(given: &Given<'_>) -> Conflicts {
    Conflicts {
        instance: instance(given).await,
        namespace: namespace(given).await,
        hosts: hosts(given).await,
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

/// A host in a list; only its zone label is kept.
#[derive(Deserialize)]
#[serde(from = "PartialObjectMetadata")]
struct ListedHost(Host);

impl From<PartialObjectMetadata> for ListedHost {
    fn from(node: PartialObjectMetadata) -> Self {
        let mut labels = node.metadata.labels.0;
        Self(Host {
            zone: labels.remove(ZONE),
            name: node.metadata.name.unwrap_or_default(),
        })
    }
}

async fn hosts(given: &Given<'_>) -> Fact<Vec<Host>> {
    let hosts = request(&given.harvester, async |client| {
        // No label depends on the hosts: a request that is probably forbidden is not sent.
        let right = ResourceAttributes {
            verb: "list".to_owned(),
            resource: "nodes".to_owned(),
            ..ResourceAttributes::default()
        };
        if !client.may(&right).await?.allowed {
            return Ok(None);
        }
        let list = client.list_metadata::<ListedHost>("/api/v1/nodes").await?;
        Ok(Some(
            list.into_iter().map(|ListedHost(host)| host).collect(),
        ))
    });
    match hosts.await {
        Fact::Known(Some(hosts)) => Fact::Known(hosts),
        Fact::Failed(why) => Fact::Failed(why),
        Fact::Known(None) | Fact::Absent => Fact::failed(
            UnavailableKind::Forbidden,
            "the credential cannot list nodes",
        ),
    }
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
