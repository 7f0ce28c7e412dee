// SPDX-License-Identifier: Apache-2.0
//! Passes each action to `apply` with the connection that it needs, and records the changes.

use super::Observer;
use super::limit::{limited, too_slow_text};
use crate::agent::Apply;
use crate::apply::{patch_conditions, patch_node, registration, unit};
use crate::decide::registration::FileChange;
use crate::decide::{Action, Now, Refusal, WriteResult};
use crate::facts::Fact;
use crate::facts::names::NodeName;
use crate::facts::node::Node;
use crate::facts::registration::{DropIn, LabelFileKind};
use crate::wire::kubeapi::Client;

impl Apply for Observer {
    async fn apply(&mut self, action: &Action, now: Now) -> WriteResult {
        match action {
            Action::StartUnit(unit) => unit::start(&self.bus, unit).await,
            Action::EditLabelFile(change) => self.edit_label_file(change).await,
            Action::PatchNode(patch) => {
                let patch = async |client: &Client, own: &NodeName| {
                    patch_node(client, own, patch, now).await
                };
                self.send(patch).await
            }
            Action::PatchConditions(patch) => {
                let patch = async |client: &Client, own: &NodeName| {
                    patch_conditions(client, own, patch, now).await
                };
                self.send(patch).await
            }
        }
    }
}

impl Observer {
    async fn edit_label_file(&mut self, change: &FileChange) -> WriteResult {
        let result = registration::edit(&self.root, &self.bus, change).await;
        if change.kind == LabelFileKind::Kubelet {
            // A change counts as a missed reload until systemd has reloaded.
            let is_loaded = change.is_reload() && result.is_ok();
            self.drop_in = (!is_loaded).then_some(DropIn {
                needs_reload: true,
                is_listed: true,
            });
        }
        result
    }

    /// Sends one patch of our own Node, and keeps the Node of the response.
    async fn send(
        &mut self,
        patch: impl AsyncFnOnce(&Client, &NodeName) -> Result<Node, Refusal>,
    ) -> WriteResult {
        let (Ok(link), Some(kubelet)) = (self.connections.guest.link(), self.kubelet.known())
        else {
            return Err(Refusal {
                text: "no kubelet credential".to_owned(),
                passing: true,
                retry_after: None,
            });
        };
        match limited(patch(&link.client, &kubelet.node_name)).await {
            Some(Ok(node)) => {
                // The response is the newest version of our Node: the next decision must not use the old one.
                self.node = Fact::Known(node);
                Ok(())
            }
            Some(Err(refusal)) => {
                let left = self.connections.guest.deferred();
                let retry_after = left.filter(|_| refusal.passing).or(refusal.retry_after);
                Err(Refusal {
                    retry_after,
                    ..refusal
                })
            }
            None => Err(Refusal {
                text: too_slow_text("the guest cluster API"),
                passing: true,
                retry_after: None,
            }),
        }
    }
}
