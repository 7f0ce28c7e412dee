// SPDX-License-Identifier: Apache-2.0

use harvester_lab::expected::cases_are_expected;

use super::*;
use crate::decide::fixtures::World;
use crate::facts::names::HostName;
use crate::facts::scheduled_events::{InstanceMigration, StopRequest, timestamp};
use crate::facts::{Unavailable, UnavailableKind};
use std::time::Duration;
use time::UtcDateTime;

const AT: &str = "2026-11-24T10:00:00Z";

fn host(name: &str) -> Option<HostName> {
    Some(HostName::parse(name).unwrap())
}

fn migration(uid: &str) -> InstanceMigration {
    InstanceMigration {
        uid: uid.to_owned(),
        source: host("hv-a"),
        target: host("hv-b"),
        started: None,
        has_end: false,
        is_completed: false,
        is_failed: false,
        failure: None,
        is_abort_requested: false,
    }
}

/// Changes the instance, or its VirtualMachine.
fn take(step: &str, vmi: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    let seen = &mut vmi.announcements;
    let started = || InstanceMigration {
        started: timestamp(AT),
        ..migration("m2")
    };
    let maintain = |strategy| VirtualMachine {
        is_restarted: false,
        maintained_host: host("hv-a"),
        maintenance: Some(strategy),
        is_deleted: false,
    };
    let plain = |is_restarted| VirtualMachine {
        is_restarted,
        ..VirtualMachine::default()
    };
    match step {
        "evict" => seen.evacuated_host.clone_from(&vmi.host),
        "label" => seen.migration_target = host("hv-b"),
        "prepare" => seen.migration = Some(migration("m1")),
        "unevict" => (seen.evacuated_host, seen.migration_target) = (None, None),
        "retry" => seen.migration = Some(started()),
        "delete" => {
            let grace = Some(Duration::from_secs(120));
            let stop = timestamp(AT).map(|requested| StopRequest { requested, grace });
            seen.stop = stop;
        }
        "replace" => {
            vmi.uid = "another".to_owned();
            *seen = crate::facts::scheduled_events::Announcements::default();
        }
        "enable" => *vm = Fact::Known(maintain(MaintenanceStrategy::RestartAfterEnable)),
        "disable" => *vm = Fact::Known(maintain(MaintenanceStrategy::RestartAfterDisable)),
        "shutdown" => *vm = Fact::Known(maintain(MaintenanceStrategy::Shutdown)),
        "halt" => *vm = Fact::Known(plain(false)),
        "keep-running" => *vm = Fact::Known(plain(true)),
        "delete-vm" => {
            let maintained = maintain(MaintenanceStrategy::Shutdown);
            let is_deleted = true;
            *vm = Fact::Known(VirtualMachine {
                is_deleted,
                ..maintained
            });
        }
        _ => {
            let migration = seen.migration.get_or_insert_with(|| migration("m1"));
            match step {
                "start" => migration.started = timestamp(AT),
                // KubeVirt 1.6 and later: the host changes before `completed`, and the eviction is reset after that.
                "switch" => migration.has_end = true,
                "complete" => migration.is_completed = true,
                _ => {
                    assert!(["fail", "abort"].contains(&step), "{step}");
                    (migration.is_completed, migration.is_failed) = (true, true);
                    migration.failure = Some("no\nmemory".to_owned());
                    migration.is_abort_requested = step == "abort";
                }
            }
        }
    }
    if ["switch", "complete"].contains(&step) {
        vmi.host = host("hv-b");
    }
    if step == "complete" {
        vmi.announcements.evacuated_host = None;
    }
}

fn observe(
    tracker: &mut EventTracker,
    world: &World,
    vm: &Fact<VirtualMachine>,
) -> Vec<ScheduledEvent> {
    let now = Now {
        uptime: Duration::ZERO,
        wall: UtcDateTime::UNIX_EPOCH,
        random: crate::decide::schedule::Random::from_bits(0),
    };
    tracker.observe(&world.identity(), vm, now)
}

/// Takes the steps and returns the published states. Each observation comes twice, and the tracker is saved and loaded after each.
fn published(steps: &str) -> Vec<ScheduledEvent> {
    let (mut world, mut tracker) = (World::new(), EventTracker::default());
    let mut vm = Fact::failed(UnavailableKind::NotAsked, "");
    let mut events = observe(&mut tracker, &world, &vm);
    for step in steps.split(' ') {
        take(step, world.vmi(), &mut vm);
        events.extend(observe(&mut tracker, &world, &vm));
        let saved = serde_json::to_string(&tracker).unwrap();
        tracker = serde_json::from_str(&saved).unwrap();
        assert_eq!(observe(&mut tracker, &world, &vm), [], "repeated");
    }
    events
}

/// The file has sequences. Below are the states of each, with the number of their event.
#[test]
fn each_sequence_is_published_in_order_and_once() {
    cases_are_expected("src/decide/scheduled_events/cases.txt", |steps| {
        let (mut ids, mut text) = (Vec::new(), String::new());
        for event in published(steps) {
            if !ids.contains(&event.id) {
                ids.push(event.id.clone());
            }
            let (state, reason) = (event.state.as_str(), event.reason.as_str());
            text += &format!("{} {state} {reason}\n", ids.len());
        }
        text
    });
}

#[test]
fn an_event_has_what_is_known() {
    let events = published("evict start fail");
    let json = |event: &ScheduledEvent| serde_json::to_value(event).unwrap();
    let id = &events[0].id;
    assert_eq!(
        json(&events[0]),
        serde_json::json!({
            "id": id, "time": "1970-01-01T00:00:00Z", "state": "planned", "type": "live-migration",
            "reason": "Eviction", "source": "status.evacuationNodeName", "host": "hv-a",
        })
    );
    assert_eq!(
        json(&events[2]),
        serde_json::json!({
            "id": id, "time": "1970-01-01T00:00:00Z", "state": "failed", "type": "live-migration",
            "reason": "Eviction", "source": "status.migrationState", "host": "hv-a", "targetHost": "hv-b",
            "startTime": AT, "message": "no\\nmemory",
        })
    );
    let events = published("enable delete");
    assert_eq!(events[0].deadline.as_deref(), Some("2026-11-24T10:02:00Z"));
    assert_eq!(
        events[0].text(),
        "stop in-progress from hv-a, deadline 2026-11-24T10:02:00Z, reason HostMaintenance: \
         the VM starts on another host after maintenance mode is enabled"
    );
}

#[test]
fn what_was_over_before_and_what_was_not_read_publish_nothing() {
    let (mut world, mut tracker) = (World::new(), EventTracker::default());
    let vm = Fact::Absent;
    take("complete", world.vmi(), &mut Fact::Absent);
    assert_eq!(observe(&mut tracker, &world, &vm), []);
    world.vmi().host = host("hv-a");
    take("evict", world.vmi(), &mut Fact::Absent);
    let planned = observe(&mut tracker, &world, &vm);
    assert_eq!(planned.len(), 1);
    let known = tracker.clone();
    let unread = Unavailable::new(UnavailableKind::Unreachable, "");
    world.observation.candidates = Fact::Failed(unread);
    assert_eq!(observe(&mut tracker, &world, &vm), []);
    assert_eq!(tracker, known);
}
