// SPDX-License-Identifier: Apache-2.0
//! Asks Harvester's API what our credential may do there, without doing it.

use crate::facts::names::Namespace;
use crate::facts::permissions::{Permission, USEFUL};
use crate::kubeapi::{Client, ResourceAttributes};

use super::why;

/// One answer for each of [`USEFUL`].
pub async fn read(client: &Client, namespace: &Namespace) -> Vec<Permission> {
    let mut permissions = Vec::new();
    for useful in USEFUL {
        let attributes = ResourceAttributes {
            namespace: useful.namespaced.then(|| namespace.to_string()),
            verb: useful.verb.to_owned(),
            group: useful.group.to_owned(),
            resource: useful.resource.to_owned(),
            ..ResourceAttributes::default()
        };
        let allowed = match client.may(&attributes).await {
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
