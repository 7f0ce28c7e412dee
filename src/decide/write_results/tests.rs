// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::*;
use crate::decide::fixtures::{World, now};
use crate::decide::label_state::LabelState;
use crate::facts::guest_agent::UnitState;
use crate::facts::trigger::Reasons;
use crate::facts::{Fact, UnavailableKind};

const UPTIME: Duration = Duration::from_secs(100);

/// Returns the plan for a Node without labels.
fn plan() -> Plan {
    let plan = World::new().plan();
    let writes: Vec<Write> = plan.actions.iter().map(Action::write).collect();
    assert_eq!(writes, [Write::Node]);
    plan
}

fn refused(passing: bool, retry_after: Option<u64>) -> WriteResult {
    Err(Refusal {
        text: "no".to_owned(),
        passing,
        retry_after: retry_after.map(Duration::from_secs),
        is_deferred: false,
    })
}

/// Returns the plan after its first action.
fn tried(plan: &Plan, result: &WriteResult) -> Plan {
    let mut after = plan.clone();
    after.tried(&plan.actions[0], result, now(UPTIME));
    after
}

#[test]
fn a_failed_write_is_retried_after_the_longer_of_backoff_and_what_the_server_asked_for() {
    let mut plan = plan();
    plan.next.after = Duration::from_secs(3600);
    let after = |passing, retry_after| {
        let tried = tried(&plan, &refused(passing, retry_after));
        let [refused] = tried.memory.refusals.as_slice() else {
            panic!("{:?}", tried.memory.refusals)
        };
        assert_eq!((refused.passing, refused.count), (passing, 1));
        let next = tried.next;
        assert_eq!(refused.due, UPTIME + next.after);
        assert_eq!((next.trigger, next.scope), (Trigger::Timer, Scope::REFUSED));
        next.after
    };
    let random = now(UPTIME).random;
    let backoff = schedule::retry(1, None, random);
    assert_eq!(after(true, None), backoff);
    assert_eq!(after(true, Some(600)), Duration::from_secs(600));
    assert_eq!(after(true, Some(0)), backoff);
    assert_eq!(after(false, None), schedule::retry_refused(1, random));
    // During the backoff of an API, the retry waits until the backoff ends.
    let deferred = Err(Refusal {
        is_deferred: true,
        retry_after: Some(Duration::ZERO),
        ..Refusal::passing("timeout")
    });
    assert_eq!(tried(&plan, &deferred).next.after, Duration::ZERO);
    // An attempt that was not sent is none.
    plan.memory = tried(&plan, &refused(true, None)).memory;
    let again = tried(&plan, &deferred);
    assert_eq!(again.memory.refusals[0].count, 1);
}

#[test]
fn a_failed_write_is_retried_before_the_next_read_of_a_window_and_delays_none() {
    let mut plan = plan();
    plan.next.trigger = Trigger::FastPoll;
    plan.next.after = Duration::from_secs(30);
    let next = tried(&plan, &refused(true, None)).next;
    let backoff = schedule::retry(1, None, now(UPTIME).random);
    assert_eq!((next.after, next.scope), (backoff, Scope::REFUSED));
    plan.next.after = backoff / 2;
    let soon = tried(&plan, &refused(true, None));
    assert_eq!(soon.next, plan.next);
}

/// Plays a round in which the API refuses each write. Returns its plan and the writes.
fn refuse_all(world: &mut World, retry_after: Option<u64>) -> (Plan, Vec<Write>) {
    let refuse = |action: &Action| {
        Err(Refusal {
            text: format!("no {:?}", action.write()),
            passing: false,
            retry_after: retry_after.map(Duration::from_secs),
            is_deferred: false,
        })
    };
    let (plan, _) = world.round(|_, action| Some(refuse(action)));
    world.memory = plan.memory.clone();
    let sent = plan.actions.iter().map(Action::write).collect();
    (plan, sent)
}

/// Plays a round in which the API accepts each write.
fn accept_all(world: &mut World) -> Plan {
    let accept = |world: &mut World, action: &Action| {
        world.change(action);
        Some(Ok(()))
    };
    world.round(accept).0
}

/// Returns a world with labels, whose VM has migrated.
fn migrated() -> World {
    let mut world = World::settled();
    world.migrate("hv-b", "eu-1", "rack-b");
    world.reasons = Reasons::new(Trigger::Link, world.uptime);
    world
}

#[test]
fn labels_and_conditions_that_are_refused_both_are_sent_once_until_their_retry_and_named_both() {
    let mut world = migrated();
    let mut sent = Vec::new();
    for round in 0..20 {
        // A round that cannot read the Node, and one that waits for Harvester, do not forget a refusal.
        let node = world.observation.node.clone();
        if round % 5 == 4 {
            world.observation.node = Fact::failed(UnavailableKind::Unreachable, "503");
        }
        sent.extend(refuse_all(&mut world, Some(600)).1);
        world.observation.node = node;
        world.uptime += Duration::from_secs(1);
        world.reasons = Reasons::new(Trigger::Operator, world.uptime);
    }
    assert_eq!(sent, [Write::Node, Write::Conditions]);
    world.uptime += Duration::from_secs(600);
    let (plan, sent) = refuse_all(&mut world, Some(600));
    assert_eq!(sent, [Write::Node, Write::Conditions]);
    let code = crate::catalog::Code::NodeWriteFailed;
    let named = plan.findings.iter().filter(|finding| finding.code == code);
    let named: Vec<&str> = named.map(|finding| finding.seen.as_str()).collect();
    assert_eq!(named, ["no Node", "no Conditions"]);
}

#[test]
fn a_refused_write_delays_no_read() {
    let mut world = migrated();
    refuse_all(&mut world, Some(600));
    world.uptime += Duration::from_secs(1);
    world.reasons = Reasons::new(Trigger::Timer, world.uptime);
    world.memory.window = None;
    world.observation.host_metrics = Fact::failed(UnavailableKind::Unreachable, "timeout");
    for _ in 0..10 {
        let next = refuse_all(&mut world, Some(600)).0.next;
        assert!(next.after <= Duration::from_secs(60), "{next:?}");
        world.uptime += next.after;
    }
}

#[test]
fn a_refused_migration_counts_from_its_hint_until_its_labels_are_written() {
    let mut world = migrated();
    let cause = Some((Trigger::Link, world.uptime));
    for _ in 0..3 {
        refuse_all(&mut world, None);
        assert_eq!(world.memory.cause, cause);
        world.uptime += Duration::from_millis(100);
        world.reasons = Reasons::new(Trigger::Node, world.uptime);
    }
    world.uptime += Duration::from_secs(3600);
    let written = accept_all(&mut world);
    assert_eq!((written.cause, written.memory.cause), (cause, None));
}

#[test]
fn a_unit_is_not_started_again_whatever_came_of_it() {
    let mut plan = plan();
    plan.actions = vec![Action::StartUnit("qemu-guest-agent.service".to_owned())];
    for result in [Ok(()), refused(true, None)] {
        let tried = tried(&plan, &result);
        assert_ne!(tried.memory.guest_agent, plan.memory.guest_agent);
        assert_eq!(tried.next, plan.next);
    }
}

#[test]
fn accepted_labels_are_described_in_the_same_round_and_refused_ones_are_not() {
    let mut world = World::new();
    let kinds = |plan: &Plan| plan.actions.iter().map(Action::write).collect::<Vec<_>>();
    let plan = refuse_all(&mut world.clone(), None).0;
    assert_eq!(
        (kinds(&plan), plan.sync),
        (vec![Write::Node], LabelState::Pending)
    );
    let plan = accept_all(&mut world);
    assert_eq!(
        (kinds(&plan), plan.sync),
        (vec![Write::Node, Write::Conditions], LabelState::Synced)
    );
}

#[test]
fn a_migration_ends_its_window_in_the_round_that_writes_its_labels() {
    let mut world = migrated();
    let plan = accept_all(&mut world);
    let end = plan.window_end.unwrap();
    assert_eq!((end.trigger, end.reads), (Trigger::Link, 1));
    assert_eq!(plan.memory.window, None);
}

#[test]
fn labels_that_a_webhook_drops_are_a_conflict_in_the_same_round() {
    let mut world = World::new();
    let is_patch = |action: &&Action| action.write() == Write::Node;
    let (plan, _) = world.round(|_, _| Some(Ok(())));
    assert_eq!(plan.actions.iter().filter(is_patch).count(), 3);
    assert_eq!(plan.sync.reason(), "LabelConflict");
    world.memory = plan.memory;
    world.uptime += Duration::from_secs(1);
    let (plan, _) = world.round(|_, _| Some(Ok(())));
    assert_eq!(plan.actions.iter().find(is_patch), None);
}

#[test]
fn the_end_of_refused_conditions_is_reported_in_a_round_at_once() {
    let mut world = World::new();
    let once = |world: &mut World, action: &Action| match action.write() {
        Write::Conditions => Some(refused(true, None)),
        _ => {
            world.change(action);
            Some(Ok(()))
        }
    };
    world.memory = world.round(once).0.memory;
    world.uptime += Duration::from_secs(10);
    let plan = accept_all(&mut world);
    let named = |plan: &Plan| {
        let mut findings = plan.findings.iter();
        findings.any(|finding| finding.code == crate::catalog::Code::NodeWriteFailed)
    };
    let next = plan.next;
    assert_eq!((named(&plan), next.after), (true, Duration::ZERO));
    assert_eq!((next.trigger, next.scope), (Trigger::Timer, Scope::NONE));
    world.memory = plan.memory;
    let plan = accept_all(&mut world);
    assert_eq!((named(&plan), plan.actions.len()), (false, 0));
    assert!(plan.next.after > Duration::ZERO);
}

#[test]
fn a_migration_whose_response_was_lost_is_written_with_its_event_and_its_time_by_one_more_patch() {
    let mut world = migrated();
    let cause = Some((Trigger::Link, world.uptime));
    let lose = |world: &mut World, action: &Action| {
        world.change(action);
        Some(refused(true, None))
    };
    world.memory = world.round(lose).0.memory;
    // The watch delivers the Node before the retry.
    world.uptime += Duration::from_millis(10);
    world.reasons = Reasons::new(Trigger::Node, world.uptime);
    let plan = accept_all(&mut world);
    let is_patch = |action: &&Action| action.write() == Write::Node;
    assert_eq!(plan.actions.iter().find(is_patch), None);
    world.memory = plan.memory;
    world.uptime += Duration::from_secs(60);
    let mut lost = world.clone();
    let plan = accept_all(&mut world);
    let Some(Action::PatchNode(patch)) = plan.actions.iter().find(is_patch) else {
        panic!("{:?}", plan.actions)
    };
    assert_eq!(patch.announce.as_ref().unwrap().reason, "HostChanged");
    // It overwrites no later change.
    assert_eq!(patch.resource_version, world.node().resource_version);
    assert_eq!((plan.cause, plan.memory.cause), (cause, None));
    assert_eq!((plan.findings, plan.memory.refusals), (vec![], vec![]));
    // A change that the Node has is sent once more at most.
    lost.memory = lost.round(lose).0.memory;
    lost.uptime += Duration::from_secs(600);
    let plan = accept_all(&mut lost);
    assert_eq!(plan.actions.iter().find(is_patch), None);
    assert_eq!((plan.findings, plan.memory.refusals), (vec![], vec![]));
}

#[test]
fn conditions_whose_response_was_lost_are_known_to_be_written_and_their_events_are_sent_once() {
    let mut world = World::new();
    world.settle();
    if let Fact::Known(agent) = &mut world.observation.guest_agent
        && let Fact::Known(unit) = &mut agent.unit
    {
        unit.state = UnitState::Inactive;
    }
    let lose = |world: &mut World, action: &Action| {
        world.change(action);
        Some(refused(true, None))
    };
    world.memory = world.round(lose).0.memory;
    world.uptime += Duration::from_secs(60);
    let plan = accept_all(&mut world);
    let [Action::SendEvents(events)] = plan.actions.as_slice() else {
        panic!("{:?}", plan.actions)
    };
    let reasons: Vec<_> = events.announce.iter().map(|one| one.reason).collect();
    assert_eq!(reasons, ["GuestAgentNotRunning"]);
    assert_eq!(plan.memory.refusals, []);
    world.memory = plan.memory;
    assert_eq!(accept_all(&mut world).actions, []);
}
