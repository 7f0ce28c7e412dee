// SPDX-License-Identifier: Apache-2.0

use std::sync::mpsc;

use harvester_lab::world::SOON;

use super::sink::{Sink, StderrStyle};
use super::status_file::STATUS_FILE;
use super::systemd::NotifyEnvironment;
use super::*;
use crate::agent::state::MachineId;
use crate::config::LogLevel;
use crate::decide::fixtures::{World, now};
use crate::sys::disk::Content;

/// Creates a reporter that starts with `state`.
fn reporter(root: &Root, state: State) -> Reporter {
    let environment = NotifyEnvironment {
        notify_socket: None,
        watchdog_usec: None,
        watchdog_pid: None,
    };
    let agent = AgentStatus {
        version: String::new(),
        pid: 1,
        start_time: String::new(),
        start_ticks: None,
        boot_id: None,
    };
    Reporter::new(
        root.clone(),
        Journal::new(Sink::Stderr(StderrStyle::Plain), LogLevel::Info),
        Notifier::new(&environment, 1),
        SignalBoard::default(),
        state,
        agent,
        MetricsPage::default(),
    )
}

/// Reports the plan of a world.
fn publish(reporter: &mut Reporter, world: &World) {
    let (identity, placement, plan) = (world.identity(), world.placement(), world.plan());
    reporter.publish(&RoundReport {
        trigger: Trigger::Vmi,
        now: now(world.uptime),
        observation: &world.observation,
        identity: &identity,
        placement: placement.as_ref(),
        plan: &plan,
        results: &[],
        latency: Duration::ZERO,
        migrated: plan.memory.last_migration.as_ref(),
        requests: &[],
        settings: &world.settings,
    });
}

#[test]
fn a_migration_is_reported_before_it_is_saved_and_whatever_the_disk_does() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let (began, begins) = mpsc::channel();
    let (allow, allowed) = mpsc::channel::<()>();
    let (allowed, place) = (Mutex::new(allowed), root.join(STATUS_FILE));
    let world = World::new();
    let state = State::new(MachineId::of(&world.observation.machine));
    let mut reporter = reporter(&root, state);
    let write = move |content: &Content| {
        let state: State = serde_json::from_str(content.text.as_ref().unwrap()).unwrap();
        began.send((place.exists(), state)).unwrap();
        // A reporter that waited for this disk would never go on.
        let _ = allowed.lock().unwrap().recv();
        Ok(())
    };
    reporter.state_file = FileWriter::with(SOON, write, |_, _| ());
    publish(&mut reporter, &world);
    let (is_reported, saved) = begins.recv_timeout(SOON).unwrap();
    assert!(is_reported, "the disk came first");
    assert!(saved.vm.is_some());
    // Another state while that disk hangs.
    let mut world = world;
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    publish(&mut reporter, &world);
    allow.send(()).unwrap();
    allow.send(()).unwrap();
    reporter.close();
    let (_, saved) = begins.try_recv().expect("the last state is awaited");
    assert_eq!(saved.last_migration.unwrap().to, "hv-b");
}
