// SPDX-License-Identifier: Apache-2.0
//! The state of the Node's labels compared with the host, as one reason. Conditions, findings and reports use the same reason.

use super::conditions::kebab;
use super::identity::{Identity, OwnVm};
use super::labels::{LabelPlan, SkipReason};
use super::name_match::Verdict;
use super::placement::{Placement, PlacementOutcome};
use crate::decide::conflict::ConflictBackoff;
use crate::facts::node::Node;
use crate::facts::placement::Source;
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The state of the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelState {
    /// The labels match the host.
    Synced,
    /// A change is in progress, or the agent waits for the annotations of Harvester.
    Pending,
    /// Neither the host nor the Node has a topology.
    HostWithoutTopology,
    /// The labels differ because of the configuration.
    Pinned,
    /// The only source belongs to another host.
    Stale,
    /// The host lacks labels that the Node has.
    Partial,
    /// A value is not a valid label value.
    Invalid,
    /// Another writer reverts the labels.
    Conflict {
        /// The field manager of the other writer.
        writer: String,
    },
    /// The API refused our change.
    WriteFailed(String),
    /// The Node does not exist or cannot be read.
    NoNode {
        /// The reason, in CamelCase.
        reason: &'static str,
    },
    /// The verdict about the names is that of another VM.
    AnotherVm,
    /// No source has a topology.
    NoSource,
    /// The VM or its host is not known.
    NoVm {
        /// The reason, in CamelCase.
        reason: &'static str,
        /// The human-readable text.
        text: String,
    },
}

/// All reasons that [`LabelState::reason`] returns.
pub const REASONS: [&str; 25] = [
    "Synced",
    "Pending",
    "HostWithoutTopology",
    "PinnedByConfig",
    "AnnotationsStale",
    "TopologyPartial",
    "LabelValueInvalid",
    "LabelConflict",
    "NodeWriteFailed",
    "NodeMissing",
    "NodeNotRead",
    "NodeOfAnotherVM",
    "NameOfAnotherVM",
    "NoTopologySource",
    "NoHost",
    "IdentityAmbiguous",
    "VMNotFound",
    "HarvesterNotRead",
    "HarvesterUnreachable",
    "HarvesterUnauthorized",
    "HarvesterForbidden",
    "HarvesterTLSError",
    "NoHarvesterCredential",
    "HarvesterIsOwnAPI",
    "HarvesterBadResponse",
];

/// Reasons that the agent, the kubelet, RKE2 or Harvester may resolve without intervention. All others need a fix, or none.
const PASSING: [&str; 10] = [
    "Pending",
    "AnnotationsStale",
    "NodeMissing",
    "NodeNotRead",
    "NodeWriteFailed",
    "NoTopologySource",
    "NoHost",
    "HarvesterNotRead",
    "HarvesterUnreachable",
    // RKE2 and Rancher write it shortly after boot.
    "NoHarvesterCredential",
];

/// Reports whether a state, in kebab-case as in reports, does not change by waiting: the labels are in sync, stay as they are by
/// configuration, or need a fix. Returns false for an unknown name.
pub fn is_final_state(state: &str) -> bool {
    let mut known = REASONS.iter();
    let reason = known.find(|reason| kebab(reason) == state);
    reason.is_some_and(|reason| !PASSING.contains(reason))
}

impl LabelState {
    /// Returns the reason of the condition `HarvesterTopologySynced`. Reports show it in kebab-case, and the finding that explains
    /// the state has it as its code.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::Pending => "Pending",
            Self::HostWithoutTopology => "HostWithoutTopology",
            Self::Pinned => "PinnedByConfig",
            Self::Stale => "AnnotationsStale",
            Self::Partial => "TopologyPartial",
            Self::Invalid => "LabelValueInvalid",
            Self::Conflict { .. } => "LabelConflict",
            Self::WriteFailed(_) => "NodeWriteFailed",
            Self::AnotherVm => Verdict::AnotherVm.reason(),
            Self::NoSource => "NoTopologySource",
            Self::NoVm { reason, .. } | Self::NoNode { reason } => reason,
        }
    }

    /// Reports whether the labels need no change: they match the host, or the host has none.
    pub fn is_synced(&self) -> bool {
        matches!(self, Self::Synced | Self::HostWithoutTopology)
    }

    /// Reports whether another round in the same situation would not improve the labels: they match, or stay as they are for a
    /// reason that does not change by waiting.
    pub fn is_final(&self) -> bool {
        let is_unread = matches!(self, Self::NoNode { reason } if PASSING.contains(reason));
        !is_unread
            && !matches!(
                self,
                Self::Pending | Self::Stale | Self::NoSource | Self::NoVm { .. }
            )
    }
}

/// The inputs of [`state`].
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The identity of this machine.
    pub identity: &'a Identity,
    /// The host of the VM and its topology.
    pub placement: Option<&'a Placement>,
    /// The error if there is no usable Harvester credential.
    pub harvester: Option<&'a Unavailable>,
    /// The Node.
    pub node: &'a Fact<Node>,
    /// The planned changes.
    pub labels: &'a LabelPlan,
    /// Whether the agent waits for the annotations of Harvester.
    pub settling: bool,
    /// The conflicting writer, if any.
    pub stand_down: Option<&'a ConflictBackoff>,
    /// The error of our last change, if it was refused.
    pub refusal: Option<&'a str>,
}

/// Returns the state of the labels.
pub fn state(inputs: &Inputs<'_>) -> LabelState {
    let why = inputs.node.why().map(|why| why.kind);
    if why == Some(UnavailableKind::AnotherMachine) {
        return LabelState::NoNode {
            reason: "NodeOfAnotherVM",
        };
    }
    let Some(placement) = inputs.placement else {
        return without_host(inputs);
    };
    if inputs.identity.is_named_as_another() {
        return LabelState::AnotherVm;
    }
    if inputs.settling {
        return LabelState::Pending;
    }
    // While only our annotations conflict, the labels match.
    if let Some(stand) = inputs
        .stand_down
        .filter(|_| !inputs.labels.changes.is_empty())
    {
        return LabelState::Conflict {
            writer: stand.conflict.clone(),
        };
    }
    if !inputs.labels.changes.is_empty() {
        return inputs.refusal.map_or(LabelState::Pending, |text| {
            LabelState::WriteFailed(text.to_owned())
        });
    }
    let left = |wanted: &[SkipReason]| {
        inputs
            .labels
            .left
            .iter()
            .any(|left| wanted.contains(&left.reason))
    };
    let tried = |outcome, source: Option<Source>| {
        placement
            .tried
            .iter()
            .any(|t| t.outcome == outcome && source.is_none_or(|source| t.source == source))
    };
    match &placement.known {
        // Only the host itself reports its name, and no source has its topology: the reason is the missing response of Harvester.
        None if inputs.identity.vmi().is_none() => without_host(inputs),
        None if tried(PlacementOutcome::Invalid, None) => LabelState::Invalid,
        None if tried(PlacementOutcome::Stale, Some(Source::VmiAnnotations)) => LabelState::Stale,
        None => LabelState::NoSource,
        Some(_) if left(&[SkipReason::Pinned, SkipReason::ReportOnly]) => LabelState::Pinned,
        Some(_)
            if left(&[
                SkipReason::HostHasNone,
                SkipReason::WouldMix,
                SkipReason::HostNotRead,
            ]) =>
        {
            LabelState::Partial
        }
        Some(known) if known.topology.is_empty() => LabelState::HostWithoutTopology,
        Some(_) => match inputs.node {
            Fact::Known(_) => LabelState::Synced,
            Fact::Absent => LabelState::NoNode {
                reason: "NodeMissing",
            },
            Fact::Failed(why) if why.kind == UnavailableKind::AnotherNode => LabelState::NoNode {
                reason: "NodeMissing",
            },
            Fact::Failed(_) => LabelState::NoNode {
                reason: "NodeNotRead",
            },
        },
    }
}

fn without_host(inputs: &Inputs<'_>) -> LabelState {
    let no_vm = |reason, text: &str| LabelState::NoVm {
        reason,
        text: text.to_owned(),
    };
    let harvester = inputs.harvester.map(|why| why.kind);
    match &inputs.identity.vm {
        // The VM may be known without Harvester. The reason is the same.
        _ if harvester == Some(UnavailableKind::OwnApi) => no_vm(
            "HarvesterIsOwnAPI",
            "the Harvester kubeconfig points to the API of this guest cluster; labels are unchanged",
        ),
        OwnVm::Identified(_) => no_vm("NoHost", "the VM has no host: status.nodeName is empty"),
        OwnVm::Ambiguous(_) => no_vm(
            "IdentityAmbiguous",
            "several VMs match this node; labels are unchanged",
        ),
        OwnVm::NotFound(_) => no_vm(
            "VMNotFound",
            "no VM in the namespace matches this node; labels are unchanged",
        ),
        OwnVm::ProvenOffline(_) => no_vm(
            "HarvesterNotRead",
            "the VM name is verified, but its host cannot be read",
        ),
        OwnVm::Unknown(why) | OwnVm::Remembered(_, why) => {
            let (reason, text) = match why.kind {
                // The credential is usable: the search goes on.
                UnavailableKind::NotAsked if inputs.harvester.is_none() => (
                    "HarvesterNotRead",
                    "the VM is not found yet; labels are unchanged",
                ),
                UnavailableKind::Unreachable => (
                    "HarvesterUnreachable",
                    "the Harvester API is unreachable; labels are unchanged",
                ),
                UnavailableKind::Credential => (
                    "HarvesterUnauthorized",
                    "the Harvester API rejects the credential; labels are unchanged",
                ),
                UnavailableKind::Forbidden => (
                    "HarvesterForbidden",
                    "the Harvester credential is not allowed to read the VM (403); labels are unchanged",
                ),
                UnavailableKind::Tls => (
                    "HarvesterTLSError",
                    "the certificate of the Harvester API cannot be verified; labels are unchanged",
                ),
                UnavailableKind::NotAsked | UnavailableKind::Missing | UnavailableKind::OwnApi => (
                    "NoHarvesterCredential",
                    "no usable Harvester credential; labels are unchanged",
                ),
                UnavailableKind::Refused
                | UnavailableKind::UnexpectedObject
                | UnavailableKind::Malformed
                | UnavailableKind::AnotherMachine
                | UnavailableKind::AnotherNode => (
                    "HarvesterBadResponse",
                    "unexpected response from the Harvester API; labels are unchanged",
                ),
            };
            no_vm(reason, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_final_if_time_alone_does_not_change_it() {
        for state in [
            "synced",
            "host-without-topology",
            "pinned-by-config",
            "label-conflict",
            "identity-ambiguous",
            "harvester-tls-error",
            "harvester-is-own-api",
        ] {
            assert!(is_final_state(state), "{state}");
        }
        for state in [
            "pending",
            "harvester-unreachable",
            "node-missing",
            "of-a-later-version",
            "",
        ] {
            assert!(!is_final_state(state), "{state}");
        }
        assert!(PASSING.iter().all(|reason| REASONS.contains(reason)));
    }
}
