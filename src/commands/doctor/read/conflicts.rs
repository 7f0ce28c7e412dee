// SPDX-License-Identifier: Apache-2.0
//! Reads the facts that may conflict with ours: our VM and the others of its namespace, the hosts, the addresses of this machine.

use serde::Deserialize;

use super::{Given, briefly, read_object};
use crate::commands::doctor::facts::conflicts::{Conflicts, Host};
use crate::commands::doctor::facts::instance::{InstanceFacts, Interface};
use crate::facts::topology::ZONE;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, UnavailableKind};
use crate::observe::harvester::collection;
use crate::observe::why;
use crate::sys::escape::chain;
use crate::wire::kubeapi::{PartialObjectMetadata, ResourceAttributes, Selectors};
use crate::wire::netlink::addresses::{AddressError, list_addresses};

/// Reads all of these facts.
pub(super) async fn read(given: &Given<'_>) -> Conflicts {
    let instance = instance(given).await;
    let namespace = namespace(given).await;
    Conflicts {
        instance,
        namespace,
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
    let link = match (&given.harvester, given.observation.harvester.known()) {
        (Ok(link), Some(harvester)) => Ok((&link.client, collection(&harvester.namespace))),
        (Ok(_), None) => {
            return Fact::failed(UnavailableKind::NotAsked, "the namespace is unknown");
        }
        (Err(why), _) => Err(why.clone()),
    };
    let (client, path) = match link {
        Ok(link) => link,
        Err(why) => return Fact::Failed(why),
    };
    briefly(async {
        let all = Selectors::default();
        match client.list::<Vmi>(&path, &all, |_| true).await {
            Ok(vmis) => Fact::Known(vmis),
            Err(error) => Fact::Failed(why(&error)),
        }
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
    let client = match &given.harvester {
        Ok(link) => &link.client,
        Err(why) => return Fact::Failed(why.clone()),
    };
    briefly(async {
        // No label depends on the hosts: a request that is probably forbidden is not sent.
        let right = ResourceAttributes {
            verb: "list".to_owned(),
            resource: "nodes".to_owned(),
            ..ResourceAttributes::default()
        };
        match client.may(&right).await {
            Ok(review) if review.allowed => {}
            Ok(_) => {
                return Fact::failed(
                    UnavailableKind::Forbidden,
                    "the credential cannot list nodes",
                );
            }
            Err(error) => return Fact::Failed(why(&error)),
        }
        match client.list_metadata::<ListedHost>("/api/v1/nodes").await {
            Ok(list) => Fact::Known(list.into_iter().map(|ListedHost(host)| host).collect()),
            Err(error) => Fact::Failed(why(&error)),
        }
    })
    .await
}

/// Reads the addresses from the running kernel; a file tree has none.
fn addresses(given: &Given<'_>) -> Fact<Vec<Interface>> {
    if !given.root.is_live() {
        return Fact::failed(UnavailableKind::NotAsked, "a file tree has no addresses");
    }
    match list_addresses() {
        Ok(interfaces) => Fact::Known(
            interfaces
                .into_iter()
                .map(|(name, addresses)| Interface { name, addresses })
                .collect(),
        ),
        Err(error @ AddressError::Kernel(_)) => {
            Fact::failed(UnavailableKind::Forbidden, chain(&error))
        }
    }
}
