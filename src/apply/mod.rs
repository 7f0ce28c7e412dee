// SPDX-License-Identifier: Apache-2.0
//! Writes: all changes in a cluster are sent from here, to our own Node, with the credential of the kubelet. This module also
//! starts a unit and hooks.
//!
//! It executes a plan. It reads no facts, makes no decisions and does not retry.
//!
//! To add a write: add a variant of [`Action`](crate::decide::Action), its call in a file here, and an arm in
//! `observe/observer/write.rs`.

pub mod event;
pub mod hook;
pub mod node;
pub mod unit;

use crate::decide::action::EventDraft;
use crate::decide::{ConditionsPatch, NodePatch, Now, Refusal, WriteResult};
use crate::facts::names::NodeName;
use crate::facts::node::Node;
use crate::wire::kubeapi::{Client, Error, NODES, ObjectPath, PatchKind};
use event::EventApi;

/// Patches labels and annotations. Returns the Node as the API returned it.
pub async fn patch_node(
    client: &Client,
    own: &NodeName,
    patch: &NodePatch,
) -> Result<Node, Refusal> {
    let path = own_path(own, &patch.node)?;
    let body = node::node_body(patch);
    let patched = client.patch(&path, PatchKind::Merge, &body);
    patched.await.map_err(|error| refusal(&error))
}

/// Patches conditions. Returns the Node as the API returned it.
pub async fn patch_conditions(
    client: &Client,
    own: &NodeName,
    patch: &ConditionsPatch,
    now: Now,
) -> Result<Node, Refusal> {
    let path = own_path(own, &patch.node)?.status();
    let body = node::conditions_body(patch, now);
    let patched = client.patch(&path, PatchKind::StrategicMerge, &body);
    patched.await.map_err(|error| refusal(&error))
}

/// Sends Events about our own Node. Their numbers distinguish those of one time. A failure to send one is ignored: the condition and
/// the journal contain the same information.
pub async fn send_events(
    client: &Client,
    own: &NodeName,
    about: &NodeName,
    drafts: &[EventDraft],
    events: &mut EventApi,
    now: Now,
) -> WriteResult {
    own_path(own, about)?;
    for (index, draft) in drafts.iter().enumerate() {
        if let Err(error) = event::create(client, events, draft, index, own, now).await {
            tracing::debug!(reason = draft.reason, error = %crate::sys::escape::chain(&error), "failed to send an Event");
        }
    }
    Ok(())
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
}
