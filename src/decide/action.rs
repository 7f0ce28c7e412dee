// SPDX-License-Identifier: Apache-2.0
//! The writes that a plan may ask for, and what came of them.
//!
//! To add a write: a variant here, its body or call in `apply`, and its arm in the [`Apply`](crate::agent::Apply) of the observer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::conditions::DesiredCondition;
use super::events::EventDraft;
use super::registration::FileChange;
use crate::facts::names::NodeName;

/// One write. There are no others: never taints, `spec`, `ownerReferences`, or any other Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Starts a unit of this machine.
    StartUnit(String),
    /// Changes one of the agent's own files that give the kubelet its labels.
    EditLabelFile(FileChange),
    /// Labels and annotations of our own Node, in one merge patch.
    PatchNode(NodePatch),
    /// Conditions of our own Node, in one strategic merge patch of its status.
    PatchConditions(ConditionsPatch),
}

/// The kinds of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// A unit.
    Unit,
    /// A label file.
    LabelFile,
    /// Labels and annotations.
    Node,
    /// Conditions.
    Conditions,
}

/// A write that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One line for people.
    pub text: String,
    /// Whether the same write may be accepted later, with nothing changed here.
    pub passing: bool,
    /// How long the server asked us to stay away.
    pub retry_after: Option<Duration>,
}

/// What came of a write.
pub type WriteResult = Result<(), Refusal>;

impl Action {
    /// Returns its kind.
    pub fn write(&self) -> Write {
        match self {
            Self::StartUnit(_) => Write::Unit,
            Self::EditLabelFile(_) => Write::LabelFile,
            Self::PatchNode(_) => Write::Node,
            Self::PatchConditions(_) => Write::Conditions,
        }
    }

    /// Reports whether it is sent to the API of the guest cluster.
    pub fn is_sent(&self) -> bool {
        matches!(self.write(), Write::Node | Write::Conditions)
    }
}

/// A change of labels and annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePatch {
    /// Our own Node.
    pub node: NodeName,
    /// Its UID; the API refuses the patch when the Node was re-created since.
    pub uid: String,
    /// Sent when something is removed, so that a newer change by another writer is not lost.
    pub resource_version: Option<String>,
    /// Label to new value; `None` removes.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotation to new value.
    pub annotations: BTreeMap<String, String>,
    /// Sent once the patch is accepted.
    pub announce: Option<EventDraft>,
}

/// A change of conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionsPatch {
    /// Our own Node.
    pub node: NodeName,
    /// Its UID, for the Events.
    pub uid: String,
    /// The conditions, each with whether its status changes, which is what `lastTransitionTime` shows.
    pub conditions: Vec<(DesiredCondition, Transition)>,
    /// Sent once the patch is accepted.
    pub announce: Vec<EventDraft>,
}

/// Whether the status of a condition changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Another status than before.
    NewStatus,
    /// Only reason or message.
    SameStatus,
}
