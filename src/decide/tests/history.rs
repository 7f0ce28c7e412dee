// SPDX-License-Identifier: Apache-2.0
//! Simulates sequences of events in a cluster. At each step the decision must preserve the invariants of `src/lib.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::OnChange;
use crate::decide::fixtures::{VM, World, forbidden, host_labels};
use crate::decide::{Action, Memory, NodePatch, Plan};
use crate::facts::names::NodeName;
use crate::facts::node::ANNOTATION_PREFIX;
use crate::facts::placement::Source;
use crate::facts::topology::{LabelValue, REGION, TWINS, ZONE};
use crate::facts::trigger::{Reasons, Trigger};
use crate::facts::{Fact, UnavailableKind};

const HOSTS: [&str; 3] = ["hv-a", "hv-b", "hv-c"];

/// Host label values. The last one is not a valid label value.
const PLACES: [&str; 4] = ["rack-a", "rack-b", "", "rack a"];

const TRIGGERS: [Trigger; 14] = [
    Trigger::Startup,
    Trigger::Vmi,
    Trigger::Node,
    Trigger::Files,
    Trigger::Link,
    Trigger::Port,
    Trigger::Clock,
    Trigger::Hostname,
    Trigger::Units,
    Trigger::Operator,
    Trigger::Reload,
    Trigger::EventSource,
    Trigger::FastPoll,
    Trigger::Timer,
];

const HOST_LABEL: &str = "topology.harvesterhci.io/host";

/// The number of simulated histories, and of events in each.
const HISTORIES: u64 = 200;
const EVENTS: usize = 32;

/// A migration, an outage and other writers: histories that random events rarely contain.
const TYPICAL: [&[u8]; 3] = [
    &[0x12, 4, 0, 1, 0x11, 5, 0, 6, 2, 1, 0x11, 6, 0, 2],
    &[
        7, 0, 0x11, 6, 8, 0, 10, 0, 0x11, 8, 11, 0, 3, 0, 13, 0, 4, 0, 5, 4,
    ],
    &[
        15, 0, 0x11, 4, 15, 1, 15, 0x42, 0x10, 3, 14, 1, 0, 5, 14, 2, 0, 2, 12, 0, 8, 0, 0x13, 0,
    ],
];

#[test]
fn every_decision_of_any_history_keeps_the_invariants_and_comes_to_rest() {
    for bytes in TYPICAL {
        history(bytes);
    }
    for seed in 1..=HISTORIES {
        let bytes = random_bytes(seed, 2 * EVENTS);
        history(&bytes);
    }
}

/// Returns bytes that depend on the seed only (splitmix64).
fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let words = (1..).map(|step: u64| {
        let mut word = seed
            .wrapping_mul(0x632b_e59b_d9b4_e019)
            .wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    });
    words.flat_map(u64::to_le_bytes).take(count).collect()
}

/// Simulates a sequence of events, one for each pair of bytes.
fn history(bytes: &[u8]) {
    let mut world = World::new();
    let foreign = "example.org/of-another";
    if let Fact::Known(node) = &mut world.observation.node {
        node.labels.insert(foreign.to_owned(), "x".to_owned());
    }
    for pair in bytes.chunks_exact(2) {
        let &[what, how] = pair else {
            continue;
        };
        happen(&mut world, what, how);
        let plan = world.plan();
        assert_eq!(plan, world.plan(), "the same world, another decision");
        check(&world, &plan);
        if how & 0x80 == 0 {
            world.apply(&plan);
            rest(&world);
        } else {
            world.memory = plan.memory;
        }
        if let Fact::Known(node) = &world.observation.node {
            assert_eq!(node.labels.get(foreign).map(String::as_str), Some("x"));
        }
    }
}

fn any<T: Copy>(of: &[T], how: u8) -> T {
    let number = usize::from(how & 0x7f) % of.len();
    of[number]
}

fn happen(world: &mut World, what: u8, how: u8) {
    let place = any(&PLACES, how >> 2);
    let host = any(&HOSTS, how);
    match what % 22 {
        0 => world.migrate(host, "eu-1", place),
        1 => world.migrate(host, place, "rack-a"),
        2 => world.annotate(host, "eu-1", place),
        3 => world.answer(Source::HostNode, forbidden()),
        4 => world.answer(Source::HostNode, Fact::Absent),
        5 => world.answer(Source::HostNode, Fact::Known(host_labels("eu-2", place))),
        6 => world.change_vmi(|vmi| vmi.host = None),
        7 => world.observation.candidates = unreachable(),
        8 => world.observation.candidates = World::new().observation.candidates,
        9 => world.observation.node = Fact::Absent,
        10 => world.observation.node = unreachable(),
        11 => {
            if world.observation.node.known().is_none() {
                world.observation.node = World::new().observation.node;
                if let Fact::Known(node) = &mut world.observation.node {
                    let label = ("example.org/of-another".to_owned(), "x".to_owned());
                    node.labels.extend([label]);
                }
            }
        }
        12 => world.add_vmi(|other| other.uid = "twin".to_owned()),
        13 => world.settings.topology.remove_stale ^= true,
        14 => {
            let changes = [OnChange::Follow, OnChange::Hold, OnChange::Report];
            world.settings.topology.on_change = any(&changes, how);
        }
        // A change by another client.
        15 => {
            if let Fact::Known(node) = &mut world.observation.node {
                let key = any(&[REGION, ZONE, HOST_LABEL, TWINS[0].1], how);
                match how & 0x40 {
                    0 => node.labels.insert(key.to_owned(), "foreign".to_owned()),
                    _ => node.labels.remove(key),
                };
            }
        }
        16 => {
            if let Fact::Known(node) = &mut world.observation.node {
                let keys: Vec<String> = node.annotations.keys().cloned().collect();
                if !keys.is_empty() {
                    let key = keys.get(usize::from(how) % keys.len());
                    let text = any(&["", "{}", "[1]", "hv-x\u{1b}[31m", "{\"a\":1}"], how);
                    let entry = key.map(|key| (key.clone(), text.to_owned()));
                    node.annotations.extend(entry);
                }
            }
        }
        17 => world.uptime += Duration::from_secs(1 << (how % 16)),
        18 => world.reasons = Reasons::new(any(&TRIGGERS, how), world.uptime),
        19 => world.memory = Memory::default(),
        20 => {
            world.is_daemon = how.is_multiple_of(2);
        }
        _ => world.uptime += Duration::from_millis(u64::from(how)),
    }
}

fn unreachable<T>() -> Fact<T> {
    Fact::failed(UnavailableKind::Unreachable, "timeout")
}

fn patches(plan: &Plan) -> impl Iterator<Item = &NodePatch> {
    plan.actions.iter().filter_map(|action| match action {
        Action::PatchNode(patch) => Some(patch),
        _ => None,
    })
}

fn check(world: &World, plan: &Plan) {
    let ours = [REGION, ZONE, TWINS[0].1, TWINS[1].1, HOST_LABEL];
    let is_hook = |action: &&Action| matches!(action, Action::RunHooks(_));
    let writes: Vec<&Action> = plan
        .actions
        .iter()
        .filter(|action| !is_hook(action))
        .collect();
    for action in &writes {
        let node = match action {
            Action::SendEvents(events) => Some(&events.node),
            Action::PatchNode(patch) => Some(&patch.node),
            Action::PatchConditions(patch) => Some(&patch.node),
            // Not configured.
            Action::RunHooks(_) | Action::StartUnit(_) => None,
        };
        assert_eq!(node.map(NodeName::as_str), Some(VM), "{action:?}");
    }
    assert!(writes.len() <= 3, "{:?}", plan.actions);
    let node = world.observation.node.known();
    assert!(node.is_some() || writes.is_empty(), "without a Node");
    let answer = world.reads.answers.get(&Source::HostNode);
    let is_read = answer.and_then(Fact::known).is_some();
    let is_one = matches!(
        &world.observation.candidates,
        Fact::Known(candidates) if candidates.vmis.len() == 1
    );
    for patch in patches(plan) {
        assert!(is_one, "labels of a VM that is not known: {patch:?}");
        for (key, value) in &patch.labels {
            assert!(
                ours.contains(&key.as_str()),
                "{key} is not owned by the agent"
            );
            assert!(value.is_some() || is_read, "{key} goes unread");
            let text = value.as_ref().map_or("x", LabelValue::as_str);
            let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            assert!(text.bytes().all(is_value), "{key}={text}");
        }
        for (key, text) in &patch.annotations {
            assert!(
                key.starts_with(ANNOTATION_PREFIX),
                "{key} is not owned by the agent"
            );
            assert!(!text.chars().any(char::is_control), "{key}={text:?}");
        }
        let is_silent = world.settings.topology.on_change == OnChange::Report;
        let topology = patch.labels.keys().find(|key| *key != HOST_LABEL);
        assert!(!is_silent || topology.is_none(), "only to be reported");
    }
    let chosen = world.identity();
    assert!(is_one || chosen.vmi().is_none(), "one of several is chosen");
}

/// Checks that writes converge: while nothing changes, repeated reconciles write nothing more.
fn rest(world: &World) {
    let mut world = world.clone();
    let mut writes = BTreeMap::new();
    for round in 0..8 {
        let plan = world.plan();
        if plan
            .actions
            .iter()
            .any(|action| !matches!(action, Action::RunHooks(_)))
        {
            writes.insert(round, plan.actions.clone());
        }
        world.apply(&plan);
    }
    assert!(
        writes.keys().all(|round| *round < 4),
        "writes go on: {writes:?}"
    );
}
