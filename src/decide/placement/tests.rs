// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::decide::fixtures::{World, forbidden, host_labels};
use crate::facts::topology::{HOSTNAME, ZONE};

fn outcomes(placement: &Placement) -> Vec<Outcome> {
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
    use Outcome::{Failed, NotNeeded, Nothing, Won};
    let mut world = World::new();
    world.reads.host_node = forbidden();
    world.reads.configmap = Seen::Known(host_labels("eu-1", "rack-d"));
    let placement = world.placement().unwrap();
    assert_eq!(source(&placement), Some(Source::ConfigMap));
    assert_eq!(outcomes(&placement), [Failed, Nothing, NotNeeded, Won]);
    world.reads.launcher_pod = Seen::Known(host_labels("eu-1", "rack-c"));
    assert_eq!(
        source(&world.placement().unwrap()),
        Some(Source::LauncherPod)
    );
    world.annotate("hv-a", "eu-1", "rack-b");
    let placement = world.placement().unwrap();
    assert_eq!(source(&placement), Some(Source::VmiAnnotations));
    assert_eq!(outcomes(&placement), [Failed, Won, NotNeeded, NotNeeded]);
}

#[test]
fn annotations_for_another_host_are_stale_and_never_used() {
    let mut world = World::new();
    world.reads.host_node = forbidden();
    world.annotate("hv-b", "eu-1", "rack-b");
    let placement = world.placement().unwrap();
    assert_eq!(placement.known, None);
    assert_eq!(placement.tried[1].outcome, Outcome::Stale);
    assert!(
        placement.tried[1].detail.contains("hv-b"),
        "{}",
        placement.tried[1].detail
    );
    // Without the freshness marker nobody can tell.
    world.vmi().annotations.remove(HOSTNAME);
    world.vmi().annotated_by_harvester = false;
    assert_eq!(world.placement().unwrap().tried[1].outcome, Outcome::Stale);
}

#[test]
fn reads_for_another_host_are_stale() {
    let mut world = World::new();
    world.vmi().host = Some(crate::decide::fixtures::host("hv-b"));
    let placement = world.placement().unwrap();
    assert_eq!((placement.known, placement.host_labels), (None, None));
}

#[test]
fn a_value_that_cannot_be_a_label_is_no_answer_and_is_shown_escaped() {
    let mut world = World::new();
    world.reads.host_node = Seen::Known([(ZONE.to_owned(), "rack a\u{1b}".to_owned())].into());
    let placement = world.placement().unwrap();
    assert_eq!(placement.known, None);
    assert_eq!(placement.tried[0].outcome, Outcome::Illegal);
    assert!(
        placement.tried[0].detail.contains("rack a\\u{1b}"),
        "{}",
        placement.tried[0].detail
    );
}

#[test]
fn a_host_without_labels_is_known_to_have_none_unless_another_source_tells() {
    let mut world = World::new();
    world.reads.host_node = Seen::Known(HostLabels::new());
    let placement = world.placement().unwrap();
    let known = placement.known.unwrap();
    assert!(known.topology.is_empty() && known.absence == Absence::Proven);
    world.reads.configmap = Seen::Known(host_labels("eu-1", "rack-d"));
    assert_eq!(source(&world.placement().unwrap()), Some(Source::ConfigMap));
}

#[test]
fn a_source_that_is_switched_off_is_not_used() {
    let mut world = World::new();
    world.settings.topology.sources = vec![Source::VmiAnnotations];
    let placement = world.placement().unwrap();
    assert_eq!(placement.known, None);
    assert_eq!(placement.host_labels, None);
    assert_eq!(placement.tried[0].outcome, Outcome::Off);
}

#[test]
fn a_vm_that_runs_nowhere_has_no_placement() {
    let mut world = World::new();
    world.vmi().host = None;
    assert_eq!(world.placement(), None);
}
