// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::*;
use crate::decide::fixtures::{World, now};
use crate::facts::trigger::Reasons;
use crate::facts::{Fact, UnavailableKind};

const UPTIME: Duration = Duration::from_secs(100);

/// Returns the plan for a Node without labels: its patch, then its conditions.
fn plan() -> Plan {
    let mut plan = World::new().plan();
    let mut settled = World::new();
    settled.apply(&plan);
    plan.actions.extend(settled.plan().actions);
    let writes: Vec<Write> = plan.actions.iter().map(Action::write).collect();
    assert_eq!(writes, [Write::Node, Write::Conditions]);
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

fn learned(plan: &Plan, results: &[WriteResult]) -> Learned {
    learn(plan, results, Scope::ALL, now(UPTIME))
}

fn waited(learned: &Learned) -> Next {
    match learned.follow_up {
        FollowUp::Wait(next) => next,
        FollowUp::Immediate => panic!("immediate"),
    }
}

#[test]
fn conditions_are_written_only_with_labels_that_stay() {
    let plan = plan();
    assert_eq!(plan.next_action(&[]), plan.actions.first());
    assert_eq!(plan.next_action(&[Ok(())]), None);
    let refused = refused(true, None);
    assert_eq!(
        plan.next_action(std::slice::from_ref(&refused)),
        plan.actions.get(1)
    );
    assert_eq!(plan.next_action(&[refused, Ok(())]), None);
}

#[test]
fn written_labels_are_looked_at_immediately_unless_nothing_was_read() {
    let mut plan = plan();
    plan.memory.cause = Some((Trigger::Link, UPTIME));
    let written = learned(&plan, &[Ok(())]);
    assert_eq!(
        (written.follow_up, written.memory.cause),
        (FollowUp::Immediate, None)
    );
    let unread = learn(&plan, &[Ok(())], Scope::NONE, now(UPTIME));
    assert_eq!(unread.follow_up, FollowUp::Wait(plan.next));
    // Without a write, nothing changes.
    let dry = learned(&plan, &[]);
    assert_eq!(
        (dry.memory, dry.follow_up),
        (plan.memory.clone(), FollowUp::Wait(plan.next))
    );
}

#[test]
fn a_failed_write_is_retried_after_the_longer_of_backoff_and_what_the_server_asked_for() {
    let mut plan = plan();
    plan.next.after = Duration::from_secs(3600);
    let after = |passing, retry_after| {
        let learned = learned(&plan, &[refused(passing, retry_after)]);
        let [refused] = learned.memory.refusals.as_slice() else {
            panic!("{:?}", learned.memory.refusals)
        };
        assert_eq!((refused.passing, refused.count), (passing, 1));
        let next = waited(&learned);
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
    let once = learned(&plan, std::slice::from_ref(&deferred));
    assert_eq!(waited(&once).after, Duration::ZERO);
    // An attempt that was not sent is none.
    plan.memory = learned(&plan, &[refused(true, None)]).memory;
    let again = learned(&plan, &[deferred]);
    assert_eq!(again.memory.refusals[0].count, 1);
}

#[test]
fn a_failed_write_is_retried_before_the_next_read_of_a_window_and_delays_none() {
    let mut plan = plan();
    plan.next.trigger = Trigger::Resync;
    plan.next.after = Duration::from_secs(30);
    let late = learned(&plan, &[refused(true, None)]);
    let backoff = schedule::retry(1, None, now(UPTIME).random);
    let next = waited(&late);
    assert_eq!((next.after, next.scope), (backoff, Scope::REFUSED));
    plan.next.after = backoff / 2;
    let soon = learned(&plan, &[refused(true, None)]);
    assert_eq!(soon.follow_up, FollowUp::Wait(plan.next));
}

/// Plays a round in which the API refuses each write. Returns its plan and the writes.
fn refuse_all(world: &mut World, retry_after: Option<u64>) -> (Plan, Vec<Write>) {
    let plan = world.plan();
    let (mut sent, mut results) = (Vec::new(), Vec::new());
    while let Some(action) = plan.next_action(&results) {
        sent.push(action.write());
        results.push(Err(Refusal {
            text: format!("no {:?}", action.write()),
            passing: false,
            retry_after: retry_after.map(Duration::from_secs),
            is_deferred: false,
        }));
    }
    world.memory = learn(&plan, &results, world.reasons.scope, now(world.uptime)).memory;
    (plan, sent)
}

/// Returns a world with labels, whose VM has migrated.
fn migrated() -> World {
    let mut world = World::new();
    world.settle();
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
    let plan = world.plan();
    assert_eq!(plan.memory.cause, cause);
    let written = learn(&plan, &[Ok(())], Scope::ALL, now(world.uptime));
    assert_eq!(written.memory.cause, None);
}

#[test]
fn a_unit_is_not_started_again_whatever_came_of_it() {
    let mut plan = plan();
    plan.actions = vec![Action::StartUnit("qemu-guest-agent.service".to_owned())];
    for result in [Ok(()), refused(true, None)] {
        let learned = learned(&plan, &[result]);
        assert_ne!(learned.memory.guest_agent, plan.memory.guest_agent);
        assert_eq!(learned.follow_up, FollowUp::Wait(plan.next));
    }
}
