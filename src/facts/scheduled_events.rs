// SPDX-License-Identifier: Apache-2.0
//! The fields of the VirtualMachineInstance and of its VirtualMachine that show scheduled events: a migration or a stop that KubeVirt or
//! Harvester announces.
//!
//! An invalid value is a missing announcement: it must never make an object unreadable.

use std::time::Duration;

use serde::Deserialize;
use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

use super::names::HostName;
use super::node::text;
use crate::sys::document::json::{Cut, MESSAGE_BYTES, objects};
use crate::sys::named::named;

/// The label that selects what the maintenance of the host does with the VM.
pub const MAINTENANCE_STRATEGY: &str = "harvesterhci.io/maintain-mode-strategy";

/// The longest grace period that is used, one year: a time after it is not a valid deadline.
const GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The announcements in a VirtualMachineInstance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcements {
    /// Whether the condition `EvictionRequested` is `True` (KubeVirt 1.7 and later).
    pub is_eviction_requested: bool,
    /// `status.evacuationNodeName`: the host that the VM is to leave.
    pub evacuated_host: Option<HostName>,
    /// The label `kubevirt.io/migrationTargetNodeName`.
    pub migration_target: Option<HostName>,
    /// `status.migrationState`: the current or the last migration.
    pub migration: Option<InstanceMigration>,
    /// The deletion of the instance, which stops the guest.
    pub stop: Option<StopRequest>,
}

/// A migration in `status.migrationState`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceMigration {
    /// The UID of the VirtualMachineInstanceMigration.
    pub uid: String,
    /// The host that the VM leaves.
    pub source: Option<HostName>,
    /// The host that the VM moves to.
    pub target: Option<HostName>,
    /// The time at which the copy of the memory started.
    pub started: Option<UtcDateTime>,
    /// Whether it has an end time. From KubeVirt 1.6 that is before `completed`.
    pub has_end: bool,
    /// `completed`.
    pub is_completed: bool,
    /// `failed`.
    pub is_failed: bool,
    /// `failureReason`.
    pub failure: Option<String>,
    /// `abortRequested`.
    pub is_abort_requested: bool,
}

impl InstanceMigration {
    /// Reports whether it is over, for a VM on `host`.
    pub fn is_over(&self, host: Option<&HostName>) -> bool {
        self.is_completed || self.has_end && host.is_some() && self.target.as_ref() == host
    }
}

/// The deletion of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopRequest {
    /// `metadata.deletionTimestamp`.
    pub requested: UtcDateTime,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace: Option<Duration>,
}

impl StopRequest {
    /// Returns the time at which KubeVirt destroys a guest that has not shut down.
    pub fn deadline(&self) -> Option<UtcDateTime> {
        let grace = self.grace.filter(|grace| *grace <= GRACE_MAX)?;
        self.requested.checked_add(grace.try_into().ok()?)
    }
}

/// The fields of the VirtualMachine that explain why its instance is stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WireVm")]
pub struct VirtualMachine {
    /// Whether the VirtualMachine itself is being deleted.
    pub is_deleted: bool,
    /// Whether another instance replaces a stopped one: any `spec.runStrategy` but `Halted`, or `spec.running`.
    pub is_restarted: bool,
    /// The host whose maintenance stops the VM.
    pub maintained_host: Option<HostName>,
    /// What the maintenance of the host does with the VM.
    pub maintenance: Option<MaintenanceStrategy>,
}

named! {
    /// The values of the label `harvesterhci.io/maintain-mode-strategy`.
    MaintenanceStrategy {
        /// The default: the VM migrates.
        Migrate = "Migrate",
        /// The VM starts on another host once maintenance mode is enabled.
        RestartAfterEnable = "ShutdownAndRestartAfterEnable",
        /// The VM starts once maintenance mode is disabled.
        RestartAfterDisable = "ShutdownAndRestartAfterDisable",
        /// The VM stays stopped.
        Shutdown = "Shutdown",
    }
}

impl MaintenanceStrategy {
    /// Parses a value of the label. An unknown value is none, as for Harvester.
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|strategy| strategy.as_str() == text)
    }
}

objects! {
    /// `status.migrationState` as the API returns it.
    pub(super) struct WireMigration {
        migration_uid: Option<Cut>,
        source_node: Option<Cut>,
        target_node: Option<Cut>,
        start_timestamp: Option<Cut>,
        end_timestamp: Option<Cut>,
        completed: Option<bool>,
        failed: Option<bool>,
        failure_reason: Option<Cut<MESSAGE_BYTES>>,
        abort_requested: Option<bool>,
    }

    struct WireVm {
        metadata: WireVmMetadata,
        spec: WireVmSpec,
    }

    struct WireVmMetadata {
        labels: Option<WireVmLabels>,
        annotations: Option<WireVmAnnotations>,
        deletion_timestamp: Option<Cut>,
    }

    struct WireVmLabels {
        #[serde(rename = "harvesterhci.io/maintain-mode-strategy")]
        maintenance: Option<Cut>,
    }

    struct WireVmAnnotations {
        /// The host whose maintenance stops the VM (`pkg/controller/master/nodedrain/nodedrain_controller.go`).
        #[serde(rename = "harvesterhci.io/maintain-mode-strategy-node-name")]
        maintained_host: Option<Cut>,
    }

    struct WireVmSpec {
        run_strategy: Option<Cut>,
        running: Option<bool>,
    }
}

impl WireMigration {
    /// Returns the migration; `None` without a UID, which every supported version of KubeVirt sets.
    pub(super) fn parse(self) -> Option<InstanceMigration> {
        Some(InstanceMigration {
            uid: text(self.migration_uid)?,
            source: host(self.source_node),
            target: host(self.target_node),
            started: self.start_timestamp.as_deref().and_then(timestamp),
            has_end: self.end_timestamp.is_some(),
            is_completed: self.completed == Some(true),
            is_failed: self.failed == Some(true),
            failure: text(self.failure_reason),
            is_abort_requested: self.abort_requested == Some(true),
        })
    }
}

/// Parses the name of a host; `None` if it is missing, empty or invalid.
pub(super) fn host(name: Option<Cut>) -> Option<HostName> {
    HostName::parse(&name?).ok()
}

/// Parses a time of the API.
pub(crate) fn timestamp(text: &str) -> Option<UtcDateTime> {
    UtcDateTime::parse(text, &Rfc3339).ok()
}

impl From<WireVm> for VirtualMachine {
    fn from(wire: WireVm) -> Self {
        let WireVm { metadata, spec } = wire;
        let labels = metadata.labels.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let is_restarted = match spec.run_strategy.as_deref() {
            Some(strategy) => strategy != "Halted",
            None => spec.running == Some(true),
        };
        Self {
            is_deleted: metadata.deletion_timestamp.is_some(),
            is_restarted,
            maintained_host: host(annotations.maintained_host),
            maintenance: labels
                .maintenance
                .and_then(|text| MaintenanceStrategy::parse(&text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_virtual_machine_tells_why_its_instance_stops() {
        let parse = |value| serde_json::from_value::<VirtualMachine>(value).unwrap();
        assert_eq!(parse(json!({})), VirtualMachine::default());
        let vm = parse(json!({
            "metadata": {
                "deletionTimestamp": "2026-11-24T10:00:00Z",
                "labels": {MAINTENANCE_STRATEGY: "ShutdownAndRestartAfterDisable"},
                "annotations": {"harvesterhci.io/maintain-mode-strategy-node-name": "hv-a"},
            },
            "spec": {"runStrategy": "Halted"},
        }));
        assert!(vm.is_deleted);
        assert!(!vm.is_restarted);
        assert_eq!(vm.maintained_host, HostName::parse("hv-a").ok());
        let strategy = MaintenanceStrategy::RestartAfterDisable;
        assert_eq!(vm.maintenance, Some(strategy));
        for (spec, expected) in [
            (json!({"runStrategy": "RerunOnFailure"}), true),
            (json!({"running": true}), true),
            (json!({"running": false}), false),
        ] {
            let vm =
                parse(json!({"metadata": {"labels": {MAINTENANCE_STRATEGY: "new"}}, "spec": spec}));
            assert_eq!((vm.is_restarted, vm.maintenance), (expected, None));
        }
    }

    #[test]
    fn a_deadline_needs_a_grace_period_of_a_possible_length() {
        let requested = timestamp("2026-11-24T10:00:00Z").unwrap();
        let deadline = |seconds: Option<u64>| {
            let grace = seconds.map(Duration::from_secs);
            StopRequest { requested, grace }.deadline()
        };
        assert_eq!(deadline(Some(120)), timestamp("2026-11-24T10:02:00Z"));
        assert_eq!(deadline(None), None);
        assert_eq!(deadline(Some(u64::MAX)), None);
    }
}
