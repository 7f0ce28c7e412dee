// SPDX-License-Identifier: Apache-2.0
//! Kubernetes Events: one for each change that a user may look for in `kubectl describe node`.

use super::action::{DesiredCondition, EventDraft, NodeEvents};
use super::labels::LabelPlan;
use super::placement::Placement;
use super::scheduled_events::{ScheduledEvent, ScheduledEventState, ScheduledEventType};
use super::{conditions, guest_agent};
use crate::config::Settings;
use crate::facts::node::Node;
use crate::sys::escape::one_line;

/// The maximum length of a message that the API accepts, in bytes.
const NOTE_MAX: usize = 1024;

/// Returns the Event for a migration: the VM runs on another host, and the labels change.
pub fn moved(from: &str, placement: &Placement, labels: &LabelPlan) -> EventDraft {
    let topology = placement
        .known
        .as_ref()
        .map(|known| known.topology.to_string())
        .unwrap_or_default();
    let count = labels.changes.len();
    draft(
        "Normal",
        "HostChanged",
        &format!(
            "Harvester host changed from {from} to {}, region/zone {topology}; {count} labels changed",
            placement.host
        ),
    )
}

/// Returns the Event for a changed status or reason of a condition: the finding that explains why it is not `True`, or what becomes
/// `True` again. Each state of a scheduled event has its own Event.
pub fn transition(wanted: &DesiredCondition, node: &Node) -> Option<EventDraft> {
    if !wanted.is_transition(node) {
        return None;
    }
    let before = node.condition(wanted.kind);
    let before = before.map(|condition| condition.status.as_str());
    match (wanted.status, before) {
        ("True", None | Some("True")) => None,
        ("True", Some(_)) => {
            let reason = match wanted.kind {
                conditions::TOPOLOGY => "TopologySynced",
                conditions::IDENTITY => "IdentityVerified",
                guest_agent::CONDITION => "QemuGuestAgentReady",
                _ => return None,
            };
            Some(draft("Normal", reason, &wanted.message))
        }
        // An API that fails in one way and then in another is no news: only a first failure is.
        ("Unknown", Some("Unknown")) => None,
        _ => Some(draft("Warning", wanted.finding?.reason(), &wanted.message)),
    }
}

/// Returns the Events for new states of scheduled events, if there are any.
pub fn scheduled(
    settings: &Settings,
    node: &Node,
    states: &[ScheduledEvent],
) -> Option<NodeEvents> {
    if !settings.report.events || states.is_empty() {
        return None;
    }
    let announce = states.iter().map(|event| {
        let kind = match event.state {
            ScheduledEventState::Failed => "Warning",
            _ => "Normal",
        };
        let note = format!("{} (event {})", event.text(), event.id);
        EventDraft {
            name: Some(format!("{}.{}", event.id, event.state.as_str())),
            ..draft(kind, scheduled_reason(event), &note)
        }
    });
    Some(NodeEvents {
        node: node.name.clone(),
        announce: announce.collect(),
    })
}

/// Returns the reason of the Event for a state of a scheduled event.
fn scheduled_reason(event: &ScheduledEvent) -> &'static str {
    use ScheduledEventState as State;
    match (event.kind, event.state) {
        (ScheduledEventType::LiveMigration, State::Planned) => "LiveMigrationPlanned",
        (ScheduledEventType::LiveMigration, State::InProgress) => "LiveMigrationInProgress",
        (ScheduledEventType::LiveMigration, State::Done) => "LiveMigrationDone",
        (ScheduledEventType::LiveMigration, State::Failed) => "LiveMigrationFailed",
        (ScheduledEventType::LiveMigration, State::Canceled) => "LiveMigrationCanceled",
        // A stop has no other states.
        (ScheduledEventType::Stop, State::Done) => "VMStopDone",
        (ScheduledEventType::Stop, _) => "VMStopInProgress",
    }
}

fn draft(kind: &'static str, reason: &'static str, note: &str) -> EventDraft {
    let mut note = one_line(note, NOTE_MAX).into_owned();
    let mut end = NOTE_MAX.min(note.len());
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.truncate(end);
    EventDraft {
        kind,
        reason,
        note,
        name: None,
    }
}
