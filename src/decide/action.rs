// SPDX-License-Identifier: Apache-2.0
//! The writes that a plan may request, and their results.
//!
//! To add a write: add a variant here, and its body or call and its arm in `apply`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::scheduled_events::ScheduledEvent;
use crate::catalog::Code;
use crate::facts::names::NodeName;
use crate::facts::node::{Node, NodeCondition};
use crate::facts::topology::LabelValue;

/// A write. The agent makes no other writes: it never writes taints, `spec`, `ownerReferences`, or another Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A start of a systemd unit of this machine.
    StartUnit(String),
    /// A run of the hooks for a new state of a scheduled event.
    RunHooks(HookRun),
    /// Events about our own Node.
    SendEvents(NodeEvents),
    /// A change of labels and annotations of our own Node, in one merge patch.
    PatchNode(NodePatch),
    /// A change of conditions of our own Node, in one strategic merge patch of its status.
    PatchConditions(ConditionsPatch),
}

/// The kinds of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// A start of a unit, or of hooks.
    Unit,
    /// Events.
    Events,
    /// A patch of labels and annotations.
    Node,
    /// A patch of conditions.
    Conditions,
}

/// A failed or refused write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A one-line message.
    pub text: String,
    /// Whether the same write may be accepted later, with no change on this machine.
    pub passing: bool,
    /// The delay that the server requested, as in `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether it was not sent, because of the backoff of the API.
    pub is_deferred: bool,
}

impl Refusal {
    /// Creates a refusal of a write that may be accepted later.
    pub fn passing(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            passing: true,
            retry_after: None,
            is_deferred: false,
        }
    }
}

/// The result of a write.
pub type WriteResult = Result<(), Refusal>;

impl Action {
    /// Returns the kind of this write.
    pub fn write(&self) -> Write {
        match self {
            Self::StartUnit(_) | Self::RunHooks(_) => Write::Unit,
            Self::SendEvents(_) => Write::Events,
            Self::PatchNode(_) => Write::Node,
            Self::PatchConditions(_) => Write::Conditions,
        }
    }

    /// Reports whether both are the same change, whatever version of the Node they are for.
    pub fn is_same_change(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::PatchNode(one), Self::PatchNode(other)) => {
                (&one.node, &one.uid) == (&other.node, &other.uid)
                    && (&one.labels, &one.annotations) == (&other.labels, &other.annotations)
            }
            _ => self == other,
        }
    }

    /// Reports whether this write is a patch, which is retried until the API of the guest cluster accepts it.
    pub fn is_sent(&self) -> bool {
        matches!(self.write(), Write::Node | Write::Conditions)
    }
}

/// A run of the hooks for one state of a scheduled event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRun {
    /// The event in its new state.
    pub event: ScheduledEvent,
    /// Our VM, as `namespace/name`.
    pub vm: Option<String>,
    /// Our own Node.
    pub node: Option<String>,
}

/// Events that are sent once, without a change of the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvents {
    /// Our own Node.
    pub node: NodeName,
    /// The Events.
    pub announce: Vec<EventDraft>,
}

/// A change of labels and annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePatch {
    /// Our own Node.
    pub node: NodeName,
    /// The UID of the Node; the API refuses the patch if the Node was re-created.
    pub uid: String,
    /// The resource version, set when a label is removed, so that the patch does not overwrite a newer change by another writer.
    pub resource_version: Option<String>,
    /// Labels with their new values; `None` removes the label.
    pub labels: BTreeMap<String, Option<LabelValue>>,
    /// Annotations with their new values.
    pub annotations: BTreeMap<String, String>,
    /// The Event to send when the patch is accepted.
    pub announce: Option<EventDraft>,
}

/// A change of conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionsPatch {
    /// Our own Node.
    pub node: NodeName,
    /// The conditions, each with whether its status changes, which sets `lastTransitionTime`.
    pub conditions: Vec<(DesiredCondition, bool)>,
    /// The Events to send when the patch is accepted.
    pub announce: Vec<EventDraft>,
}

/// A desired condition. Its message contains nothing that changes while the state is the same, such as a time or the name of a host, so
/// that an unchanged state is not written again and a migration does not write a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredCondition {
    /// The type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The code of the finding that explains the state, if there is one.
    pub finding: Option<Code>,
    /// The human-readable message.
    pub message: String,
}

impl DesiredCondition {
    /// Reports whether writing this condition would change the Node.
    pub fn is_change(&self, node: &Node) -> bool {
        let same = |present: &NodeCondition| {
            *present.status == *self.status
                && present.reason.as_deref() == Some(self.reason)
                && present.message.as_deref() == Some(self.message.as_str())
        };
        !node.condition(self.kind).is_some_and(same)
    }

    /// Reports whether the status or the reason differs from that of the Node.
    pub fn is_transition(&self, node: &Node) -> bool {
        node.condition(self.kind).is_none_or(|present| {
            *present.status != *self.status || present.reason.as_deref() != Some(self.reason)
        })
    }
}

/// An Event to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDraft {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The human-readable message.
    pub note: String,
    /// A name for the Event, unique on this Node. With it, the Event is created once, even by an agent that was killed in between.
    pub name: Option<String>,
}
