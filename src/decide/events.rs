// SPDX-License-Identifier: Apache-2.0
//! Kubernetes Events: one for each change that a user may look for in `kubectl describe node`.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::action::{DesiredCondition, EventDraft};
use super::guest_agent::GuestAgentHealth;
use super::labels::LabelPlan;
use super::name_match::Verdict;
use super::placement::Placement;
use super::scheduled_events::{ScheduledEvent, ScheduledEventState, ScheduledEventType};
use super::{conditions, guest_agent, label_state};
use crate::catalog::{Code, Finding, FindingKey, Flag, Known};
use crate::facts::node::Node;
use crate::sys::escape::one_line;

/// The maximum length of a message that the API accepts, in bytes.
const NOTE_MAX: usize = 1024;

/// The time in which a finding has one Event, however often it comes and goes. API servers keep Events for as long by default.
const AGAIN_AFTER: Duration = Duration::from_secs(60 * 60);

/// The findings that had an Event of their own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Announced {
    known: Known,
    /// The times of the last Events, since the start of the process.
    sent: BTreeMap<FindingKey, Duration>,
}

impl Announced {
    /// Returns the Events for findings that are new, as in the journal, and are not the reason of a condition. `is_unread`: the host
    /// is not known.
    pub(super) fn news(
        &mut self,
        findings: &[Finding],
        is_unread: bool,
        now: Duration,
    ) -> Vec<EventDraft> {
        self.sent
            .retain(|_, at| now.saturating_sub(*at) < AGAIN_AFTER);
        let own = findings.iter().filter(|one| has_own_event(one.code));
        let is_new = |one: &&Finding| self.known.is_new(one);
        let (new, mut present): (Vec<&Finding>, Vec<&Finding>) = own.partition(is_new);
        let mut texts: BTreeMap<FindingKey, Vec<&str>> = BTreeMap::new();
        // One that waits for its time stays new.
        for one in new {
            if !self.sent.contains_key(&one.key()) {
                texts.entry(one.key()).or_default().push(&one.seen);
                present.push(one);
            }
        }
        self.sent.extend(texts.keys().map(|key| (*key, now)));
        self.known.replace(present, is_unread);
        texts.into_iter().map(found).collect()
    }
}

/// Reports whether a finding has an Event when it is raised: an error or a warning that is not the reason of a condition and does not
/// pass by itself. API servers that restart must not get an Event from each node.
fn has_own_event(code: Code) -> bool {
    let mut verdicts = Verdict::ALL.iter();
    let mut health = GuestAgentHealth::ALL.iter();
    let is_reason = label_state::is_reason(code)
        || verdicts.any(|verdict| verdict.code() == Some(code))
        || health.any(|health| health.reason() == code.reason());
    code.entry().severity.is_on_node() && !code.is(Flag::MayPass) && !is_reason
}

/// Returns the Event for new observations of a finding, with a name that it has after a restart of the agent too.
fn found(((code, about), seen): (FindingKey, Vec<&str>)) -> EventDraft {
    let (title, reason) = (code.entry().title, code.reason());
    let seen = seen.join("; ");
    let event = draft("Warning", reason, &format!("{title}: {seen}"));
    // The text of an error and the time that is left may differ after a restart.
    let text = match code {
        Code::CredentialExpires => "",
        _ if code.is(Flag::ErrorText) => "",
        _ => &seen,
    };
    let same = format!("{} {text}", about.unwrap_or_default());
    let id = Uuid::new_v5(&Uuid::nil(), same.as_bytes());
    EventDraft {
        name: Some(format!("{}.{id}", reason.to_ascii_lowercase())),
        ..event
    }
}

/// Returns the Event for a migration: the VM runs on another host, and the labels change.
pub fn moved(from: &str, placement: &Placement, labels: &LabelPlan) -> EventDraft {
    let known = placement.known.as_ref();
    let topology = known.map(|known| known.topology.to_string());
    let (topology, host) = (topology.unwrap_or_default(), &placement.host);
    let count = labels.changes.len();
    let note = format!(
        "Harvester host changed from {from} to {host}, region/zone {topology}; {count} labels changed"
    );
    draft("Normal", "HostChanged", &note)
}

/// Returns the Event for a changed status or reason of a condition: the finding that explains why it is not `True`, or what becomes
/// `True` again. Each state of a scheduled event has its own Event.
pub fn transition(wanted: &DesiredCondition, node: &Node) -> Option<EventDraft> {
    if !wanted.is_transition(node) {
        return None;
    }
    let before = node.condition(wanted.kind);
    let before = before.map(|condition| &*condition.status);
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

/// Returns the Events for new states of scheduled events.
pub fn scheduled(states: &[ScheduledEvent]) -> Vec<EventDraft> {
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
    announce.collect()
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

#[cfg(test)]
mod tests;
