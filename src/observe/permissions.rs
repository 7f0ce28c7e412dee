// SPDX-License-Identifier: Apache-2.0
//! Asks Harvester's API what our credential may do there, without doing it.

use super::World;
use super::limit::limited;
use crate::config::{ConfigMapName, Settings};
use crate::facts::names::{HostName, Namespace, VmName};
use crate::facts::permissions::{INSTANCES, Permission, Place, USEFUL, Useful};
use crate::kubeapi::{Client, ResourceAttributes};

use super::why;

/// What the requests are about, as far as it is known. A role may allow single names only, so the question names them.
struct Objects<'a> {
    namespace: &'a Namespace,
    vm: Option<&'a VmName>,
    host: Option<&'a HostName>,
    configmap: &'a ConfigMapName,
}

impl World {
    /// What the Harvester credential may do; nothing when there is none.
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
        limited(read(&link.client, &objects))
            .await
            .unwrap_or_default()
    }
}

impl Objects<'_> {
    fn attributes(&self, useful: &Useful) -> ResourceAttributes {
        let (namespace, name) = match useful.place {
            Place::Vm => (
                Some(self.namespace.to_string()),
                self.vm
                    .filter(|_| useful.resource == INSTANCES)
                    .map(ToString::to_string),
            ),
            Place::ConfigMap => (
                Some(self.configmap.namespace.as_str().to_owned()),
                Some(self.configmap.name.as_str().to_owned()),
            ),
            Place::Cluster => (None, self.host.map(ToString::to_string)),
        };
        ResourceAttributes {
            namespace,
            name: name.filter(|_| useful.verb != "list"),
            verb: useful.verb.to_owned(),
            group: useful.group.to_owned(),
            resource: useful.resource.to_owned(),
            ..ResourceAttributes::default()
        }
    }
}

/// One answer for each of [`USEFUL`].
async fn read(client: &Client, objects: &Objects<'_>) -> Vec<Permission> {
    let mut permissions = Vec::new();
    for useful in USEFUL {
        let allowed = match client.may(&objects.attributes(useful)).await {
            Ok(review) => Ok(review.allowed),
            Err(error) => Err(why(&error)),
        };
        permissions.push(Permission {
            useful,
            allowed: allowed.into(),
        });
    }
    permissions
}
