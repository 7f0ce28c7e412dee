// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::sync::{Mutex, mpsc};

use harvester_lab::world::SOON;
use uuid::Uuid;

use super::sink::Sink;
use super::status_file::STATUS_FILE;
use super::systemd::NotifyEnvironment;
use super::*;
use crate::agent::state::MachineId;
use crate::catalog::{Api, Code, Finding};
use crate::config::LogLevel;
use crate::decide::fixtures::{World, now};
use crate::decide::{Now, Refusal, WriteResult};
use crate::facts::requests::Requests;
use crate::facts::topology::{REGION, ZONE};
use crate::facts::trigger::Reasons;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::disk::Content;

/// Creates a reporter of this machine, whose disk was copied from that of another one or not, in a tree of its own.
fn reporter(world: &World, copied_from: Option<Uuid>) -> (tempfile::TempDir, Root, Reporter) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let mut state = State::new(MachineId::of(&world.observation.machine));
    state.copied_from = copied_from;
    let reporter = Reporter::new(
        root.clone(),
        Journal::new(Sink::Stderr { is_prefixed: false }, LogLevel::Info),
        Notifier::new(&NotifyEnvironment::default(), 1),
        SourceBoard::default(),
        state,
        AgentStatus::default(),
        MetricsPage::default(),
    );
    (dir, root, reporter)
}

/// Reports the plan of a world, of which nothing was written.
fn publish(reporter: &mut Reporter, world: &World) {
    reporter.publish(&round(world, &[]), &world.settings);
}

/// Reports the plan of a world and returns the status as it is in its file.
fn published(root: &Root, reporter: &mut Reporter, world: &World) -> Status {
    publish(reporter, world);
    assert!(reporter.status_file.settle(SOON));
    Status::from_json(&status_file::read(root).unwrap()).unwrap()
}

/// Returns a round with the plan of a world and the results of its first writes.
pub(crate) fn round(world: &World, results: &[WriteResult]) -> Round {
    let mut after = world.clone();
    let mut given = results.iter();
    let (plan, _) = after.round(|world, action| {
        let result = given.next()?;
        if result.is_ok() {
            world.change(action);
        }
        Some(result.clone())
    });
    Round {
        reasons: Reasons {
            trigger: Trigger::Vmi,
            ..world.reasons
        },
        cut: None,
        now: Now {
            wall: now(world.uptime).wall + world.uptime,
            ..now(world.uptime)
        },
        observation: after.observation,
        identity: world.identity(),
        placement: world.placement(),
        results: results.to_vec(),
        requests: Vec::new(),
        plan,
    }
}

#[test]
fn a_migration_is_reported_before_it_is_saved_and_whatever_the_disk_does() {
    let world = World::new();
    let (_dir, root, mut reporter) = reporter(&world, None);
    let (began, begins) = mpsc::channel();
    let (allow, allowed) = mpsc::channel::<()>();
    let (allowed, place) = (Mutex::new(allowed), root.join(STATUS_FILE));
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
    assert_eq!(saved.last_migration.unwrap().migration.to, "hv-b");
}

/// Waits for all files: none may be written when the directory is gone.
fn end(reporter: Reporter) {
    assert!(reporter.status_file.settle(SOON));
    reporter.close();
}

#[test]
fn a_disk_is_a_copy_until_the_node_is_known_to_be_that_of_this_vm() {
    let mut world = World::new();
    let ours = world.observation.machine.product_uuid.known().copied();
    let other = Uuid::from_u128(1);
    let (_dir, root, mut reporter) = reporter(&world, Some(other));
    let mut copied_from = |world: &World| {
        reporter.state.copied_from = Some(other);
        let status = published(&root, &mut reporter, world);
        assert_eq!(status.identity.copied_from, reporter.state.copied_from);
        status.identity.copied_from
    };
    // No kubelet has reported the Node, or that of the other VM has.
    for system_uuid in [None, Some(other)] {
        world.node().system_uuid = system_uuid;
        assert_eq!(copied_from(&world), Some(other));
    }
    // A credential that does not exist was not copied.
    let mut away = world.clone();
    away.node().system_uuid = None;
    away.observation.kubelet = Fact::failed(UnavailableKind::Unreachable, "");
    assert_eq!(copied_from(&away), Some(other));
    away.observation.kubelet = Fact::failed(UnavailableKind::Missing, "");
    assert_eq!(copied_from(&away), None);
    // A name that differs is another finding.
    world.node().system_uuid = ours;
    world.change_vmi(|vmi| vmi.name = crate::facts::names::VmName::parse("vm-2").unwrap());
    assert_eq!(copied_from(&world), None);
    end(reporter);
}

#[test]
fn the_status_does_not_contain_the_firmware_uuid_which_only_root_can_read() {
    let mut world = World::new();
    let ours = *world.observation.machine.product_uuid.known().unwrap();
    let (_dir, root, mut reporter) = reporter(&world, None);
    let mut is_hidden = |world: &World| {
        published(&root, &mut reporter, world);
        let status = root.read_text(STATUS_FILE, 1 << 20).unwrap();
        assert!(!status.contains(&ours.to_string()), "{status}");
    };
    is_hidden(&world);
    // The kubelet of another VM reports the Node.
    world.node().system_uuid = Some(Uuid::from_u128(1));
    is_hidden(&world);
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "503");
    is_hidden(&world);
    end(reporter);
}

/// Returns the row of a family, which has its help, its type and a sample.
fn metric_row(family: &str) -> String {
    let lines: Vec<&str> = family.lines().collect();
    let [help, kind, sample, ..] = lines[..] else {
        panic!("no sample of {family}");
    };
    let (name, help) = help.split_once(' ').unwrap();
    let kind = kind.rsplit(' ').next().unwrap();
    let labels = sample.split('"').step_by(2);
    let labels = labels.filter_map(|text| text.strip_suffix('=')?.rsplit(['{', ',']).next());
    // The bounds of a histogram are no label of ours.
    let labels = labels.filter(|label| *label != "le");
    let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
    let separator = if labels.is_empty() { "" } else { ": " };
    let labels = labels.join(", ");
    format!("| `{name}` | {kind}{separator}{labels} | {help} |\n")
}

#[test]
fn every_metric_has_its_row_in_the_documentation() {
    const FILE: &str = "packaging/docs/pages/harvester-node-agent-metrics.7.md";
    let mut world = World::new();
    world.observation.findings = vec![Finding::new(Code::EventSourceUnavailable, "")];
    if let Fact::Known(kubelet) = &mut world.observation.kubelet {
        kubelet.expires = Some(0);
    }
    let (api, result, count) = (Api::Guest, "ok", 1);
    let mut round = round(&world, &[]);
    round.requests = vec![Requests { api, result, count }];
    let status = Status::new(&round, &Context::default());
    let timing = &world.settings.timing;
    let state = metrics::state(&status, &round, timing, &Counters::default());
    let all = [state, metrics::request_counters(&round)].concat();
    let families = all.split("# HELP harvester_node_agent_").skip(1);
    let rows: String = families.map(metric_row).collect();
    let page = std::fs::read_to_string(FILE).unwrap();
    let (before, table) = page.split_once("|---|---|---|\n").unwrap();
    let (_, after) = table.split_once("\n\n").unwrap();
    let page = format!("{before}|---|---|---|\n{rows}\n{after}");
    harvester_lab::expected::is_expected(FILE, &page, str::to_owned);
}

#[test]
fn the_status_shows_the_labels_that_the_node_has_and_not_those_that_are_planned() {
    let owned = |world: &World, results: &[WriteResult]| {
        let status = Status::new(&round(world, results), &Context::default());
        status.labels.owned
    };
    let all = |world: &World, result| vec![result; world.plan().actions.len()];
    let refusal = || Err(Refusal::passing("503"));
    let mut world = World::new();
    for results in [vec![], all(&world, refusal())] {
        assert_eq!(owned(&world, &results), BTreeMap::new(), "{results:?}");
    }
    let labels = owned(&world, &all(&world, Ok(())));
    assert_eq!((&*labels[ZONE], &*labels[REGION]), ("rack-a", "eu-1"));
    world.settle();
    world.migrate("hv-b", "eu-1", "rack-b");
    for results in [vec![], all(&world, refusal())] {
        assert_eq!(owned(&world, &results), labels, "{results:?}");
    }
    world.observation.node = Fact::failed(UnavailableKind::Unreachable, "no answer");
    assert_eq!(owned(&world, &[]), BTreeMap::new(), "they are unknown");
}

#[test]
fn each_source_of_one_code_has_its_own_first_time() {
    let mut world = World::new();
    let (_dir, root, mut reporter) = reporter(&world, None);
    let mut times = |world: &World| {
        let findings = published(&root, &mut reporter, world).findings.into_iter();
        let of_sources = findings.filter(|finding| finding.code == Code::EventSourceUnavailable);
        of_sources
            .map(|finding| (finding.observed, finding.first_observed_time.unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    let issue =
        |source, what: &str| Finding::new(Code::EventSourceUnavailable, what).of_source(source);
    world.observation.findings = vec![issue("clock", "denied")];
    let first = times(&world)["denied"].clone();
    world.uptime += Duration::from_secs(600);
    world.observation.findings.push(issue("link", "no socket"));
    let both = times(&world);
    assert_eq!(both["denied"], first);
    assert_ne!(both["no socket"], first);
    world.observation.findings.remove(0);
    assert_eq!(times(&world)["no socket"], both["no socket"]);
    end(reporter);
}
