// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::catalog::Code;
use crate::decide::Write;
use crate::decide::fixtures::{Reads, World, forbidden, host, host_labels};
use crate::facts::UnavailableKind;
use crate::facts::host_metrics::HostMetrics;
use crate::facts::names::VmName;
use crate::facts::topology::ZONE;

fn outcomes(placement: &Placement) -> Vec<PlacementOutcome> {
    placement.tried.iter().map(|tried| tried.outcome).collect()
}

fn source(placement: &Placement) -> Option<Source> {
    placement.known.as_ref().map(|known| known.source)
}

#[test]
fn the_host_node_wins_and_the_rest_is_not_needed() {
    let placement = World::new().placement().unwrap();
    assert_eq!(source(&placement), Some(Source::HostNode));
    assert_eq!(placement.known.unwrap().topology.to_string(), "eu-1/rack-a");
}

#[test]
fn each_source_takes_over_when_those_before_it_cannot_answer() {
    use PlacementOutcome::{Empty, Failed, NotNeeded, Used};
    let mut world = World::new();
    world.answer(Source::HostNode, forbidden());
    world.answer(
        Source::ConfigMap,
        Fact::Known(host_labels("eu-1", "rack-d")),
    );
    let placement = world.placement().unwrap();
    assert_eq!(source(&placement), Some(Source::ConfigMap));
    assert_eq!(
        outcomes(&placement),
        [Failed, Empty, NotNeeded, Used, NotNeeded, NotNeeded]
    );
    world.answer(
        Source::LauncherPod,
        Fact::Known(host_labels("eu-1", "rack-c")),
    );
    assert_eq!(
        source(&world.placement().unwrap()),
        Some(Source::LauncherPod)
    );
    let is_copy = |placement: &Placement| {
        let won = placement.tried.iter().find(|tried| tried.outcome == Used);
        won.unwrap().detail.contains("does not follow an edit")
    };
    assert!(!is_copy(&World::new().placement().unwrap()));
    world.annotate("hv-a", "eu-1", "rack-b");
    let placement = world.placement().unwrap();
    assert!(is_copy(&placement));
    assert_eq!(source(&placement), Some(Source::VmiAnnotations));
    assert_eq!(
        outcomes(&placement),
        [Failed, Used, NotNeeded, NotNeeded, NotNeeded, NotNeeded]
    );
}

/// Configures `[hosts.hv-a]` and `[hosts.hv-b]`.
fn with_hosts_table(world: &mut World) {
    for (name, zone) in [("hv-a", "rack-1"), ("hv-b", "rack-2")] {
        let place = Topology {
            region: LabelValue::parse("eu-9").ok(),
            zone: LabelValue::parse(zone).ok(),
        };
        world.settings.hosts.insert(host(name), place);
    }
}

/// Removes the Harvester credential; the host reports its name.
fn without_credential(world: &mut World, reported: &str) {
    world.observation.harvester =
        Fact::failed(UnavailableKind::Missing, "no kubeconfig for Harvester");
    world.observation.candidates =
        Fact::failed(UnavailableKind::NotAsked, "no kubeconfig for Harvester");
    world.observation.host_metrics = Fact::Known(HostMetrics {
        host: host(reported),
        time: None,
    });
    world.reads = Reads::none(host(reported));
}

#[test]
fn the_hosts_table_is_the_last_source_for_a_host_that_harvester_names() {
    let mut world = World::new();
    with_hosts_table(&mut world);
    assert_eq!(source(&world.placement().unwrap()), Some(Source::HostNode));
    world.answer(Source::HostNode, forbidden());
    let placement = world.placement().unwrap();
    assert_eq!(source(&placement), Some(Source::HostsTable));
    assert_eq!(placement.known.unwrap().topology.to_string(), "eu-9/rack-1");
    world.settings.hosts.remove(&host("hv-a"));
    let placement = world.placement().unwrap();
    assert_eq!(placement.known, None);
    assert!(placement.tried[4].detail.contains("[hosts.hv-a]"));
}

#[test]
fn without_any_credential_the_host_itself_and_the_table_are_enough() {
    let mut world = World::new();
    with_hosts_table(&mut world);
    without_credential(&mut world, "hv-b");
    let placement = world.placement().unwrap();
    assert_eq!(placement.host, host("hv-b"));
    assert_eq!(placement.host_source, "downward metrics on virtio-serial");
    assert_eq!(source(&placement), Some(Source::HostsTable));
    let plan = world.plan();
    assert_eq!(plan.findings, [], "no credential is missed");
    world.settle();
    assert_eq!(world.node().labels.get(ZONE).unwrap(), "rack-2");
    assert_eq!(
        world
            .node()
            .annotations
            .get(crate::facts::node::ANNOTATION_VM),
        None
    );
    // A changed name is a migration.
    without_credential(&mut world, "hv-a");
    let plan = world.plan();
    let moved = plan.moved.as_ref().unwrap();
    assert_eq!((moved.from.as_str(), moved.to.as_str()), ("hv-b", "hv-a"));
    world.settle();
    assert_eq!(world.node().labels.get(ZONE).unwrap(), "rack-1");
}

#[test]
fn a_host_that_is_named_and_placed_nowhere_keeps_the_labels() {
    let mut world = World::new();
    with_hosts_table(&mut world);
    world.settle();
    let labels = world.node().labels.clone();
    without_credential(&mut world, "hv-z");
    let plan = world.plan();
    assert_eq!(
        plan.actions
            .iter()
            .filter(|action| action.write() == Write::Node)
            .count(),
        0
    );
    let reason = Some(Code::HarvesterCredentialMissing);
    assert_eq!(plan.sync.code(), reason, "{:?}", plan.sync);
    assert_eq!(world.node().labels, labels);
}

#[test]
fn host_metrics_are_ignored_if_the_vm_is_ambiguous() {
    let mut world = World::new();
    with_hosts_table(&mut world);
    world.observation.host_metrics = Fact::Known(HostMetrics {
        host: host("hv-b"),
        time: None,
    });
    assert_eq!(
        world.placement().unwrap().host,
        host("hv-a"),
        "Harvester's word counts"
    );
    world.add_vmi(|vmi| vmi.name = VmName::parse("double").unwrap());
    assert_eq!(world.placement(), None);
}

#[test]
fn annotations_for_another_host_are_stale_and_never_used() {
    let mut world = World::new();
    world.answer(Source::HostNode, forbidden());
    world.annotate("hv-b", "eu-1", "rack-b");
    let placement = world.placement().unwrap();
    assert_eq!(placement.known, None);
    assert_eq!(placement.tried[1].outcome, PlacementOutcome::Stale);
    assert!(
        placement.tried[1].detail.contains("hv-b"),
        "{}",
        placement.tried[1].detail
    );
    // Without the host marker, the age of the annotations is unknown.
    world.vmi().annotated_host = None;
    world.vmi().annotated_by_harvester = false;
    assert_eq!(
        world.placement().unwrap().tried[1].outcome,
        PlacementOutcome::Stale
    );
}

#[test]
fn a_value_that_cannot_be_a_label_is_no_answer_and_is_shown_escaped() {
    let mut world = World::new();
    world.answer(
        Source::HostNode,
        Fact::Known(host_labels("", "rack a\u{1b}")),
    );
    let placement = world.placement().unwrap();
    assert_eq!(placement.known, None);
    assert_eq!(placement.tried[0].outcome, PlacementOutcome::Invalid);
    assert!(
        placement.tried[0].detail.contains("rack a\\u{1b}"),
        "{}",
        placement.tried[0].detail
    );
}

#[test]
fn a_host_without_labels_is_known_to_have_none_unless_another_source_reports() {
    let mut world = World::new();
    world.answer(Source::HostNode, Fact::Known(HostLabels::default()));
    let placement = world.placement().unwrap();
    let known = placement.known.unwrap();
    assert!(known.topology.is_empty() && known.is_complete);
    world.answer(
        Source::ConfigMap,
        Fact::Known(host_labels("eu-1", "rack-d")),
    );
    assert_eq!(source(&world.placement().unwrap()), Some(Source::ConfigMap));
}

#[test]
fn a_source_that_is_switched_off_is_not_used() {
    let mut world = World::new();
    world.settings.topology.sources = vec![Source::VmiAnnotations];
    let placement = world.placement().unwrap();
    assert_eq!(placement.known, None);
    assert_eq!(placement.extra, None);
    assert_eq!(placement.tried[0].outcome, PlacementOutcome::Disabled);
}

#[test]
fn a_vm_that_runs_nowhere_has_no_placement() {
    let mut world = World::new();
    world.vmi().host = None;
    assert_eq!(world.placement(), None);
}

/// Shares the files of a pod with this VM.
fn share_pod(world: &mut World, pod: &str, shown: &str, zone: &str) {
    let labels = format!(
        "kubevirt.io/nodeName=\"{shown}\"\ntopology.kubernetes.io/region=\"eu-1\"\n{ZONE}=\"{zone}\"\n"
    );
    let name = format!("virt-launcher-{}-{pod}", crate::decide::fixtures::VM);
    let info = crate::facts::pod_info::PodInfo::parse(&labels, &name, "default").unwrap();
    world.observation.pod_info = Fact::Known(info);
}

fn without_any_api(world: &mut World) {
    without_credential(world, "hv-a");
    world.observation.host_metrics = Fact::Absent;
}

#[test]
fn the_pod_alone_gives_host_region_and_zone() {
    let mut world = World::new();
    without_any_api(&mut world);
    assert!(world.placement().is_none());
    share_pod(&mut world, "aaaaa", "hv-a", "rack-a");
    let placement = world.placement().unwrap();
    assert_eq!(source(&placement), Some(Source::PodInfo));
    assert_eq!(placement.host.as_str(), "hv-a");
    let codes: Vec<_> = world.plan().findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [], "a credential is not needed");
    world.settle();
    assert_eq!(world.node().labels[ZONE], "rack-a");
}

#[test]
fn another_source_of_the_host_must_agree_with_the_pod() {
    let mut world = World::new();
    world.answer(Source::HostNode, forbidden());
    share_pod(&mut world, "aaaaa", "hv-a", "rack-a");
    assert_eq!(source(&world.placement().unwrap()), Some(Source::PodInfo));
    share_pod(&mut world, "aaaaa", "hv-b", "rack-b");
    assert_eq!(source(&world.placement().unwrap()), None);
}

#[test]
fn after_a_migration_the_zone_follows_the_pod_at_once_and_the_host_when_its_label_changes() {
    let mut world = World::new();
    without_any_api(&mut world);
    share_pod(&mut world, "aaaaa", "hv-a", "rack-a");
    world.settle();
    assert_eq!(world.plan().next.after, crate::decide::schedule::POD_POLL);
    // The pod of the target has the label of the source at first.
    share_pod(&mut world, "bbbbb", "hv-a", "rack-b");
    let plan = world.plan();
    assert_eq!(plan.moved, None);
    assert_eq!(plan.next.after, crate::decide::schedule::POD_POLL_LATE);
    world.settle();
    assert_eq!(world.node().labels[ZONE], "rack-b");
    assert_eq!(world.node().labels["topology.harvesterhci.io/host"], "hv-a");
    share_pod(&mut world, "bbbbb", "hv-b", "rack-b");
    let plan = world.plan();
    assert_eq!(plan.moved.as_ref().unwrap().to, "hv-b");
    assert_eq!(plan.next.after, crate::decide::schedule::POD_POLL);
    world.settle();
    assert_eq!(world.node().labels["topology.harvesterhci.io/host"], "hv-b");
    // A label that never changes is not polled at the short interval for longer than a few minutes.
    share_pod(&mut world, "ccccc", "hv-b", "rack-b");
    world.memory = world.plan().memory;
    world.uptime += crate::decide::schedule::POD_LABEL_DELAY;
    assert_eq!(world.plan().next.after, crate::decide::schedule::POD_POLL);
}

#[test]
fn labels_do_not_go_back_to_the_host_that_the_vm_has_left() {
    let mut world = World::new();
    share_pod(&mut world, "aaaaa", "hv-a", "rack-a");
    world.memory = world.plan().memory;
    // Harvester shows the migration, and then fails before the label of the new pod is updated.
    world.vmi().host = HostName::parse("hv-b").ok();
    share_pod(&mut world, "bbbbb", "hv-a", "rack-b");
    world.memory = world.plan().memory;
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "no route");
    let plan = world.plan();
    assert_eq!(plan.moved, None);
    assert!(
        plan.actions
            .iter()
            .all(|action| action.write() != Write::Node)
    );
    assert!(plan.next.after <= crate::decide::schedule::POD_POLL_LATE);
    world.memory = plan.memory;
    // A label that changes, and one that stays for longer than an update takes, is believed.
    let late = world.memory.clone();
    share_pod(&mut world, "bbbbb", "hv-c", "rack-c");
    assert_eq!(world.plan().moved.unwrap().to, "hv-c");
    world.memory = late;
    share_pod(&mut world, "bbbbb", "hv-a", "rack-a");
    world.uptime += crate::decide::schedule::POD_LABEL_DELAY;
    assert_eq!(world.plan().moved.unwrap().to, "hv-a");
}

#[test]
fn a_host_without_a_zone_is_its_own_zone_only_where_that_is_configured() {
    let mut world = World::new();
    let zone = |world: &World| {
        let known = world.placement().unwrap().known.unwrap();
        known.topology.zone.map(|zone| zone.to_string())
    };
    world.settings.topology.zone_fallback = ZoneFallback::Host;
    assert_eq!(zone(&world).as_deref(), Some("rack-a"));
    // A host with a region alone, and one with neither.
    for region in ["eu-1", ""] {
        world.answer(Source::HostNode, Fact::Known(host_labels(region, "")));
        assert_eq!(zone(&world).as_deref(), Some("hv-a"), "{region}");
        world.settings.topology.zone_fallback = ZoneFallback::Off;
        assert_eq!(zone(&world), None, "{region}");
        world.settings.topology.zone_fallback = ZoneFallback::Host;
    }
    // Where no source could be read, the host may have one, and another source may not know of it.
    world.answer(Source::HostNode, forbidden());
    assert_eq!(world.placement().unwrap().known, None);
    world.annotate("hv-a", "eu-1", "");
    assert_eq!(zone(&world), None);
}
