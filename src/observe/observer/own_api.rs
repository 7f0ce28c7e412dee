// SPDX-License-Identifier: Apache-2.0
//! Detects a Harvester credential that does not work because it leads to the guest cluster's own API.

use super::limit::briefly;
use super::state::Observer;
use crate::facts::{Fact, Unavailable, UnavailableKind};

impl Observer {
    /// Checks whether a Harvester credential that does not work leads to the guest cluster: both APIs return the same objects.
    pub(super) async fn check_own_api(&mut self) {
        let odd = self.facts.candidates.why().is_some_and(|why| {
            matches!(
                why.kind,
                UnavailableKind::Refused | UnavailableKind::Forbidden
            )
        });
        let generations = self.generations();
        let (Ok(harvester), Ok(guest)) = (
            self.connections.harvester.link(),
            self.connections.guest.link(),
        ) else {
            return;
        };
        if !odd || self.cleared == Some(generations) {
            return;
        }
        let namespace = "/api/v1/namespaces/kube-system";
        let namespaces = async {
            tokio::join!(
                harvester.client.get_metadata(namespace),
                guest.client.get_metadata(namespace)
            )
        };
        let same_namespace = match Box::pin(briefly(namespaces)).await {
            Some((Ok(theirs), Ok(ours))) => {
                theirs.metadata.uid.is_some() && theirs.metadata.uid == ours.metadata.uid
            }
            _ => false,
        };
        // A kubelet may not read namespaces, but only the guest cluster has our Node.
        let same_node = match self.facts.node.known() {
            Some(node) if !same_namespace => {
                let path = format!("/api/v1/nodes/{}", node.name);
                let theirs = briefly(harvester.client.get_metadata(&path)).await;
                matches!(theirs, Some(Ok(theirs)) if theirs.metadata.uid.as_deref() == Some(node.uid.as_str()))
            }
            _ => false,
        };
        if same_namespace || same_node {
            let file = harvester.credential.kubeconfig.display();
            let what = if same_namespace {
                "namespace kube-system"
            } else {
                "this Node"
            };
            let text = format!(
                "`{file}` points to the API of this guest cluster: {what} has the same UID there"
            );
            self.facts.harvester = Fact::Failed(Unavailable::new(UnavailableKind::OwnApi, text.clone()));
            self.connections
                .harvester
                .refuse(Unavailable::new(UnavailableKind::OwnApi, text));
        } else if self.facts.node.known().is_some() {
            self.cleared = Some(generations);
        }
    }
}
