// SPDX-License-Identifier: Apache-2.0
//! Passes each action to `apply` with the connection that it needs, and records the changes.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::limit::{limited, too_slow_text};
use super::state::{BESIDE_MAX, Observer};
use crate::agent::signal_board::SignalBoard;
use crate::agent::{Answer, Apply};
use crate::apply::{hook, patch_conditions, patch_node, send_events, unit};
use crate::catalog::{Code, Finding};
use crate::decide::action::EventDraft;
use crate::decide::{Action, HookRun, Now, Refusal};
use crate::facts::Fact;
use crate::facts::names::NodeName;
use crate::facts::node::Node;
use crate::observe::hooks::{self, Hooks};
use crate::sys::root::Root;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::Client;

impl Apply for Observer {
    async fn apply(&mut self, action: &Action, now: Now) -> Answer {
        match action {
            Action::StartUnit(unit) => unit::start(&self.bus, unit).await?,
            Action::RunHooks(run) => {
                // Not awaited: a hook, or systemd, must not delay the loop.
                tokio::spawn(run_hooks(
                    self.root.clone(),
                    self.bus.with_own_connection(),
                    self.health.clone(),
                    Arc::clone(&self.hook_runs),
                    run.clone(),
                ));
            }
            Action::SendEvents(events) => {
                self.announce_later(&events.node, &events.announce, now);
            }
            Action::PatchNode(patch) => {
                let send =
                    async |client: &Client, own: &NodeName| patch_node(client, own, patch).await;
                let node = self.send(send).await?;
                self.announce_later(&patch.node, patch.announce.as_slice(), now);
                return Ok(Some(node));
            }
            Action::PatchConditions(patch) => {
                let send = async |client: &Client, own: &NodeName| {
                    patch_conditions(client, own, patch, now).await
                };
                let node = self.send(send).await?;
                self.announce_later(&patch.node, &patch.announce, now);
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    async fn announce(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.sendings).try_acquire_owned() else {
            // Behind a slow API, some wait for a later round; the oldest come first.
            self.unsent.truncate(BESIDE_MAX);
            return;
        };
        let unsent = std::mem::take(&mut self.unsent);
        let (Ok(link), Some(kubelet)) = (self.connections.guest.link(), self.facts.kubelet.known())
        else {
            return;
        };
        let (client, own) = (link.client.clone(), kubelet.node_name.clone());
        let api = Arc::clone(&self.events);
        let sending = async move {
            // In order, also after those of an earlier round.
            let mut api = api.lock().await;
            for (about, drafts, now) in &unsent {
                let sent = send_events(&client, &own, about, drafts, &mut api, *now);
                drop(limited(sent).await);
            }
            drop(permit);
        };
        if self.is_daemon {
            // Not awaited: Events may have an etcd of their own, and a slow one must not delay the loop.
            tokio::spawn(sending);
        } else {
            sending.await;
        }
    }
}

/// Runs the hooks for a state, and reports those that were rejected or failed. Each state has its own finding.
async fn run_hooks(
    root: Root,
    bus: Bus,
    health: SignalBoard,
    permits: Arc<Semaphore>,
    run: HookRun,
) {
    let state = run.event.state.as_str();
    let Hooks { paths, rejected } = hooks::find(&root, run.event.state);
    let mut problems = rejected;
    if !paths.is_empty() {
        let permit = permits.try_acquire();
        let refused = permit.is_err().then(|| {
            let what = format!(
                "the hooks for `{state}` were not started: {BESIDE_MAX} runs are not finished"
            );
            Finding::new(Code::HookFailed, what)
        });
        // An earlier run that ends well says nothing about one that was not started.
        health.report("hook-runs", refused);
        if permit.is_err() {
            return;
        }
        problems.extend(hook::run(&bus, &paths, &run).await);
    }
    let what = problems.join("; ");
    let finding = (!what.is_empty()).then(|| Finding::new(Code::HookFailed, what));
    health.report(state, finding);
}

impl Observer {
    /// Keeps Events about our own Node until the round is reported.
    fn announce_later(&mut self, about: &NodeName, drafts: &[EventDraft], now: Now) {
        if !drafts.is_empty() {
            self.unsent.push((about.clone(), drafts.to_vec(), now));
        }
    }

    /// Sends one patch of our own Node. Keeps and returns the Node of the response.
    async fn send(
        &mut self,
        patch: impl AsyncFnOnce(&Client, &NodeName) -> Result<Node, Refusal>,
    ) -> Result<Node, Refusal> {
        let (Ok(link), Some(kubelet)) = (self.connections.guest.link(), self.facts.kubelet.known())
        else {
            return Err(Refusal::passing("no kubelet credential"));
        };
        match limited(patch(&link.client, &kubelet.node_name)).await {
            Some(Ok(node)) => {
                // The response is the newest version of our Node: the next decision must not use the old one.
                self.facts.node = Fact::Known(node.clone());
                Ok(node)
            }
            Some(Err(refusal)) => {
                let left = self.connections.guest.deferred();
                let retry_after = left.filter(|_| refusal.passing).or(refusal.retry_after);
                Err(Refusal {
                    retry_after,
                    ..refusal
                })
            }
            None => Err(Refusal::passing(too_slow_text("the guest cluster API"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::access::testing::{tree, write};
    use crate::decide::fixtures::planned_event;

    #[tokio::test]
    async fn hooks_that_were_not_started_are_a_finding_until_others_are() {
        let (_dir, root) = tree();
        let (bus, health) = (Bus::new(&root, None), SignalBoard::default());
        let run = HookRun {
            event: planned_event(),
            vm: None,
            node: None,
        };
        let runs = async |permits: usize| {
            let permits = Arc::new(Semaphore::new(permits));
            let bus = bus.with_own_connection();
            run_hooks(root.clone(), bus, health.clone(), permits, run.clone()).await;
            let findings = health.findings().into_iter();
            findings.map(|finding| finding.seen).collect::<Vec<_>>()
        };
        // Without hooks, no permit is needed.
        assert_eq!(runs(0).await, Vec::<String>::new());
        let path = "/etc/harvester-node-agent/hooks.d/planned/10-drain";
        write(&root, path, "#!/bin/sh\n");
        set_permissions(root.join(path), Permissions::from_mode(0o755)).unwrap();
        let refused = runs(0).await;
        assert!(
            matches!(&refused[..], [one] if one.contains("`planned` were not started")),
            "{refused:?}"
        );
        // Without a bus, it fails for another reason.
        let failed = runs(1).await;
        assert!(
            matches!(&failed[..], [one] if one.starts_with("no hook was started")),
            "{failed:?}"
        );
    }
}
