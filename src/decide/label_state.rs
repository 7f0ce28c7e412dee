// SPDX-License-Identifier: Apache-2.0
//! How the labels of the Node stand to the host, in one word; conditions, findings and reports say the same word.

use super::conditions::kebab;
use super::identity::{Identity, OwnVm};
use super::labels::{LabelPlan, SkipReason};
use super::placement::{Placement, PlacementOutcome};
use crate::decide::conflict::ConflictBackoff;
use crate::facts::node::Node;
use crate::facts::placement::Source;
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The state of the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelState {
    /// The labels are those of the host.
    Synced,
    /// A change is under way, or we wait a moment for Harvester.
    Pending,
    /// The host has no topology, and neither has the Node.
    HostWithoutTopology,
    /// They differ, by configuration.
    Pinned,
    /// The only source speaks of another host.
    Stale,
    /// The host lacks what the Node has.
    Partial,
    /// A value is not a valid label value.
    Invalid,
    /// Another writer reverts them.
    Conflict {
        /// The field manager of the other writer.
        writer: String,
    },
    /// The API refused our change.
    WriteFailed(String),
    /// There is no Node to label, or it cannot be read.
    NoNode {
        /// CamelCase.
        reason: &'static str,
    },
    /// No source provides them.
    NoSource,
    /// It is not known which VM this is, or where it runs.
    NoVm {
        /// CamelCase.
        reason: &'static str,
        /// Human-readable.
        text: String,
    },
}

/// Every reason that [`LabelState::reason`] returns.
pub const REASONS: [&str; 24] = [
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

/// Reasons of which the agent, the kubelet, RKE2 or Harvester may get rid without anyone's help. All others need a fix, or none.
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
    // RKE2 and Rancher write it a moment after the boot.
    "NoHarvesterCredential",
];

/// Reports whether a state, in kebab-case as reports show it, is one that time alone does not change: the labels are in sync,
/// stay as they are by configuration, or need a fix. A state of no known name is not.
pub fn is_final_state(state: &str) -> bool {
    let mut known = REASONS.iter();
    let reason = known.find(|reason| kebab(reason) == state);
    reason.is_some_and(|reason| !PASSING.contains(reason))
}

impl LabelState {
    /// Returns the reason of the condition `HarvesterTopologySynced`. Reports show the same word in kebab-case, and the finding
    /// that explains the state has it as its code.
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
            Self::NoSource => "NoTopologySource",
            Self::NoVm { reason, .. } | Self::NoNode { reason } => reason,
        }
    }

    /// Reports whether the labels need no change: they are the host's, or the host has none.
    pub fn is_synced(&self) -> bool {
        matches!(self, Self::Synced | Self::HostWithoutTopology)
    }

    /// Reports whether another round in the same situation would find the labels no better: they are right, or stay as they are for a
    /// reason that time does not remove.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Pending | Self::Stale | Self::NoSource | Self::NoVm { .. }
        )
    }
}

/// What decides the state.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// Who we are.
    pub identity: &'a Identity,
    /// Where we are.
    pub placement: Option<&'a Placement>,
    /// Why there is no usable Harvester credential, if so.
    pub harvester: Option<&'a Unavailable>,
    /// The Node.
    pub node: &'a Fact<Node>,
    /// What is to be changed.
    pub labels: &'a LabelPlan,
    /// Whether we wait for Harvester's annotations.
    pub settling: bool,
    /// Who fights us.
    pub stand_down: Option<&'a ConflictBackoff>,
    /// The text of the last refusal of our change, if it was refused.
    pub refusal: Option<&'a str>,
}

/// The state.
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
    if inputs.settling {
        return LabelState::Pending;
    }
    // While a conflicting writer has only our annotations, the labels are right.
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
        // The host tells its name, and no one its place: what is missing is the API's word.
        None if inputs.identity.vmi().is_none() => without_host(inputs),
        None if tried(PlacementOutcome::Illegal, None) => LabelState::Invalid,
        None if tried(PlacementOutcome::Stale, Some(Source::VmiAnnotations)) => LabelState::Stale,
        None => LabelState::NoSource,
        Some(_) if left(&[SkipReason::Held, SkipReason::ReportOnly]) => LabelState::Pinned,
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
        // Which VM this is may be known without Harvester; the reason is the same.
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
                UnavailableKind::Unreachable => (
                    "HarvesterUnreachable",
                    "the Harvester API is unreachable; labels are unchanged",
                ),
                UnavailableKind::Credential => (
                    "HarvesterUnauthorized",
                    "the Harvester API rejects the credential (401); labels are unchanged",
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
