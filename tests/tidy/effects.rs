// SPDX-License-Identifier: Apache-2.0
//! Each key of the configuration has a test that fails if the key has no effect.

use std::collections::BTreeSet;

use harvester_node_agent::config::KEYS;

use super::read;

/// A key, and the file and the name of the test of its effect. A key that is only parsed has none, and is no key.
const EFFECTS: &[(&str, &str, &str)] = &[
    (
        "watch",
        "tests/scenarios/resync.rs",
        "without_standing_watches_a_hint_makes_the_agent_read",
    ),
    (
        "harvester.kubeconfig",
        "tests/scenarios/configuration.rs",
        "harvester_kubeconfig_is_read_from_where_it_says",
    ),
    (
        "harvester.namespace",
        "tests/scenarios/configuration.rs",
        "harvester_namespace_replaces_that_of_the_kubeconfig",
    ),
    (
        "harvester.vm",
        "tests/scenarios/identity.rs",
        "two_vms_of_one_uuid_and_mac_cost_every_label_and_are_named",
    ),
    (
        "harvester.allow",
        "tests/scenarios/configuration.rs",
        "harvester_allow_lets_the_kubeconfig_skip_tls_verification",
    ),
    (
        "guest_cluster.kubeconfig",
        "tests/scenarios/configuration.rs",
        "guest_cluster_kubeconfig_is_read_from_where_it_says",
    ),
    (
        "guest_cluster.node_name",
        "tests/scenarios/configuration.rs",
        "guest_cluster_node_name_counts_where_no_certificate_names_the_node",
    ),
    (
        "guest_cluster.allow",
        "tests/scenarios/configuration.rs",
        "guest_cluster_allow_lets_the_kubeconfig_skip_tls_verification",
    ),
    (
        "topology.on_change",
        "tests/scenarios/labels.rs",
        "hold_keeps_the_first_zone_and_report_writes_none",
    ),
    (
        "topology.host_label",
        "src/decide/labels/tests.rs",
        "the_host_label_can_be_switched_off_and_is_then_removed",
    ),
    (
        "topology.remove_stale",
        "src/decide/labels/tests.rs",
        "a_host_that_lost_its_label_changes_nothing_unless_removal_is_allowed",
    ),
    (
        "topology.sources",
        "src/decide/placement/tests.rs",
        "a_source_that_is_switched_off_is_not_used",
    ),
    (
        "topology.configmap",
        "tests/scenarios/configuration.rs",
        "topology_configmap_is_the_one_that_is_read",
    ),
    (
        "topology.zone_fallback",
        "src/decide/placement/tests.rs",
        "a_host_without_a_zone_is_its_own_zone_only_where_that_is_configured",
    ),
    (
        "labels.extra.*",
        "tests/scenarios/labels.rs",
        "extra_labels_come_from_the_host_and_foreign_ones_stay",
    ),
    (
        "hosts.*.region",
        "tests/scenarios/downward_metrics.rs",
        "the_node_is_labelled_by_the_hosts_own_word_and_follows_it",
    ),
    (
        "hosts.*.zone",
        "tests/scenarios/downward_metrics.rs",
        "the_node_is_labelled_by_the_hosts_own_word_and_follows_it",
    ),
    (
        "pod_info.path",
        "tests/scenarios/pod_info.rs",
        "pod_info_path_is_where_the_files_are_read",
    ),
    (
        "qemu_guest_agent.auto_start",
        "tests/scenarios/guest_agent.rs",
        "a_stopped_guest_agent_is_started_once_where_that_is_allowed",
    ),
    (
        "registration.node_labels",
        "tests/scenarios/registration.rs",
        "switched_off_the_file_goes_and_its_directory_stays",
    ),
    (
        "report.node_conditions",
        "src/decide/tests.rs",
        "a_switched_off_report_writes_neither_conditions_nor_annotations",
    ),
    (
        "report.lifecycle_conditions",
        "tests/scenarios/events.rs",
        "a_drain_is_published_on_every_channel",
    ),
    (
        "report.events",
        "src/decide/tests.rs",
        "a_switched_off_report_writes_neither_conditions_nor_annotations",
    ),
    (
        "report.annotations",
        "src/decide/tests.rs",
        "a_switched_off_report_writes_neither_conditions_nor_annotations",
    ),
    (
        "metrics.textfile",
        "tests/scenarios/metrics.rs",
        "a_file_that_cannot_be_written_is_a_finding_and_one_that_is_not_wanted_goes",
    ),
    (
        "metrics.listen",
        "tests/scenarios/metrics.rs",
        "the_textfile_and_both_kinds_of_sockets_have_the_same_page",
    ),
    (
        "timing.poll_interval",
        "src/decide/tests.rs",
        "all_is_read_again_at_the_poll_interval_of_the_configuration",
    ),
    (
        "timing.hostname_debounce",
        "src/decide/tests.rs",
        "a_changed_hostname_is_a_finding_after_the_debounce_of_the_configuration",
    ),
    (
        "timing.annotation_grace_period",
        "tests/scenarios/configuration.rs",
        "without_a_grace_period_stale_annotations_are_not_waited_for",
    ),
    (
        "timing.watch_delay",
        "tests/scenarios/configuration.rs",
        "a_short_watch_delay_brings_watches_back_before_the_least_of_the_default",
    ),
    (
        "machine.assume_kubevirt",
        "tests/scenarios/configuration.rs",
        "assume_kubevirt_lets_the_agent_run_on_other_firmware",
    ),
];

/// Keys whose effect has no test yet.
const UNTESTED: [&str; 1] = ["log.level"];

#[test]
fn each_key_has_a_test_of_its_effect() {
    let known: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    let tested = EFFECTS.iter().map(|(key, ..)| *key);
    let listed: BTreeSet<&str> = tested.chain(UNTESTED).collect();
    assert_eq!(listed, known);
    assert_eq!(
        listed.len(),
        EFFECTS.len() + UNTESTED.len(),
        "a key is listed twice"
    );
    for (key, file, test) in EFFECTS {
        let text = read(file);
        let mut before = "";
        let is_test = |attribute: &str| {
            attribute.starts_with("#[test]") || attribute.starts_with("#[tokio::test")
        };
        let mut is_there = false;
        for line in text.lines() {
            if line.contains(&format!("fn {test}(")) {
                // A scenario of `on_both!` is named in the macro instead.
                is_there = is_test(before) || text.contains(&format!("    {test},\n"));
            }
            before = line.trim();
        }
        assert!(is_there, "{key}: {file} has no test `{test}`");
    }
}
