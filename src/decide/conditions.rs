// SPDX-License-Identifier: Apache-2.0
//! Node conditions: their desired status, reason and message, and whether they differ from those of the Node.

use super::identity::{Identity, OwnVm};
use super::name_match::Verdict;
use super::scheduled_events::{ScheduledEvent, ScheduledEventState, ScheduledEventType};
use crate::decide::label_state::LabelState;
use crate::facts::node::{Node, NodeCondition};
use crate::sys::escape::one_line;

/// The type of the condition that shows whether the names of this machine match its VM.
pub const IDENTITY: &str = "HarvesterIdentityVerified";
/// The type of the condition that shows whether the topology labels match the host.
pub const TOPOLOGY: &str = "HarvesterTopologySynced";

/// The types of the conditions for scheduled events (Kubernetes enhancement 5683).
pub const LIFECYCLE: [&str; 2] = ["MaintenancePlanned", "MaintenanceInProgress"];

/// The maximum length of a message, in characters.
const MESSAGE_MAX: usize = 1024;

/// A desired condition. Its message contains nothing that changes while the state is the same, such as a time or a host name, so
/// that an unchanged state is not written again and a migration does not write a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredCondition {
    /// The type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The human-readable message.
    pub message: String,
}

impl DesiredCondition {
    /// Reports whether writing this condition would change the Node.
    pub fn is_change(&self, node: &Node) -> bool {
        let same = |present: &NodeCondition| {
            present.status == self.status
                && present.reason.as_deref() == Some(self.reason)
                && present.message.as_deref() == Some(self.message.as_str())
        };
        !node.condition(self.kind).is_some_and(same)
    }

    /// Reports whether the status or the reason differs from that of the Node. Such a change is recorded as an Event.
    pub fn is_transition(&self, node: &Node) -> bool {
        node.condition(self.kind).is_none_or(|present| {
            present.status != self.status || present.reason.as_deref() != Some(self.reason)
        })
    }
}

/// Returns a CamelCase reason in kebab-case: `VMNotFound` becomes `vm-not-found`, `HostnameOfSeveralVMs` becomes
/// `hostname-of-several-vms`.
pub fn kebab(reason: &str) -> String {
    let mut text = String::new();
    let mut characters = reason.chars().peekable();
    let mut last = None;
    while let Some(character) = characters.next() {
        let is_start = match (last, characters.peek()) {
            (None, _) => false,
            (Some(last), next) => {
                let begins_word =
                    next.is_some_and(|next| next.is_ascii_lowercase() && *next != 's');
                character.is_ascii_uppercase() && (char::is_lowercase(last) || begins_word)
            }
        };
        if is_start {
            text.push('-');
        }
        text.push(character.to_ascii_lowercase());
        last = Some(character);
    }
    text
}

/// Returns the desired identity condition.
pub fn identity(identity: &Identity) -> DesiredCondition {
    let (status, reason, message) = match &identity.vm {
        OwnVm::Ambiguous(vms) => (
            "False",
            Verdict::Ambiguous.reason(),
            format!("several VMs match this node: {}", vms.join(", ")),
        ),
        OwnVm::NotFound(_) => (
            "False",
            Verdict::NotFound.reason(),
            "no VM in the namespace matches this node".to_owned(),
        ),
        OwnVm::Unknown(_)
            if identity.verdict.is_match() || identity.verdict == Verdict::Unknown =>
        {
            (
                "Unknown",
                Verdict::Unknown.reason(),
                "the VM is unknown: Harvester cannot be read".to_owned(),
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
                format!("{} match the name of VM `{vm}`", names.join(", "))
            } else {
                format!(
                    "{}, {}: {}; {}",
                    identity.reference(),
                    names.join(", "),
                    verdict.name(),
                    verdict.consequence()
                )
            };
            (status, verdict.reason(), message)
        }
    };
    DesiredCondition {
        kind: IDENTITY,
        status,
        reason,
        message: shown(&message),
    }
}

/// Returns the desired conditions for scheduled events. With none, their status is `False`, so that rules can require that.
pub fn lifecycle(open: Option<&ScheduledEvent>) -> [DesiredCondition; 2] {
    let [planned, in_progress] = LIFECYCLE;
    [
        (
            planned,
            ScheduledEventState::Planned,
            "NoMaintenancePlanned",
        ),
        (
            in_progress,
            ScheduledEventState::InProgress,
            "NoMaintenanceInProgress",
        ),
    ]
    .map(|(kind, state, none)| {
        let event = open.filter(|event| event.state == state);
        let message = match event.map(|event| event.kind) {
            None => "no live migration or stop of the VM",
            Some(ScheduledEventType::LiveMigration) => "live migration of the VM to another host",
            Some(ScheduledEventType::Stop) => "stop of the VM",
        };
        DesiredCondition {
            kind,
            status: if event.is_some() { "True" } else { "False" },
            reason: event.map_or(none, |event| event.reason.as_str()),
            message: message.to_owned(),
        }
    })
}

/// Returns a message as one line of limited length. The API accepts 32 KiB of any text.
fn shown(message: &str) -> String {
    one_line(message, MESSAGE_MAX).into_owned()
}

/// Returns the desired topology condition; `None` while a change is pending.
pub fn topology(sync: &LabelState) -> Option<DesiredCondition> {
    let (status, message) = match sync {
        LabelState::Pending => return None,
        LabelState::Synced => (
            "True",
            "the topology labels match the Harvester host".to_owned(),
        ),
        LabelState::HostWithoutTopology => (
            "True",
            "the Harvester host has neither a region nor a zone label".to_owned(),
        ),
        LabelState::Pinned => (
            "False",
            "`topology.on_change` is not \"follow\"; labels are unchanged".to_owned(),
        ),
        LabelState::Stale => (
            "False",
            "the annotations of the VMI are not known to be those of its host; labels are unchanged".to_owned(),
        ),
        LabelState::Partial => (
            "False",
            "the host lacks a topology label that the Node has; labels are unchanged".to_owned(),
        ),
        LabelState::Invalid => (
            "False",
            "a topology value of the host is not a valid label value; labels are unchanged"
                .to_owned(),
        ),
        LabelState::Conflict { writer } => {
            ("False", format!("`{writer}` keeps reverting the labels"))
        }
        LabelState::WriteFailed(text) => ("False", text.clone()),
        LabelState::AnotherVm => (
            "Unknown",
            "the hostname or Node name is that of another VM; labels are unchanged".to_owned(),
        ),
        LabelState::NoSource => (
            "Unknown",
            "no source provides region and zone of the host; labels are unchanged".to_owned(),
        ),
        LabelState::NoNode { .. } => ("Unknown", "the Node cannot be read".to_owned()),
        LabelState::NoVm { text, .. } => ("Unknown", text.clone()),
    };
    Some(DesiredCondition {
        kind: TOPOLOGY,
        status,
        reason: sync.reason(),
        message: shown(&message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Code;
    use crate::decide::guest_agent::GuestAgentHealth;
    use crate::decide::label_state;

    fn no_vm(reason: &'static str) -> LabelState {
        LabelState::NoVm {
            reason,
            text: String::new(),
        }
    }

    #[test]
    fn a_reason_is_split_into_words() {
        for (reason, words) in [
            ("Synced", "synced"),
            ("VMNotFound", "vm-not-found"),
            ("NameOfAnotherVM", "name-of-another-vm"),
            ("HarvesterTLSError", "harvester-tls-error"),
            ("HostnameOfSeveralVMs", "hostname-of-several-vms"),
            ("NoHost", "no-host"),
        ] {
            assert_eq!(kebab(reason), words);
        }
    }

    #[test]
    fn a_state_of_the_labels_and_the_finding_that_explains_it_have_one_name() {
        for (sync, code) in [
            (LabelState::HostWithoutTopology, Code::HostWithoutTopology),
            (LabelState::Pinned, Code::PinnedByConfig),
            (LabelState::Stale, Code::AnnotationsStale),
            (LabelState::Partial, Code::TopologyPartial),
            (LabelState::Invalid, Code::LabelValueInvalid),
            (
                LabelState::Conflict {
                    writer: String::new(),
                },
                Code::LabelConflict,
            ),
            (
                LabelState::WriteFailed(String::new()),
                Code::NodeWriteFailed,
            ),
            (LabelState::NoSource, Code::NoTopologySource),
            (LabelState::AnotherVm, Code::NameOfAnotherVm),
            (
                LabelState::NoNode {
                    reason: "NodeMissing",
                },
                Code::NodeMissing,
            ),
            (
                LabelState::NoNode {
                    reason: "NodeOfAnotherVM",
                },
                Code::NodeOfAnotherVm,
            ),
            (no_vm("IdentityAmbiguous"), Code::IdentityAmbiguous),
            (no_vm("VMNotFound"), Code::VmNotFound),
            (no_vm("HarvesterUnreachable"), Code::HarvesterUnreachable),
            (no_vm("HarvesterUnauthorized"), Code::HarvesterUnauthorized),
            (no_vm("HarvesterForbidden"), Code::HarvesterForbidden),
            (no_vm("HarvesterTLSError"), Code::HarvesterTlsError),
            (no_vm("HarvesterIsOwnAPI"), Code::HarvesterIsOwnApi),
            (no_vm("HarvesterBadResponse"), Code::HarvesterBadResponse),
        ] {
            assert_eq!(kebab(sync.reason()), code.as_str());
            assert!(label_state::REASONS.contains(&sync.reason()), "{sync:?}");
            let condition = topology(&sync).map(|condition| kebab(condition.reason));
            assert_eq!(condition.as_deref(), Some(code.as_str()));
        }
        assert_eq!(
            kebab(Verdict::AnotherVm.reason()),
            Code::NameOfAnotherVm.as_str()
        );
        for (verdict, code) in [
            (Verdict::Shared, Code::HostnameOfSeveralVms),
            (Verdict::Ambiguous, Code::IdentityAmbiguous),
            (Verdict::NotFound, Code::VmNotFound),
            (Verdict::ConfiguredOverride, Code::ConfiguredOverride),
        ] {
            assert_eq!(verdict.name(), code.as_str());
        }
    }

    #[test]
    fn a_state_of_the_qemu_guest_agent_and_its_finding_have_one_name() {
        for (health, code) in [
            (GuestAgentHealth::NotConnected, Code::GuestAgentNotConnected),
            (GuestAgentHealth::NotSupported, Code::GuestAgentNotSupported),
            (GuestAgentHealth::Restarting, Code::GuestAgentRestarting),
            (GuestAgentHealth::NotRunning, Code::GuestAgentNotRunning),
            (GuestAgentHealth::NotInstalled, Code::GuestAgentNotInstalled),
            (
                GuestAgentHealth::ChannelMissing,
                Code::GuestAgentChannelMissing,
            ),
        ] {
            assert_eq!(format!("guest-agent-{}", health.name()), code.as_str());
        }
    }
}
