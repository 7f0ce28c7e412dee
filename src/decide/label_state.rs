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

/// Returns all states.
pub fn all() -> Vec<LabelState> {
    let others = [
        LabelState::Synced,
        LabelState::Pending,
        LabelState::HarvesterNotRead,
        LabelState::HostWithoutTopology,
    ];
    let explained = Code::ALL.iter().copied().filter(|code| is_reason(*code));
    others.into_iter().chain(explained.map(because)).collect()
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
    code.is(Flag::LabelsStay) || code.is(Flag::LabelsUnknown)
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

/// Returns the state that a code explains, with the title of the code and what it means for the labels.
fn because(code: Code) -> LabelState {
    let message = format!("{}; labels are unchanged", code.entry().title);
    match code.is(Flag::LabelsStay) {
        true => LabelState::NotSynced(code, message),
        false => LabelState::Unknown(code, message),
    }
}

/// Returns the state of the labels. `refusal` is the error of our last change, if it was refused and will be again.
pub fn state(seen: Scene<'_>, wanted: &Labeling, refusal: Option<&str>) -> LabelState {
    let node = &seen.observation.node;
    let is_of_another = |why: &Unavailable| why.kind == UnavailableKind::AnotherMachine;
    if node.why().is_some_and(is_of_another) {
        return because(Code::NodeOfAnotherVm);
    }
    let Some(placement) = seen.placement else {
        return without_host(seen);
    };
    if seen.identity.is_named_as_another() {
        return because(Code::NameOfAnotherVm);
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
        None if let Some(why) = &placement.trouble => because(failure_code::source(why.kind)),
        None if tried(PlacementOutcome::Invalid, None) => because(Code::LabelValueInvalid),
        None if tried(PlacementOutcome::Stale, Some(Source::VmiAnnotations)) => {
            because(Code::AnnotationsStale)
        }
        None => because(Code::NoTopologySource),
        Some(_) if left(&[SkipReason::Pinned, SkipReason::ReportOnly]) => {
            because(Code::PinnedByConfig)
        }
        Some(_)
            if left(&[
                SkipReason::HostHasNone,
                SkipReason::WouldMix,
                SkipReason::HostNotRead,
            ]) =>
        {
            because(Code::TopologyPartial)
        }
        Some(known) if known.topology.is_empty() => LabelState::HostWithoutTopology,
        Some(_) => match node {
            Fact::Known(_) => LabelState::Synced,
            Fact::Absent => because(Code::NodeMissing),
            // Without a code, it is read soon.
            Fact::Failed(_) => {
                failure_code::api(seen.observation, Api::Guest).map_or(LabelState::Pending, because)
            }
        },
    }
}

fn without_host(seen: Scene<'_>) -> LabelState {
    let unread = failure_code::api(seen.observation, Api::Harvester);
    match &seen.identity.vm {
        // The VM may be known without Harvester. The reason is the same.
        _ if unread == Some(Code::HarvesterIsOwnApi) => because(Code::HarvesterIsOwnApi),
        OwnVm::Identified(_) => because(Code::NoTopologySource),
        OwnVm::Ambiguous(_) => because(Code::IdentityAmbiguous),
        OwnVm::NotFound(_) => because(Code::VmNotFound),
        OwnVm::ProvenOffline(_) | OwnVm::Unknown(_) | OwnVm::Remembered(..) => {
            unread.map_or(LabelState::HarvesterNotRead, because)
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
