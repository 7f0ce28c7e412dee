// SPDX-License-Identifier: Apache-2.0
//! Changes since the last report: one journal entry for each change of state, none for an unchanged state.
//!
//! A message is `what: where`; the impact and the fix are in fields and in the message catalog.

use std::collections::BTreeMap;

use super::journal::{Priority, Record};
use super::message_id;
use super::status::{Status, VmStatus};
use crate::agent::Round;
use crate::agent::state::Seconds;
use crate::catalog::{Known, Severity};
use crate::decide::fast_poll::{WindowEnd, WindowOutcome};
use crate::decide::identity::JudgedName;
use crate::decide::scheduled_events::ScheduledEventState;
use crate::decide::{Action, Migration};
use crate::facts::clock::ClockSteps;
use crate::facts::names::NameKind;
use crate::facts::topology::{REGION_BETA, ZONE_BETA};
use crate::facts::trigger::Trigger;

/// The state that was reported last.
#[derive(Debug, Clone, Default)]
pub struct Reported {
    findings: Known,
    vm: Option<String>,
    host: Option<String>,
    zone: Option<String>,
    /// The hostnames of the machine.
    names: Option<Vec<JudgedName>>,
    /// The number of steps of the clock.
    clock: Option<u64>,
}

impl Reported {
    /// Returns the entry of a migration hint, with the last reported VM and host.
    pub fn hint(&self, hint: Trigger) -> Record {
        let text = format!(
            "possible live migration ({}); querying current host",
            meaning(hint)
        );
        Record {
            message_id: Some(message_id::SIGN),
            vm: self.vm.clone(),
            host: self.host.clone(),
            zone: self.zone.clone(),
            trigger: Some(hint.as_str().to_owned()),
            ..Record::new(Priority::Info, text)
        }
    }

    /// Returns the entries for the changes in `status` and for the events of its round, in their order. `clock` are the steps of the
    /// wall clock so far.
    pub fn news(&mut self, status: &Status, round: &Round, clock: ClockSteps) -> Vec<Record> {
        let mut records = Vec::new();
        let vm = status.identity.vm.as_ref().map(VmStatus::full_name);
        let placement = status.placement.as_ref();
        let host = placement.map(|placement| placement.host.clone());
        let zone = placement.and_then(|placement| placement.zone.clone());
        let record = |priority, message_id, message: String| Record {
            message_id: Some(message_id),
            vm: vm.clone(),
            host: host.clone(),
            zone: zone.clone(),
            trigger: Some(status.trigger.clone()),
            ..Record::new(priority, message)
        };
        if let Some(vm) = vm.as_ref().filter(|vm| Some(*vm) != self.vm.as_ref()) {
            let text = format!("VM identified: {vm}, {}", status.identity.state);
            records.push(record(Priority::Info, message_id::IDENTIFIED, text));
        }
        for text in self.renamed(status) {
            records.push(record(Priority::Notice, message_id::RENAMED, text));
        }
        if let Some(text) = self.clock_set(clock) {
            let interruption = round.plan.interruption;
            records.push(Record {
                interruption_ms: interruption.map(|took| Seconds::of(took).0),
                ..record(Priority::Info, message_id::CLOCK_SET, text)
            });
        }
        for event in &round.plan.scheduled {
            let priority = match event.state {
                ScheduledEventState::Failed => Priority::Warning,
                _ => Priority::Notice,
            };
            let text = format!("scheduled event: {}", event.text());
            records.push(Record {
                event: Some(event.clone()),
                ..record(priority, message_id::of_event(event.state), text)
            });
        }
        if let Some(Migration { from, to, .. }) = &round.plan.moved {
            let text = format!("Harvester host changed from {from} to {to}");
            records.push(Record {
                previous_host: Some(from.clone()),
                ..record(Priority::Notice, message_id::MIGRATED, text)
            });
        }
        let labels = written_labels(round);
        if !labels.is_empty() {
            let node = status.labels.node.as_deref().unwrap_or_default();
            let (labels, latency) = (labels.join(" "), Seconds::of(round.latency()).0);
            let text = format!("Node {node} labeled in {latency} ms: {labels}");
            records.push(Record {
                latency_ms: Some(latency),
                ..record(Priority::Notice, message_id::LABELED, text)
            });
        }
        if let Some(end) = &round.plan.window_end
            && let Some((priority, text)) = ended(end, host.as_deref())
        {
            let is_confirmed = end.outcome == WindowOutcome::Confirmed;
            records.push(Record {
                message_id: (!is_confirmed).then_some(message_id::UNCONFIRMED),
                trigger: Some(end.trigger.as_str().to_owned()),
                ..record(priority, message_id::UNCONFIRMED, text)
            });
        }
        for (action, result) in round.tried() {
            let Action::StartUnit(unit) = action else {
                continue;
            };
            let started = format!("unit started: {unit} (qemu_guest_agent.auto_start)");
            let (priority, id, text) = match result {
                Ok(_) => (Priority::Notice, message_id::UNIT_STARTED, started),
                Err(why) => (
                    Priority::Warning,
                    message_id::UNIT_NOT_STARTED,
                    why.text.clone(),
                ),
            };
            records.push(record(priority, id, text));
        }
        for finding in &round.plan.findings {
            if self.findings.is_new(finding) {
                let entry = finding.code.entry();
                let priority = match entry.severity {
                    Severity::Error => Priority::Error,
                    Severity::Warning => Priority::Warning,
                    Severity::Notice => Priority::Notice,
                };
                let text = format!("{}: {}", entry.title, finding.seen);
                records.push(Record {
                    finding: Some(finding.code.as_str().to_owned()),
                    impact: Some(entry.impact.to_owned()),
                    fix: Some(finding.remedy()),
                    ..record(priority, message_id::FINDING, text)
                });
            }
        }
        let unread = status.placement.is_none();
        for (code, about) in self.findings.replace(&round.plan.findings, unread) {
            let text = match about {
                Some(about) => format!("resolved: {code} ({about})"),
                None => format!("resolved: {code}"),
            };
            records.push(Record {
                finding: Some(code.as_str().to_owned()),
                ..record(Priority::Notice, message_id::RESOLVED, text)
            });
        }
        self.vm = vm.or(self.vm.take());
        // The zone is that of the host, and as old.
        if host.is_some() {
            (self.host, self.zone) = (host, zone);
        }
        records
    }

    /// Returns the hostnames that changed since the last report; none at the first one.
    fn renamed(&mut self, status: &Status) -> Vec<String> {
        let is_host_name = |name: &&JudgedName| name.kind != NameKind::NodeName;
        let names = status.identity.names.iter().filter(is_host_name);
        let Some(before) = self.names.replace(names.clone().cloned().collect()) else {
            return Vec::new();
        };
        let text = |now: &JudgedName| {
            let old = before.iter().find(|old| old.kind == now.kind)?;
            let old = Some(&old.name).filter(|old| **old != now.name)?;
            let (kind, new, verdict) = (now.kind.as_str(), &now.name, now.verdict.as_str());
            let text = format!("{kind} changed from `{old}` to `{new}`: {verdict}");
            Some(text)
        };
        names.filter_map(text).collect()
    }

    /// Returns the last step of the clock, if there was one since the last report.
    fn clock_set(&mut self, steps: ClockSteps) -> Option<String> {
        let before = self.clock.replace(steps.count)?;
        let step = steps.last.filter(|_| steps.count > before)?;
        Some(format!("wall clock set by {step}"))
    }
}

/// Describes a migration hint.
fn meaning(hint: Trigger) -> &'static str {
    match hint {
        Trigger::Link => "link: virtio NIC sent GUEST_ANNOUNCE",
        Trigger::Port => "port: host side of a virtio-serial port disconnected",
        other => other.as_str(),
    }
}

/// Returns the entry for the end of a fast-poll window without a migration. A migration has a separate entry, which may be earlier
/// than the hint.
fn ended(window_end: &WindowEnd, host: Option<&str>) -> Option<(Priority, String)> {
    let (hint, reads) = (window_end.trigger.as_str(), window_end.reads);
    let seconds = window_end.took.as_secs();
    let host = host.unwrap_or("an unknown host");
    match window_end.outcome {
        WindowOutcome::Confirmed if reads == 0 => {
            let text = format!("hint {hint} belongs to the last live migration, which is reported");
            Some((Priority::Info, text))
        }
        WindowOutcome::Confirmed => None,
        WindowOutcome::Unconfirmed => {
            let cause = match window_end.trigger {
                _ if window_end.from.is_none() => "previous host unknown",
                Trigger::Port => "port reopened by the host",
                _ => "VM restored or announce-self",
            };
            let text = format!(
                "no live migration: still on {host} {seconds}s after hint {hint} ({reads} reads); {cause}"
            );
            Some((Priority::Info, text))
        }
        WindowOutcome::ApiUnavailable => {
            let text = format!(
                "current host unknown {seconds}s after migration hint {hint}: Harvester API unavailable; labels unchanged, \
                 retrying"
            );
            Some((Priority::Warning, text))
        }
    }
}

/// Returns the labels that were written in this round, as `kubectl label` takes them: `key=value`, or `key-` for one that was removed.
fn written_labels(round: &Round) -> Vec<String> {
    let written = round.tried().filter(|(_, result)| result.is_ok());
    let labels = written.filter_map(|(action, _)| match action {
        Action::PatchNode(patch) => Some(&patch.labels),
        _ => None,
    });
    // A label that a webhook dropped was written again.
    let labels: BTreeMap<_, _> = labels.flatten().collect();
    let mut labels: Vec<_> = labels.into_iter().collect();
    // A long message is cut at its end.
    labels.sort_by_key(|(key, _)| [REGION_BETA, ZONE_BETA].contains(&key.as_str()));
    let labels = labels.into_iter().map(|(key, value)| match value {
        Some(value) => format!("{key}={value}"),
        None => format!("{key}-"),
    });
    labels.collect()
}

#[cfg(test)]
mod tests;
