// SPDX-License-Identifier: Apache-2.0
//! Passes each action to `apply` with the connection that it needs, and records the changes.

use super::Observer;
use super::limit::{limited, too_slow_text};
use crate::agent::Apply;
use crate::agent::signal_board::SignalBoard;
use crate::apply::{hook, patch_conditions, patch_node, registration, send_events, unit};
use crate::decide::events::EventDraft;
use crate::decide::registration::FileChange;
use crate::decide::{Action, HookRun, Now, Refusal, WriteResult};
use crate::facts::Fact;
use crate::facts::names::NodeName;
use crate::facts::node::Node;
use crate::facts::observation::ObservationIssue;
use crate::facts::registration::{DropIn, LabelFileKind};
use crate::observe::hooks::{self, Hooks};
use crate::sys::root::Root;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::Client;

impl Apply for Observer {
    async fn apply(&mut self, action: &Action, now: Now) -> WriteResult {
        match action {
            Action::StartUnit(unit) => unit::start(&self.bus, unit).await,
            Action::RunHooks(run) => {
                // Not awaited: a hook, or systemd, must not delay the loop.
                tokio::spawn(run_hooks(
                    self.root.clone(),
                    self.bus.with_own_connection(),
                    self.health.clone(),
                    run.clone(),
                ));
                Ok(())
            }
            Action::EditLabelFile(change) => self.edit_label_file(change).await,
            Action::SendEvents(events) => self.announce(&events.node, &events.announce, now).await,
            Action::PatchNode(patch) => {
                let send =
                    async |client: &Client, own: &NodeName| patch_node(client, own, patch).await;
                self.send(send).await?;
                self.announce(&patch.node, patch.announce.as_slice(), now)
                    .await
            }
            Action::PatchConditions(patch) => {
                let send = async |client: &Client, own: &NodeName| {
                    patch_conditions(client, own, patch, now).await
                };
                self.send(send).await?;
                self.announce(&patch.node, &patch.announce, now).await
            }
        }
    }
}

/// Runs the hooks for a state, and reports those that were rejected or failed. Each state has its own issue.
async fn run_hooks(root: Root, bus: Bus, health: SignalBoard, run: HookRun) {
    let Hooks { paths, rejected } = hooks::find(&root, run.event.state);
    let mut problems = rejected;
    if !paths.is_empty() {
        problems.extend(hook::run(&bus, &paths, &run).await);
    }
    let what = problems.join("; ");
    let issue = (!what.is_empty()).then_some(ObservationIssue::HooksFailed { what });
    health.issue(run.event.state.as_str(), issue);
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

    /// Sends Events about our own Node. A slow API must not delay other writes, nor make a patch that succeeded a failed one.
    async fn announce(&mut self, about: &NodeName, drafts: &[EventDraft], now: Now) -> WriteResult {
        let (Ok(link), Some(kubelet)) = (self.connections.guest.link(), self.kubelet.known())
        else {
            return Ok(());
        };
        let (client, own) = (&link.client, &kubelet.node_name);
        let sent = send_events(client, own, about, drafts, &mut self.events, now);
        limited(sent).await.unwrap_or(Ok(()))
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
