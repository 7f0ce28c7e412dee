// SPDX-License-Identifier: Apache-2.0
//! Node conditions: what they should say, and whether that is a change.

use super::identity::{Identity, OwnVm};
use super::sync::Sync;
use super::verdict::Verdict;
use crate::escape::one_line;
use crate::facts::node::{Node, NodeCondition};

/// Type of the condition that says whether the names of this machine are its VM's.
pub const IDENTITY: &str = "HarvesterIdentityVerified";
/// Type of the condition that says whether the topology labels are those of the host.
pub const TOPOLOGY: &str = "HarvesterTopologySynced";

/// Characters of a message.
const MESSAGE_MAX: usize = 1024;

/// A condition as it should be. Its message holds nothing that changes while the state stays, no time and no host, so that
/// an unchanged state is never written again and a migration costs no condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
}

impl Wanted {
    /// Whether writing it would change the Node.
    pub fn is_change(&self, node: &Node) -> bool {
        let same = |present: &NodeCondition| {
            present.status == self.status
                && present.reason.as_deref() == Some(self.reason)
                && present.message.as_deref() == Some(self.message.as_str())
        };
        !node.condition(self.kind).is_some_and(same)
    }

    /// Whether its status or reason differs from the Node's, which is worth an Event.
    pub fn is_transition(&self, node: &Node) -> bool {
        node.condition(self.kind).is_none_or(|present| {
            present.status != self.status || present.reason.as_deref() != Some(self.reason)
        })
    }
}

/// What the identity condition should say.
pub fn identity(identity: &Identity) -> Wanted {
    let (status, reason, message) = match &identity.vm {
        OwnVm::Ambiguous(vms) => (
            "False",
            "Ambiguous",
            format!("several VMs fit this machine: {}", vms.join(", ")),
        ),
        OwnVm::NotFound(_) => (
            "False",
            "NotFound",
            "no VM in the namespace fits this machine".to_owned(),
        ),
        OwnVm::Unknown(_)
            if identity.verdict.is_match() || identity.verdict == Verdict::Unknown =>
        {
            (
                "Unknown",
                "Unknown",
                "the VM is not known: Harvester cannot be read".to_owned(),
            )
        }
        OwnVm::Identified(_)
        | OwnVm::Remembered(..)
        | OwnVm::ProvenOffline(_)
        | OwnVm::Unknown(_) => {
            let vm = identity
                .expected
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            let status = if identity.verdict.is_match() {
                "True"
            } else {
                "False"
            };
            let names: Vec<String> = identity
                .names
                .iter()
                .map(|name| format!("{} `{}`", name.kind.as_str(), name.name.escape_debug()))
                .collect();
            let verdict = identity.verdict;
            let message = if verdict.is_match() {
                format!("{} are the name of VM `{vm}`", names.join(", "))
            } else {
                format!(
                    "VM `{vm}`, {}: {}; {}",
                    names.join(", "),
                    verdict.as_str(),
                    verdict.consequence()
                )
            };
            (status, verdict.reason(), message)
        }
    };
    Wanted {
        kind: IDENTITY,
        status,
        reason,
        message: shown(&message),
    }
}

/// A message as a condition may have it. The API takes 32 KiB of any text.
fn shown(message: &str) -> String {
    one_line(message, MESSAGE_MAX).into_owned()
}

/// What the topology condition should say; `None` while that is being decided.
pub fn topology(sync: &Sync) -> Option<Wanted> {
    let (status, reason, message) = match sync {
        Sync::Pending => return None,
        Sync::Synced => (
            "True",
            "Synced",
            "the topology labels are those of the Harvester host".to_owned(),
        ),
        Sync::HostWithoutTopology => (
            "True",
            "HostHasNoTopology",
            "the Harvester host has neither region nor zone".to_owned(),
        ),
        Sync::Held => (
            "False",
            "Held",
            "kept on purpose: `topology.on_change` is not \"follow\"".to_owned(),
        ),
        Sync::Stale => (
            "False",
            "AnnotationsStale",
            "Harvester's annotations speak of another host; labels are kept".to_owned(),
        ),
        Sync::Partial => (
            "False",
            "TopologyPartial",
            "the host lacks a label that the Node has; labels are kept".to_owned(),
        ),
        Sync::Illegal => (
            "False",
            "InvalidTopology",
            "a value of the host cannot be a label; labels are kept".to_owned(),
        ),
        Sync::Fighting { rival } => (
            "False",
            "RivalWriter",
            format!("`{rival}` keeps changing the labels back"),
        ),
        Sync::WriteFailed(text) => ("False", "WriteRefused", text.clone()),
        Sync::NoSource => (
            "Unknown",
            "NoSource",
            "no source tells region and zone of the host; labels are kept".to_owned(),
        ),
        Sync::NoVm { reason, text } => ("Unknown", *reason, text.clone()),
    };
    Some(Wanted {
        kind: TOPOLOGY,
        status,
        reason,
        message: shown(&message),
    })
}
