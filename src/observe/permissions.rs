// SPDX-License-Identifier: Apache-2.0
//! Asks Harvester's API which permissions our credential has, without using them.

use super::why;
use crate::config::ConfigMapName;
use crate::facts::names::{HostName, Namespace, VmName};
use crate::facts::permissions::{INSTANCES, Permission, PermissionPlace, PermissionUse, USEFUL};
use crate::wire::kubeapi::{Client, ResourceAttributes};

/// The objects of the requests, as far as known. A role may allow single names only, so the review names them.
#[derive(Debug)]
pub struct Objects<'a> {
    /// The namespace of the VM.
    pub namespace: &'a Namespace,
    /// Our VM.
    pub vm: Option<&'a VmName>,
    /// The host that runs it.
    pub host: Option<&'a HostName>,
    /// The ConfigMap with the topology of the hosts.
    pub configmap: &'a ConfigMapName,
}

impl Objects<'_> {
    fn attributes(&self, useful: &PermissionUse) -> ResourceAttributes {
        let (namespace, name) = match useful.place {
            PermissionPlace::Vm => (
                Some(self.namespace.to_string()),
                self.vm
                    .filter(|_| useful.resource == INSTANCES)
                    .map(ToString::to_string),
            ),
            PermissionPlace::ConfigMap => (
                Some(self.configmap.namespace.as_str().to_owned()),
                Some(self.configmap.name.as_str().to_owned()),
            ),
            PermissionPlace::Cluster => (None, self.host.map(ToString::to_string)),
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

/// Returns one result for each of [`USEFUL`].
pub async fn read(client: &Client, objects: &Objects<'_>) -> Vec<Permission> {
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
