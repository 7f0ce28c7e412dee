// SPDX-License-Identifier: Apache-2.0
//! Scheduled events: a live migration or a stop of the VM, from its announcement to its end.
//!
//! Each event has the states `planned`, `in-progress`, and one of `done`, `failed` and `canceled`. A state that was not observed
//! is skipped, and none is repeated: the [`EventTracker`] is kept over a restart.

mod event;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use event::{ScheduledEvent, ScheduledEventReason, ScheduledEventState, ScheduledEventType};

use super::identity::{Identity, OwnVm};
use super::input::Now;
use crate::facts::Fact;
use crate::facts::clock::rfc3339;
use crate::facts::names::HostName;
use crate::facts::scheduled_events::{MaintenanceStrategy, VirtualMachine};
use crate::facts::vmi::Vmi;
use crate::sys::escape::one_line;

/// The namespace of the IDs, a random UUID.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0f_3f0c_2c0b_4f5e_9d0e_6a6b_0f5b_7c19);

/// The maximum length of a message, in characters.
const MESSAGE_MAX: usize = 256;

/// The maximum number of states that one observation can publish: the end of an event, and two of the next one.
const CHANGES_MAX: usize = 3;

/// The state that is needed to publish each state of an event once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventTracker {
    /// The UID of the instance that was observed last.
    instance: Option<String>,
    /// The UID of the last migration that is over.
    finished: Option<String>,
    /// The number of events of the instance.
    count: u64,
    /// The event that is not over.
    open: Option<OpenEvent>,
}

/// An event that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenEvent {
    /// The last published state.
    event: ScheduledEvent,
    /// The UID of the migration, once it is known.
    migration: Option<String>,
}

impl EventTracker {
    /// Returns the last published state of the event that is not over.
    pub fn open(&self) -> Option<&ScheduledEvent> {
        self.open.as_ref().map(|open| &open.event)
    }

    /// Records an observation. Returns the states to publish, in order.
    pub fn observe(
        &mut self,
        identity: &Identity,
        vm: &Fact<VirtualMachine>,
        now: Now,
    ) -> Vec<ScheduledEvent> {
        let mut changes = Vec::new();
        match &identity.vm {
            OwnVm::Identified(vmi) => {
                if self.instance.as_deref() != Some(vmi.uid.as_str()) {
                    changes.extend(self.instance_is_gone(now));
                    // A migration that was over before the instance was observed for the first time is not news.
                    let over = vmi.announcements.migration.as_ref();
                    let over = over.filter(|migration| migration.is_over(vmi.host.as_ref()));
                    *self = Self {
                        instance: Some(vmi.uid.clone()),
                        finished: over.map(|migration| migration.uid.clone()),
                        ..Self::default()
                    };
                }
                while changes.len() < CHANGES_MAX
                    && let Some(change) = self.step(vmi, vm.known(), now)
                {
                    changes.push(change);
                }
            }
            OwnVm::NotFound(_) => changes.extend(self.instance_is_gone(now)),
            // Nothing was read.
            OwnVm::ProvenOffline(_)
            | OwnVm::Ambiguous(_)
            | OwnVm::Remembered(..)
            | OwnVm::Unknown(_) => {}
        }
        changes
    }

    /// Ends the open event of an instance that does not exist any more.
    fn instance_is_gone(&mut self, now: Now) -> Option<ScheduledEvent> {
        let state = match self.open()?.kind {
            ScheduledEventType::Stop => ScheduledEventState::Done,
            ScheduledEventType::LiveMigration => ScheduledEventState::Canceled,
        };
        self.end(state, now)
    }

    /// Returns the next state to publish, if there is one.
    fn step(&mut self, vmi: &Vmi, vm: Option<&VirtualMachine>, now: Now) -> Option<ScheduledEvent> {
        let announced = self.announced(vmi, vm, now);
        let (Some(open), Some(shown)) = (&mut self.open, &announced) else {
            return match announced {
                Some(announced) => Some(self.begin(vmi, announced)),
                None => self.end(ScheduledEventState::Canceled, now),
            };
        };
        if open.event.kind != shown.event.kind {
            return self.end(ScheduledEventState::Canceled, now);
        }
        let is_other = |known: &String| shown.migration.as_ref().is_some_and(|uid| uid != known);
        if open.migration.as_ref().is_some_and(is_other) {
            // Its end was not observed.
            let host = vmi.host.as_ref().map(ToString::to_string);
            let state = match host.is_some() && host != open.event.host {
                true => ScheduledEventState::Done,
                false => ScheduledEventState::Failed,
            };
            return self.end(state, now);
        }
        let is_new = shown.event.state > open.event.state;
        open.show(shown, is_new);
        if !is_new {
            return None;
        }
        let event = open.event.clone();
        if event.state.is_final() {
            self.close();
        }
        Some(event)
    }

    fn begin(&mut self, vmi: &Vmi, mut announced: OpenEvent) -> ScheduledEvent {
        let name = format!("{}/{}", vmi.uid, self.count);
        self.count += 1;
        announced.event.id = Uuid::new_v5(&NAMESPACE, name.as_bytes()).to_string();
        let event = announced.event.clone();
        self.open = Some(announced);
        if event.state.is_final() {
            self.close();
        }
        event
    }

    fn end(&mut self, state: ScheduledEventState, now: Now) -> Option<ScheduledEvent> {
        let event = self.open()?;
        let event = ScheduledEvent {
            state,
            time: rfc3339(now.wall),
            ..event.clone()
        };
        self.close();
        Some(event)
    }

    fn close(&mut self) {
        let migration = self.open.take().and_then(|open| open.migration);
        self.finished = migration.or(self.finished.take());
    }

    /// Returns what the instance shows, as a new event without an ID; not a migration whose end was published.
    fn announced(&self, vmi: &Vmi, vm: Option<&VirtualMachine>, now: Now) -> Option<OpenEvent> {
        let shown = &vmi.announcements;
        let name = |host: &HostName| host.to_string();
        let event = |kind, state, reason, source: &str| ScheduledEvent {
            id: String::new(),
            time: rfc3339(now.wall),
            state,
            kind,
            reason,
            source: source.to_owned(),
            host: vmi.host.as_ref().map(name),
            target_host: None,
            start_time: None,
            deadline: None,
            message: None,
        };
        if let Some(stop) = &shown.stop {
            let (kind, reason) = (ScheduledEventType::Stop, stop_reason(vmi, vm));
            let state = ScheduledEventState::InProgress;
            return Some(OpenEvent {
                event: ScheduledEvent {
                    start_time: Some(rfc3339(stop.requested)),
                    deadline: stop.deadline().map(rfc3339),
                    message: stop_message(vmi, vm),
                    ..event(kind, state, reason, "metadata.deletionTimestamp")
                },
                migration: None,
            });
        }
        let host = vmi.host.as_ref();
        // KubeVirt resets the field after the VM moved.
        let is_evicted = host.is_some() && shown.evacuated_host.as_ref() == host;
        let reason = match is_evicted {
            true => ScheduledEventReason::Eviction,
            false => ScheduledEventReason::MigrationRequested,
        };
        let migration =
            |state, source| event(ScheduledEventType::LiveMigration, state, reason, source);
        let last = shown.migration.as_ref();
        if let Some(current) = last.filter(|last| self.finished.as_ref() != Some(&last.uid)) {
            let is_over = current.is_over(host);
            let state = match (is_over, current.is_failed, current.is_abort_requested) {
                (true, true, true) => ScheduledEventState::Canceled,
                (true, true, false) => ScheduledEventState::Failed,
                (true, false, _) => ScheduledEventState::Done,
                (false, ..) if current.started.is_some() => ScheduledEventState::InProgress,
                (false, ..) => ScheduledEventState::Planned,
            };
            let failure = current.failure.as_deref().filter(|_| state.is_final());
            return Some(OpenEvent {
                event: ScheduledEvent {
                    host: current.source.as_ref().or(host).map(name),
                    target_host: current.target.as_ref().map(name),
                    start_time: current.started.map(rfc3339),
                    message: failure.map(|text| one_line(text, MESSAGE_MAX).into_owned()),
                    ..migration(state, "status.migrationState")
                },
                migration: Some(current.uid.clone()),
            });
        }
        // The label of a migration that is over may stay for a moment.
        let is_left = |target| last.is_some_and(|last| last.target.as_ref() == Some(target));
        let target = shown.migration_target.as_ref();
        let target = target.filter(|target| Some(*target) != host && !is_left(target));
        let source = match (target.is_some(), is_evicted, shown.is_eviction_requested) {
            (true, ..) => "metadata.labels[kubevirt.io/migrationTargetNodeName]",
            (false, true, true) => "status.conditions[EvictionRequested]",
            (false, true, false) => "status.evacuationNodeName",
            (false, false, _) => return None,
        };
        Some(OpenEvent {
            event: ScheduledEvent {
                target_host: target.map(name),
                ..migration(ScheduledEventState::Planned, source)
            },
            migration: None,
        })
    }
}

impl OpenEvent {
    /// Adds what is shown now. The reason and the host are those of the first state.
    fn show(&mut self, shown: &Self, is_new: bool) {
        self.migration = self.migration.take().or(shown.migration.clone());
        let (event, shown) = (&mut self.event, &shown.event);
        if is_new {
            event.time.clone_from(&shown.time);
            event.state = shown.state;
            event.source.clone_from(&shown.source);
        }
        let newer = |shown: &Option<String>, before: &mut Option<String>| {
            *before = shown.clone().or(before.take());
        };
        newer(&shown.target_host, &mut event.target_host);
        newer(&shown.start_time, &mut event.start_time);
        newer(&shown.deadline, &mut event.deadline);
        newer(&shown.message, &mut event.message);
    }
}

/// Reports whether the maintenance of the host stops the VM.
fn is_maintained(vmi: &Vmi, vm: &VirtualMachine) -> bool {
    vm.maintained_host.is_some() && vm.maintained_host == vmi.host
}

fn stop_reason(vmi: &Vmi, vm: Option<&VirtualMachine>) -> ScheduledEventReason {
    match vm {
        Some(vm) if vm.is_deleted => ScheduledEventReason::VmDeleted,
        Some(vm) if is_maintained(vmi, vm) => ScheduledEventReason::HostMaintenance,
        Some(vm) if vm.is_restarted => ScheduledEventReason::VmRestarted,
        _ => ScheduledEventReason::VmStopped,
    }
}

/// Returns what follows a stop for maintenance.
fn stop_message(vmi: &Vmi, vm: Option<&VirtualMachine>) -> Option<String> {
    let vm = vm.filter(|vm| !vm.is_deleted && is_maintained(vmi, vm))?;
    let text = match vm.maintenance? {
        MaintenanceStrategy::Migrate => return None,
        MaintenanceStrategy::RestartAfterEnable => {
            "the VM starts on another host after maintenance mode is enabled"
        }
        MaintenanceStrategy::RestartAfterDisable => {
            "the VM starts after maintenance mode is disabled"
        }
        MaintenanceStrategy::Shutdown => "the VM stays stopped after the maintenance",
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests;
