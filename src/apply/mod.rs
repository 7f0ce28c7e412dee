// SPDX-License-Identifier: Apache-2.0
//! Writes: all changes in a cluster are sent from here, to our own Node, with the credential of the kubelet. This module also
//! starts a unit and hooks.
//!
//! It executes a plan. It reads no facts, makes no decisions and does not retry.
//!
//! To add a write: add a variant of [`Action`], its call in a file here, and an arm in [`Writer::apply`].

pub mod event;
pub mod hook;
pub mod node;
pub mod unit;

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{Mutex, Semaphore};

use crate::agent::Answer;
use crate::agent::limit::{limited, too_slow_text};
use crate::agent::source_board::SourceBoard;
use crate::decide::action::EventDraft;
use crate::decide::{Action, Now, Refusal};
use crate::facts::names::NodeName;
use crate::facts::node::Node;
use crate::sys::root::Root;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::{Client, Error, NODES, ObjectPath, PatchKind};
use event::EventApi;
use hook::BESIDE_MAX;

/// A client with the credential of our kubelet, and the name of its Node.
pub type Own<'a> = (&'a Client, &'a NodeName);

/// Executes writes, some of them beside the loop.
#[derive(Debug)]
pub struct Writer {
    root: Root,
    bus: Bus,
    board: SourceBoard,
    /// Where Events are sent: the API server of the guest cluster is asked once in a process. Locked while they are sent.
    events: Arc<Mutex<EventApi>>,
    /// The permits to run hooks.
    hook_runs: Arc<Semaphore>,
    /// The permits to send Events: a slow API for Events stops no hooks.
    sendings: Arc<Semaphore>,
    /// The Events of the last writes, about this Node at that time.
    unsent: Vec<(NodeName, Vec<EventDraft>, Now)>,
}

impl Writer {
    /// Creates a writer that has sent nothing yet.
    pub fn new(root: Root, bus: Bus, board: SourceBoard) -> Self {
        Self {
            root,
            bus,
            board,
            events: Arc::default(),
            hook_runs: Arc::new(Semaphore::new(BESIDE_MAX)),
            sendings: Arc::new(Semaphore::new(BESIDE_MAX)),
            unsent: Vec::new(),
        }
    }

    /// Executes the action, or returns a one-line error.
    pub async fn apply(&mut self, own: Option<Own<'_>>, action: &Action, now: Now) -> Answer {
        let own = own.ok_or_else(|| Refusal::passing("no kubelet credential"));
        match action {
            Action::StartUnit(unit) => unit::start(&self.bus, unit).await?,
            Action::RunHooks(run) => {
                // Not awaited: a hook, or systemd, must not delay the loop.
                tokio::spawn(hook::run_beside(
                    self.root.clone(),
                    self.bus.with_own_connection(),
                    self.board.clone(),
                    Arc::clone(&self.hook_runs),
                    run.clone(),
                ));
            }
            Action::SendEvents(events) => self.announce_later(&events.node, &events.announce, now),
            Action::PatchNode(patch) => {
                let (client, own) = own?;
                let (path, body) = (own_path(own, &patch.node)?, node::node_body(patch));
                let node = send(client, &path, PatchKind::MERGE, &body).await?;
                self.announce_later(&patch.node, patch.announce.as_slice(), now);
                return Ok(Some(node));
            }
            Action::PatchConditions(patch) => {
                let (client, own) = own?;
                let path = own_path(own, &patch.node)?.status();
                let body = node::conditions_body(patch, now);
                let node = send(client, &path, PatchKind::STRATEGIC_MERGE, &body).await?;
                self.announce_later(&patch.node, &patch.announce, now);
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Keeps Events about our own Node until the round is reported.
    fn announce_later(&mut self, about: &NodeName, drafts: &[EventDraft], now: Now) {
        if !drafts.is_empty() {
            self.unsent.push((about.clone(), drafts.to_vec(), now));
        }
    }

    /// Sends the Events of the actions so far. A daemon does not wait until they are sent. `is_deferred`: the API would get none now.
    pub async fn announce(&mut self, own: Option<Own<'_>>, is_daemon: bool, is_deferred: bool) {
        if self.unsent.is_empty() {
            return;
        }
        let permit = Arc::clone(&self.sendings).try_acquire_owned().ok();
        let Some(permit) = permit.filter(|_| !is_deferred) else {
            // Behind a slow API, or after a failure, some wait for a later round; the oldest come first.
            self.unsent.truncate(BESIDE_MAX);
            return;
        };
        let unsent = std::mem::take(&mut self.unsent);
        let Some((client, own)) = own else {
            return;
        };
        let (client, own, api) = (client.clone(), own.clone(), Arc::clone(&self.events));
        let sending = async move {
            // In order, also after those of an earlier round.
            let mut api = api.lock().await;
            for (about, drafts, now) in &unsent {
                if own == *about {
                    let sent = event::send(&client, &mut api, drafts, &own, *now);
                    limited(sent).await;
                }
            }
            drop(permit);
        };
        if is_daemon {
            // Not awaited: Events may have an etcd of their own, and a slow one must not delay the loop.
            tokio::spawn(sending);
        } else {
            sending.await;
        }
    }
}

/// Sends a patch of our own Node. Returns the Node as the API returned it.
async fn send(
    client: &Client,
    path: &ObjectPath,
    kind: PatchKind,
    body: &Value,
) -> Result<Node, Refusal> {
    let patched = limited(client.patch(path, kind, body)).await;
    let slow = || Refusal::passing(too_slow_text("the guest cluster API"));
    patched.ok_or_else(slow)?.map_err(|error| refusal(&error))
}

/// Returns the path of our own Node. Any other Node is rejected.
fn own_path(own: &NodeName, named: &NodeName) -> Result<ObjectPath, Refusal> {
    if own == named {
        Ok(NODES.named(own))
    } else {
        let text = format!("the plan is for Node `{named}`, this Node is `{own}`");
        Err(Refusal::passing(text))
    }
}

fn refusal(error: &Error) -> Refusal {
    Refusal {
        text: crate::sys::escape::chain(error),
        // One that was not sent has the error of another request.
        passing: error.may_pass() || error.is_deferred,
        retry_after: error.retry_after,
        is_deferred: error.is_deferred,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_for_another_node_is_refused() {
        let [own, other] = ["worker-1", "worker-2"].map(|name| NodeName::parse(name).unwrap());
        let path = own_path(&own, &own).unwrap();
        assert_eq!(path.to_string(), "/api/v1/nodes/worker-1");
        let refusal = own_path(&own, &other).unwrap_err();
        assert!(refusal.text.contains("worker-2"), "{}", refusal.text);
    }

    #[tokio::test]
    async fn events_wait_until_the_api_gets_requests_again() {
        let root = Root::new("/nonexistent");
        let bus = Bus::new(&root, None);
        let mut writer = Writer::new(root, bus, SourceBoard::default());
        let draft = EventDraft {
            kind: "Normal",
            reason: "LiveMigrationDone",
            note: String::new(),
            name: None,
        };
        let node = NodeName::parse("worker-1").unwrap();
        let now = crate::decide::fixtures::now(std::time::Duration::ZERO);
        writer.announce_later(&node, &[draft], now);
        writer.announce(None, true, true).await;
        assert_eq!(writer.unsent.len(), 1);
        writer.announce(None, true, false).await;
        assert_eq!(writer.unsent.len(), 0);
    }
}
