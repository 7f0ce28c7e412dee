// SPDX-License-Identifier: Apache-2.0
//! The state that is kept from one decision to the next.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::action::{Action, NodeEvents, NodePatch, Write};
use super::agenda::{Agenda, Job};
use super::events::Announced;
use super::guest_agent;
use super::input::{Now, Scene};
use super::interruption;
use super::node_ownership::Reporters;
use super::placement::PlacementOutcome;
use super::schedule;
use super::scheduled_events::EventTracker;
use crate::catalog::{Code, Finding, Flag};
use crate::decide::conflict::ConflictTracker;
use crate::decide::fast_poll::Window;
use crate::facts::clock::{ClockSteps, rfc3339};
use crate::facts::names::{HostName, NameKind, NodeName, VmName};
use crate::facts::node::Node;
use crate::facts::topology::LabelValue;
use crate::facts::trigger::{Scope, Trigger};
use crate::facts::vmi::Vmi;

/// Host names that keep changing are reported after this many debounce times.
const NOISE_MAX: u32 = 10;

/// The state that is kept from one decision to the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Our own instance when it was last read. Names are compared with it while the API is unavailable.
    pub last_vmi: Option<Vmi>,
    /// The names of the other instances at that time. They must not be used by this machine, even while the API is unavailable.
    pub last_others: Vec<VmName>,
    /// The name of our Node when it was last read.
    pub node: Option<NodeName>,
    /// The last known host of the VM, and the time since which it is known.
    pub host: Option<(HostName, Duration)>,
    /// The virt-launcher pod of the VM, if the host is known only from its files.
    pub pod: Option<SeenPod>,
    /// The time of the last migration that was observed, since the start of the process.
    pub moved: Option<Duration>,
    /// The time of the last migration until the wall clock is set.
    pub unmeasured: Option<Duration>,
    /// The number of steps of the wall clock.
    pub clock_steps: u64,
    /// The open fast-poll window after a migration hint.
    pub window: Option<Window>,
    /// The first hint of the migration whose labels are not written yet, or what showed it, and its time of arrival.
    pub cause: Option<(Trigger, Duration)>,
    /// The hostnames when they were last read.
    pub names: HostNames,
    /// The time since which reads fail.
    pub unread_since: Option<Duration>,
    /// The deadlines, and the failures of what is retried.
    pub agenda: Agenda,
    /// Whether this process has searched for other VMs with our hostname or MAC address.
    pub has_searched: bool,
    /// The refusals of our last changes of the Node, at most one of each kind, until a change is accepted or no longer wanted.
    pub refusals: Vec<Refused>,
    /// The rate limit of updates of labels and annotations.
    pub writes: schedule::Pace,
    /// The rate limit of conditions and Events, which never delays labels.
    pub report_writes: schedule::Pace,
    /// The last migration.
    pub last_migration: Option<Migration>,
    /// Whether the Event about it is not sent yet: it is sent with the labels of the new host.
    pub is_unannounced: bool,
    /// The findings that had an Event.
    pub announced: Announced,
    /// Why extra labels stay unknown, until a source has them: a failure that may pass says nothing else.
    pub extra_unknown: Option<PlacementOutcome>,
    /// The conflicting writers of our labels.
    pub conflicts: ConflictTracker,
    /// The kubelets that report our Node.
    pub reporters: Reporters,
    /// The scheduled events that were published.
    pub scheduled: EventTracker,
    /// The state of the QEMU guest agent.
    pub guest_agent: guest_agent::Memory,
}

/// A virt-launcher pod of the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenPod {
    name: String,
    /// The time when it was first seen, since the start of the process.
    since: Duration,
    /// The host of the pod before it. The VM left that host, whatever the label of this pod shows.
    left: Option<HostName>,
    /// The host in the label when it became the only source and contradicted the source before. A migration shortly before that is
    /// the likely reason, and the label is not believed for the time in which Harvester updates it.
    contradicted: Option<HostName>,
}

impl SeenPod {
    fn is_new(&self, now: Now) -> bool {
        now.uptime.saturating_sub(self.since) < schedule::POD_LABEL_DELAY
    }
}

/// The hostnames of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    names: Vec<String>,
    /// The time of the first change, until they are stable, since the start of the process.
    changing_since: Option<Duration>,
    /// Whether the VMs with these names have not been searched for yet.
    pub(super) is_unsearched: bool,
    /// The findings about them.
    findings: BTreeSet<Code>,
}

/// A change of our Node that the API refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The change.
    pub action: Action,
    /// A one-line message.
    pub text: String,
    /// Whether the same change may be accepted later, with no change on this machine.
    pub passing: bool,
    /// The number of consecutive refusals.
    pub count: u32,
    /// The time of the next attempt, since the start of the process.
    pub due: Duration,
}

/// A migration from one host to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// The previous host.
    pub from: String,
    /// The new host.
    pub to: String,
    /// The time when the agent observed it, in RFC 3339 format.
    #[serde(rename = "time", alias = "at")]
    pub at: String,
}

impl Memory {
    /// Records a successful patch of labels and annotations.
    pub(super) fn note_patch(&mut self, patch: &NodePatch) {
        self.conflicts.wrote(patch);
        self.is_unannounced &= patch.announce.is_none();
    }

    /// Returns the refusal of our last change of this kind.
    pub(super) fn refusal(&self, write: Write) -> Option<&Refused> {
        let mut refusals = self.refusals.iter();
        refusals.find(|refused| refused.action.write() == write)
    }

    /// Reports whether a change that was refused is not sent again yet.
    pub(super) fn is_held(&self, action: &Action, seen: Scene<'_>) -> bool {
        let mut early = self.refusals.iter().filter(|one| one.due > seen.now.uptime);
        let is_held = early.any(|refused| refused.action.is_same_change(action));
        is_held && !seen.reasons.scope.contains(Scope::AFRESH)
    }

    /// Returns a failed change that took effect, because the Node has it: its response was lost. Sent once more, it changes nothing, but
    /// is known to be written, with its Event.
    pub(super) fn lost(&self, node: &Node) -> Option<NodePatch> {
        let refused = self.refusal(Write::Node)?;
        let Action::PatchNode(patch) = &refused.action else {
            return None;
        };
        let mut labels = patch.labels.iter();
        let mut annotations = patch.annotations.iter();
        let is_written = labels.all(|(key, value)| {
            node.labels.get(key).map(String::as_str) == value.as_ref().map(LabelValue::as_str)
        }) && annotations
            .all(|(key, value)| node.annotations.get(key) == Some(value));
        (refused.passing && refused.count == 1 && is_written).then(|| NodePatch {
            // It must not overwrite a later change.
            resource_version: node.resource_version.clone(),
            ..patch.clone()
        })
    }

    /// Returns the Events of failed conditions that took effect, because the Node has them: the response was lost.
    pub(super) fn lost_events(&self, node: &Node) -> Option<Action> {
        let refused = self.refusal(Write::Conditions)?;
        let Action::PatchConditions(patch) = &refused.action else {
            return None;
        };
        let mut conditions = patch.conditions.iter();
        let is_written = conditions.all(|(wanted, _)| !wanted.is_change(node));
        let announce = patch.announce.clone();
        let events = NodeEvents {
            node: patch.node.clone(),
            announce,
        };
        (refused.passing && is_written && !events.announce.is_empty())
            .then_some(Action::SendEvents(events))
    }

    /// Forgets the refusal of a change of this kind.
    pub(super) fn forget_refusal(&mut self, write: Write) {
        self.refusals
            .retain(|refused| refused.action.write() != write);
    }

    /// Records the current host and how long reads have failed. Returns a migration that was not known before.
    pub(super) fn remember(&mut self, seen: Scene<'_>) -> Option<Migration> {
        let now = seen.now;
        if seen.trouble().is_empty() {
            self.unread_since = None;
        } else {
            self.unread_since.get_or_insert(now.uptime);
        }
        if let Some(node) = seen.observation.node.known() {
            self.node = Some(node.name.clone());
        }
        if let Some(vmi) = seen.identity.vmi() {
            self.last_vmi = Some(vmi.clone());
            let names = seen.observation.vmis().iter().map(|other| &other.name);
            let others = names.filter(|name| **name != vmi.name);
            self.last_others = others.cloned().collect();
        }
        let host = seen.placement.map(|placement| placement.host.clone())?;
        // After a restart, the annotation contains the previous host, so that a migration while the agent was down is detected.
        let (from, first) = (self.last_host(seen), self.host.is_none());
        if self.host.as_ref().is_none_or(|(known, _)| *known != host) {
            self.host = Some((host.clone(), now.uptime));
        }
        let migration = Migration {
            from: from.filter(|from| *from != host)?.to_string(),
            to: host.to_string(),
            at: rfc3339(now.wall),
        };
        let known = |last: &Migration| (&last.from, &last.to) == (&migration.from, &migration.to);
        if first && self.last_migration.as_ref().is_some_and(known) {
            return None;
        }
        self.last_migration = Some(migration.clone());
        self.is_unannounced = true;
        self.moved = Some(now.uptime);
        self.unmeasured = Some(now.uptime);
        let hint = self.window.as_ref();
        let hint = hint.map(|window| (window.trigger, window.opened));
        self.cause = hint.or(Some((seen.reasons.trigger, seen.reasons.at)));
        Some(migration)
    }

    /// Records the steps of the wall clock. Returns the interruption that the first one after a migration shows.
    pub(super) fn note_clock(&mut self, steps: ClockSteps, now: Now) -> Option<Duration> {
        let count = std::mem::replace(&mut self.clock_steps, steps.count);
        let new = steps.count.saturating_sub(count);
        if new == 0 {
            return None;
        }
        let moved = self.unmeasured.take()?;
        // The size of the first of several steps is not known.
        let step = steps.last.filter(|_| new == 1)?;
        interruption::estimate(moved, now.uptime, step)
    }

    /// Records the pod, before the host that its label shows.
    pub(super) fn note_pod(&mut self, seen: Scene<'_>) {
        let pod = seen.observation.pod_info.known();
        let Some(pod) = pod.filter(|_| seen.is_by_pod()) else {
            self.pod = None;
            return;
        };
        let host = self.host.as_ref().map(|(host, _)| host);
        match &mut self.pod {
            Some(before) if before.name == pod.pod => {
                let is_over = |host: &mut HostName| pod.host.as_ref() != Some(host);
                before.contradicted.take_if(is_over);
            }
            before => {
                let is_first = before.is_none();
                self.pod = Some(SeenPod {
                    name: pod.pod.clone(),
                    since: seen.now.uptime,
                    left: host.filter(|_| !is_first).cloned(),
                    contradicted: pod
                        .host
                        .clone()
                        .filter(|shown| is_first && host.is_some_and(|host| host != shown)),
                });
            }
        }
    }

    /// Reports whether the label of the pod is not believed: labels must not go back to the host that the VM has left.
    pub(super) fn is_host_contradicted(&self, now: Now) -> bool {
        self.pod
            .as_ref()
            .is_some_and(|pod| pod.contradicted.is_some() && pod.is_new(now))
    }

    /// Reports whether the VM has left the host that the label of its pod shows: Harvester has not updated the label yet.
    pub(super) fn is_host_late(&self, seen: Scene<'_>) -> bool {
        let left = self.pod.as_ref().and_then(|pod| pod.left.as_ref());
        let shown = seen.placement.map(|placement| &placement.host);
        seen.is_by_pod() && left.is_some() && left == shown
    }

    /// Returns when the files of the pod are read again, if the host is known only from them.
    pub(super) fn pod_poll(&self, seen: Scene<'_>) -> Option<Duration> {
        let pod = self.pod.as_ref().filter(|_| seen.is_by_pod())?;
        let is_late = self.is_host_late(seen) || pod.contradicted.is_some();
        Some(match is_late && pod.is_new(seen.now) {
            true => schedule::POD_POLL_LATE,
            false => schedule::POD_POLL,
        })
    }

    /// Records the hostnames, and until when they must not change before they are reported and searched for. cloud-init and DHCP
    /// clients set them several times in a row. Two conflicting clients must not delay the report indefinitely.
    pub(super) fn note_names(&mut self, seen: Scene<'_>) {
        let now = seen.now;
        let names = seen.identity.names.iter();
        let names = names.filter(|judged| judged.kind != NameKind::NodeName);
        let names = names.map(|judged| judged.name.clone()).collect();
        let known = &mut self.names;
        let before = std::mem::replace(&mut known.names, names);
        // The first names. Without any, a change is still waited for.
        if before.is_empty() && self.agenda.due(Job::Names).is_none() {
            return;
        }
        if before != known.names {
            known.is_unsearched = true;
            let first = *known.changing_since.get_or_insert(now.uptime);
            let quiet = seen.settings.timing.hostname_debounce;
            let due = (now.uptime + quiet).min(first + quiet * NOISE_MAX);
            self.agenda.set(Job::Names, Some(due));
        }
        // This round searches for the VMs that have them.
        known.is_unsearched &= !seen.reasons.scope.contains(Scope::VM);
        let due = self.agenda.due(Job::Names);
        if due.is_none_or(|due| due <= now.uptime) {
            known.changing_since = None;
            self.agenda
                .set(Job::Names, due.filter(|_| known.is_unsearched));
        }
    }

    /// Records the findings about the hostnames.
    pub(super) fn note_findings(&mut self, findings: &[Finding]) {
        let codes = findings.iter().map(|finding| finding.code);
        let known = &mut self.names.findings;
        known.clear();
        known.extend(codes.filter(|code| code.is(Flag::OfNames)));
    }

    /// Reports whether this finding about hostnames is reported now: they are stable, or it was reported before.
    pub(super) fn may_report(&self, code: Code) -> bool {
        self.are_names_stable() || self.names.findings.contains(&code)
    }

    /// Reports whether the hostnames have not changed lately.
    pub(super) fn are_names_stable(&self) -> bool {
        self.names.changing_since.is_none()
    }

    /// Returns the last known host of the VM, known to this process or from the annotation on the Node.
    pub(super) fn last_host(&self, seen: Scene<'_>) -> Option<HostName> {
        let labeled = || HostName::parse(seen.observation.node.known()?.labeled_host()?).ok();
        let known = self.host.as_ref().map(|(host, _)| host.clone());
        known.or_else(labeled)
    }
}
