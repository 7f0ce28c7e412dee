// SPDX-License-Identifier: Apache-2.0

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

/// A change of the instance, or of its VirtualMachine.
type Step = fn(&mut Vmi, &mut Fact<VirtualMachine>);

fn with(vmi: &mut Vmi, change: impl FnOnce(&mut InstanceMigration)) {
    let state = &mut vmi.announcements.migration;
    change(state.get_or_insert_with(|| migration("m1")));
}

fn evict(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    vmi.announcements.evacuated_host.clone_from(&vmi.host);
}

fn label(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    vmi.announcements.migration_target = host("hv-b");
}

fn prepare(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    vmi.announcements.migration = Some(migration("m1"));
}

fn start(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    with(vmi, |migration| migration.started = timestamp(AT));
}

/// KubeVirt 1.6 and later: the host changes before `completed`, and the eviction is reset after that.
fn switch(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    with(vmi, |migration| migration.has_end = true);
    vmi.host = host("hv-b");
}

fn complete(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    with(vmi, |migration| migration.is_completed = true);
    vmi.host = host("hv-b");
    vmi.announcements.evacuated_host = None;
}

fn fail(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    with(vmi, |migration| {
        migration.is_completed = true;
        migration.is_failed = true;
        migration.failure = Some("no\nmemory".to_owned());
    });
}

fn abort(vmi: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    with(vmi, |migration| migration.is_abort_requested = true);
    fail(vmi, vm);
}

fn unevict(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    vmi.announcements.evacuated_host = None;
    vmi.announcements.migration_target = None;
}

fn retry(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    vmi.announcements.migration = Some(InstanceMigration {
        started: timestamp(AT),
        ..migration("m2")
    });
}

fn delete(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    vmi.announcements.stop = timestamp(AT).map(|requested| StopRequest {
        requested,
        grace: Some(Duration::from_secs(120)),
    });
}

fn replace(vmi: &mut Vmi, _: &mut Fact<VirtualMachine>) {
    vmi.uid = "another".to_owned();
    vmi.announcements = crate::facts::scheduled_events::Announcements::default();
}

fn maintain(strategy: MaintenanceStrategy) -> VirtualMachine {
    VirtualMachine {
        is_restarted: false,
        maintained_host: host("hv-a"),
        maintenance: Some(strategy),
        is_deleted: false,
    }
}

fn maintain_enable(_: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    *vm = Fact::Known(maintain(MaintenanceStrategy::RestartAfterEnable));
}

fn maintain_disable(_: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    *vm = Fact::Known(maintain(MaintenanceStrategy::RestartAfterDisable));
}

fn maintain_shutdown(_: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    *vm = Fact::Known(maintain(MaintenanceStrategy::Shutdown));
}

fn halt(_: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    *vm = Fact::Known(VirtualMachine {
        is_restarted: false,
        ..VirtualMachine::default()
    });
}

fn keep_running(_: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    *vm = Fact::Known(VirtualMachine {
        is_restarted: true,
        ..VirtualMachine::default()
    });
}

fn delete_vm(_: &mut Vmi, vm: &mut Fact<VirtualMachine>) {
    *vm = Fact::Known(VirtualMachine {
        is_deleted: true,
        ..maintain(MaintenanceStrategy::Shutdown)
    });
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
fn published(steps: &[Step]) -> Vec<ScheduledEvent> {
    let (mut world, mut tracker) = (World::new(), EventTracker::default());
    let mut vm = Fact::failed(UnavailableKind::NotAsked, "");
    let mut events = observe(&mut tracker, &world, &vm);
    for step in steps {
        step(world.vmi(), &mut vm);
        events.extend(observe(&mut tracker, &world, &vm));
        let saved = serde_json::to_string(&tracker).unwrap();
        tracker = serde_json::from_str(&saved).unwrap();
        assert_eq!(observe(&mut tracker, &world, &vm), [], "repeated");
    }
    events
}

#[test]
fn each_sequence_is_published_in_order_and_once() {
    let rows: &[(&str, &[Step], &str)] = &[
        (
            "drain",
            &[evict, label, prepare, start, switch, complete, unevict],
            "1 planned Eviction; 1 in-progress Eviction; 1 done Eviction",
        ),
        (
            "manual migration",
            &[label, prepare, start, complete, unevict],
            "1 planned MigrationRequested; 1 in-progress MigrationRequested; 1 done MigrationRequested",
        ),
        (
            "failed migration",
            &[label, prepare, start, fail, unevict],
            "1 planned MigrationRequested; 1 in-progress MigrationRequested; 1 failed MigrationRequested",
        ),
        (
            "drain whose first migration fails",
            &[evict, start, fail, retry],
            "1 planned Eviction; 1 in-progress Eviction; 1 failed Eviction; 2 planned Eviction; 2 in-progress Eviction",
        ),
        (
            "aborted migration",
            &[prepare, start, abort, unevict],
            "1 planned MigrationRequested; 1 in-progress MigrationRequested; 1 canceled MigrationRequested",
        ),
        (
            "drain that is taken back",
            &[evict, unevict, evict],
            "1 planned Eviction; 1 canceled Eviction; 2 planned Eviction",
        ),
        (
            "migration of which only the end is observed",
            &[complete],
            "1 done MigrationRequested",
        ),
        (
            "migration whose end is not observed",
            &[start, retry],
            "1 in-progress MigrationRequested; 1 failed MigrationRequested; 2 in-progress MigrationRequested",
        ),
        (
            "maintenance, ShutdownAndRestartAfterEnable",
            &[maintain_enable, delete, replace],
            "1 in-progress HostMaintenance; 1 done HostMaintenance",
        ),
        (
            "maintenance, ShutdownAndRestartAfterDisable",
            &[maintain_disable, delete, replace],
            "1 in-progress HostMaintenance; 1 done HostMaintenance",
        ),
        (
            "maintenance, Shutdown",
            &[maintain_shutdown, delete],
            "1 in-progress HostMaintenance",
        ),
        ("stop", &[halt, delete], "1 in-progress VMStopped"),
        ("stop, VM unreadable", &[delete], "1 in-progress VMStopped"),
        (
            "restart",
            &[keep_running, delete, replace],
            "1 in-progress VMRestarted; 1 done VMRestarted",
        ),
        ("deletion", &[delete_vm, delete], "1 in-progress VMDeleted"),
        (
            "stop during a migration",
            &[start, halt, delete],
            "1 in-progress MigrationRequested; 1 canceled MigrationRequested; 2 in-progress VMStopped",
        ),
    ];
    for (name, steps, expected) in rows {
        let events = published(steps);
        let mut ids: Vec<&str> = Vec::new();
        let mut shown = Vec::new();
        for event in &events {
            if !ids.contains(&event.id.as_str()) {
                ids.push(&event.id);
            }
            let (state, reason) = (event.state.as_str(), event.reason.as_str());
            shown.push(format!("{} {state} {reason}", ids.len()));
        }
        println!("{name:<45} {}", shown.join("; "));
        assert_eq!(shown.join("; "), *expected, "{name}");
    }
}

#[test]
fn an_event_has_what_is_known() {
    let events = published(&[evict, start, fail]);
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
    let events = published(&[maintain_enable, delete]);
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
    complete(world.vmi(), &mut Fact::Absent);
    assert_eq!(observe(&mut tracker, &world, &vm), []);
    world.vmi().host = host("hv-a");
    evict(world.vmi(), &mut Fact::Absent);
    let planned = observe(&mut tracker, &world, &vm);
    assert_eq!(planned.len(), 1);
    let known = tracker.clone();
    let unread = Unavailable::new(UnavailableKind::Unreachable, "");
    world.observation.candidates = Fact::Failed(unread);
    assert_eq!(observe(&mut tracker, &world, &vm), []);
    assert_eq!(tracker, known);
}
