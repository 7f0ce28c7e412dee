// SPDX-License-Identifier: Apache-2.0
//! What happens to the VM at the next maintenance of its host.
//!
//! Harvester refuses to enable maintenance mode while a VM on the host can neither migrate nor has a label that allows it to be
//! shut down (`pkg/controller/master/nodedrain`). All of it is in the VMI, to which Harvester copies the label.

use std::fmt;

use super::Case;
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::instance::InstanceFacts;
use crate::facts::lifecycle::{MAINTENANCE_STRATEGY, MaintenanceStrategy};

/// What happens to the VM, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// What happens.
    pub(crate) fate: Fate,
    /// The fields of the VMI that decide it; empty if nothing prevents a migration.
    pub(crate) why: String,
}

/// What happens to the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It migrates to another host.
    Migrates,
    /// It is shut down, and restarted when the host has entered maintenance mode.
    RestartsAfterEnable,
    /// It is shut down, and restarted when the host has left maintenance mode.
    RestartsAfterDisable,
    /// It is shut down, and not restarted.
    Stops,
    /// Its pod is evicted: it is shut down.
    Evicted,
    /// Maintenance mode cannot be enabled, unless it is forced.
    Blocks,
    /// The drain waits until another controller moves the VM.
    Waits,
}

impl fmt::Display for Fate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Migrates => "the VM migrates",
            Self::RestartsAfterEnable => {
                "the VM is shut down, and started on another host when maintenance mode is enabled"
            }
            Self::RestartsAfterDisable => {
                "the VM is shut down, and started when maintenance mode is disabled"
            }
            Self::Stops => "the VM is shut down, and not restarted",
            Self::Evicted => "the VM is shut down, not migrated",
            Self::Blocks => "the VM blocks maintenance mode",
            Self::Waits => "maintenance mode waits until an external controller moves the VM",
        })
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at the next host maintenance, {}", self.fate)?;
        match self.why.as_str() {
            "" => Ok(()),
            why => write!(formatter, ": {why}"),
        }
    }
}

/// Returns what happens at the next maintenance of the host.
pub(crate) fn outlook(instance: &InstanceFacts) -> Outlook {
    let strategy = instance.maintenance;
    let by_label = strategy.and_then(|strategy| match strategy {
        MaintenanceStrategy::Migrate => None,
        MaintenanceStrategy::RestartAfterEnable => Some(Fate::RestartsAfterEnable),
        MaintenanceStrategy::RestartAfterDisable => Some(Fate::RestartsAfterDisable),
        MaintenanceStrategy::Shutdown => Some(Fate::Stops),
    });
    let label = strategy
        .filter(|_| by_label.is_some())
        .map(|value| format!("label {MAINTENANCE_STRATEGY}={}", value.as_str()));
    let pinned = instance.host_selector.as_ref().map(|host| {
        let host = host.escape_debug();
        format!("nodeSelector kubernetes.io/hostname={host}")
    });
    let eviction = instance.eviction_strategy.as_deref();
    let by_eviction = match eviction {
        Some("None") => Some(Fate::Evicted),
        Some("External") => Some(Fate::Waits),
        _ => None,
    };
    let evicted = eviction
        .filter(|_| by_eviction.is_some())
        .map(|value| format!("evictionStrategy {value}"));
    let immobile = [&instance.not_migratable, &pinned];
    let blocks = immobile.iter().any(|why| why.is_some());
    let blocks = blocks.then_some(Fate::Blocks);
    let reasons = [&label, &instance.not_migratable, &pinned, &evicted];
    let why: Vec<&str> = reasons.into_iter().flatten().map(String::as_str).collect();
    Outlook {
        fate: by_label
            .or(blocks)
            .or(by_eviction)
            .unwrap_or(Fate::Migrates),
        why: why.join("; "),
    }
}

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    let instance = case.examination.conflicts.instance.known();
    let finding = instance.and_then(|instance| {
        let outlook = outlook(instance);
        let code = match outlook.fate {
            Fate::Migrates => return None,
            Fate::Blocks => Code::NotLiveMigratable,
            Fate::RestartsAfterEnable
            | Fate::RestartsAfterDisable
            | Fate::Stops
            | Fate::Evicted
            | Fate::Waits => Code::NotMigratedAtMaintenance,
        };
        Some(Finding::new(code, outlook.to_string()))
    });
    finding.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Fact;
    use crate::facts::release::Release;

    fn instance() -> InstanceFacts {
        InstanceFacts {
            creator: None,
            guest_cluster: None,
            launcher: Fact::<Release>::Absent,
            not_migratable: None,
            maintenance: None,
            eviction_strategy: Some("LiveMigrateIfPossible".to_owned()),
            grace_period: None,
            host_selector: None,
            agent_connected: true,
            interfaces: Vec::new(),
        }
    }

    #[test]
    fn each_field_of_the_vmi_has_its_consequence() {
        let device = Some("HostDeviceNotLiveMigratable: a device".to_owned());
        let text = |value: &str| Some(value.to_owned());
        let rows = [
            (None, None, "LiveMigrate", None, Fate::Migrates),
            (Some("Migrate"), None, "LiveMigrate", None, Fate::Migrates),
            (Some("unknown"), None, "LiveMigrate", None, Fate::Migrates),
            (
                None,
                device.clone(),
                "LiveMigrateIfPossible",
                None,
                Fate::Blocks,
            ),
            (
                Some("Migrate"),
                device.clone(),
                "LiveMigrate",
                None,
                Fate::Blocks,
            ),
            (None, None, "LiveMigrate", text("hv-a"), Fate::Blocks),
            (
                Some("ShutdownAndRestartAfterEnable"),
                device.clone(),
                "LiveMigrate",
                None,
                Fate::RestartsAfterEnable,
            ),
            (
                Some("ShutdownAndRestartAfterDisable"),
                device.clone(),
                "LiveMigrate",
                None,
                Fate::RestartsAfterDisable,
            ),
            (Some("Shutdown"), None, "LiveMigrate", None, Fate::Stops),
            (None, None, "None", None, Fate::Evicted),
            (None, device, "None", None, Fate::Blocks),
            (None, None, "External", None, Fate::Waits),
        ];
        for (strategy, not_migratable, eviction, host_selector, fate) in rows {
            let found = outlook(&InstanceFacts {
                maintenance: strategy.and_then(MaintenanceStrategy::parse),
                not_migratable,
                eviction_strategy: text(eviction),
                host_selector,
                ..instance()
            });
            println!("{found}");
            assert_eq!(found.fate, fate, "{found}");
            assert_eq!(found.why.is_empty(), fate == Fate::Migrates, "{found}");
        }
    }
}
