// SPDX-License-Identifier: Apache-2.0
//! Tests of the six invariants by number, then of the plan as a whole.

mod history;

use std::time::Duration;

use super::agenda::Job;
use super::doing::Doing;
use super::fixtures::{Reads, VM, World, forbidden, host_labels};
use super::label_state::LabelState;
use super::labels::Owned;
use super::*;
use crate::catalog::{Api, Code, Finding, Group};
use crate::config::OnChange;
use crate::decide::fast_poll::WindowOutcome;
use crate::facts::clock::{ClockStep, rfc3339};
use crate::facts::guest_agent::{HostView, UnitState};
use crate::facts::names::{HostName, NodeName, VmName};
use crate::facts::node::{
    ANNOTATION_HOST, ANNOTATION_MIGRATION, ANNOTATION_OWNED, ANNOTATION_PREFIX, Node,
};
use crate::facts::observation::{Candidates, Coverage};
use crate::facts::placement::Source;
use crate::facts::topology::{LabelValue, REGION, TWINS, ZONE, ZONE_BETA};
use crate::facts::trigger::{Reasons, Scope, Trigger};
use crate::facts::{Fact, Unavailable, UnavailableKind};
use time::UtcDateTime;

fn codes(plan: &Plan) -> Vec<Code> {
    plan.findings.iter().map(|finding| finding.code).collect()
}

fn patches(plan: &Plan) -> Vec<&NodePatch> {
    plan.actions
        .iter()
        .filter_map(|action| match action {
            Action::PatchNode(patch) => Some(patch),
            _ => None,
        })
        .collect()
}

fn conditions(plan: &Plan) -> Vec<(&str, &str, &str)> {
    plan.actions
        .iter()
        .flat_map(|action| match action {
            Action::PatchConditions(patch) => patch.conditions.clone(),
            _ => Vec::new(),
        })
        .map(|(wanted, _)| (wanted.kind, wanted.status, wanted.reason))
        .collect()
}

/// The key of an extra label.
const RACK: &str = "example.com/rack";

/// A value of the extra label that no answer has.
const PREVIOUS_RACK: &str = "r0";

/// Configures an extra label, which the host has if its Node can be read.
fn with_rack(world: &mut World) {
    let key = |text| crate::config::LabelKey::parse(text).unwrap();
    let host_key = "harvester.example.com/rack";
    let extra = &mut world.settings.labels.extra;
    extra.insert(key(RACK), key(host_key));
    if let Some(Fact::Known(labels)) = world.reads.answers.get_mut(&Source::HostNode) {
        labels.insert(host_key.to_owned(), "r1".to_owned());
    }
}

/// Makes the extra label on the Node one of ours.
fn own_rack(node: &mut Node, value: &str) {
    node.labels.insert(RACK.to_owned(), value.to_owned());
    let owned = node.annotations.entry(ANNOTATION_OWNED.to_owned());
    let owned = owned.or_default();
    let mut labels = Owned::parse(Some(owned));
    labels.0.insert(RACK.to_owned(), value.to_owned());
    *owned = serde_json::to_string(&labels).unwrap();
}

/// Migrates the VM where the only source with all labels of the host does not know it.
fn with_rack_of_another_host(world: &mut World) {
    with_rack(world);
    if let Fact::Known(node) = &mut world.observation.node {
        own_rack(node, PREVIOUS_RACK);
    }
    world.migrate("hv-b", "eu-1", "rack-b");
    world.annotate("hv-b", "eu-1", "rack-b");
    world.answer(Source::ConfigMap, Fact::Absent);
    world.settings.topology.sources = vec![Source::VmiAnnotations, Source::ConfigMap];
}

/// Returns worlds that differ in every input of the decisions.
fn worlds() -> Vec<World> {
    let changes: [fn(&mut World); 20] = [
        |_| {},
        |w| w.migrate("hv-b", "eu-1", "rack-b"),
        |w| w.migrate("hv-c", "eu-2", ""),
        |w| w.answer(Source::HostNode, forbidden()),
        |w| w.answer(Source::HostNode, Fact::Known(host_labels("eu-1", "rack a"))),
        |w| w.answer(Source::HostNode, Fact::Absent),
        |w| w.annotate("hv-b", "eu-1", "rack-b"),
        |w| w.change_vmi(|vmi| vmi.host = None),
        |w| w.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "timeout"),
        |w| w.observation.candidates = Fact::Absent,
        |w| w.observation.node = Fact::Absent,
        |w| w.observation.node = Fact::failed(UnavailableKind::Unreachable, "timeout"),
        |w| w.add_vmi(|other| other.uid = "twin".to_owned()),
        |w| w.settings.topology.remove_stale = true,
        with_rack,
        |w| w.answer(Source::ConfigMap, forbidden()),
        |w| {
            w.answer(
                Source::LauncherPod,
                Fact::Known(host_labels("eu-1", "rack-c")),
            );
        },
        |w| w.settings.topology.sources = vec![Source::VmiAnnotations, Source::LauncherPod],
        |w| {
            if let Fact::Known(node) = &mut w.observation.node {
                node.provider_id = Some("harvester://other-vm".to_owned());
            }
        },
        with_rack_of_another_host,
    ];
    let mut worlds = Vec::new();
    for first in changes {
        for second in changes {
            for settled in [false, true] {
                let mut world = World::new();
                world
                    .node()
                    .labels
                    .insert("other.example/key".to_owned(), "x".to_owned());
                world
                    .node()
                    .labels
                    .insert("kubernetes.io/hostname".to_owned(), "x".to_owned());
                if settled {
                    world.settle();
                }
                first(&mut world);
                second(&mut world);
                worlds.push(world);
            }
        }
    }
    assert_eq!(worlds.len(), 800);
    worlds
}

#[test]
fn invariant_1_a_label_that_we_do_not_own_is_never_changed() {
    let ours = [
        REGION,
        ZONE,
        TWINS[0].1,
        TWINS[1].1,
        "topology.harvesterhci.io/host",
        RACK,
    ];
    for world in worlds() {
        let plan = world.plan();
        for key in patches(&plan).iter().flat_map(|patch| patch.labels.keys()) {
            assert!(ours.contains(&key.as_str()), "{key}");
        }
        for key in patches(&plan)
            .iter()
            .flat_map(|patch| patch.annotations.keys())
        {
            assert!(key.starts_with(ANNOTATION_PREFIX), "{key}");
        }
    }
}

#[test]
fn invariant_2_a_failed_or_missing_read_never_removes_a_label() {
    for mut world in worlds() {
        world.settings.topology.remove_stale = true;
        with_rack(&mut world);
        if world.observation.node.known().is_some() {
            own_rack(world.node(), "r1");
        }
        for read in [
            forbidden(),
            Fact::Absent,
            Fact::failed(UnavailableKind::Malformed, "not a label"),
            Fact::failed(UnavailableKind::Unreachable, "timeout"),
        ] {
            // The ConfigMap speaks for a host that has no Node, or whose Node is not asked for.
            let sources = &world.settings.topology.sources;
            let is_alone = read == Fact::Absent || !sources.contains(&Source::HostNode);
            world.answer(Source::HostNode, read);
            let known = Fact::Known(host_labels("eu-1", ""));
            for configmap in [None, Some(forbidden()), Some(known)] {
                if is_alone && matches!(configmap, Some(Fact::Known(_))) {
                    continue;
                }
                let answers = &mut world.reads.answers;
                answers.remove(&Source::ConfigMap);
                answers.extend(configmap.map(|answer| (Source::ConfigMap, answer)));
                let plan = world.plan();
                assert!(
                    patches(&plan)
                        .iter()
                        .all(|patch| patch.labels.values().all(Option::is_some)),
                    "{:?}",
                    world.reads
                );
            }
        }
    }
}

#[test]
fn invariant_3_and_4_writes_name_our_own_node_and_hold_only_labels_annotations_and_conditions() {
    // The types contain no taint, spec or owner. Names are checked here, and request bodies in the tests of `apply`.
    for mut world in worlds() {
        let plan = world.plan();
        // Whatever is configured.
        world.settings.registration.node_labels ^= true;
        let more = world.plan().actions;
        for action in plan.actions.into_iter().chain(more) {
            let node = match action {
                Action::PatchNode(patch) => patch.node,
                Action::PatchConditions(patch) => patch.node,
                Action::SendEvents(events) => events.node,
                other => panic!("{other:?}"),
            };
            assert_eq!(node.as_str(), super::fixtures::VM);
        }
    }
}

#[test]
fn invariant_5_an_unchanged_world_costs_no_write() {
    for mut world in worlds() {
        if world.observation.node.known().is_none() {
            assert_eq!(world.plan().actions, []);
            continue;
        }
        world.settle();
        for minutes in [0, 1, 11, 600] {
            world.uptime += Duration::from_secs(minutes * 60);
            let plan = world.plan();
            world.apply(&plan);
        }
        world.uptime += Duration::from_secs(60);
        let plan = world.plan();
        assert_eq!(plan.actions, []);
        // At rest, a label of the previous host is reported; where no source can have it, the configuration has a warning.
        let mut sources = world.settings.topology.sources.iter();
        let is_askable = sources.any(|one| one.has_all());
        let is_wrong = world.node().labels.get(RACK).map(String::as_str) == Some(PREVIOUS_RACK);
        assert!(
            !(is_wrong && is_askable) || plan.sync != LabelState::Synced,
            "{:?}",
            world.reads
        );
    }
}

#[test]
fn invariant_6_an_ambiguous_identity_costs_no_label() {
    for mut world in worlds() {
        if let Fact::Known(candidates) = &world.observation.candidates
            && candidates.vmis.len() == 1
        {
            world.add_vmi(|other| other.uid = "twin".to_owned());
        }
        assert!(patches(&world.plan()).is_empty());
    }
    let mut world = World::new();
    world.add_vmi(|other| other.uid = "twin".to_owned());
    let plan = world.plan();
    assert!(codes(&plan).contains(&Code::IdentityAmbiguous));
    // The status and the metric say the same word as the condition.
    assert_eq!(world.identity().verdict.reason(), "IdentityAmbiguous");
    assert!(conditions(&plan).contains(&(
        "HarvesterIdentityVerified",
        "False",
        "IdentityAmbiguous"
    )));
}

#[test]
fn invariant_3_the_node_of_another_machine_costs_no_write() {
    let other = uuid::Uuid::from_u128(0x6cea_024f_f050_5571_b0e3_4262_bd19_b153);
    for mut world in worlds() {
        if world.observation.node.known().is_some() {
            world.node().system_uuid = Some(other);
            let plan = world.plan();
            assert_eq!(plan.actions, []);
            assert!(
                plan.findings
                    .iter()
                    .any(|f| f.code == Code::NodeOfAnotherVm)
            );
        }
    }
    let mut world = World::new();
    world.node().system_uuid = Some(other);
    let plan = world.plan();
    assert_eq!(codes(&plan), [Code::NodeOfAnotherVm]);
    assert_eq!(plan.sync.reason(), "NodeOfAnotherVm");
    // The kubelet may not have started yet.
    assert!(plan.next.scope.contains(Scope::NODE) && plan.next.after < Duration::from_secs(60));
    let ours = *world.observation.machine.product_uuid.known().unwrap();
    let swapped = uuid::Uuid::from_bytes(ours.to_bytes_le());
    for fine in [None, Some(ours), Some(swapped)] {
        let mut world = world.clone();
        world.node().system_uuid = fine;
        assert_eq!(patches(&world.plan()).len(), 1, "{fine:?}");
    }
    world.observation.machine.product_uuid = forbidden();
    assert_eq!(patches(&world.plan()).len(), 1);
}

#[test]
fn the_labels_come_first_and_the_conditions_say_so_after_they_were_read_back() {
    let mut world = World::new();
    let plan = world.plan();
    assert_eq!((patches(&plan).len(), conditions(&plan).len()), (1, 0));
    world.apply(&plan);
    let plan = world.plan();
    assert!(patches(&plan).is_empty());
    let good = [
        ("HarvesterIdentityVerified", "True", "NamesMatch"),
        ("HarvesterTopologySynced", "True", "Synced"),
        ("QemuGuestAgentReady", "True", "Healthy"),
    ];
    assert_eq!(conditions(&plan), good);
    world.apply(&plan);
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_migration_is_one_patch_and_no_condition() {
    let mut world = World::new();
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 1);
    let patch = patches(&plan)[0];
    assert_eq!(patch.annotations[ANNOTATION_HOST], "hv-b");
    assert!(patch.annotations[ANNOTATION_MIGRATION].contains(r#""from":"hv-a","to":"hv-b""#));
    assert_eq!(patch.announce.as_ref().unwrap().reason, "HostChanged");
    assert_eq!(plan.moved.as_ref().unwrap().from, "hv-a");
    world.apply(&plan);
    let after = world.plan();
    assert_eq!((after.actions.len(), after.moved), (0, None));
}

#[test]
fn a_migration_is_announced_once_and_from_the_host_that_the_vm_left() {
    let mut world = World::new();
    world.settle();
    world.settings.topology.on_change = OnChange::Hold;
    world.migrate("hv-b", "eu-1", "rack-b");
    world.settle();
    world.migrate("hv-c", "eu-2", "rack-c");
    world.settle();
    assert_eq!(world.node().annotations[ANNOTATION_HOST], "hv-a");
    world.settings.topology.on_change = OnChange::Follow;
    let plan = world.plan();
    let note = &patches(&plan)[0].announce.as_ref().unwrap().note;
    assert!(note.contains("host changed from hv-b to hv-c"), "{note}");
    world.apply(&plan);

    let node = world.node();
    node.annotations
        .insert(ANNOTATION_HOST.to_owned(), "hv-a".to_owned());
    let plan = world.plan();
    let patch = patches(&plan)[0];
    assert_eq!(patch.annotations[ANNOTATION_HOST], "hv-c");
    assert_eq!(patch.announce, None, "nothing migrated");
}

#[test]
fn an_annotation_of_anybody_that_names_no_host_is_no_migration() {
    let mut world = World::new();
    world.settle();
    world.memory = Memory::default();
    let foreign = format!("hv\u{1b}[31m\u{202e}\u{9b}\u{200b}\n{}", "x".repeat(5000));
    let node = world.node();
    node.annotations.insert(ANNOTATION_HOST.to_owned(), foreign);
    let plan = world.plan();
    let patch = patches(&plan)[0];
    assert_eq!((&plan.moved, &patch.announce), (&None, &None));
    assert!(!patch.annotations.contains_key(ANNOTATION_MIGRATION));
}

#[test]
fn a_move_while_the_agent_was_down_is_a_move() {
    let mut world = World::new();
    world.settle();
    world.memory = Memory::default();
    world.migrate("hv-b", "eu-1", "rack-b");
    assert_eq!(world.plan().moved.unwrap().from, "hv-a");
}

#[test]
fn the_first_step_of_the_clock_after_a_migration_shows_its_interruption() {
    let mut world = World::new();
    let step = |world: &mut World, milliseconds: i128| {
        world.uptime += Duration::from_secs(2);
        let clock = &mut world.observation.clock;
        clock.count += 1;
        clock.last = Some(ClockStep(milliseconds * 1_000_000));
        let plan = world.plan();
        world.apply(&plan);
        plan.interruption
    };
    world.settle();
    assert_eq!(step(&mut world, 120), None, "there was no migration");
    world.migrate("hv-b", "eu-1", "rack-b");
    world.settle();
    let interruption = Some(Duration::from_millis(89));
    assert_eq!(step(&mut world, 89), interruption);
    assert_eq!(world.plan().interruption, None);
    assert_eq!(step(&mut world, 5), None, "the clock was set again");
    world.migrate("hv-c", "eu-2", "rack-c");
    world.settle();
    world.observation.clock.count += 1;
    assert_eq!(step(&mut world, 89), None, "one of two steps");
}

#[test]
fn a_failed_migration_writes_nothing() {
    let mut world = World::new();
    world.settle();
    world.vmi().active_pods.push("target-pod".to_owned());
    assert_eq!(world.plan().actions, []);
}

#[test]
fn with_a_cloud_provider_harvesters_annotations_go_first_but_not_for_ever() {
    let mut world = World::new();
    world.node().provider_id = Some("harvester://vm-uid".to_owned());
    world.annotate("hv-a", "eu-1", "rack-a");
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    assert_eq!((plan.actions.len(), &plan.sync), (0, &LabelState::Pending));
    assert!(plan.next.after <= Duration::from_secs(10));
    world.memory = plan.memory;
    let mut late = world.clone();
    late.uptime += Duration::from_secs(10);
    assert_eq!(
        patches(&late.plan())[0].labels[ZONE]
            .as_ref()
            .map(LabelValue::as_str),
        Some("rack-b")
    );
    world.annotate("hv-b", "eu-1", "rack-b");
    assert_eq!(
        patches(&world.plan())[0].labels[ZONE]
            .as_ref()
            .map(LabelValue::as_str),
        Some("rack-b")
    );
}

#[test]
fn annotations_that_stay_stale_are_a_finding_after_the_settling_time() {
    let mut world = World::new();
    world.answer(Source::HostNode, forbidden());
    world.annotate("hv-a", "eu-1", "rack-a");
    world.settle();
    world.migrate("hv-b", "", "");
    world.answer(Source::HostNode, forbidden());
    let plan = world.plan();
    assert_eq!((plan.actions.len(), codes(&plan)), (0, vec![]));
    world.memory = plan.memory;
    world.uptime += Duration::from_secs(10);
    let plan = world.plan();
    assert_eq!(codes(&plan), [Code::AnnotationsStale]);
    assert_eq!(
        conditions(&plan),
        [("HarvesterTopologySynced", "False", "AnnotationsStale")]
    );
}

#[test]
fn a_short_outage_changes_no_condition_and_a_long_one_says_unknown() {
    let mut world = World::new();
    world.settle();
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "connection refused");
    let plan = world.plan();
    assert_eq!(
        (plan.actions.len(), codes(&plan)),
        (0, vec![Code::HarvesterUnreachable])
    );
    world.memory = plan.memory;
    world.uptime += Duration::from_secs(61);
    let plan = world.plan();
    assert_eq!(
        conditions(&plan),
        [("HarvesterTopologySynced", "Unknown", "HarvesterUnreachable")]
    );
}

#[test]
fn a_loopback_address_is_right_where_the_vm_was_read() {
    let mut world = World::new();
    world.observation.findings = vec![Finding::new(
        Code::HarvesterOnLoopback,
        "https://[::1]:6443",
    )];
    let is_found = |world: &World| codes(&world.plan()).contains(&Code::HarvesterOnLoopback);
    assert!(!is_found(&world));
    world.observation.candidates = forbidden();
    assert!(is_found(&world));
    // While the tunnel is down.
    world.memory.last_vmi = World::new().identity().vmi().cloned();
    assert!(!is_found(&world));
}

#[test]
fn a_watch_that_fails_where_the_reading_fails_has_no_finding_of_its_own() {
    let mut world = World::new();
    for api in [Api::Harvester, Api::Guest] {
        let what = format!("{api:?} refuses");
        let finding = Finding::new(Code::WatchUnavailable, what).about(Group::of_api(api));
        world.observation.findings.push(finding);
    }
    let unavailable = |plan: &Plan| {
        let code = Code::WatchUnavailable;
        plan.findings.iter().filter(|f| f.code == code).count()
    };
    assert_eq!(unavailable(&world.plan()), 2);
    world.observation.candidates = forbidden();
    assert_eq!(unavailable(&world.plan()), 1);
    world.observation.node = forbidden();
    let plan = world.plan();
    assert_eq!(unavailable(&plan), 0, "{:?}", codes(&plan));
}

#[test]
fn a_wrong_hostname_is_one_finding_one_condition_and_one_event() {
    let mut world = World::new();
    world.settle();
    world.observation.machine.kernel_hostname = Fact::Known("wrong".to_owned());
    world.observation.machine.static_hostname = Fact::Known("wrong".to_owned());
    world.reasons = Reasons::new(Trigger::Hostname, world.uptime);
    let plan = world.plan();
    // It may be one of several consecutive changes: a round without reads follows after the debounce time.
    assert_eq!(
        (codes(&plan), plan.actions.as_slice()),
        (vec![], [].as_slice())
    );
    assert_eq!(plan.next.trigger, Trigger::Hostname);
    assert_eq!(
        (plan.next.after, plan.next.scope),
        (Duration::from_secs(2), Scope::VM)
    );
    world.apply(&plan);
    world.uptime += Duration::from_secs(1);
    let plan = world.plan();
    assert_eq!(
        (codes(&plan), plan.next.after),
        (vec![], Duration::from_secs(1))
    );
    world.uptime += Duration::from_secs(1);
    let plan = world.plan();
    assert_eq!(codes(&plan), [Code::HostnameDiffers]);
    let [Action::PatchConditions(patch)] = plan.actions.as_slice() else {
        panic!("{:?}", plan.actions)
    };
    assert_eq!(
        (patch.conditions[0].0.status, patch.conditions[0].0.reason),
        ("False", "HostnameDiffers")
    );
    assert_eq!(patch.announce.len(), 1);
    assert_eq!(patch.announce[0].kind, "Warning");
    world.apply(&plan);
    assert_eq!(world.plan().actions, []);
    // Another wrong name must not clear the finding, even for a short time.
    world.observation.machine.kernel_hostname = Fact::Known("wrong-too".to_owned());
    world.observation.machine.static_hostname = Fact::Known("wrong-too".to_owned());
    let plan = world.plan();
    assert_eq!(
        (codes(&plan), plan.actions),
        (vec![Code::HostnameDiffers], vec![])
    );
}

#[test]
fn a_changed_hostname_is_a_finding_after_the_debounce_of_the_configuration() {
    for (seconds, expected) in [(0, vec![Code::HostnameDiffers]), (60, vec![])] {
        let mut world = World::new();
        world.settings.timing.hostname_debounce = Duration::from_secs(seconds);
        world.settle();
        world.observation.machine.kernel_hostname = Fact::Known("wrong".to_owned());
        world.observation.machine.static_hostname = Fact::Known("wrong".to_owned());
        let plan = world.plan();
        world.apply(&plan);
        // More than the default of two seconds.
        world.uptime += Duration::from_secs(if seconds == 0 { 0 } else { 59 });
        assert_eq!(codes(&world.plan()), expected, "{seconds} s");
    }
}

#[test]
fn names_that_are_gone_cause_no_round_after_round() {
    let mut world = World::new();
    world.settle();
    let machine = &mut world.observation.machine;
    machine.kernel_hostname = Fact::Absent;
    machine.static_hostname = Fact::Absent;
    for _ in 0..3 {
        let plan = world.plan();
        world.apply(&plan);
        world.uptime += Duration::from_secs(60);
    }
    assert_ne!(world.plan().next.after, Duration::ZERO);
}

#[test]
fn all_is_read_again_at_the_poll_interval_of_the_configuration() {
    let mut world = World::new();
    world.settle();
    for (minutes, least, most) in [(1, 6, 72), (24 * 60, 8640, 95_040)] {
        world.settings.timing.poll = Duration::from_secs(minutes * 60);
        let after = world.plan().next.after.as_secs();
        assert!((least..=most).contains(&after), "{minutes} min: {after} s");
    }
}

#[test]
fn a_registered_node_is_never_asked_to_take_another_name() {
    let typed = |world: &World| -> Vec<String> {
        let plan = world.plan();
        let commands = plan.findings.iter().flat_map(Finding::commands);
        let texts = commands.map(|command| command.text.to_string());
        texts.filter(|text| text.contains("set-hostname")).collect()
    };
    let mut world = World::new();
    world.settle();
    world.memory = Memory::default();
    let name = |name: &str| Fact::Known(name.to_owned());
    world.observation.machine.kernel_hostname = name("localhost");
    world.observation.machine.static_hostname = name("wrong");
    let to_the_vm = format!("hostnamectl set-hostname {VM}");
    assert_eq!(typed(&world), [to_the_vm.as_str(), &to_the_vm]);
    if let Fact::Known(kubelet) = &mut world.observation.kubelet {
        kubelet.node_name = NodeName::parse("registered").unwrap();
    }
    assert_eq!(typed(&world), ["hostnamectl set-hostname registered"]);
}

#[test]
fn a_hostname_that_comes_back_in_time_is_no_finding_and_a_wrong_one_at_the_start_is_at_once() {
    let mut world = World::new();
    world.settle();
    let right = world.observation.machine.kernel_hostname.clone();
    world.observation.machine.kernel_hostname = Fact::Known("localhost".to_owned());
    let plan = world.plan();
    world.apply(&plan);
    world.uptime += Duration::from_millis(500);
    world.observation.machine.kernel_hostname = right;
    let plan = world.plan();
    assert_eq!(codes(&plan), []);
    world.apply(&plan);
    world.uptime += Duration::from_secs(3);
    let plan = world.plan();
    assert_eq!((codes(&plan), plan.actions), (vec![], vec![]));

    let mut world = World::new();
    world.observation.machine.kernel_hostname = Fact::Known("wrong".to_owned());
    world.observation.machine.static_hostname = Fact::Known("wrong".to_owned());
    assert_eq!(codes(&world.plan()), [Code::HostnameDiffers]);
}

#[test]
fn a_node_that_the_cloud_provider_cannot_find_may_be_deleted() {
    let found = |node_name: &str, provider_id: &str, state: UnitState| {
        let mut world = World::new();
        world.node().provider_id = Some(provider_id.to_owned());
        if let Fact::Known(kubelet) = &mut world.observation.kubelet {
            kubelet.node_name = NodeName::parse(node_name).unwrap();
        }
        if let Fact::Known(agent) = &mut world.observation.guest_agent
            && let Fact::Known(unit) = &mut agent.unit
        {
            unit.state = state;
        }
        let all = codes(&world.plan());
        let about = [Code::HostnameDiffers, Code::NodeMayBeDeleted];
        all.into_iter()
            .filter(|code| about.contains(code))
            .collect::<Vec<_>>()
    };
    let harvester = "harvester://vm-uid";
    assert_eq!(
        found("registered", harvester, UnitState::Inactive),
        [Code::NodeMayBeDeleted]
    );
    assert_eq!(
        found("registered", harvester, UnitState::Active),
        [Code::HostnameDiffers]
    );
    assert_eq!(
        found("registered", "k3s://registered", UnitState::Inactive),
        [Code::HostnameDiffers]
    );
    assert_eq!(found(VM, harvester, UnitState::Inactive), []);
}

#[test]
fn a_guest_agent_that_the_host_does_not_see_is_reported_after_a_minute() {
    let mut world = World::new();
    world.settle();
    world.vmi().guest_agent = HostView::Disconnected;
    let plan = world.plan();
    assert_eq!((codes(&plan), &plan.actions), (vec![], &vec![]));
    world.apply(&plan);
    world.uptime += Duration::from_secs(60);
    let plan = world.plan();
    assert_eq!(codes(&plan), [Code::GuestAgentNotConnected]);
    let is_told = |action: &Action| matches!(action, Action::PatchConditions(_));
    assert!(plan.actions.iter().any(is_told), "{:?}", plan.actions);
}

#[test]
fn a_hint_of_a_move_is_followed_until_the_api_has_caught_up() {
    let mut world = World::new();
    world.settle();
    world.reasons = Reasons::new(Trigger::Link, world.uptime);
    assert_eq!(new_hint(&world.memory, &world.reasons), Some(Trigger::Link));
    let plan = world.plan();
    assert_eq!(plan.window_end, None);
    assert_eq!(plan.next.trigger, Trigger::FastPoll);
    assert_eq!(plan.next.scope, Scope::VM);
    assert!(
        plan.next.after < Duration::from_millis(200),
        "{:?}",
        plan.next
    );
    world.apply(&plan);
    assert_eq!(
        new_hint(&world.memory, &world.reasons),
        None,
        "it is told once"
    );

    world.uptime += Duration::from_millis(100);
    world.reasons = Reasons::new(Trigger::FastPoll, world.uptime);
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    assert!(plan.window_end.is_none() && plan.moved.is_some());
    world.apply(&plan);

    world.reasons = Reasons {
        scope: Scope::NONE,
        ..world.reasons
    };
    let plan = world.plan();
    let window_end = plan.window_end.unwrap();
    assert_eq!(
        (window_end.took, window_end.reads),
        (Duration::from_millis(100), 2)
    );
    assert_eq!(window_end.outcome, WindowOutcome::Confirmed);
    assert_eq!(plan.memory.window, None);
    assert_eq!(plan.next.trigger, Trigger::Timer);
}

#[test]
fn a_migration_whose_node_cannot_be_read_is_not_over_and_counts_from_its_first_hint() {
    for (node, trigger) in [
        (
            Fact::failed(UnavailableKind::Unreachable, "503"),
            Trigger::Link,
        ),
        (
            Fact::failed(UnavailableKind::Forbidden, "403"),
            Trigger::Link,
        ),
        (Fact::Absent, Trigger::Link),
        (Fact::Absent, Trigger::Vmi),
    ] {
        let mut world = World::new();
        world.settle();
        let known = world.observation.node.clone();
        let began = world.uptime;
        world.reasons = Reasons::new(trigger, began);
        world.migrate("hv-b", "eu-1", "rack-b");
        world.observation.node = node;
        let plan = world.plan();
        assert!(plan.moved.is_some());
        assert_eq!(plan.window_end, None, "{:?}", plan.sync);
        assert_eq!(plan.memory.cause, Some((trigger, began)), "{:?}", plan.sync);
        world.apply(&plan);
        // The Node is back.
        world.uptime += Duration::from_secs(20);
        world.reasons = Reasons::new(Trigger::Timer, world.uptime);
        world.observation.node = known;
        let plan = world.plan();
        assert_eq!(patches(&plan).len(), 1);
        assert_eq!(plan.memory.cause, Some((trigger, began)));
    }
}

#[test]
fn a_read_for_another_reason_takes_the_window_on_when_one_is_due_and_never_leaves_it_behind() {
    let mut world = World::new();
    world.settle();
    world.reasons = Reasons::new(Trigger::Link, world.uptime);
    let plan = world.plan();
    world.apply(&plan);
    for _ in 0..3 {
        world.uptime += world.plan().next.after.max(Duration::from_millis(300));
        world.reasons = Reasons::new(Trigger::Operator, world.uptime);
        let plan = world.plan();
        assert_eq!(plan.next.trigger, Trigger::FastPoll);
        assert!(!plan.next.after.is_zero(), "a look that is due for ever");
        world.apply(&plan);
    }
}

#[test]
fn a_hint_after_its_migration_ends_at_once_with_the_known_result() {
    let mut world = World::new();
    world.settle();
    world.reasons = Reasons::new(Trigger::Vmi, world.uptime);
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    assert_eq!(plan.window_end, None);
    world.apply(&plan);
    world.uptime += Duration::from_secs(1);
    world.reasons = Reasons::new(Trigger::Link, world.uptime);
    let plan = world.plan();
    assert_eq!(plan.memory.window, None);
    let end = plan.window_end.clone().unwrap();
    let from = Some(super::fixtures::host("hv-a"));
    assert_eq!((end.from, end.outcome), (from, WindowOutcome::Confirmed));
    world.apply(&plan);
    world.reasons = world.reasons.again(world.uptime);
    assert_eq!(world.plan().window_end, None);
}

#[test]
fn a_round_that_reads_nothing_does_not_postpone_the_list() {
    let mut world = World::new();
    world.settle();
    let why = Unavailable::new(UnavailableKind::NotAsked, "no VM of our names");
    world.observation.candidates = Fact::Failed(Unavailable {
        retry_after: Some(Duration::from_secs(40)),
        ..why
    });
    world.reasons = Reasons::new(Trigger::Startup, world.uptime);
    world.memory = world.plan().memory;
    for trigger in [Trigger::Hostname, Trigger::Units, Trigger::EventSource] {
        world.uptime += Duration::from_secs(13);
        world.reasons = Reasons::new(trigger, world.uptime);
        world.memory = world.plan().memory;
    }
    assert_eq!(world.plan().next.after, Duration::from_secs(1));
}

#[test]
fn a_window_without_an_answer_has_no_retries_of_its_own_and_ends_in_them() {
    let mut world = World::new();
    world.settle();
    world.reasons = Reasons::new(Trigger::Link, world.uptime);
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "connection refused");
    let mut looks = 0;
    let ended = loop {
        let plan = world.plan();
        looks += 1;
        world.apply(&plan);
        if plan.window_end.is_some() {
            break plan;
        }
        assert_eq!(plan.next.trigger, Trigger::FastPoll);
        world.uptime += plan.next.after;
        world.reasons = Reasons::new(Trigger::FastPoll, world.uptime);
    };
    assert!(looks <= 11, "{looks} looks");
    assert_eq!(
        ended.window_end.unwrap().outcome,
        WindowOutcome::ApiUnavailable
    );
    let unanswered = Scope::FILES | Scope::VM;
    assert_eq!(
        (ended.next.trigger, ended.next.scope),
        (Trigger::Timer, unanswered),
        "an API that answers is not asked again"
    );
}

#[test]
fn without_a_source_every_attempt_and_the_rbac_that_would_help_are_named() {
    let mut world = World::new();
    world.answer(Source::HostNode, forbidden());
    let plan = world.plan();
    let finding = plan
        .findings
        .iter()
        .find(|finding| finding.code == Code::NoTopologySource);
    // The host label is being written. The finding follows in the next round.
    assert!(finding.is_none());
    world.apply(&plan);
    let plan = world.plan();
    let finding = plan
        .findings
        .iter()
        .find(|finding| finding.code == Code::NoTopologySource)
        .unwrap();
    for source in [
        "host-node: nodes is forbidden",
        "vmi-annotations: ",
        "launcher-pod: ",
        "configmap: ",
    ] {
        assert!(finding.seen.contains(source), "{}", finding.seen);
    }
    assert!(
        finding.remedy().contains("`harvester-node-agent rbac`"),
        "{}",
        finding.remedy()
    );
}

#[test]
fn a_value_that_cannot_be_a_label_is_named_and_nothing_is_written_for_it() {
    let mut world = World::new();
    world.answer(Source::HostNode, forbidden());
    world.annotate("hv-a", "eu-1", "rack-a");
    world.settle();
    world.migrate("hv-b", "", "");
    world.answer(Source::HostNode, forbidden());
    world.annotate("hv-b", "eu-1", "rack b");
    let plan = world.plan();
    assert!(patches(&plan).is_empty());
    assert_eq!(codes(&plan), [Code::LabelValueInvalid]);
    assert_eq!(
        conditions(&plan),
        [("HarvesterTopologySynced", "False", "LabelValueInvalid")]
    );
}

fn refused(action: Action, passing: bool, due: Duration) -> Vec<Refused> {
    vec![Refused {
        action,
        text: "refused".to_owned(),
        passing,
        count: 1,
        due,
    }]
}

#[test]
fn a_refusal_is_forgotten_when_its_change_is_not_wanted_any_more() {
    let mut world = World::new();
    let action = world.plan().actions.swap_remove(0);
    world.settle();
    world.memory.refusals = refused(action, false, Duration::ZERO);
    let plan = world.plan();
    assert_eq!(
        (codes(&plan), plan.memory.refusals, plan.actions.len()),
        (vec![], vec![], 0)
    );
}

#[test]
fn a_refusal_that_may_pass_changes_no_condition_and_one_that_stays_does() {
    let mut world = World::new();
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    let action = world.plan().actions.swap_remove(0);
    world.memory.refusals = refused(action.clone(), true, Duration::ZERO);
    let plan = world.plan();
    assert_eq!(
        (conditions(&plan).len(), codes(&plan)),
        (0, vec![Code::NodeWriteFailed])
    );
    world.memory.refusals = refused(action, false, Duration::ZERO);
    assert_eq!(
        conditions(&world.plan()),
        [("HarvesterTopologySynced", "False", "NodeWriteFailed")]
    );
}

#[test]
fn a_refused_write_waits_for_its_retry_whatever_else_happens() {
    let mut world = World::new();
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    let due = world.uptime + Duration::from_secs(30);
    world.memory = plan.memory;
    world.memory.refusals = refused(plan.actions[0].clone(), false, due);
    for trigger in [
        Trigger::Units,
        Trigger::Node,
        Trigger::Operator,
        Trigger::Hostname,
    ] {
        world.uptime += Duration::from_secs(5);
        world.reasons = Reasons::new(trigger, world.uptime);
        let plan = world.plan();
        assert!(patches(&plan).is_empty(), "{trigger:?}");
        assert!(
            world.uptime + plan.next.after <= due,
            "{trigger:?} puts off the retry"
        );
        world.memory = plan.memory;
    }
    // Another change is not the one that was refused.
    world.migrate("hv-a", "eu-1", "rack-z");
    assert_eq!(patches(&world.plan()).len(), 1);
    world.migrate("hv-b", "eu-1", "rack-b");
    world.uptime = due;
    assert_eq!(patches(&world.plan()).len(), 1);
}

#[test]
fn a_source_that_changes_all_the_time_does_not_make_the_agent_write_all_the_time() {
    let mut world = World::new();
    world.settle();
    let began = world.uptime;
    let mut written = 0;
    let mut limited = None;
    for round in 0..600 {
        world.uptime += Duration::from_millis(500);
        world.reasons = Reasons::new(Trigger::Vmi, world.uptime);
        world.migrate(
            ["hv-b", "hv-a"][round % 2],
            "eu-1",
            ["rack-b", "rack-a"][round % 2],
        );
        let plan = world.plan();
        written += plan
            .actions
            .iter()
            .filter(|action| action.is_sent())
            .count();
        if matches!(plan.doing, Doing::Withheld(_)) {
            limited.get_or_insert_with(|| (codes(&plan), plan.next, conditions(&plan).len()));
        }
        world.apply(&plan);
    }
    let minutes = (world.uptime - began).as_secs() as usize / 60;
    assert!(
        written <= 240 + 2 * minutes + 1,
        "{written} in {minutes} minutes"
    );
    let (codes, next, conditions) = limited.unwrap();
    assert!(codes.contains(&Code::TopologyFlapping), "{codes:?}");
    assert!(next.after <= Duration::from_secs(30), "{next:?}");
    assert_eq!(conditions, 0);
}

#[test]
fn a_host_that_cannot_be_read_just_now_is_tried_again_soon_and_changes_no_condition() {
    let mut world = World::new();
    world.settle();
    world.migrate("hv-b", "", "");
    world.answer(
        Source::HostNode,
        Fact::failed(UnavailableKind::Unreachable, "503"),
    );
    let plan = world.plan();
    assert!(
        plan.next.after <= Duration::from_millis(500),
        "{:?}",
        plan.next
    );
    assert_eq!(
        (plan.actions.len(), codes(&plan)),
        (0, vec![Code::HarvesterUnreachable])
    );
}

#[test]
fn a_restart_does_not_report_an_old_migration_again() {
    let mut world = World::new();
    world.settle();
    world.migrate("hv-b", "eu-2", "");
    let reported = world.plan();
    assert!(
        reported.moved.is_some()
            && reported
                .actions
                .iter()
                .all(|action| action.write() != Write::Node)
    );
    world.memory = Memory {
        last_migration: reported.memory.last_migration,
        ..Memory::default()
    };
    assert_eq!(world.plan().moved, None);
}

#[test]
fn the_name_of_another_vm_stays_dangerous_while_harvester_is_away() {
    let mut world = World::new();
    world.add_vmi(|other| {
        other.name = VmName::parse("other").unwrap();
        other.firmware_uuid = None;
        other.macs = [crate::facts::nic::Mac::parse("6e:22:41:9c:0a:99").unwrap()].into();
    });
    world.observation.machine.kernel_hostname = Fact::Known("other".to_owned());
    world.settle();
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "timeout");
    assert_eq!(world.identity().verdict, name_match::Verdict::AnotherVm);
    assert!(
        conditions(&world.plan())
            .iter()
            .all(|(kind, ..)| *kind != "HarvesterIdentityVerified")
    );
}

#[test]
fn a_restored_label_ends_the_conflict_and_a_recreated_node_has_none() {
    let mut world = World::new();
    world.settle();
    for _ in 0..6 {
        world
            .node()
            .labels
            .insert(ZONE.to_owned(), "rival".to_owned());
        let plan = world.plan();
        world.apply(&plan);
    }
    assert_eq!(codes(&world.plan()), [Code::LabelConflict]);
    let mut peace = world.clone();
    peace
        .node()
        .labels
        .insert(ZONE.to_owned(), "rack-a".to_owned());
    assert_eq!(codes(&peace.plan()), []);
    world.node().uid = "made-anew".to_owned();
    world.node().labels.clear();
    assert_eq!(
        patches(&world.plan())[0].labels[ZONE]
            .as_ref()
            .map(LabelValue::as_str),
        Some("rack-a")
    );
}

#[test]
fn a_rival_is_fought_three_times_and_then_named() {
    let mut world = World::new();
    world
        .node()
        .labels
        .insert(ZONE_BETA.to_owned(), "rack-a".to_owned());
    world.settle();
    let mut writes = 0;
    for _ in 0..20 {
        world
            .node()
            .labels
            .insert(ZONE.to_owned(), "rival".to_owned());
        world
            .node()
            .managers
            .insert(ZONE.to_owned(), "kubectl-label".to_owned());
        let plan = world.plan();
        writes += patches(&plan).len();
        world.apply(&plan);
        world.uptime += Duration::from_secs(1);
    }
    assert_eq!(writes, 2);
    let plan = world.plan();
    assert_eq!(codes(&plan), [Code::LabelConflict]);
    let seen = format!("`kubectl-label` keeps reverting {ZONE}");
    assert_eq!(plan.findings[0].seen, seen);
    let text = "`kubectl-label` keeps reverting the labels".to_owned();
    let state = LabelState::Explained {
        code: Code::LabelConflict,
        message: text,
        seen: None,
    };
    assert_eq!(plan.sync, state);
    // The next attempt is a round of its own, however late the poll is.
    world.memory.agenda = super::agenda::Agenda::default();
    world.settings.timing.poll = Duration::from_secs(86_400);
    let next = world.plan().next;
    assert!(next.after <= Duration::from_secs(3960), "{next:?}");
    world.uptime += next.after;
    assert_eq!(patches(&world.plan()).len(), 1);
}

#[test]
fn a_conflict_is_one_finding_and_one_condition_over_all_migrations_and_ends_with_its_writer() {
    let mut world = World::new();
    world.settle();
    let revert = |world: &mut World| {
        let node = world.node();
        node.labels.insert(ZONE.to_owned(), "rack-x".to_owned());
        node.managers
            .insert(ZONE.to_owned(), "kubectl-label".to_owned());
    };
    let found = |world: &World| codes(&world.plan()).contains(&Code::LabelConflict);
    let reported = |world: &World| {
        let conditions = &world.observation.node.known().unwrap().conditions;
        let mut topology = conditions
            .iter()
            .filter(|one| *one.kind == *conditions::TOPOLOGY);
        topology.next().and_then(|one| one.reason.clone())
    };
    for _ in 0..4 {
        revert(&mut world);
        let plan = world.plan();
        world.apply(&plan);
        world.uptime += Duration::from_secs(1);
    }
    world.settle();
    assert!(found(&world));
    for (host, zone) in [("hv-b", "rack-b"), ("hv-c", "rack-c"), ("hv-b", "rack-b")] {
        // Harvester writes the annotations of the new host later.
        world.annotate("hv-a", "eu-1", "rack-a");
        world.migrate(host, "eu-1", zone);
        world.reads = Reads::none(HostName::parse(host).unwrap());
        let plan = world.plan();
        assert!(patches(&plan).is_empty());
        assert!(codes(&plan).contains(&Code::LabelConflict));
        world.apply(&plan);
        world.annotate(host, "eu-1", zone);
        world.migrate(host, "eu-1", zone);
        let plan = world.plan();
        assert_eq!(
            patches(&plan)[0].labels[ZONE]
                .as_ref()
                .map(LabelValue::as_str),
            Some(zone)
        );
        assert!(codes(&plan).contains(&Code::LabelConflict));
        world.apply(&plan);
        world.settle();
        assert!(found(&world), "the labels match for a moment");
        assert_eq!(reported(&world).as_deref(), Some("LabelConflict"));
        world.uptime += Duration::from_secs(1);
        revert(&mut world);
        assert!(found(&world) && patches(&world.plan()).is_empty());
        world.settle();
        assert_eq!(reported(&world).as_deref(), Some("LabelConflict"));
        world.uptime += Duration::from_secs(60);
    }
    world.migrate("hv-a", "eu-1", "rack-a");
    world.settle();
    for _ in 0..3 {
        assert!(found(&world));
        world.uptime += Duration::from_secs(6 * 60);
        let plan = world.plan();
        world.apply(&plan);
    }
    world.settle();
    assert!(!found(&world));
    assert_eq!(reported(&world).as_deref(), Some("Synced"));
}

/// Returns the number of patches in 100 rounds within an hour with a conflicting writer, and the world after them.
fn fought(mut world: World, spoil: impl Fn(&mut World, u32)) -> (usize, World) {
    world.settle();
    let mut writes = 0;
    for round in 0..100 {
        spoil(&mut world, round);
        let plan = world.plan();
        writes += patches(&plan).len();
        world.apply(&plan);
        world.uptime += Duration::from_secs(35);
    }
    (writes, world)
}

fn strip(world: &mut World) {
    world
        .node()
        .annotations
        .retain(|key, _| !key.starts_with(ANNOTATION_PREFIX));
}

#[test]
fn a_rival_of_our_annotations_costs_a_few_patches_an_hour_and_is_named() {
    let (writes, mut world) = fought(World::new(), |world, _| strip(world));
    assert_eq!(writes, 2);
    let plan = world.plan();
    assert_eq!(
        (plan.actions.len(), codes(&plan)),
        (0, vec![Code::LabelConflict])
    );
    // The labels match all the time.
    assert_eq!(plan.sync, LabelState::Synced);
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    assert_eq!(patches(&plan)[0].annotations[ANNOTATION_HOST], "hv-b");
    assert_eq!(codes(&plan), [Code::LabelConflict]);
    world.apply(&plan);
    strip(&mut world);
    assert!(patches(&world.plan()).is_empty());

    let overwritten = fought(World::new(), |world, round| {
        let node = world.node();
        node.managers
            .insert(ANNOTATION_OWNED.to_owned(), "clone".to_owned());
        node.annotations.insert(
            ANNOTATION_OWNED.to_owned(),
            format!(r#"{{"{ZONE_BETA}":"z{round}"}}"#),
        );
    });
    assert_eq!(overwritten.0, 2);
    assert!(overwritten.1.plan().findings[0].seen.contains("`clone`"));
}

#[test]
fn an_intermittent_conflict_also_stops_writes() {
    let (writes, world) = fought(World::new(), |world, round| match round % 2 {
        0 => strip(world),
        // The same as written, so that no change is needed.
        _ => {
            let mut calm = World::new();
            calm.settle();
            let annotations = calm.node().annotations.clone();
            world.node().annotations = annotations;
        }
    });
    assert!(writes <= 3, "{writes} patches");
    let mut late = world;
    late.settle();
    // The time without conflicts must be long enough.
    for _ in 0..2 {
        let plan = late.plan();
        late.apply(&plan);
        late.uptime += Duration::from_secs(11 * 60);
    }
    strip(&mut late);
    assert_eq!(patches(&late.plan()).len(), 1);
}

#[test]
fn a_rival_that_adds_a_label_that_we_removed_is_left_alone() {
    let mut world = World::new();
    world.settings.topology.remove_stale = true;
    world.settle();
    world.answer(Source::HostNode, Fact::Known(host_labels("eu-1", "")));
    let (writes, world) = fought(world, |world, _| {
        let node = world.node();
        node.labels.insert(ZONE.to_owned(), "rack-a".to_owned());
        let owned =
            node.annotations[ANNOTATION_OWNED].replace('{', &format!(r#"{{"{ZONE}":"rack-a","#));
        node.annotations.insert(ANNOTATION_OWNED.to_owned(), owned);
    });
    assert_eq!(writes, 2);
    assert_eq!(codes(&world.plan()), [Code::LabelConflict]);
}

#[test]
fn a_switched_off_report_writes_neither_conditions_nor_annotations() {
    let mut world = World::new();
    world.settings.report.node_conditions = false;
    world.settings.report.annotations = false;
    world.settings.report.events = false;
    let plan = world.plan();
    // The next decision needs the owned labels and their host, whatever is reported.
    let annotations: Vec<&String> = patches(&plan)[0].annotations.keys().collect();
    assert_eq!(annotations, [ANNOTATION_HOST, ANNOTATION_OWNED]);
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    assert_eq!((plan.actions.len(), conditions(&plan).len()), (1, 0));
    assert_eq!(patches(&plan)[0].announce, None);
}

#[test]
fn trouble_is_tried_again_sooner_than_the_poll_and_as_late_as_the_server_asks() {
    let mut world = World::new();
    world.settle();
    assert!(world.plan().next.after >= Duration::from_secs(60));
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "503");
    assert!(world.plan().next.after <= Duration::from_millis(500));
    let why = Unavailable {
        retry_after: Some(Duration::from_secs(30)),
        ..Unavailable::new(UnavailableKind::Unreachable, "429")
    };
    world.observation.candidates = Fact::Failed(why);
    assert!(world.plan().next.after >= Duration::from_secs(30));
}

#[test]
fn files_that_the_kernel_could_not_read_are_read_again_soon_whatever_the_round() {
    let mut world = World::new();
    world.settings.timing.poll = Duration::from_secs(86_400);
    world.settle();
    world.observation.is_unread = true;
    let mut waits = Vec::new();
    for _ in 0..12 {
        // The watch delivers what the labels need, so nothing else has to be retried.
        world.reasons = Reasons::new(Trigger::Vmi, world.uptime);
        let plan = world.plan();
        let due = world.uptime + plan.next.after;
        assert!(plan.next.scope.contains(Scope::LOCAL));
        world.memory = plan.memory;
        // A round that reads no files postpones nothing.
        world.uptime += plan.next.after / 2;
        let plan = world.plan();
        assert_eq!(world.uptime + plan.next.after, due);
        world.memory = plan.memory;
        waits.push(due.saturating_sub(world.uptime) * 2);
        world.uptime = due;
        world.reasons = Reasons::new(Trigger::Timer, due);
        world.reasons.scope = plan.next.scope;
        world.memory = world.plan().memory;
    }
    assert!(waits.is_sorted() && waits.iter().all(|wait| *wait <= Duration::from_secs(60)));
    world.observation.is_unread = false;
    let plan = world.plan();
    let failures = plan.memory.agenda.failures(Job::Unread);
    assert!(failures == 0 && plan.next.after > Duration::from_secs(60));
}

#[test]
fn a_round_without_requests_does_not_postpone_a_retry() {
    let mut world = World::new();
    world.settle();
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "503");
    for _ in 0..9 {
        world.memory.agenda.count(Job::Retry, true, true);
    }
    let before = world.plan();
    let passed = before.next.after / 2;
    world.memory = before.memory;
    world.uptime += passed;
    world.reasons = Reasons::new(Trigger::Hostname, world.uptime);
    let after = world.plan();
    assert_eq!(after.next.after, before.next.after - passed);
    assert_eq!(after.memory.agenda.failures(Job::Retry), 10);
}

#[test]
fn a_credential_that_ends_soon_is_named_with_a_date_and_the_days_that_are_left() {
    let mut world = World::new();
    let Fact::Known(harvester) = &mut world.observation.harvester else {
        panic!()
    };
    harvester.expires = Some(1_795_000_000 + 5 * 86_400);
    let plan = world.plan();
    let finding = plan
        .findings
        .iter()
        .find(|finding| finding.code == Code::CredentialExpires)
        .unwrap();
    assert!(finding.seen.ends_with(", in 5 days"), "{}", finding.seen);
}

#[test]
fn a_credential_that_has_ended_is_the_cause_of_its_refusal_and_of_no_other() {
    let ended = |harvester: i64, kubelet: i64| {
        let mut world = World::new();
        let (Fact::Known(token), Fact::Known(certificate)) = (
            &mut world.observation.harvester,
            &mut world.observation.kubelet,
        ) else {
            panic!()
        };
        token.expires = Some(1_795_000_000 + harvester);
        certificate.expires = Some(1_795_000_000 + kubelet);
        world
    };
    let codes = |world: &World| -> Vec<Code> {
        let findings = world.plan().findings;
        findings.iter().map(|finding| finding.code).collect()
    };
    let (day, year) = (86_400, 365 * 86_400);
    let mut world = ended(-day, year);
    world.observation.candidates = Fact::failed(UnavailableKind::Credential, "401");
    assert_eq!(codes(&world), [Code::HarvesterCredentialExpired]);
    let consequences = world.plan().consequences.into_iter();
    let consequences: Vec<Code> = consequences.map(|finding| finding.code).collect();
    assert_eq!(consequences, [Code::HarvesterUnauthorized]);
    let mut world = ended(year, -day);
    world.observation.node = Fact::failed(UnavailableKind::Credential, "401");
    assert_eq!(codes(&world), [Code::KubeletCredentialExpired]);
    // A credential that has not expired is refused for another reason.
    let mut world = ended(-day, year);
    world.observation.candidates = Fact::failed(UnavailableKind::Credential, "401");
    world.observation.node = Fact::failed(UnavailableKind::Credential, "401");
    assert_eq!(
        codes(&world),
        [Code::HarvesterCredentialExpired, Code::GuestApiUnauthorized]
    );
    // A credential that a server accepts has not expired: one of the two clocks is wrong.
    assert_eq!(codes(&ended(-day, year)), [Code::ClockDrift]);
    assert_eq!(codes(&ended(year, -day)), [Code::ClockDrift]);
    assert_eq!(codes(&ended(-5, -5)), []);
}

#[test]
fn times_are_written_as_kubernetes_does() {
    assert_eq!(
        rfc3339(UtcDateTime::from_unix_timestamp(0).unwrap()),
        "1970-01-01T00:00:00Z"
    );
    assert_eq!(
        rfc3339(UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap()),
        "2026-11-18T11:06:40Z"
    );
}

#[test]
fn a_hostname_that_several_vms_may_have_is_searched_for_soon_after_a_start() {
    let mut world = World::new();
    world.settle();
    let name = Fact::Known("web".to_owned());
    world.observation.machine.kernel_hostname = name.clone();
    world.observation.machine.static_hostname = name;
    world.vmi().name = VmName::parse("web.prod-2").unwrap();
    world.memory = Memory::default();
    let plan = world.plan();
    assert!(plan.next.scope.contains(Scope::SEARCH) && plan.next.after <= Duration::from_secs(60));
    let due = world.uptime + plan.next.after;
    world.apply(&plan);
    // Another round does not postpone it.
    world.uptime += plan.next.after / 2;
    world.reasons = Reasons::new(Trigger::Hostname, world.uptime);
    let plan = world.plan();
    assert!(plan.next.scope.contains(Scope::SEARCH) && world.uptime + plan.next.after <= due);
    world.apply(&plan);
    world.uptime = due;
    world.reasons = Reasons::new(Trigger::Timer, due);
    world.reasons.scope = plan.next.scope;
    assert!(!world.plan().next.scope.contains(Scope::SEARCH));
}

#[test]
fn a_vm_that_only_a_name_and_a_mac_address_identify_is_compared_with_all_others_once() {
    let mut world = World::new();
    world.settle();
    world.memory = Memory::default();
    assert!(!world.plan().next.scope.contains(Scope::SEARCH));
    world.observation.machine.product_uuid = Fact::Absent;
    let plan = world.plan();
    assert!(plan.next.scope.contains(Scope::SEARCH) && plan.next.after <= Duration::from_secs(60));
    // A search that fails is repeated later and later.
    let known = world.observation.candidates.clone();
    let mut waits = Vec::new();
    let mut plan = plan;
    for _ in 0..3 {
        world.apply(&plan);
        world.uptime += plan.next.after;
        world.reasons = Reasons::new(Trigger::Timer, world.uptime);
        world.reasons.scope |= Scope::SEARCH;
        world.observation.candidates = Fact::Failed(Unavailable::new(
            UnavailableKind::Unreachable,
            "the list timed out",
        ));
        plan = world.plan();
        world.observation.candidates = known.clone();
        world.apply(&plan);
        world.reasons = Reasons::new(Trigger::Hostname, world.uptime);
        plan = world.plan();
        waits.push(plan.memory.agenda.due(Job::Search).unwrap() - world.uptime);
    }
    assert!(
        waits[0] >= Duration::from_secs(600) && waits[1] > waits[0],
        "{waits:?}"
    );
    world.apply(&plan);
    world.reasons = Reasons::new(Trigger::Timer, world.uptime);
    world.reasons.scope |= Scope::SEARCH;
    // A list that failed found no others.
    if let Fact::Known(candidates) = &mut world.observation.candidates {
        candidates.coverage = Coverage::Listed;
    }
    assert!(!world.plan().memory.has_searched);
    world.observation.candidates = known;
    let plan = world.plan();
    assert!(plan.memory.has_searched);
    assert_eq!(plan.memory.agenda.due(Job::Search), None);
}

#[test]
fn a_setting_that_names_a_missing_file_has_steps_of_its_own() {
    let mut world = World::new();
    world.observation.harvester = Fact::failed(UnavailableKind::Missing, "no kubeconfig");
    world.observation.kubelet = Fact::failed(UnavailableKind::Missing, "no kubeconfig");
    let codes = [
        Code::HarvesterCredentialMissing,
        Code::KubeletCredentialMissing,
    ];
    let steps = |world: &World| {
        let plan = world.plan();
        codes.map(|code| {
            let found = plan.findings.iter().find(|one| one.code == code).unwrap();
            (found.remedy(), found.commands()[0].text.to_string())
        })
    };
    for (code, (steps, command)) in codes.iter().zip(steps(&world)) {
        assert_eq!(steps, code.entry().fix.join(" "));
        assert_eq!(command, code.entry().commands[0].text);
    }
    world.settings.harvester.kubeconfig = "/etc/mine".to_owned().try_into().ok();
    world.settings.guest.kubeconfig = "/etc/own".to_owned().try_into().ok();
    for (steps, command) in steps(&world) {
        assert!(steps.contains("no other path is searched") && !steps.contains("Rancher"));
        assert_eq!(command, "harvester-node-agent config show");
    }
}

#[test]
fn what_is_in_the_place_of_a_kubeconfig_is_neither_copied_nor_overwritten() {
    let mut world = World::new();
    world.observation.harvester = Fact::failed(UnavailableKind::Malformed, "no file");
    world.observation.kubelet = Fact::failed(UnavailableKind::Directory, "no file");
    let plan = world.plan();
    let found = |code| plan.findings.iter().find(|one| one.code == code).unwrap();
    let harvester = found(Code::HarvesterCredentialInvalid).commands();
    let text: Vec<&str> = harvester.iter().map(|command| &*command.text).collect();
    let text = text.join("\n");
    assert!(text.starts_with("ls -la <KUBECONFIG>"), "{text}");
    assert!(text.ends_with("--write <KUBECONFIG>"), "{text}");
    for part in ["rmdir", "--replace", "install "] {
        assert!(!text.contains(part), "{text}");
    }
    let kubelet = found(Code::KubeletCredentialInvalid).remedy();
    assert!(kubelet.contains("a container that mounts"), "{kubelet}");
}

#[test]
fn what_a_watch_will_report_is_not_asked_for_meanwhile() {
    let mut world = World::new();
    world.settle();
    let away = |is_watched| {
        let why = Unavailable::new(UnavailableKind::Unreachable, "connection refused");
        Fact::Failed(Unavailable { is_watched, ..why })
    };
    world.reasons = Reasons::new(Trigger::Vmi, world.uptime);
    world.observation.candidates = away(false);
    assert!(world.plan().next.after <= Duration::from_secs(60));
    assert!(codes(&world.plan()).contains(&Code::HarvesterUnreachable));
    world.observation.candidates = away(true);
    assert!(world.plan().next.after >= Duration::from_secs(60));
    assert!(codes(&world.plan()).contains(&Code::HarvesterUnreachable));
}

#[test]
fn a_namespace_that_is_listed_later_is_looked_at_then() {
    let mut world = World::new();
    world.settle();
    let later = Duration::from_secs(34);
    let why = Unavailable::new(
        UnavailableKind::NotAsked,
        "no VM of our names is this machine",
    );
    world.observation.candidates = Fact::Failed(Unavailable {
        retry_after: Some(later),
        ..why
    });
    let plan = world.plan();
    assert_eq!(plan.next.after, later);
    assert!(plan.next.scope.contains(Scope::VM));
    assert!(patches(&plan).is_empty());
}

#[test]
fn a_kubeconfig_of_the_own_api_is_the_reason_whatever_that_api_said() {
    for kind in [
        UnavailableKind::Forbidden,
        UnavailableKind::Refused,
        UnavailableKind::NotAsked,
    ] {
        let mut world = World::new();
        world.observation.harvester = Fact::failed(UnavailableKind::OwnApi, "the same UID");
        world.observation.candidates = Fact::failed(kind, "no");
        let plan = world.plan();
        assert_eq!(plan.sync.reason(), "HarvesterIsOwnApi", "{kind:?}");
    }
}

#[test]
fn a_vm_that_another_cluster_runs_is_not_a_deleted_one() {
    let mut world = World::new();
    world.settle();
    let labels = world.node().labels.clone();
    let candidates = world.observation.candidates.clone();
    world.observation.candidates = Fact::Known(Candidates {
        vmis: Vec::new(),
        coverage: Coverage::Namespace,
    });
    let plan = world.plan();
    assert_eq!(codes(&plan), [Code::VmMovedAway]);
    world.settle();
    assert_eq!(world.node().labels, labels);
    // The credential of the new cluster shows the VM with another UID, on a host of that cluster.
    world.observation.candidates = candidates;
    world.change_vmi(|vmi| vmi.uid = "new-uid".to_owned());
    world.migrate("other-a", "eu-2", "rack-z");
    world.settle();
    assert_eq!(world.node().labels[ZONE], "rack-z");
    assert_eq!(codes(&world.plan()), []);
}

#[test]
fn a_vm_that_was_never_found_has_not_moved_away() {
    let mut world = World::new();
    world.observation.candidates = Fact::Known(Candidates {
        vmis: Vec::new(),
        coverage: Coverage::Namespace,
    });
    assert_eq!(codes(&world.plan()), [Code::VmNotFound]);
}

#[test]
fn a_node_that_was_deleted_is_told_from_one_that_has_not_registered() {
    let missing = |world: &World| {
        let plan = world.plan();
        let mut findings = plan.findings.into_iter();
        findings
            .find(|finding| finding.code == Code::NodeMissing)
            .unwrap()
    };
    let mut world = World::new();
    world.observation.node = Fact::Absent;
    let finding = missing(&world);
    assert!(!finding.seen.contains("deleted"), "{}", finding.seen);
    let mut world = World::new();
    world.settle();
    world.observation.node = Fact::Absent;
    let finding = missing(&world);
    assert!(
        finding.seen.contains("it existed and was deleted"),
        "{}",
        finding.seen
    );
    let steps = finding.remedy();
    assert!(
        steps.contains("A running kubelet does not register its Node again"),
        "{steps}"
    );
}

/// Follows the plan for a number of rounds, and returns all that they would read.
fn follow(world: &mut World, rounds: u32) -> Scope {
    let mut read = Scope::NONE;
    for _ in 0..rounds {
        let plan = world.plan();
        world.uptime += plan.next.after;
        world.reasons = Reasons::new(plan.next.trigger, world.uptime);
        world.reasons.scope = plan.next.scope;
        read |= plan.next.scope;
        world.memory = plan.memory;
    }
    read
}

#[test]
fn what_fails_for_hours_keeps_nothing_else_from_being_read() {
    let mut world = World::new();
    world.settle();
    world.observation.pod_info = Fact::failed(UnavailableKind::Unreachable, "a hung disk");
    let read = follow(&mut world, 200);
    assert!(
        read.contains(Scope::HOST | Scope::NODE | Scope::VM),
        "{read:?}"
    );
}

#[test]
fn a_refused_removal_waits_for_its_retry_whatever_the_version_of_the_node() {
    let mut world = World::new();
    world.settle();
    world.settings.topology.host_label = None;
    let action = world.plan().actions.swap_remove(0);
    assert!(matches!(&action, Action::PatchNode(patch) if patch.resource_version.is_some()));
    let due = world.uptime + Duration::from_secs(200);
    world.memory.refusals = refused(action, false, due);
    for version in ["8", "9"] {
        world.node().resource_version = Some(version.to_owned());
        assert!(patches(&world.plan()).is_empty(), "{version}");
    }
    world.uptime = due;
    assert_eq!(patches(&world.plan()).len(), 1);
}

#[test]
fn conditions_that_were_too_many_are_sent_when_they_may_be() {
    let mut world = World::new();
    world.settle();
    let mut left = None;
    while left.is_none() {
        world.memory.report_writes.note(world.uptime);
        left = world.memory.report_writes.left(world.uptime);
    }
    let plan = world.plan();
    assert!(Some(plan.next.after) <= left, "{:?}", plan.next);
}

#[test]
fn a_unit_starts_after_the_labels() {
    let mut world = World::new();
    world.settle();
    world.settings.guest_agent.start = true;
    if let Fact::Known(agent) = &mut world.observation.guest_agent
        && let Fact::Known(unit) = &mut agent.unit
    {
        unit.state = UnitState::Inactive;
    }
    world.memory = world.plan().memory;
    world.uptime += Duration::from_secs(10);
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    let kinds: Vec<Write> = plan.actions.iter().map(Action::write).collect();
    assert_eq!(kinds.first(), Some(&Write::Node), "{kinds:?}");
    assert!(kinds.contains(&Write::Unit), "{kinds:?}");
}
