// SPDX-License-Identifier: Apache-2.0
//! Do the labels of the Node match the host, and if not, why? The reason is the code of the finding that explains it.

use super::doing::{Doing, Labeling};
use super::failure_code;
use super::identity::OwnVm;
use super::input::Scene;
use super::labels::SkipReason;
use super::placement::PlacementOutcome;
use crate::catalog::{Api, Code, Flag, kebab};
use crate::facts::placement::Source;
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The state of the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelState {
    /// The labels match the host.
    Synced,
    /// A change is in progress, or the agent waits for the annotations of Harvester.
    Pending,
    /// Harvester was not asked yet for the VM of this node.
    HarvesterNotRead,
    /// Neither the host nor the Node has a topology.
    HostWithoutTopology,
    /// The labels differ from the host and stay as they are.
    NotSynced(Code, String),
    /// It is not known which labels are right, or which the Node has.
    Unknown(Code, String),
}

/// The codes of [`LabelState::NotSynced`].
const NOT_SYNCED: [Code; 6] = [
    Code::PinnedByConfig,
    Code::AnnotationsStale,
    Code::TopologyPartial,
    Code::LabelValueInvalid,
    Code::LabelConflict,
    Code::NodeWriteFailed,
];

/// The codes of [`LabelState::Unknown`].
const UNKNOWN: [Code; 24] = [
    Code::NodeMissing,
    Code::NodeOfAnotherVm,
    Code::NameOfAnotherVm,
    Code::KubeletCredentialMissing,
    Code::KubeletCredentialInvalid,
    Code::GuestApiUnreachable,
    Code::GuestApiUnauthorized,
    Code::GuestApiForbidden,
    Code::GuestApiTlsError,
    Code::GuestApiBadResponse,
    Code::UnexpectedObject,
    Code::NoTopologySource,
    Code::IdentityAmbiguous,
    Code::VmNotFound,
    Code::HarvesterCredentialMissing,
    Code::HarvesterCredentialInvalid,
    Code::CredentialIsDirectory,
    Code::CredentialIsEmpty,
    Code::HarvesterIsOwnApi,
    Code::HarvesterUnreachable,
    Code::HarvesterUnauthorized,
    Code::HarvesterForbidden,
    Code::HarvesterTlsError,
    Code::HarvesterBadResponse,
];

/// Returns all states.
pub fn all() -> Vec<LabelState> {
    let others = [
        LabelState::Synced,
        LabelState::Pending,
        LabelState::HarvesterNotRead,
        LabelState::HostWithoutTopology,
    ];
    let others = others.into_iter();
    let others = others.chain(NOT_SYNCED.map(not_synced));
    others.chain(UNKNOWN.map(unknown)).collect()
}

/// Reports whether a state, as in reports, does not change by waiting: the labels are in sync, stay as they are by configuration, or
/// need a fix. Returns false for an unknown name.
pub fn is_final_state(name: &str) -> bool {
    let mut all = all().into_iter();
    let state = all.find(|state| state.name() == name);
    state.is_some_and(|state| match state.code() {
        Some(code) => !code.is(Flag::MayPass),
        None => state.is_synced(),
    })
}

/// Reports whether a code is the reason of a state that is not in sync.
pub fn is_reason(code: Code) -> bool {
    NOT_SYNCED.contains(&code) || UNKNOWN.contains(&code)
}

impl LabelState {
    /// Returns the reason of the condition `HarvesterTopologySynced`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::Pending => "Pending",
            Self::HarvesterNotRead => "HarvesterNotRead",
            Self::HostWithoutTopology => Code::HostWithoutTopology.reason(),
            Self::NotSynced(code, _) | Self::Unknown(code, _) => code.reason(),
        }
    }

    /// Returns the name in reports: the code of the finding that explains the state, if there is one.
    pub fn name(&self) -> String {
        kebab(self.reason())
    }

    /// Returns the code of the finding that explains why the labels are not in sync.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::NotSynced(code, _) | Self::Unknown(code, _) => Some(*code),
            _ => None,
        }
    }

    /// Reports whether the labels need no change: they match the host, or the host has none.
    pub fn is_synced(&self) -> bool {
        matches!(self, Self::Synced | Self::HostWithoutTopology)
    }

    /// Reports whether another round in the same situation would not improve the labels: they match, or stay as they are for a
    /// reason that does not change by waiting.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Synced | Self::HostWithoutTopology => true,
            Self::Pending | Self::HarvesterNotRead => false,
            Self::NotSynced(code, _) => *code != Code::AnnotationsStale,
            // The other VM may be renamed, but not by waiting.
            Self::Unknown(code, _) => {
                matches!(code, Code::NodeOfAnotherVm | Code::NameOfAnotherVm)
            }
        }
    }
}

/// Returns the title of a code with what it means for the labels.
fn unchanged(code: Code) -> String {
    format!("{}; labels are unchanged", code.entry().title)
}

fn not_synced(code: Code) -> LabelState {
    LabelState::NotSynced(code, unchanged(code))
}

fn unknown(code: Code) -> LabelState {
    LabelState::Unknown(code, unchanged(code))
}

/// Returns the state of the labels. `refusal` is the error of our last change, if it was refused and will be again.
pub fn state(seen: Scene<'_>, wanted: &Labeling, refusal: Option<&str>) -> LabelState {
    let node = &seen.observation.node;
    let is_of_another = |why: &Unavailable| why.kind == UnavailableKind::AnotherMachine;
    if node.why().is_some_and(is_of_another) {
        return unknown(Code::NodeOfAnotherVm);
    }
    let Some(placement) = seen.placement else {
        return without_host(seen);
    };
    if seen.identity.is_named_as_another() {
        return unknown(Code::NameOfAnotherVm);
    }
    match &wanted.doing {
        Doing::Settling(_) | Doing::Withheld(_) => return LabelState::Pending,
        // While only our annotations conflict, the labels match.
        _ if wanted.labels.changes.is_empty() => {}
        Doing::BackingOff(stand) => {
            let message = format!("`{}` keeps reverting the labels", stand.conflict);
            return LabelState::NotSynced(Code::LabelConflict, message);
        }
        _ => {
            return refusal.map_or(LabelState::Pending, |text| {
                LabelState::NotSynced(Code::NodeWriteFailed, text.to_owned())
            });
        }
    }
    let left = |reasons: &[SkipReason]| {
        let mut left = wanted.labels.left.iter();
        left.any(|left| reasons.contains(&left.reason))
    };
    let tried = |outcome, source: Option<Source>| {
        let mut tried = placement.tried.iter();
        tried.any(|t| t.outcome == outcome && source.is_none_or(|source| t.source == source))
    };
    match &placement.known {
        // Only the host itself reports its name, and no source has its topology: the reason is the missing response of Harvester.
        None if seen.identity.vmi().is_none() => without_host(seen),
        None if let Some(why) = &placement.trouble => unknown(failure_code::source(why.kind)),
        None if tried(PlacementOutcome::Invalid, None) => not_synced(Code::LabelValueInvalid),
        None if tried(PlacementOutcome::Stale, Some(Source::VmiAnnotations)) => {
            not_synced(Code::AnnotationsStale)
        }
        None => unknown(Code::NoTopologySource),
        Some(_) if left(&[SkipReason::Pinned, SkipReason::ReportOnly]) => {
            not_synced(Code::PinnedByConfig)
        }
        Some(_)
            if left(&[
                SkipReason::HostHasNone,
                SkipReason::WouldMix,
                SkipReason::HostNotRead,
            ]) =>
        {
            not_synced(Code::TopologyPartial)
        }
        Some(known) if known.topology.is_empty() => LabelState::HostWithoutTopology,
        Some(_) => match node {
            Fact::Known(_) => LabelState::Synced,
            Fact::Absent => unknown(Code::NodeMissing),
            // Without a code, it is read soon.
            Fact::Failed(_) => {
                failure_code::api(seen.observation, Api::Guest).map_or(LabelState::Pending, unknown)
            }
        },
    }
}

fn without_host(seen: Scene<'_>) -> LabelState {
    let unread = failure_code::api(seen.observation, Api::Harvester);
    match &seen.identity.vm {
        // The VM may be known without Harvester. The reason is the same.
        _ if unread == Some(Code::HarvesterIsOwnApi) => unknown(Code::HarvesterIsOwnApi),
        OwnVm::Identified(_) => unknown(Code::NoTopologySource),
        OwnVm::Ambiguous(_) => unknown(Code::IdentityAmbiguous),
        OwnVm::NotFound(_) => unknown(Code::VmNotFound),
        OwnVm::ProvenOffline(_) | OwnVm::Unknown(_) | OwnVm::Remembered(..) => {
            unread.map_or(LabelState::HarvesterNotRead, unknown)
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
            "harvester-not-read",
            "harvester-unreachable",
            "node-missing",
            "of-a-later-version",
            "",
        ] {
            assert!(!is_final_state(state), "{state}");
        }
    }
}
