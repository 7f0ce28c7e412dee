// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::*;
use crate::decide::Plan;
use crate::decide::agenda::Job;
use crate::decide::fixtures::World;

fn codes(plan: &Plan) -> Vec<&'static str> {
    let codes = plan.findings.iter().map(|found| found.code.as_str());
    codes.collect()
}

/// One round that reads the Node, `seconds` after the start, while the kubelet with this UUID reports it.
fn report(world: &mut World, seconds: u64, uuid: Uuid) -> Plan {
    world.uptime = Duration::from_secs(seconds);
    world.reasons.scope |= Scope::NODE;
    world.node().system_uuid = Some(uuid);
    let plan = world.plan();
    world.memory = plan.memory.clone();
    plan
}

#[test]
fn two_kubelets_that_report_one_node_in_turn_cost_no_write_and_are_one_finding() {
    let other = Uuid::from_u128(7);
    let mut world = World::new();
    let ours = *world.observation.machine.product_uuid.known().unwrap();
    let mut texts = std::collections::BTreeSet::new();
    for round in 0..60 {
        let uuid = [other, ours][round % 2];
        let plan = report(&mut world, 100 + round as u64 * 10, uuid);
        assert_eq!(plan.actions, [], "{round}");
        assert_eq!(codes(&plan), ["node-of-another-vm"], "{round}");
        if round > 2 {
            texts.insert(plan.findings[0].seen.clone());
        }
        assert!(
            plan.next.after <= Duration::from_secs(60),
            "{:?}",
            plan.next
        );
    }
    assert_eq!(texts.len(), 1, "{texts:#?}");
    assert!(texts.first().unwrap().contains("in turn"), "{texts:?}");
    // The other one is stopped.
    for seconds in [700, 800, 900, 980] {
        assert_eq!(report(&mut world, seconds, ours).actions, [], "{seconds}");
    }
    assert_eq!(report(&mut world, 1001, ours).actions.len(), 1);
}

#[test]
fn a_round_that_does_not_read_the_node_does_not_postpone_its_read() {
    let mut world = World::new();
    let ours = *world.observation.machine.product_uuid.known().unwrap();
    report(&mut world, 100, Uuid::from_u128(7));
    let due = Some(Duration::from_secs(165));
    report(&mut world, 160, ours);
    world.reasons.scope = Scope::NONE;
    for seconds in 160..165 {
        world.uptime = Duration::from_secs(seconds);
        world.memory = world.plan().memory;
        assert_eq!(world.memory.agenda.due(Job::Reporter), due, "{seconds}");
    }
}

#[test]
fn the_kubelet_of_this_machine_that_starts_late_has_its_labels_soon() {
    let other = Uuid::from_u128(7);
    let mut world = World::new();
    let ours = *world.observation.machine.product_uuid.known().unwrap();
    report(&mut world, 100, other);
    // A read that was not repeated proves nothing.
    let mut plan = report(&mut world, 160, ours);
    let mut seconds = 160;
    while plan.actions.is_empty() {
        assert!(
            plan.next.scope.contains(Scope::NODE) && plan.next.after <= Duration::from_secs(5),
            "{:?}",
            plan.next
        );
        seconds += 5;
        assert!(seconds <= 200, "no labels");
        plan = report(&mut world, seconds, ours);
    }
    assert!(seconds >= 185, "{seconds}");
}
