// SPDX-License-Identifier: Apache-2.0
//! Detects a Harvester credential that does not work because it leads to the guest cluster's own API.

use super::state::Observer;
use crate::agent::limit::briefly;
use crate::catalog::Api;
use crate::facts::UnavailableKind::{Forbidden, OwnApi, Refused};
use crate::facts::{Fact, Unavailable};
use crate::wire::kubeapi::{Client, NAMESPACES, NODES, ObjectPath};

impl Observer {
    /// Checks whether a Harvester credential that does not work leads to the guest cluster: both APIs return the same objects.
    pub(super) async fn check_own_api(&mut self) {
        let kind = self.facts.candidates.why().map(|why| why.kind);
        let is_odd = matches!(kind, Some(Refused | Forbidden));
        let (harvester, guest) = (&self.connections.harvester, &self.connections.guest);
        let (Ok(harvester), Ok(guest)) = (harvester.link(), guest.link()) else {
            return;
        };
        if !is_odd || self.is_cleared {
            return;
        }
        let node = self.facts.node.known();
        let path = NAMESPACES.named("kube-system");
        let namespaces =
            async { tokio::join!(uid(&harvester.client, &path), uid(&guest.client, &path)) };
        let (theirs, ours) = Box::pin(briefly(namespaces)).await.unwrap_or_default();
        let same = if theirs.is_some() && theirs == ours {
            Some("namespace kube-system")
        } else if let Some(node) = node {
            // A kubelet may not read namespaces, but only the guest cluster has our Node.
            let path = NODES.named(&node.name);
            let theirs = briefly(uid(&harvester.client, &path)).await.flatten();
            (theirs.as_ref() == Some(&node.uid)).then_some("this Node")
        } else {
            None
        };
        let Some(what) = same else {
            self.is_cleared |= node.is_some();
            return;
        };
        let file = harvester.credential.kubeconfig.display();
        let text = format!(
            "`{file}` points to the API of this guest cluster: {what} has the same UID there"
        );
        let why = Unavailable::new(OwnApi, text);
        self.forget(Api::Harvester);
        self.facts.harvester = Fact::Failed(why.clone());
        self.connections.harvester.refuse(why);
    }
}

/// Returns the UID of an object, if it can be read.
async fn uid(client: &Client, path: &ObjectPath) -> Option<String> {
    let object = client.get_metadata(path).await.ok()?;
    Some(object.metadata.uid?.0)
}
