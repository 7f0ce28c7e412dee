// SPDX-License-Identifier: Apache-2.0
//! Node conditions: their desired status, reason and message.

use super::action::DesiredCondition;
use super::identity::{Identity, OwnVm};
use super::name_match::Verdict;
use super::scheduled_events::{ScheduledEvent, ScheduledEventState, ScheduledEventType};
use crate::catalog::{Code, Flag};
use crate::decide::label_state::LabelState;
use crate::sys::escape::one_line;

/// The type of the condition that shows whether the names of this machine are those of its VM, or were configured.
pub const IDENTITY: &str = "HarvesterIdentityVerified";
/// The type of the condition that shows whether the topology labels match the host.
pub const TOPOLOGY: &str = "HarvesterTopologySynced";

/// The types of the conditions for scheduled events (Kubernetes enhancement 5683).
pub const LIFECYCLE: [&str; 2] = ["MaintenancePlanned", "MaintenanceInProgress"];

/// The maximum length of a message, in characters.
const MESSAGE_MAX: usize = 1024;

/// Returns the condition of a state that a finding explains: `status`, or `True` if it is only a notice.
pub(super) fn explained(
    kind: &'static str,
    code: Code,
    status: &'static str,
    message: &str,
) -> DesiredCondition {
    let is_on_node = code.entry().severity.is_on_node();
    let status = if is_on_node { status } else { "True" };
    DesiredCondition {
        finding: Some(code),
        ..plain(kind, status, code.reason(), message)
    }
}

/// Returns the condition of a state without a finding. Its message is one line of limited length: the API accepts 32 KiB of any text.
pub(super) fn plain(
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: &str,
) -> DesiredCondition {
    DesiredCondition {
        kind,
        status,
        reason,
        finding: None,
        message: one_line(message, MESSAGE_MAX).into_owned(),
    }
}

/// Returns the desired identity condition.
pub fn identity(identity: &Identity) -> DesiredCondition {
    let verdict = identity.verdict;
    let message = match &identity.vm {
        OwnVm::Ambiguous(vms) => format!("several VMs match this node: {}", vms.join(", ")),
        OwnVm::NotFound(_) => "no VM in the namespace matches this node".to_owned(),
        OwnVm::Unknown(_) if verdict.code().is_none() => {
            let message = "the VM is unknown: Harvester cannot be read";
            return plain(IDENTITY, "Unknown", Verdict::Unknown.reason(), message);
        }
        _ => {
            let names = identity.names.iter();
            let names =
                names.map(|name| format!("{} `{}`", name.kind.as_str(), name.name.escape_debug()));
            let names = names.collect::<Vec<_>>().join(", ");
            if verdict.is_match() {
                format!("{names} match the name of {}", identity.reference())
            } else {
                format!(
                    "{}, {names}: {}; {}",
                    identity.reference(),
                    verdict.as_str(),
                    verdict.consequence()
                )
            }
        }
    };
    match verdict.code() {
        Some(code) => explained(IDENTITY, code, "False", &message),
        None if verdict.is_match() => plain(IDENTITY, "True", verdict.reason(), &message),
        None => plain(IDENTITY, "Unknown", verdict.reason(), &message),
    }
}

/// Returns the desired conditions for scheduled events. With none, their status is `False`, so that rules can require that.
pub fn lifecycle(open: Option<&ScheduledEvent>) -> [DesiredCondition; 2] {
    use ScheduledEventState::{InProgress, Planned};
    let [planned, in_progress] = LIFECYCLE;
    [
        (planned, Planned, "NoMaintenancePlanned"),
        (in_progress, InProgress, "NoMaintenanceInProgress"),
    ]
    .map(|(kind, state, none)| {
        let event = open.filter(|event| event.state == state);
        let message = match event.map(|event| event.kind) {
            None => "no live migration or stop of the VM",
            Some(ScheduledEventType::LiveMigration) => "live migration of the VM to another host",
            Some(ScheduledEventType::Stop) => "stop of the VM",
        };
        let status = if event.is_some() { "True" } else { "False" };
        let reason = event.map_or(none, |event| event.reason.as_str());
        plain(kind, status, reason, message)
    })
}

/// Returns the desired topology condition; `None` while a change is pending.
pub fn topology(sync: &LabelState) -> Option<DesiredCondition> {
    let plain = |status, message| Some(plain(TOPOLOGY, status, sync.reason(), message));
    match sync {
        LabelState::Pending => None,
        LabelState::Synced => plain("True", "the topology labels match the Harvester host"),
        LabelState::HarvesterNotRead => plain(
            "Unknown",
            "Harvester was not asked for the VM of this node yet; labels are unchanged",
        ),
        LabelState::Explained { code, message, .. } => {
            let stay = code.is(Flag::LabelsStay);
            let status = if stay { "False" } else { "Unknown" };
            Some(explained(TOPOLOGY, *code, status, message))
        }
    }
}

#[cfg(test)]
mod tests;
