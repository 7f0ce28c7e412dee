// SPDX-License-Identifier: Apache-2.0
//! What is played. Scenarios of one setting share a boot, and each leaves the machine as it found it; the first of a setting
//! finds one that was just switched on for the first time.

use harvester_lab::kubernetes::Kubernetes;

use crate::stage::Setting;
use crate::{Scenario, scenarios};

mod arm64;
mod bench;
mod boot;
mod channel;
mod elsewhere;
mod guest_agent;
mod migration;
mod node;
mod pod;
mod service;

use arm64::*;
use bench::*;
use boot::*;
use channel::*;
use elsewhere::*;
use guest_agent::*;
use migration::*;
use node::*;
use pod::the_files_of_the_pod_alone_lead_to_labels;
use service::*;

pub use pod::first_pod;

/// Those of a node of the newest Kubernetes that is there. The first is its whole path, which is enough for a gate.
pub fn newest() -> Vec<Scenario> {
    let newest = crate::kubelet::newest();
    newest.map_or_else(Vec::new, node)
}

/// Those of a machine for arm64, of what can differ there.
pub fn on_arm64() -> Vec<Scenario> {
    scenarios![Setting::Lab =>
        a_first_boot_leads_to_labels,
        the_firmware_and_the_ports_are_found_by_name,
        annotations_that_lag_are_waited_for_and_labels_move_in_one_patch,
        no_system_call_is_outside_of_the_list,
        the_sandbox_denies_disks_and_ports_unless_a_drop_in_allows_them,
    ]
}

/// Those that measure. Nothing else may run beside them.
pub fn bench() -> Vec<Scenario> {
    scenarios![Setting::Lab =>
        a_quiet_minute_costs_nothing,
        of_twenty_migrations_none_is_missed,
        a_move_is_reported_and_how_soon,
    ]
}

/// All others.
pub fn all() -> Vec<Scenario> {
    let lab = scenarios![Setting::Lab =>
        a_first_boot_leads_to_labels,
        a_planned_migration_is_announced_and_its_hook_runs_before_the_machine_stops,
        a_move_while_harvester_is_away_is_followed_when_it_is_back,
        a_watch_that_is_half_open_after_the_move_is_replaced,
        a_restored_machine_is_reported_as_unconfirmed,
        a_clock_that_is_set_is_reported_and_harmless,
        the_sandbox_denies_disks_and_ports_unless_a_drop_in_allows_them,
        a_guest_agent_that_is_stopped_masked_or_removed_is_reported,
        a_host_asks_a_guest_whose_agent_starts_without_a_network,
        a_boot_before_the_apis_is_outlived,
        a_clone_of_the_disk_is_a_machine_of_its_own,
    ];
    let alone = scenarios![Setting::Alone =>
        a_name_from_user_data_is_reported_and_labels_are_written,
        downward_metrics_alone_lead_to_labels,
    ];
    let shared = scenarios![Setting::Shared =>
        the_files_of_the_pod_alone_lead_to_labels,
    ];
    let node = Kubernetes::ALL.into_iter().flat_map(node);
    let plain = scenarios![Setting::Plain => outside_of_kubevirt_it_is_inactive_and_harmless];
    [node.collect(), alone, shared, plain, lab].concat()
}

/// A whole node of a version, where there are the programs for it.
fn node(version: Kubernetes) -> Vec<Scenario> {
    if crate::kubelet::program(version).is_err() {
        return Vec::new();
    }
    scenarios![Setting::Node(version) =>
        a_first_boot_a_migration_and_a_restart_of_the_kubelet_leave_the_right_labels,
        migrations_leave_the_node_ready_and_its_pod_running,
        annotations_that_lag_are_waited_for_and_labels_move_in_one_patch,
        a_cancelled_migration_and_a_pause_write_nothing,
        a_certificate_that_the_kubelet_renews_is_used,
        a_registered_node_whose_machine_is_renamed_is_reported_and_labelled,
        a_machine_stopped_for_maintenance_starts_with_the_labels_of_its_new_host,
    ]
}
