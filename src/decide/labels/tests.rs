// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::catalog::Code;
use crate::config::LabelKey;
use crate::decide::Action;
use crate::decide::fixtures::{Reads, World, forbidden, host, host_labels};
use crate::facts::host_metrics::HostMetrics;
use crate::facts::node::{ANNOTATION_HOST, ANNOTATION_OWNED};
use crate::facts::placement::{HostLabels, Source};
use crate::facts::topology::{REGION, REGION_BETA, ZONE, ZONE_BETA};
use crate::facts::{Fact, UnavailableKind};

const HOST: &str = "topology.harvesterhci.io/host";
const RACK: &str = "example.com/rack";
const HOST_RACK: &str = "harvester.example.com/rack";

fn plan(world: &World) -> LabelPlan {
    world.plan().labels
}

fn set(plan: &LabelPlan) -> Vec<(&str, &str)> {
    let changes = plan.changes.iter().map(|(key, value)| {
        let value = value.as_ref();
        (key.as_str(), value.map_or("(removed)", LabelValue::as_str))
    });
    changes.collect()
}

fn reasons(plan: &LabelPlan) -> Vec<(&str, SkipReason)> {
    let left = plan.left.iter();
    left.map(|left| (left.key.as_str(), left.reason)).collect()
}

/// Holds that a plan changes these labels, and leaves those for these reasons.
fn is(world: &World, changes: &[(&str, &str)], left: &[(&str, SkipReason)]) {
    let plan = plan(world);
    assert_eq!((&*set(&plan), &*reasons(&plan)), (changes, left));
}

fn known(region: &str, zone: &str) -> Fact<HostLabels> {
    Fact::Known(host_labels(region, zone))
}

fn away() -> Fact<HostLabels> {
    Fact::failed(UnavailableKind::Unreachable, "503")
}

fn with_rack(world: &mut World, rack: &str) {
    let key = |text| LabelKey::parse(text).unwrap();
    let extra = &mut world.settings.labels.extra;
    extra.insert(key(RACK), key(HOST_RACK));
    if let Some(Fact::Known(labels)) = world.reads.answers.get_mut(&Source::HostNode) {
        labels.insert(HOST_RACK.to_owned(), rack.to_owned());
    }
}

#[test]
fn a_new_node_gets_region_zone_and_host() {
    let new = [(HOST, "hv-a"), (REGION, "eu-1"), (ZONE, "rack-a")];
    assert_eq!(set(&plan(&World::new())), new);
}

#[test]
fn a_twin_is_written_in_the_same_patch_whenever_it_exists() {
    let mut world = World::new();
    world.label(ZONE_BETA, "old");
    let new = [(HOST, "hv-a"), (REGION, "eu-1"), (ZONE, "rack-a")];
    assert_eq!(set(&plan(&world))[0], (ZONE_BETA, "rack-a"));
    assert_eq!(set(&plan(&world))[1..], new);
    world.label(REGION_BETA, "eu-1");
    // It is right already.
    assert!(!plan(&world).changes.contains_key(REGION_BETA));
}

#[test]
fn a_migration_changes_every_label_in_one_plan() {
    let mut world = World::new();
    world.label(ZONE_BETA, "rack-a");
    world.settle();
    world.migrate("hv-c", "eu-2", "rack-c");
    let expected = [
        (ZONE_BETA, "rack-c"),
        (HOST, "hv-c"),
        (REGION, "eu-2"),
        (ZONE, "rack-c"),
    ];
    assert_eq!(set(&plan(&world)), expected);
}

#[test]
fn labels_of_two_hosts_are_never_mixed() {
    let mut world = World::settled();
    // The new host cannot be read yet: even the host label does not change.
    world.migrate("hv-b", "", "");
    world.answer(Source::HostNode, forbidden());
    let mixed = [(REGION, SkipReason::WouldMix), (ZONE, SkipReason::WouldMix)];
    is(&world, &[], &mixed);
    // The new host has a region but no zone.
    world.migrate("hv-b", "eu-2", "");
    is(&world, &[], &mixed);
    // If labels may be removed, all of them change in one patch.
    world.settings.topology.remove_stale = true;
    assert_eq!(
        set(&plan(&world)),
        [(HOST, "hv-b"), (REGION, "eu-2"), (ZONE, "(removed)")]
    );
}

#[test]
fn the_host_label_is_written_alone_where_there_is_no_topology_to_mix_with() {
    let mut world = World::new();
    world.answer(Source::HostNode, forbidden());
    assert_eq!(set(&plan(&world)), [(HOST, "hv-a")]);
    world.settle();
    world.migrate("hv-b", "", "");
    world.answer(Source::HostNode, forbidden());
    assert_eq!(set(&plan(&world)), [(HOST, "hv-b")]);
}

#[test]
fn the_host_label_can_be_switched_off_and_is_then_removed() {
    let mut world = World::settled();
    world.settings.topology.host_label = None;
    assert_eq!(set(&plan(&world)), [(HOST, "(removed)")]);
    let mut fresh = World::new();
    fresh.settings.topology.host_label = None;
    fresh.label(HOST, "another");
    assert!(!plan(&fresh).changes.contains_key(HOST), "not ours");
}

#[test]
fn a_host_that_lost_its_label_changes_nothing_unless_removal_is_allowed() {
    let mut world = World::new();
    world.label(ZONE_BETA, "rack-a");
    world.settle();
    world.answer(Source::HostNode, known("eu-1", ""));
    is(&world, &[], &[(ZONE, SkipReason::HostHasNone)]);
    world.settings.topology.remove_stale = true;
    let both = [(ZONE_BETA, "(removed)"), (ZONE, "(removed)")];
    assert_eq!(set(&plan(&world)), both);
}

#[test]
fn a_label_that_another_writer_changed_since_is_not_removed() {
    let mut world = World::new();
    world.settings.topology.remove_stale = true;
    world.settle();
    world.label(ZONE, "by-hand");
    world.answer(Source::HostNode, known("eu-1", ""));
    assert_eq!(set(&plan(&world)), []);
}

#[test]
fn a_label_that_is_no_longer_wanted_goes_only_while_it_is_as_we_wrote_it() {
    for (by_hand, removed) in [(None, true), (Some("by-hand"), false)] {
        let mut world = World::new();
        with_rack(&mut world, "r1");
        world.settle();
        world.settings.labels.extra.clear();
        world.settings.topology.host_label = None;
        if let Some(value) = by_hand {
            world.label(RACK, value);
            world.label(HOST, value);
        }
        let changes = plan(&world).changes;
        for key in [RACK, HOST] {
            let expected = removed.then_some(&None);
            assert_eq!(changes.get(key), expected, "{key}, {by_hand:?}");
        }
    }
}

#[test]
fn absence_in_annotations_removes_nothing() {
    let mut world = World::new();
    world.settings.topology.remove_stale = true;
    world.settle();
    world.answer(Source::HostNode, forbidden());
    world.annotate("hv-a", "eu-1", "");
    is(&world, &[], &[(ZONE, SkipReason::HostHasNone)]);
}

#[test]
fn hold_keeps_the_first_zone_and_says_so_while_the_host_follows() {
    let mut world = World::new();
    world.settings.topology.on_change = OnChange::Hold;
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    is(&world, &[(HOST, "hv-b")], &[(ZONE, SkipReason::Pinned)]);
}

#[test]
fn hold_holds_the_pair_as_a_whole_and_the_host_that_it_is_of() {
    let mut world = World::new();
    world.answer(Source::HostNode, known("r1", ""));
    world.settings.topology.on_change = OnChange::Hold;
    world.settle();
    world.migrate("hv-b", "r2", "z2");
    // No zone of hv-b beside the region of hv-a.
    assert_eq!(set(&plan(&world)), [(HOST, "hv-b")]);
    world.settle();
    assert_eq!(world.node().annotations[ANNOTATION_HOST], "hv-a");
    world.settings.topology.on_change = OnChange::Follow;
    assert_eq!(set(&plan(&world)), [(REGION, "r2"), (ZONE, "z2")]);
}

#[test]
fn a_report_writes_nothing_that_would_mislead_a_later_follow() {
    let mut world = World::settled();
    world.settings.topology.on_change = OnChange::Report;
    world.migrate("hv-b", "", "z2");
    world.settle();
    world.settings.topology.on_change = OnChange::Follow;
    assert_eq!(set(&plan(&world)), [], "the region would stay that of hv-a");
}

#[test]
fn a_second_source_that_fails_proves_no_absence() {
    let mut world = World::new();
    world.settings.topology.remove_stale = true;
    world.answer(Source::HostNode, known("", ""));
    world.answer(Source::ConfigMap, known("eu-1", "rack-a"));
    world.settle();
    world.answer(Source::ConfigMap, away());
    assert_eq!(set(&plan(&world)), []);
}

#[test]
fn an_extra_label_of_the_host_before_is_said_while_the_new_host_cannot_be_read() {
    let mut world = World::new();
    with_rack(&mut world, "r1");
    world.settle();
    world.migrate("hv-b", "", "");
    world.annotate("hv-b", "eu-1", "rack-b");
    world.answer(Source::HostNode, away());
    let moved = plan(&world);
    let unread = (RACK, SkipReason::HostNotRead);
    assert!(reasons(&moved).contains(&unread), "{moved:?}");
    // Without Harvester, the host and the configuration have the rest.
    let place = host_labels("eu-1", "rack-b").topology().unwrap();
    let host = host("hv-b");
    world.settings.hosts.insert(host.clone(), place);
    world.observation.host_metrics = Fact::Known(HostMetrics { host, time: None });
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "503");
    world.settle();
    assert_eq!(world.node().labels[ZONE], "rack-b");
    assert_eq!(reasons(&plan(&world)), [unread]);
    assert_eq!(world.plan().sync.reason(), "TopologyPartial");
}

#[test]
fn report_changes_nothing_at_all() {
    let mut world = World::new();
    world.settings.topology.on_change = OnChange::Report;
    let all = [REGION, ZONE, HOST].map(|key| (key, SkipReason::ReportOnly));
    is(&world, &[], &all);
}

#[test]
fn the_cases_of_an_extra_label() {
    let mut world = World::new();
    with_rack(&mut world, "r1");
    let changed = |world: &World| plan(world).changes[RACK].as_ref().map(ToString::to_string);
    assert_eq!(changed(&world).unwrap(), "r1", "absent: set and own");
    world.label(RACK, "r1");
    assert_eq!(plan(&world).owned.0[RACK], "r1", "our value: own");
    world.settle();
    with_rack(&mut world, "r2");
    assert_eq!(changed(&world).unwrap(), "r2", "owned: update");
    world.settle();
    world.settings.labels.extra.clear();
    assert_eq!(changed(&world), None, "owned and not wanted: remove");
    world.settle();
    assert!(!plan(&world).owned.0.contains_key(RACK), "and disown");
    world.label(RACK, "another");
    with_rack(&mut world, "r1");
    is(&world, &[], &[(RACK, SkipReason::NotManaged)]);
    with_rack(&mut world, "no value");
    let text = format!("{RACK}: another on the Node, no value on the host");
    assert_eq!(findings(&world), [(Code::LabelValueInvalid, text)]);
    assert_eq!(world.plan().sync.reason(), "LabelValueInvalid");
}

#[test]
fn an_extra_label_goes_when_the_host_has_none_and_stays_when_it_cannot_be_read() {
    let mut world = World::new();
    with_rack(&mut world, "r1");
    world.settle();
    let mut unread = world.clone();
    unread.reads = Reads::none(host("hv-a"));
    assert_eq!(set(&plan(&unread)), []);
    world.answer(Source::HostNode, known("eu-1", "rack-a"));
    assert_eq!(set(&plan(&world)), [(RACK, "(removed)")]);
}

#[test]
fn a_source_that_is_refused_or_not_understood_removes_no_label_that_another_one_lacks() {
    for kind in [UnavailableKind::Forbidden, UnavailableKind::Malformed] {
        let mut world = World::new();
        world.settings.topology.remove_stale = true;
        with_rack(&mut world, "r1");
        world.settle();
        world.answer(Source::HostNode, Fact::failed(kind, "refused"));
        world.answer(Source::ConfigMap, known("eu-1", "rack-a"));
        assert_eq!(set(&plan(&world)), [], "{kind:?}");
        world.answer(Source::ConfigMap, known("eu-1", ""));
        assert_eq!(set(&plan(&world)), [], "{kind:?}");
        // What the other source has is written.
        if let Some(Fact::Known(labels)) = world.reads.answers.get_mut(&Source::ConfigMap) {
            labels.insert(HOST_RACK.to_owned(), "r2".to_owned());
        }
        assert_eq!(set(&plan(&world)), [(RACK, "r2")], "{kind:?}");
        // A label of the previous host stays and is reported.
        world.answer(Source::ConfigMap, known("eu-1", "rack-b"));
        world.reads.host = host("hv-b");
        world.change_vmi(|vmi| vmi.host = Some(host("hv-b")));
        let moved = plan(&world);
        assert!(!moved.changes.contains_key(RACK), "{kind:?}: {moved:?}");
        let unread = (RACK, SkipReason::HostNotRead);
        assert!(reasons(&moved).contains(&unread), "{kind:?}: {moved:?}");
        // A source that is refused for good does not keep the migration from its end.
        let actions = world.plan().actions.into_iter();
        let patches = actions.filter_map(|action| match action {
            Action::PatchNode(patch) => patch.annotations.get(ANNOTATION_HOST).cloned(),
            _ => None,
        });
        assert_eq!(patches.collect::<Vec<_>>(), ["hv-b"], "{kind:?}");
    }
}

#[test]
fn a_source_that_fails_just_now_does_not_make_the_name_of_the_host_the_zone() {
    let mut world = World::new();
    world.settings.topology.zone_fallback = crate::config::ZoneFallback::Host;
    world.settle();
    world.answer(Source::HostNode, away());
    world.answer(Source::ConfigMap, known("eu-1", ""));
    assert_eq!(set(&plan(&world)), []);
    // Where the nodes of Harvester may never be read, the ConfigMap is complete.
    world.answer(Source::HostNode, forbidden());
    assert_eq!(set(&plan(&world)), [(ZONE, "hv-a")]);
}

#[test]
fn an_annotation_that_is_not_ours_owns_nothing() {
    for text in ["", "nonsense", "[]", "{\"a\":1}"] {
        let owned = Owned::parse(Some(&text.to_owned()));
        assert_eq!(owned, Owned::default(), "{text}");
    }
}

#[test]
fn the_annotation_counts_only_for_labels_that_the_agent_may_write() {
    let text = r#"{"topology.kubernetes.io/zone":"a","example.com/rack":"b","kubernetes.io/hostname":"n",
        "node-role.kubernetes.io/control-plane":"","x.node-restriction.kubernetes.io/y":"z"}"#;
    let owned = Owned::parse(Some(&text.to_owned()));
    let keys: Vec<&str> = owned.0.keys().map(String::as_str).collect();
    assert_eq!(keys, ["example.com/rack", "topology.kubernetes.io/zone"]);
    let many = (0..1000).map(|n| (format!("example.com/{n}"), "x"));
    let mut many: BTreeMap<String, &str> = many.collect();
    many.extend([REGION, ZONE, REGION_BETA, ZONE_BETA].map(|key| (key.to_owned(), "x")));
    let text = serde_json::to_string(&many).unwrap();
    let owned = Owned::parse(Some(&text)).0;
    assert_eq!(owned.len(), 4 + 1 + EXTRA_MAX);
    assert!(owned.contains_key(ZONE), "the last in the alphabet");
}

#[test]
fn as_many_extra_labels_as_the_configuration_takes_follow_the_host() {
    let key = |number: usize| format!("example.com/k{number:03}");
    let mut world = World::new();
    world.label(REGION_BETA, "eu-1");
    world.label(ZONE_BETA, "rack-a");
    for key in (0..EXTRA_MAX).map(key) {
        let parsed = LabelKey::parse(&key).unwrap();
        let extra = &mut world.settings.labels.extra;
        extra.insert(parsed.clone(), parsed);
        if let Some(Fact::Known(labels)) = world.reads.answers.get_mut(&Source::HostNode) {
            labels.insert(key, "a".to_owned());
        }
    }
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    let moved = plan(&world);
    let removed = moved.changes.values().filter(|value| value.is_none());
    assert_eq!((removed.count(), reasons(&moved)), (EXTRA_MAX, vec![]));
}

/// Returns the findings, each as its code and observation.
fn findings(world: &World) -> Vec<(Code, String)> {
    let findings = world.plan().findings.into_iter();
    findings.map(|one| (one.code, one.seen)).collect()
}

#[test]
fn an_extra_label_of_the_host_before_is_said_as_long_as_no_source_has_it() {
    for (host_node, configmap, unread) in [
        (Some(forbidden()), Fact::Absent, true),
        (Some(forbidden()), forbidden(), true),
        (Some(Fact::Absent), Fact::Absent, false),
        // Switched off.
        (None, Fact::Absent, false),
        (None, forbidden(), true),
    ] {
        let mut world = World::new();
        with_rack(&mut world, "r1");
        world.settle();
        world.migrate("hv-b", "", "");
        world.annotate("hv-b", "eu-1", "rack-b");
        world.answer(Source::ConfigMap, configmap);
        let sources = world.settings.topology.sources.clone();
        match host_node {
            Some(answer) => world.answer(Source::HostNode, answer),
            None => world
                .settings
                .topology
                .sources
                .retain(|one| *one != Source::HostNode),
        }
        // The migration comes to its end, and the label is not forgotten.
        world.settle();
        assert_eq!(world.node().annotations[ANNOTATION_HOST], "hv-b");
        let text = format!("{RACK}: r1 on the Node, not read from the host");
        assert_eq!(findings(&world), [(Code::TopologyPartial, text)]);
        let sync = world.plan().sync;
        assert_eq!((sync.reason(), sync.is_final()), ("TopologyPartial", true));
        // A failure that may pass proves nothing of it.
        let mut later = world.clone();
        later.answer(Source::HostNode, away());
        later.answer(Source::ConfigMap, away());
        assert_eq!(findings(&later), findings(&world));
        assert_eq!(later.plan().sync.reason(), "TopologyPartial");
        // Nothing is known of it once no source may have it.
        later.settings.topology.sources = vec![Source::VmiAnnotations];
        later.plan();
        assert_eq!(later.plan().sync.reason(), "Synced");
        // Those that were never set are one finding, and the labels that are set match.
        let node = world.node();
        node.labels.remove(RACK);
        node.annotations.remove(ANNOTATION_OWNED);
        let more = |text| LabelKey::parse(text).unwrap();
        let extra = &mut world.settings.labels.extra;
        extra.insert(more("example.com/a"), more("a"));
        world.settle();
        let text = "labels of the host for `[labels.extra]` are not read".to_owned();
        let expected = unread.then_some((Code::ConfigWarning, text));
        assert_eq!(findings(&world), Vec::from_iter(expected));
        assert_eq!(world.plan().sync.reason(), "Synced");
        // One of another writer is not ours to report.
        let extra = &mut world.settings.labels.extra;
        extra.retain(|key, _| key.as_str() == RACK);
        world.label(RACK, "by-hand");
        assert_eq!(findings(&world), []);
        world.node().labels.remove(RACK);
        world.settings.topology.sources = sources;
        world.migrate("hv-b", "eu-1", "rack-b");
        with_rack(&mut world, "r2");
        assert_eq!(set(&plan(&world)), [(RACK, "r2")]);
        world.settle();
        assert_eq!(findings(&world), []);
    }
}

#[test]
fn an_extra_label_that_cannot_be_read_just_now_is_not_said_while_the_vm_stays() {
    let mut world = World::new();
    with_rack(&mut world, "r1");
    world.settle();
    world.annotate("hv-a", "eu-1", "rack-a");
    let failed = away();
    for (host_node, configmap) in [(failed.clone(), forbidden()), (forbidden(), failed)] {
        world.answer(Source::HostNode, host_node);
        world.answer(Source::ConfigMap, configmap);
        is(&world, &[], &[]);
    }
}

#[test]
fn a_name_of_a_host_that_is_no_label_value_leaves_no_label_of_another_host() {
    let long = format!("hv-{}", "x".repeat(61));
    let mut world = World::settled();
    world.migrate(&long, "eu-2", "rack-b");
    assert_eq!(
        set(&plan(&world)),
        [(HOST, "(removed)"), (REGION, "eu-2"), (ZONE, "rack-b")]
    );
    world.settle();
    let text = format!("{HOST}: none on the Node, {long} on the host");
    assert_eq!(findings(&world), [(Code::LabelValueInvalid, text)]);
    assert_eq!(world.plan().sync.reason(), "LabelValueInvalid");
    world.label(HOST, "by-hand");
    assert_eq!(set(&plan(&world)), [], "not ours");
    world.settings.topology.host_label = None;
    assert_eq!(findings(&world), []);
}

#[test]
fn the_label_that_the_host_lacks_is_the_one_that_is_named() {
    let zone = format!("{ZONE}: rack-a on the Node, none on the host");
    let region = format!("{REGION}: eu-1 on the Node, none on the host");
    for (there, expected) in [
        ("eu-1", vec![&zone]),
        ("eu-2", vec![&zone]),
        ("", vec![&region, &zone]),
    ] {
        let mut world = World::settled();
        world.migrate("hv-b", there, "");
        let expected = expected.into_iter();
        let expected = expected.map(|text| (Code::TopologyPartial, text.clone()));
        assert_eq!(findings(&world), Vec::from_iter(expected), "{there}");
    }
}
