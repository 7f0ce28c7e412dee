// SPDX-License-Identifier: Apache-2.0
//! Do the labels of the Node match the host, and if not, why? The reason is the code of the finding that explains it.

use super::doing::{Doing, Labeling};
use super::failure_code;
use super::identity::OwnVm;
use super::input::Scene;
use super::labels::{Left, SkipReason};
use super::placement::{Placement, PlacementOutcome};
use crate::catalog::{Api, Code, CommandPlace, Finding, FixCommand, Flag, kebab};
use crate::facts::{Fact, Unavailable, UnavailableKind};
use SkipReason::{
    HostHasNone, HostNameInvalid, HostNotRead, Pinned, ReportOnly, ValueInvalid, WouldMix,
};

/// What was observed of a VM without a host, and the step for it.
const NO_HOST: &str = "status.nodeName of the VMI is empty, although the VM runs";
const UNTIL_HOST: &str = "The VMI has no host yet: it is pending, or the target of a migration. If that lasts, see its phase, \
                          conditions and events; KubeVirt sets the host. Roles and annotations are not the reason.";

/// The state of the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelState {
    /// The labels match the host.
    Synced,
    /// A change is in progress, or the agent waits for the annotations of Harvester.
    Pending,
    /// Harvester was not asked yet for the VM of this node.
    HarvesterNotRead,
    /// A finding explains it: the labels differ from the host and stay as they are, the host has none, or it is not known which are
    /// right.
    Explained {
        /// The code of the finding.
        code: Code,
        /// The message of the condition.
        message: String,
        /// What was observed, if no other decision raises the finding.
        seen: Option<String>,
    },
}

/// Returns all states.
pub fn all() -> Vec<LabelState> {
    let others = [
        LabelState::Synced,
        LabelState::Pending,
        LabelState::HarvesterNotRead,
    ];
    let explained = Code::ALL.iter().filter(|code| is_reason(**code));
    let explained = explained.map(|code| because(*code, None));
    others.into_iter().chain(explained).collect()
}

/// Reports whether a state, as in reports, does not change by waiting: the labels are in sync, stay as they are by configuration, or
/// need a fix. Returns false for an unknown name.
pub fn is_final_state(name: &str) -> bool {
    all().into_iter().any(|state| {
        let may_pass = state.code().map(|code| code.is(Flag::MayPass));
        state.name() == name && !may_pass.unwrap_or(!state.is_synced())
    })
}

/// Reports whether a code explains a state.
pub fn is_reason(code: Code) -> bool {
    code.is(Flag::LabelsStay) || code.is(Flag::LabelsUnknown) || code == Code::HostWithoutTopology
}

impl LabelState {
    /// Returns the reason of the condition `HarvesterTopologySynced`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::Pending => "Pending",
            Self::HarvesterNotRead => "HarvesterNotRead",
            Self::Explained { code, .. } => code.reason(),
        }
    }

    /// Returns the name in reports: the code of the finding that explains the state, if there is one.
    pub fn name(&self) -> String {
        kebab(self.reason())
    }

    /// Returns the code of the finding that explains the state.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Explained { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the finding that explains the state, unless another decision raises it.
    pub(super) fn finding(&self) -> Option<Finding> {
        match self {
            Self::Explained { code, seen, .. } => {
                let finding = Finding::new(*code, seen.clone()?);
                if finding.seen != NO_HOST {
                    return Some(finding);
                }
                let command = FixCommand {
                    place: CommandPlace::Harvester,
                    text: "kubectl -n <NAMESPACE> describe vmi <VM>".into(),
                };
                let finding = finding.with_remedy(UNTIL_HOST);
                Some(finding.with_all_commands(vec![command]))
            }
            _ => None,
        }
    }

    /// Reports whether the labels need no change: they match the host, or the host has none.
    pub fn is_synced(&self) -> bool {
        *self == Self::Synced || self.code() == Some(Code::HostWithoutTopology)
    }

    /// Reports whether another round in the same situation would not improve the labels: they match, or stay as they are for a
    /// reason that does not change by waiting.
    pub fn is_final(&self) -> bool {
        match self.code() {
            None => *self == Self::Synced,
            Some(Code::AnnotationsStale) => false,
            // The other VM may be renamed, but not by waiting.
            Some(Code::HostWithoutTopology | Code::NodeOfAnotherVm | Code::NameOfAnotherVm) => true,
            Some(code) => code.is(Flag::LabelsStay),
        }
    }
}

/// Returns the state that a code explains, with the title of the code and what it means for the labels, and with what was `seen` if no
/// other decision raises the finding.
fn because(code: Code, seen: Option<String>) -> LabelState {
    // Other labels may follow the host.
    let stays = match code {
        Code::TopologyPartial => "this label is unchanged",
        Code::LabelValueInvalid => "it is not written",
        _ => "labels are unchanged",
    };
    explained(code, format!("{}; {stays}", code.entry().title), seen)
}

fn explained(code: Code, message: String, seen: Option<String>) -> LabelState {
    LabelState::Explained {
        code,
        message,
        seen,
    }
}

/// Returns the state of the labels. `refusal` is the error of our last change, if it was refused and will be again.
pub fn state(seen: Scene<'_>, wanted: &Labeling, refusal: Option<&str>) -> LabelState {
    let node = &seen.observation.node;
    let is_of_another = |why: &Unavailable| why.kind == UnavailableKind::AnotherMachine;
    if node.why().is_some_and(is_of_another) {
        return because(Code::NodeOfAnotherVm, None);
    }
    let Some(placement) = seen.placement else {
        return without_host(seen);
    };
    if seen.identity.is_named_as_another() {
        return because(Code::NameOfAnotherVm, None);
    }
    match (&wanted.doing, &wanted.conflict) {
        (Doing::Settling(_) | Doing::Withheld(_), _) => return LabelState::Pending,
        // While only our annotations conflict, the labels match.
        _ if wanted.labels.changes.is_empty() => {}
        (Doing::BackingOff(_), Some(stand)) => {
            let message = format!("`{}` keeps reverting the labels", stand.conflict);
            return explained(Code::LabelConflict, message, None);
        }
        _ => {
            let refused = |text: &str| explained(Code::NodeWriteFailed, text.to_owned(), None);
            return refusal.map_or(LabelState::Pending, refused);
        }
    }
    let left = |reasons: &[SkipReason]| {
        // One that the Node never had is a finding only.
        let stays = |left: &Left| left.reason != HostNotRead || left.present.is_some();
        let mut left = wanted.labels.left.iter().filter(|left| stays(left));
        left.any(|left| reasons.contains(&left.reason))
    };
    match &placement.known {
        // Only the host itself reports its name, and no source has its topology: the reason is the missing response of Harvester.
        None if seen.identity.vmi().is_none() => without_host(seen),
        None => without_topology(placement),
        Some(_) if left(&[Pinned, ReportOnly]) => because(Code::PinnedByConfig, None),
        Some(_) if left(&[HostHasNone, WouldMix, HostNotRead]) => {
            because(Code::TopologyPartial, None)
        }
        Some(_) if left(&[HostNameInvalid, ValueInvalid]) => because(Code::LabelValueInvalid, None),
        Some(known) if known.topology.is_empty() => {
            let message = "the Harvester host has neither a region nor a zone label".to_owned();
            let seen = format!("host {}", placement.host);
            explained(Code::HostWithoutTopology, message, Some(seen))
        }
        Some(_) => match node {
            Fact::Known(_) => LabelState::Synced,
            Fact::Absent => because(Code::NodeMissing, None),
            // Without a code, it is read soon.
            Fact::Failed(_) => failure_code::api(seen.observation, Api::Guest)
                .map_or(LabelState::Pending, |code| because(code, None)),
        },
    }
}

fn without_topology(placement: &Placement) -> LabelState {
    if let Some(why) = &placement.trouble {
        return because(failure_code::source(why.kind), Some(why.text.clone()));
    }
    let tried = |outcome| {
        let mut tried = placement.tried.iter();
        let found = tried.find(|tried| tried.outcome == outcome)?;
        Some(found.detail.clone())
    };
    let (code, seen) = match (
        tried(PlacementOutcome::Invalid),
        tried(PlacementOutcome::Stale),
    ) {
        (invalid @ Some(_), _) => (Code::LabelValueInvalid, invalid),
        (None, stale @ Some(_)) => (Code::AnnotationsStale, stale),
        (None, None) => {
            let sources = placement.tried.iter();
            let sources = sources.map(|tried| format!("; {}: {}", tried.source, tried.detail));
            let sources: String = sources.collect();
            let seen = format!("host {}{sources}", placement.host);
            (Code::NoTopologySource, Some(seen))
        }
    };
    because(code, seen)
}

fn without_host(seen: Scene<'_>) -> LabelState {
    let unread = failure_code::api(seen.observation, Api::Harvester);
    match &seen.identity.vm {
        // The VM may be known without Harvester. The reason is the same.
        _ if unread == Some(Code::HarvesterIsOwnApi) => because(Code::HarvesterIsOwnApi, None),
        OwnVm::Identified(_) => because(Code::NoTopologySource, Some(NO_HOST.to_owned())),
        OwnVm::Ambiguous(_) => because(Code::IdentityAmbiguous, None),
        OwnVm::NotFound(_) => because(Code::VmNotFound, None),
        OwnVm::ProvenOffline(_) | OwnVm::Unknown(_) | OwnVm::Remembered(..) => {
            unread.map_or(LabelState::HarvesterNotRead, |code| because(code, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::World;
    use crate::facts::placement::{HostLabels, Source};

    #[test]
    fn a_host_without_topology_is_a_notice_and_the_labels_are_synced() {
        let mut world = World::new();
        world.answer(Source::HostNode, Fact::Known(HostLabels::default()));
        world.settle();
        let plan = world.plan();
        let expected = Finding::new(Code::HostWithoutTopology, "host hv-a");
        assert_eq!(plan.findings, [expected]);
        assert!(plan.sync.is_synced() && plan.sync.is_final());
        let condition = crate::decide::conditions::topology(&plan.sync).unwrap();
        assert_eq!(
            (condition.status, condition.reason),
            ("True", "HostWithoutTopology")
        );
    }

    #[test]
    fn a_vm_without_a_host_is_not_called_stopped() {
        let mut world = World::new();
        world.change_vmi(|vmi| vmi.host = None);
        let findings = world.plan().findings;
        let is_said = |one: &&Finding| one.seen.contains("although the VM runs");
        let finding = findings.iter().find(is_said).unwrap();
        assert!(finding.remedy().contains("no host yet"), "{finding:?}");
        let [command] = finding.commands() else {
            panic!("{finding:?}")
        };
        assert!(command.text.contains("describe vmi <VM>"), "{command:?}");
    }

    #[test]
    fn credentials_that_were_not_read_are_not_called_invalid() {
        let mut world = World::new();
        let seen = &mut world.observation;
        (seen.harvester, seen.candidates) = (Fact::default(), Fact::default());
        (seen.kubelet, seen.node) = (Fact::default(), Fact::default());
        let plan = world.plan();
        assert_eq!(plan.findings, []);
        assert_eq!(plan.sync, LabelState::HarvesterNotRead);
    }

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
