// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::*;
use crate::decide::fixtures::{World, now};
use crate::decide::registration::{Edit, FileChange};
use crate::facts::registration::LabelFileKind;
use crate::facts::{Unavailable, UnavailableKind};

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

fn edit() -> Action {
    Action::EditLabelFile(FileChange {
        kind: LabelFileKind::Rke2,
        edit: Edit::Remove,
    })
}

fn refused(passing: bool, retry_after: Option<u64>) -> WriteResult {
    Err(Refusal {
        text: "no".to_owned(),
        passing,
        retry_after: retry_after.map(Duration::from_secs),
    })
}

fn learned(plan: &Plan, results: &[WriteResult]) -> Learned {
    let node = Fact::Absent;
    learn(plan, results, Scope::ALL, &node, now(UPTIME))
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
    let unread = learn(&plan, &[Ok(())], Scope::NONE, &Fact::Absent, now(UPTIME));
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
    let plan = plan();
    let after = |passing, retry_after| {
        let learned = learned(&plan, &[refused(passing, retry_after)]);
        assert_eq!(learned.memory.refusal.as_ref().unwrap().passing, passing);
        assert_eq!(learned.memory.failures, 1);
        let next = waited(&learned);
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
    let deferred = Fact::Failed(Unavailable {
        is_deferred: true,
        ..Unavailable::new(UnavailableKind::Unreachable, "timeout")
    });
    let results = [refused(true, Some(0))];
    let learned = learn(&plan, &results, Scope::ALL, &deferred, now(UPTIME));
    assert_eq!(waited(&learned).after, Duration::ZERO);
}

#[test]
fn a_failed_write_does_not_move_the_reads_of_a_window() {
    let mut plan = plan();
    plan.next.trigger = Trigger::Resync;
    let learned = learned(&plan, &[refused(true, None)]);
    assert_eq!(learned.follow_up, FollowUp::Wait(plan.next));
}

#[test]
fn a_file_that_cannot_be_written_is_reported_immediately_and_once() {
    let mut plan = plan();
    plan.actions = vec![edit()];
    plan.memory.unwritten_file = None;
    let first = learned(&plan, &[refused(true, None)]);
    assert_eq!(first.follow_up, FollowUp::Immediate);
    assert_eq!(first.memory.unwritten_file.as_deref(), Some("no"));
    // This is not a failure of an API.
    assert_eq!((first.memory.refusal, first.memory.failures), (None, 0));
    plan.memory.unwritten_file = Some("no".to_owned());
    let again = learned(&plan, &[refused(true, None)]);
    assert_eq!(again.follow_up, FollowUp::Wait(plan.next));
}

#[test]
fn systemd_does_not_reload_for_an_edit_that_failed() {
    let mut plan = plan();
    let change = |edit| {
        Action::EditLabelFile(FileChange {
            kind: LabelFileKind::Kubelet,
            edit,
        })
    };
    plan.actions = vec![change(Edit::Remove), change(Edit::Reload)];
    assert_eq!(plan.next_action(&[Ok(())]), plan.actions.get(1));
    assert_eq!(plan.next_action(&[refused(true, None)]), None);
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
