// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::catalog::Code;
use crate::decide::fixtures::World;
use crate::facts::Fact;
use crate::facts::distribution::{Distribution, DistributionKind, StaticLabel};
use crate::facts::topology::ZONE_BETA;

const HOST: &str = "topology.harvesterhci.io/host";

/// The labels of a host.
fn host(zone: &str, host: &str) -> Option<Labels> {
    let labels = [(REGION, "eu-1"), (ZONE, zone), (HOST, host)];
    let labels = labels.map(|(key, value)| (key.to_owned(), LabelValue::parse(value).unwrap()));
    Some(labels.into())
}

/// Creates a world that registers its Node with labels, and whose Node has them.
fn world() -> World {
    let mut world = World::new();
    world.settings.registration.node_labels = true;
    world.settle();
    world
}

/// Returns the labels for a kubelet that starts.
fn labels(world: &World) -> Option<Labels> {
    world.plan().registration?.labels
}

#[test]
fn a_node_that_is_not_there_yet_gets_what_the_host_says() {
    for kubelet in [UnavailableKind::Missing, UnavailableKind::Credential] {
        let mut world = world();
        world.observation.kubelet = Fact::failed(kubelet, "none");
        world.observation.node = Fact::failed(UnavailableKind::NotAsked, "none");
        let expected = host("rack-a", "hv-a").filter(|_| kubelet == UnavailableKind::Missing);
        assert_eq!(labels(&world), expected, "{kubelet:?}");
    }
    let mut world = world();
    world.observation.node = Fact::Absent;
    world.migrate("hv-b", "eu-1", "rack-b");
    assert_eq!(labels(&world), host("rack-b", "hv-b"));
}

#[test]
fn the_labels_are_those_of_the_node_after_the_same_plan() {
    let mut world = world();
    assert_eq!(labels(&world), host("rack-a", "hv-a"));
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    let labels_of_plan = plan.registration.clone().unwrap().labels;
    assert_eq!(labels_of_plan, host("rack-b", "hv-b"));
    world.apply(&plan);
    assert_eq!(labels(&world), host("rack-b", "hv-b"));
}

#[test]
fn a_held_node_is_held_by_its_kubelet_too() {
    let mut world = world();
    world.settings.topology.on_change = OnChange::Hold;
    world.migrate("hv-b", "eu-1", "rack-b");
    // The host label follows the VM: volumes do not depend on it.
    assert_eq!(labels(&world), host("rack-a", "hv-b"));
}

#[test]
fn what_is_not_read_is_not_known() {
    let mut unread = world();
    unread.migrate("hv-b", "eu-1", "rack-b");
    unread.observation.node = Fact::failed(UnavailableKind::Unreachable, "timeout");
    assert_eq!(labels(&unread), None);
    let mut lost = world();
    lost.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "timeout");
    lost.memory = crate::decide::Memory::default();
    assert_eq!(labels(&lost), None);
}

#[test]
fn switched_off_there_are_none() {
    let off: [fn(&mut World); 2] = [
        |world| world.settings.registration.node_labels = false,
        |world| world.settings.topology.on_change = OnChange::Report,
    ];
    for switch in off {
        let mut world = world();
        switch(&mut world);
        assert_eq!(world.plan().registration, None);
    }
}

#[test]
fn older_twins_are_not_registered() {
    let mut world = world();
    let node = world.node();
    node.labels
        .insert(ZONE_BETA.to_owned(), "rack-a".to_owned());
    assert!(!labels(&world).unwrap().contains_key(ZONE_BETA));
}

#[test]
fn a_label_in_a_file_of_the_distribution_is_reported_if_it_is_not_the_hosts() {
    let mut world = world();
    for (value, is_reported) in [("rack-a", false), ("rack-b", true)] {
        let mut rke2 = Distribution::new(DistributionKind::Rke2);
        rke2.node_labels = vec![StaticLabel {
            key: ZONE.to_owned(),
            value: value.to_owned(),
            origin: "/etc/rancher/rke2/config.yaml".into(),
        }];
        world.observation.distributions = vec![rke2];
        let findings = world.plan().findings;
        let is_static = |code| code == Code::StaticNodeLabel;
        let mut codes = findings.iter().map(|finding| finding.code);
        assert_eq!(codes.any(is_static), is_reported, "{value}");
    }
}
