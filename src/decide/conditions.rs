// SPDX-License-Identifier: Apache-2.0
//! Node conditions: their desired status, reason and message, and whether they differ from those of the Node.

use super::action::DesiredCondition;
use super::identity::{Identity, OwnVm};
use super::name_match::Verdict;
use super::scheduled_events::{ScheduledEvent, ScheduledEventState, ScheduledEventType};
use crate::decide::label_state::LabelState;
use crate::sys::escape::one_line;

/// The type of the condition that shows whether the names of this machine match its VM.
pub const IDENTITY: &str = "HarvesterIdentityVerified";
/// The type of the condition that shows whether the topology labels match the host.
pub const TOPOLOGY: &str = "HarvesterTopologySynced";

/// The types of the conditions for scheduled events (Kubernetes enhancement 5683).
pub const LIFECYCLE: [&str; 2] = ["MaintenancePlanned", "MaintenanceInProgress"];

/// The maximum length of a message, in characters.
const MESSAGE_MAX: usize = 1024;

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
                    verdict.as_str(),
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
        LabelState::Synced => ("True", "the topology labels match the Harvester host"),
        LabelState::HostWithoutTopology => (
            "True",
            "the Harvester host has neither a region nor a zone label",
        ),
        LabelState::HarvesterNotRead => (
            "Unknown",
            "Harvester was not asked for the VM of this node yet; labels are unchanged",
        ),
        LabelState::NotSynced(_, message) => ("False", message.as_str()),
        LabelState::Unknown(_, message) => ("Unknown", message.as_str()),
    };
    Some(DesiredCondition {
        kind: TOPOLOGY,
        status,
        reason: sync.reason(),
        message: shown(message),
    })
}
