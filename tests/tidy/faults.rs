// SPDX-License-Identifier: Apache-2.0
//! The faults that the agent withstands, each with the tests that prove it. A name of a test that is not there is a failure.

use std::fs;

use super::{read, rust_files, top};

/// How many faults there are. They are counted from 1.
const FAULTS: usize = 57;

/// A fault, and the tests of it.
type Row = (usize, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    (1, "Harvester API down at boot", &["it_is_ready_before_any_api_answers_and_stops_at_once", "a_boot_before_the_apis_is_outlived", "retries_double_up_to_a_minute_and_never_hurry"]),
    (2, "guest API down", &["a_guest_api_that_is_away_at_the_start_is_waited_for"]),
    (3, "slow API", &["a_head_of_one_byte_at_a_time_ends_the_request_in_time", "a_body_that_stalls_and_a_body_that_trickles_both_end_in_time", "a_new_host_name_is_reported_at_once_while_both_apis_are_silent"]),
    (4, "half-open TCP", &["a_silent_stream_ends_and_bytes_without_a_line_do_not_count", "the_kernel_asks_whether_a_quiet_peer_lives", "a_watch_that_is_half_open_after_the_move_is_replaced"]),
    (5, "watch cut within an event", &["a_watch_may_break_in_any_way", "an_event_that_is_cut_is_never_parsed", "events_are_found_however_the_network_cuts_them"]),
    (6, "401", &["unauthorized", "a_token_that_has_ended_is_the_one_error"]),
    (7, "403 on nodes", &["each_missing_right_is_named_or_made_up_for", "every_source_is_used_in_its_turn", "a_refusal_is_not_asked_again_for_an_hour_or_until_the_credential_changes"]),
    (8, "404 VMI", &["a_vm_that_is_gone_is_named_and_no_other_one_is_taken_for_it", "only_a_status_confirms_that_an_object_is_not_there", "not_harvester"]),
    (9, "404 Node", &["a_node_that_does_not_exist_yet_is_waited_for_and_never_made", "an_object_that_is_gone_before_its_watch_stands_is_missed_soon", "a_node_that_the_kubelet_registers_anew_is_labelled_anew"]),
    (10, "409 or 422 on a patch", &["a_write_that_conflicts_or_is_invalid_is_decided_anew_and_not_hammered", "a_refused_write_is_tried_again_with_growing_waits_and_never_ends_the_loop"]),
    (11, "410", &["a_watch_may_break_in_any_way", "a_version_that_is_too_old_is_gone_in_both_forms", "a_list_whose_token_is_too_old_is_gone"]),
    (12, "429, Retry-After", &["too_many_requests", "retry_after_takes_seconds_only_and_stays_within_its_bounds", "an_overload_of_a_minute_is_asked_less_and_less_by_reads_and_watch_together"]),
    (13, "5xx, HTML body", &["a_proxys_error_page", "the_status_counts_and_a_page_for_people_is_never_parsed"]),
    (14, "redirect", &["a_redirect_is_not_followed_and_the_token_stays_here", "a_redirect"]),
    (15, "oversized body, endless head", &["an_answer_without_end_takes_little_memory", "an_object_beyond_its_cap_is_not_read", "a_head_beyond_its_cap_is_refused_be_it_long_or_endless", "a_large_or_dense_node_takes_little_memory_and_is_labelled"]),
    (16, "compressed response", &["a_compressed_answer_is_refused_unread", "a_compressed_answer"]),
    (17, "odd JSON", &["numbers_and_texts_that_json_does_not_have_are_refused", "deep_json", "an_object_that_cannot_be_trusted_is_named_with_its_field_and_labels_stay"]),
    (18, "wrong object", &["an_object_that_cannot_be_trusted_is_named_with_its_field_and_labels_stay", "an_object_that_was_not_asked_for_is_refused_by_each_kind_of_request", "an_object_that_was_not_asked_for_is_named_and_the_stream_goes_on"]),
    (19, "VMI recreated", &["a_restart_on_another_host_is_followed"]),
    (20, "value invalid as a label", &["a_value_that_cannot_be_a_label_is_no_answer_and_is_shown_escaped", "a_value_that_cannot_be_a_label_is_named_and_nothing_is_written_for_it"]),
    (21, "region without zone", &["labels_of_two_hosts_are_never_mixed", "a_host_that_lost_its_label_changes_nothing_unless_removal_is_allowed"]),
    (22, "host label removed", &["a_host_that_lost_its_label_changes_nothing_unless_removal_is_allowed", "a_host_relabelled_in_harvester_is_followed", "a_host_that_is_relabelled_is_followed"]),
    (23, "migration during a patch", &["there_and_back_ends_right", "annotations_that_lag_are_waited_for_and_labels_move_in_one_patch", "a_write_that_conflicts_or_is_invalid_is_decided_anew_and_not_hammered"]),
    (24, "failed migration", &["a_failed_migration_writes_nothing", "a_cancelled_migration_and_a_pause_write_nothing"]),
    (25, "there and back", &["there_and_back_ends_right"]),
    (26, "beta and GA labels", &["a_cloud_controller_reverts_nothing", "a_twin_is_written_in_the_same_patch_whenever_it_exists"]),
    (27, "another writer reverts", &["a_thousand_changes_of_a_rival_cost_few_patches", "a_rival_is_named_and_left_alone_after_three_reverts", "static_node_labels_are_corrected_after_each_start_without_a_conflict"]),
    (28, "second agent", &["a_second_agent_says_who_is_first", "an_ordinary_user_sees_whether_the_agent_runs", "another_user_can_neither_open_the_lock_nor_keep_an_agent_from_starting", "the_lock_outlives_the_runtime_directory"]),
    (29, "clock", &["a_clock_that_is_ten_years_off_changes_no_label_and_ends_with_the_clock", "a_clock_that_is_set_is_reported_and_harmless", "an_agent_that_is_stopped_for_a_while_goes_on_where_it_was", "a_restored_machine_is_reported_as_unconfirmed"]),
    (30, "credential expires", &["ends_of_tokens_and_certificates_are_reported_in_time", "a_certificate_of_the_kubelet_that_has_ended_is_the_one_error"]),
    (31, "credential rotated", &["a_write_in_place_a_rename_and_a_flipped_link_are_changes", "a_rotated_kubelet_certificate_is_used_at_once", "a_half_written_kubeconfig_keeps_the_old_one", "a_rotated_kubelet_certificate_is_used"]),
    (32, "hostile kubeconfig", &["every_refused_form_names_the_file_and_the_key_and_no_value", "our_own_configuration_allows_exactly_what_it_names", "no_file_is_read_for_a_kubeconfig_that_others_can_change", "an_exponential_alias_bomb_is_refused_at_once"]),
    (33, "kubeconfig readable by all", &["a_secret_that_everybody_can_read_is_reported_unless_a_folder_hides_it", "a_credential_that_somebody_else_can_change_is_reported"]),
    (34, "CA missing or wrong", &["certificates_that_prove_nothing_are_distinguished", "an_authority_of_the_same_name_with_another_key_is_unknown"]),
    (35, "odd hostnames", &["a_hostname_of_any_bytes_is_shown_escaped_and_moves_no_label", "every_verdict_is_reached_by_its_rule"]),
    (36, "rules of VM names", &["kubevirt_cuts_a_name_at_its_first_dot_and_at_63", "rancher_shortens_a_name_by_its_hash", "name_cut_by_rancher"]),
    (37, "static and transient hostname", &["a_host_name_set_through_hostnamed_is_reported_at_once", "a_host_name_that_comes_back_in_time_is_no_complaint", "a_name_set_through_hostnamed_is_told_at_once"]),
    (38, "D-Bus absent, hung, hostile", &["a_bus_that_is_killed_and_started_again_is_listened_to_again", "a_bus_that_hangs_holds_up_no_migration", "whoever_is_not_hostnamed_causes_no_look", "a_signal_of_31_mib_on_the_bus_is_not_kept", "a_bus_that_is_killed_is_outlived"]),
    (39, "virtio-serial port", &["everything_that_is_no_answer_is_refused_in_one_line_that_names_the_port", "a_port_that_another_program_holds_is_said_as_such", "a_host_that_goes_away_is_not_waited_for"]),
    (40, "qemu-guest-agent", &["each_thing_that_is_in_its_way_has_a_name", "a_guest_agent_that_ends_again_and_again_is_told_as_restarting", "a_guest_agent_that_is_stopped_masked_or_removed_is_reported"]),
    (41, "netlink", &["no_byte_can_break_the_reader", "an_announcement_that_root_makes_up_is_refused_and_counted", "messages_that_the_kernel_dropped_are_a_reason_to_look_and_the_socket_lives_on"]),
    (42, "false announcement", &["only_the_kernel_and_only_a_virtio_nic_announces", "a_hint_of_nothing_costs_few_reads_and_one_new_watch"]),
    (43, "no virtio NIC", &["nics_that_announce_nothing_are_named_and_the_watch_is_enough", "how_the_signal_stands_is_said_of_each_virtio_nic"]),
    (44, "disk full or read-only", &["full_disks_delay_no_label_and_files_follow_when_there_is_room", "disks_that_become_read_only_delay_no_label_and_files_follow_afterwards", "a_stalled_disk_with_the_state_delays_no_label_and_the_state_follows", "a_full_or_read_only_file_system_leaves_the_old_file_whole"]),
    (45, "state file damaged", &["a_damaged_or_newer_state_is_moved_aside_and_said"]),
    (46, "planted objects", &["a_planted_object_is_refused_and_left_as_it_is", "a_linked_shared_or_foreign_directory_of_ours_is_refused", "no_link_that_another_user_can_change_leads_to_a_directory_of_others", "the_socket_and_its_mode_never_reach_beyond_a_link"]),
    (47, "SIGKILL at each write", &["a_kill_before_and_after_each_write_leaves_nothing_and_the_next_start_converges", "a_kill_before_and_after_each_request_doubles_nothing_and_tears_no_pair"]),
    (48, "no memory, descriptors, threads", &["without_descriptors_the_agent_waits_and_then_follows", "without_threads_the_agent_follows_all_the_same", "a_start_without_threads_is_followed_by_one_that_works", "sixteen_megabytes_beyond_its_peak_are_enough_for_migrations_and_broken_connections", "a_killed_agent_is_started_again"]),
    (49, "SIGTERM, SIGHUP", &["it_is_ready_before_any_api_answers_and_stops_at_once", "a_reload_takes_good_configuration_and_keeps_the_old_one_otherwise", "it_stops_at_once_and_says_so"]),
    (50, "watchdog", &["a_loop_that_hangs_does_not_feed_the_watchdog", "the_watchdog_is_fed_while_nothing_happens"]),
    (51, "proxies", &["proxies_of_the_environment_are_ignored", "the_proxy_of_the_credential_is_used", "user_information_of_the_server_is_not_sent"]),
    (52, "DNS", &["a_name_is_resolved_anew_for_each_connection_and_dead_addresses_are_passed_over", "a_name_that_leads_nowhere_is_distinguished_from_a_server_that_is_away"]),
    (53, "server replaced or restored", &["a_certificate_that_is_issued_anew_is_nothing_to_report", "a_harvester_that_was_restored_is_followed_from_where_it_now_stands", "another_cluster_with_a_vm_of_our_name_changes_no_label", "vip_with_another_certificate"]),
    (54, "state in the image", &["a_state_comes_back_on_its_own_machine_only", "each_fault_is_named_and_its_remedy_makes_the_image_clean", "a_clone_of_the_disk_is_a_machine_of_its_own"]),
    (55, "enabled by cloud-init", &["cloud_init_runs", "a_first_boot_leads_to_labels", "a_start_with_a_faulty_configuration_waits_for_a_better_one"]),
    (56, "not on Harvester", &["a_machine_that_is_not_kubevirts_is_reported_so_and_left_alone", "outside_of_kubevirt_it_is_inactive_and_harmless", "on_a_vm_of_another_hypervisor_it_ends_and_is_no_failure"]),
    (57, "hook hangs, forks, fails, is writable or a link", &["neither_a_hook_that_hangs_nor_a_systemd_that_does_not_respond_delays_the_labels", "a_hook_that_fails_is_one_finding_until_those_of_its_state_succeed", "a_hook_that_others_can_change_and_a_link_are_refused_in_one_finding", "hooks_that_hang_fork_fail_or_are_refused_delay_nothing_and_are_one_finding"]),
];

/// A source of tests: where it is, and its text.
struct Source {
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let scripts = [
        "nspawn/checks",
        "image/checks",
        "packages/files",
        "packages/installed",
    ];
    let scripts = scripts.map(|path| format!("tests/{path}"));
    let rust = ["src", "tests"].into_iter().flat_map(rust_files);
    let files = rust
        .filter(|path| !path.starts_with("tests/tidy/"))
        .chain(scripts);
    files
        .filter(|path| fs::exists(top().join(path)).unwrap())
        .map(|path| Source {
            text: read(&path),
            path,
        })
        .collect()
}

/// What a test runs on, if this source has it: a function that is marked as a test or is in the list of a macro, an entry of a macro
/// that makes tests, or a check of a script.
fn setting(source: &Source, name: &str) -> Option<&'static str> {
    let Source { path, text } = source;
    if !text.contains(name) {
        return None;
    }
    let is_rust = path.ends_with(".rs");
    let begin = match is_rust {
        true => text.find(&format!("fn {name}(")),
        false => text.find(&format!("\n{name}() {{")),
    };
    let is_entry = text
        .lines()
        .any(|line| line.trim_start().starts_with(&format!("{name}: Fault::")));
    let is_listed = text.lines().any(|line| line.trim() == format!("{name},"))
        || text.contains(&format!("; real: {name}"));
    let is_marked = begin.is_some_and(|at| {
        let before = text[..at]
            .trim_end_matches("pub(super) ")
            .trim_end_matches("async ")
            .trim_end();
        before.ends_with(']')
            && before
                .rfind("test")
                .is_some_and(|mark| !before[mark..].contains('}'))
    });
    let is_scene = path.starts_with("tests/scenarios/doctor_reports/") && begin.is_some();
    let is_vm = path.starts_with("tests/vm/") && begin.is_some();
    let is_kubelet = path.starts_with("tests/kubelet/") && begin.is_some();
    match path {
        _ if !is_rust => begin.map(|_| {
            if path.contains("nspawn") {
                "systemd"
            } else {
                "packages, images"
            }
        }),
        _ if is_vm => Some("VM"),
        _ if is_kubelet => Some("1.20, 1.36"),
        _ if path.starts_with("src/") => is_marked.then_some("unit"),
        _ if begin.is_some() && is_listed => Some("lab, 1.20, 1.36"),
        _ => (is_marked || is_entry || is_scene).then_some("lab"),
    }
}

#[test]
fn each_fault_has_tests_that_exist() {
    let sources = sources();
    let mut missing = Vec::new();
    for (index, (number, fault, tests)) in TABLE.iter().enumerate() {
        assert_eq!(*number, index + 1, "{fault}");
        if tests.is_empty() {
            missing.push(format!("{number} {fault}: no test"));
        }
        for (place, name) in tests.iter().enumerate() {
            let mut settings: Vec<_> = sources
                .iter()
                .filter_map(|source| setting(source, name))
                .collect();
            settings.sort_unstable();
            settings.dedup();
            if settings.is_empty() {
                missing.push(format!("{number} {fault}: {name}"));
            }
            let (number, fault) = match place {
                0 => (number.to_string(), *fault),
                _ => (String::new(), ""),
            };
            println!("{number:>2} {fault:<32} {:<22} {name}", settings.join("; "));
        }
    }
    assert_eq!(TABLE.len(), FAULTS);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_name_without_a_test_is_not_found() {
    let source = |text: &str| Source {
        path: "src/a.rs".to_owned(),
        text: text.to_owned(),
    };
    assert_eq!(setting(&source("#[test]\nfn a() {}\n"), "a"), Some("unit"));
    assert_eq!(
        setting(&source("#[test]\nfn b() {}\nfn a() {}\n"), "a"),
        None
    );
    assert_eq!(setting(&source("// fn a\n"), "a"), None);
}
