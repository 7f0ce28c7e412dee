// SPDX-License-Identifier: Apache-2.0
//! A state of a scheduled event, as it is published on every channel.

use serde::{Deserialize, Serialize};

use crate::sys::named::named;

/// A state of a scheduled event, as it is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledEvent {
    /// The ID, the same in all states of the event.
    pub id: String,
    /// The time at which the agent observed this state, RFC 3339.
    pub time: String,
    /// The state.
    pub state: ScheduledEventState,
    /// What happens to the VM.
    #[serde(rename = "type")]
    pub kind: ScheduledEventType,
    /// The cause.
    pub reason: ScheduledEventReason,
    /// The field of the VirtualMachineInstance that shows this state.
    pub source: String,
    /// The host of the VM when the event was first observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The host that the VM moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_host: Option<String>,
    /// The time at which Harvester started it, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// The time at which a guest that has not shut down is destroyed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Details, such as the error of a migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

named! {
    /// The states, in order.
    ScheduledEventState {
        /// It is announced.
        Planned = "planned",
        /// It has started.
        InProgress = "in-progress",
        /// It succeeded.
        Done = "done",
        /// It failed, and the VM runs on its host as before.
        Failed = "failed",
        /// It is no longer announced, or was stopped.
        Canceled = "canceled",
    }
}

named! {
    /// What happens to the VM.
    ScheduledEventType {
        /// The VM moves to another host while it runs.
        LiveMigration = "live-migration",
        /// The guest shuts down.
        Stop = "stop",
    }
}

named! {
    /// The cause of an event.
    ScheduledEventReason {
        /// The host is drained, or another eviction of the VM was requested.
        Eviction = "Eviction",
        /// A user or a controller requested a migration.
        MigrationRequested = "MigrationRequested",
        /// The host enters maintenance mode, and the strategy of the VM is to stop it.
        HostMaintenance = "HostMaintenance",
        /// The VM is stopped.
        VmStopped = "VMStopped",
        /// The VM is restarted.
        VmRestarted = "VMRestarted",
        /// The VM is deleted.
        VmDeleted = "VMDeleted",
    }
}

impl ScheduledEventState {
    /// Reports whether no other state follows.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Canceled)
    }
}

impl ScheduledEvent {
    /// Returns the event as one line of text.
    pub fn text(&self) -> String {
        let what = match self.kind {
            ScheduledEventType::LiveMigration => "live migration",
            ScheduledEventType::Stop => "stop",
        };
        let mut text = format!("{what} {}", self.state.as_str());
        let hosts = [
            (" from ", &self.host),
            (" to ", &self.target_host),
            (", deadline ", &self.deadline),
        ];
        for (word, value) in hosts {
            if let Some(value) = value {
                text.push_str(word);
                text.push_str(value);
            }
        }
        text.push_str(&format!(", reason {}", self.reason.as_str()));
        if let Some(message) = &self.message {
            text.push_str(&format!(": {message}"));
        }
        text
    }
}
