// SPDX-License-Identifier: Apache-2.0
//! Asks Harvester's API which permissions our credential has, without using them.

use crate::config::ConfigMapName;
use crate::facts::names::{HostName, Namespace, VmName};
use crate::facts::permissions::{INSTANCES, Permission, PermissionPlace, PermissionUse, USEFUL};
use crate::facts::{Fact, Unavailable};
use crate::wire::kubeapi::ResourceAttributes;

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

/// Returns one result for each of [`USEFUL`]. A review that is not answered never takes the answers of others away.
pub async fn read(
    objects: &Objects<'_>,
    ask: impl AsyncFn(&ResourceAttributes) -> Fact<bool>,
) -> Vec<Permission> {
    let mut permissions = Vec::new();
    for useful in USEFUL {
        let allowed = ask(&objects.attributes(useful)).await;
        permissions.push(Permission { useful, allowed });
    }
    permissions
}

/// Returns the permissions that no review was sent for.
pub fn unasked(why: &Unavailable) -> Vec<Permission> {
    let unknown = |useful| Permission {
        useful,
        allowed: Fact::Failed(why.clone()),
    };
    USEFUL.iter().map(unknown).collect()
}
