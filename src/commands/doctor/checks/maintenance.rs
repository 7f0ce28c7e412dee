// SPDX-License-Identifier: Apache-2.0
//! What happens to the VM at the next maintenance of its host?
//!
//! Harvester refuses to enable maintenance mode while a VM on the host can neither migrate nor has a label that allows it to be
//! shut down (`pkg/controller/master/nodedrain`). All of it is in the VMI, to which Harvester copies the label.

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::objects::Instance;
use crate::commands::doctor::reads::Reads;
use crate::facts::scheduled_events::{MAINTENANCE_STRATEGY, MaintenanceStrategy};
use crate::facts::topology::HOSTNAME;

const RESTARTS_AFTER_ENABLE: &str =
    "the VM is shut down, and started on another host when maintenance mode is enabled";
const RESTARTS_AFTER_DISABLE: &str =
    "the VM is shut down, and started when maintenance mode is disabled";
const STOPS: &str = "the VM is shut down, and not restarted";
const EVICTED: &str = "the VM is shut down, not migrated";
const BLOCKS: &str = "the VM blocks maintenance mode";
const WAITS: &str = "maintenance mode waits until an external controller moves the VM";

/// Judges the VM, and adds what happens to it to the summary.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    if let Some(instance) = reads.instance.known() {
        let finding = judge(instance);
        let outlook = match &finding {
            Some(finding) => finding.seen.clone(),
            None => "at the next host maintenance, the VM migrates".to_owned(),
        };
        checked.note(Group::Placement, outlook);
        checked.findings.extend(finding);
    }
}

/// Returns a finding unless the VM migrates.
fn judge(instance: &Instance) -> Option<Finding> {
    let strategy = instance.label(MAINTENANCE_STRATEGY);
    let strategy = strategy.and_then(MaintenanceStrategy::parse);
    let by_label = strategy.and_then(|strategy| match strategy {
        MaintenanceStrategy::Migrate => None,
        MaintenanceStrategy::RestartAfterEnable => Some(RESTARTS_AFTER_ENABLE),
        MaintenanceStrategy::RestartAfterDisable => Some(RESTARTS_AFTER_DISABLE),
        MaintenanceStrategy::Shutdown => Some(STOPS),
    });
    let label = strategy.filter(|_| by_label.is_some());
    let label = label.map(|value| format!("label {MAINTENANCE_STRATEGY}={}", value.as_str()));
    let not_migratable = instance.not_migratable();
    let host = instance.spec.node_selector.get(HOSTNAME);
    let pinned = host.map(|host| format!("nodeSelector {HOSTNAME}={}", host.escape_debug()));
    let by_eviction = match instance.spec.eviction_strategy.as_deref() {
        Some("None") => Some((EVICTED, "evictionStrategy None".to_owned())),
        Some("External") => Some((WAITS, "evictionStrategy External".to_owned())),
        _ => None,
    };
    let is_immobile = not_migratable.is_some() || pinned.is_some();
    let blocks = is_immobile.then_some(BLOCKS);
    let (by_eviction, evicted) = by_eviction.unzip();
    let fate = by_label.or(blocks).or(by_eviction)?;
    let code = match fate {
        BLOCKS => Code::NotLiveMigratable,
        _ => Code::NotMigratedAtMaintenance,
    };
    let reasons = [label, not_migratable, pinned, evicted];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    let text = format!(
        "at the next host maintenance, {fate}: {}",
        reasons.join("; ")
    );
    Some(Finding::new(code, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file has VMIs, and what is said of each.
    #[test]
    fn each_field_of_the_vmi_has_its_consequence() {
        let file = "src/commands/doctor/checks/maintenance.txt";
        harvester_lab::expected::cases_are_expected(file, |vmi| {
            let found = judge(&serde_json::from_str(vmi).unwrap());
            found.map_or_else(String::new, |found| {
                format!("{}: {}", found.code, found.seen)
            })
        });
    }
}
