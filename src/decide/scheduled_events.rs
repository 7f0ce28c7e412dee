// SPDX-License-Identifier: Apache-2.0
//! Scheduled events: a live migration or a stop of the VM, from its announcement to its end.
//!
//! Each event has the states `planned`, `in-progress`, and one of `done`, `failed` and `canceled`. A state that was not observed
//! is skipped, and none is repeated: the [`EventTracker`] is kept over a restart.

mod event;

use serde::{Deserialize, Serialize};
use time::UtcDateTime;
use uuid::Uuid;

pub use event::{ScheduledEvent, ScheduledEventReason, ScheduledEventState, ScheduledEventType};

use super::identity::{Identity, OwnVm};
use super::input::Now;
use crate::facts::Fact;
use crate::facts::clock::rfc3339;
use crate::facts::lifecycle::{MaintenanceStrategy, VirtualMachine};
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

/// What the instance shows.
struct Announced {
    state: ScheduledEventState,
    kind: ScheduledEventType,
    reason: ScheduledEventReason,
    source: &'static str,
    target: Option<String>,
    started: Option<UtcDateTime>,
    deadline: Option<UtcDateTime>,
    message: Option<String>,
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
        let kind = self.open()?.kind;
        self.end(
            match kind {
                ScheduledEventType::Stop => ScheduledEventState::Done,
                ScheduledEventType::LiveMigration => ScheduledEventState::Canceled,
            },
            now,
        )
    }

    /// Returns the next state to publish, if there is one.
    fn step(&mut self, vmi: &Vmi, vm: Option<&VirtualMachine>, now: Now) -> Option<ScheduledEvent> {
        let announced = self.announced(vmi, vm);
        let (Some(open), Some(announced)) = (&mut self.open, announced.as_ref()) else {
            return match announced {
                Some(announced) => Some(self.begin(vmi, &announced, now)),
                None => self.end(ScheduledEventState::Canceled, now),
            };
        };
        if open.event.kind != announced.kind {
            return self.end(ScheduledEventState::Canceled, now);
        }
        let is_other =
            |known: &String| announced.migration.as_ref().is_some_and(|uid| uid != known);
        if open.migration.as_ref().is_some_and(is_other) {
            // Its end was not observed.
            let host = vmi.host.as_ref().map(ToString::to_string);
            let is_moved = host.is_some() && host != open.event.host;
            return self.end(
                match is_moved {
                    true => ScheduledEventState::Done,
                    false => ScheduledEventState::Failed,
                },
                now,
            );
        }
        open.migration = open.migration.take().or(announced.migration.clone());
        let is_new = announced.state > open.event.state;
        announced.apply(&mut open.event, now, is_new);
        if !is_new {
            return None;
        }
        let event = open.event.clone();
        if event.state.is_final() {
            self.close();
        }
        Some(event)
    }

    fn begin(&mut self, vmi: &Vmi, announced: &Announced, now: Now) -> ScheduledEvent {
        let name = format!("{}/{}", vmi.uid, self.count);
        self.count += 1;
        let mut event = ScheduledEvent {
            id: Uuid::new_v5(&NAMESPACE, name.as_bytes()).to_string(),
            time: String::new(),
            state: announced.state,
            kind: announced.kind,
            reason: announced.reason,
            source: String::new(),
            host: vmi.host.as_ref().map(ToString::to_string),
            target_host: None,
            start_time: None,
            deadline: None,
            message: None,
        };
        let source = vmi.announcements.migration.as_ref();
        let source =
            source.filter(|migration| Some(&migration.uid) == announced.migration.as_ref());
        if let Some(host) = source.and_then(|migration| migration.source.as_ref()) {
            event.host = Some(host.to_string());
        }
        announced.apply(&mut event, now, true);
        self.open = Some(OpenEvent {
            event: event.clone(),
            migration: announced.migration.clone(),
        });
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

    /// Returns what the instance shows, except a migration whose end was published.
    fn announced(&self, vmi: &Vmi, vm: Option<&VirtualMachine>) -> Option<Announced> {
        let shown = &vmi.announcements;
        if let Some(stop) = &shown.stop {
            return Some(Announced {
                state: ScheduledEventState::InProgress,
                kind: ScheduledEventType::Stop,
                reason: stop_reason(vmi, vm),
                source: "metadata.deletionTimestamp",
                target: None,
                started: Some(stop.requested),
                deadline: stop.deadline(),
                message: stop_message(vmi, vm),
                migration: None,
            });
        }
        let host = vmi.host.as_ref();
        // KubeVirt resets the field after the VM moved.
        let is_evicted = host.is_some() && shown.evacuated_host.as_ref() == host;
        let migration = |state, source, target: Option<String>| Announced {
            state,
            kind: ScheduledEventType::LiveMigration,
            reason: match is_evicted {
                true => ScheduledEventReason::Eviction,
                false => ScheduledEventReason::MigrationRequested,
            },
            source,
            target,
            started: None,
            deadline: None,
            message: None,
            migration: None,
        };
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
            let target = current.target.as_ref().map(ToString::to_string);
            let failure = current.failure.as_deref().filter(|_| state.is_final());
            return Some(Announced {
                started: current.started,
                message: failure.map(|text| one_line(text, MESSAGE_MAX).into_owned()),
                migration: Some(current.uid.clone()),
                ..migration(state, "status.migrationState", target)
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
        let target = target.map(ToString::to_string);
        Some(migration(ScheduledEventState::Planned, source, target))
    }
}

impl Announced {
    /// Adds what is known now to an event. The reason is that of its first state.
    fn apply(&self, event: &mut ScheduledEvent, now: Now, is_new: bool) {
        if is_new {
            event.time = rfc3339(now.wall);
            event.state = self.state;
            self.source.clone_into(&mut event.source);
        }
        event.target_host = self.target.clone().or(event.target_host.take());
        event.start_time = self.started.map(rfc3339).or(event.start_time.take());
        event.deadline = self.deadline.map(rfc3339).or(event.deadline.take());
        event.message = self.message.clone().or(event.message.take());
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
