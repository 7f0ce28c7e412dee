// SPDX-License-Identifier: Apache-2.0
//! Scheduled events: what Harvester announces is published on every channel, each state once, in order, with one ID.

use harvester_lab::guest::Writing;
use harvester_lab::harvester::Order;
use harvester_lab::process::{Agent, Line, Signal, Stream};
use harvester_lab::qga::Client;
use harvester_lab::server::RequestRecord;
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{Side, World, WorldOptions, eventually};
use serde_json::{Value, json};

use crate::channel::PORT;
use crate::{
    BINARY, On, SOON, TOPOLOGY, ZONE, agent, condition, condition_becomes, label_becomes, on_both,
    serve,
};

on_both!(
    a_drain_is_published_on_every_channel,
    a_manual_migration_is_published_on_every_channel,
    a_failed_migration_is_published_on_every_channel,
    an_aborted_migration_is_published_on_every_channel,
    maintenance_with_each_strategy_is_published_on_every_channel,
    a_stop_a_restart_and_a_deletion_are_published_on_every_channel,
    a_killed_agent_neither_repeats_nor_loses_a_state,
    an_agent_that_is_killed_before_it_saved_a_state_creates_its_event_once,
    nothing_announced_costs_nothing;
    real:
    // Definitions validate nothing in the lab.
    the_shipped_node_readiness_rules_are_valid,
);

const TEXTFILE: &str = "var/lib/prometheus/node-exporter/harvester_node_agent.prom";

/// An agent with every channel.
struct Stage {
    agent: Agent,
    follower: Agent,
    host: Client<VirtioPort>,
    // Last: its tree is removed when nothing writes there.
    world: World,
}

impl Stage {
    async fn new(on: On) -> Self {
        let world = on.world(WorldOptions::default()).await;
        let textfile = world.guest.root().join(TEXTFILE);
        std::fs::create_dir_all(textfile.parent().unwrap()).unwrap();
        let config = "[report]\nlifecycle_conditions = true\n";
        world.guest.agent_config("10-events.toml", config);
        let mut host = Client::new(VirtioPort::offer(&world.guest, PORT));
        let agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        condition_becomes(
            &world,
            "MaintenancePlanned",
            "False",
            "NoMaintenancePlanned",
        )
        .await;
        host.ping().await;
        let follower = world.spawn_agent(BINARY, &["events", "--follow", "-o", "json"]);
        Self {
            world,
            agent,
            follower,
            host,
        }
    }

    /// Waits until the last of `count` published states is this one.
    async fn becomes(&self, count: usize, state: &str) {
        let is_there = || async {
            let events = published(&self.world);
            events.len() == count && events[count - 1]["state"] == state
        };
        eventually(SOON, &format!("state {count} is {state}"), is_there).await;
        let [planned, in_progress] = ["planned", "in-progress"].map(|name| match name == state {
            true => "True",
            false => "False",
        });
        for (kind, status) in [
            ("MaintenancePlanned", planned),
            ("MaintenanceInProgress", in_progress),
        ] {
            let has_status = || async {
                let found = condition(&self.world, kind).await;
                found.is_some_and(|(found, _)| found == status)
            };
            eventually(SOON, &format!("{kind} is {status}"), has_status).await;
        }
    }

    /// Compares all channels with the expected states.
    async fn ends(mut self, name: &str, expected: &[(&str, &str, &str)]) {
        let world = &self.world;
        let events = published(world);
        let shown: Vec<_> = events
            .iter()
            .map(|event| ["type", "state", "reason"].map(|key| event[key].as_str().unwrap()))
            .map(|[kind, state, reason]| (kind, state, reason))
            .collect();
        assert_eq!(shown, expected, "{name}: {events:#?}");
        let id = events[0]["id"].as_str().unwrap();
        assert!(events.iter().all(|event| event["id"] == id), "{events:#?}");

        // The commands of a user, and the host.
        let printed = agent(world, &["events", "-o", "json"]).await;
        assert_eq!(parsed(&printed.stdout), events, "{printed:?}");
        let follows = || async { self.follower.lines().len() >= events.len() };
        eventually(SOON, "the states are followed", follows).await;
        let followed: Vec<String> = self
            .follower
            .lines()
            .into_iter()
            .map(|line| line.text)
            .collect();
        assert_eq!(parsed(&followed.join("\n")), events);
        let told = self.host.execute("node-agent-status", Value::Null).await;
        for status in [told.unwrap(), world.guest.status().unwrap()] {
            assert_eq!(status["scheduledEvent"], *events.last().unwrap());
        }

        // The journal.
        let entries = self
            .agent
            .lines()
            .into_iter()
            .filter(|line| line.text.contains(": scheduled event: "))
            .filter(|line| !line.text.starts_with(' '))
            .map(|line| line.text);
        let entries: Vec<String> = entries.collect();
        assert_eq!(entries.len(), events.len(), "{entries:#?}");
        for (entry, (_, state, reason)) in entries.iter().zip(expected) {
            assert!(entry.contains(&format!(" {state}")), "{entry}");
            assert!(entry.contains(&format!("reason {reason}")), "{entry}");
        }

        // Events about the Node.
        let sent = || async { node_events(world, id).await.len() >= events.len() };
        eventually(SOON, "the Events are sent", sent).await;
        let reasons = node_events(world, id).await;
        let wanted: Vec<String> = expected
            .iter()
            .map(|(kind, state, _)| {
                let state: String = state.split('-').map(capitalized).collect();
                let kind = if *kind == "stop" {
                    "VMStop"
                } else {
                    "LiveMigration"
                };
                format!("{kind}{state}")
            })
            .collect();
        assert_eq!(reasons, wanted);

        // Metrics.
        let page = std::fs::read_to_string(world.guest.root().join(TEXTFILE)).unwrap();
        for (kind, state, _) in expected {
            let series = format!(
                "harvester_node_agent_scheduled_events_total{{type=\"{kind}\",state=\"{state}\"}} 1"
            );
            assert!(page.contains(&series), "{series}\n{page}");
        }
        for (event, reason) in events.iter().zip(&reasons) {
            let field = |key: &str| event[key].as_str().unwrap_or("-");
            println!(
                "{name:<42} {:<8} {:<12} {:<19} {:<5} {:<5} {:<20} {reason}",
                &id[..8],
                field("state"),
                field("reason"),
                field("host"),
                field("targetHost"),
                field("deadline"),
            );
        }
    }
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

fn parsed(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn published(world: &World) -> Vec<Value> {
    let path = world
        .guest
        .root()
        .join("run/harvester-node-agent/events.json");
    parsed(&std::fs::read_to_string(path).unwrap_or_default())
}

/// The reasons of the Events with an ID, in the order in which they were created.
async fn node_events(world: &World, id: &str) -> Vec<String> {
    let mut events: Vec<(u64, String)> = world
        .events()
        .await
        .iter()
        .filter(|event| event["note"].as_str().is_some_and(|note| note.contains(id)))
        .map(|event| {
            ["/metadata/resourceVersion", "/reason"].map(|path| event.pointer(path).unwrap())
        })
        .map(|texts| texts.map(|text| text.as_str().unwrap().to_owned()))
        .map(|[version, reason]| (version.parse().unwrap(), reason))
        .collect();
    events.sort();
    events.into_iter().map(|(_, reason)| reason).collect()
}

async fn a_drain_is_published_on_every_channel(on: On) {
    let stage = Stage::new(on).await;
    let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
    harvester.evict(vm).await.unwrap();
    stage.becomes(1, "planned").await;
    let migration = harvester.prepare_migration(vm, "hv-b").await.unwrap();
    harvester.copy_memory(&migration).await.unwrap();
    stage.becomes(2, "in-progress").await;
    let order = Order::From1_6;
    harvester.switch_host(&migration, order).await.unwrap();
    stage.becomes(3, "done").await;
    harvester
        .complete_migration(&migration, order)
        .await
        .unwrap();
    harvester.clear_eviction(vm).await.unwrap();
    harvester.clean_up_migration(&migration).await.unwrap();
    label_becomes(&stage.world, crate::HOST, "hv-b").await;
    let expected = ["planned", "in-progress", "done"];
    let expected = expected.map(|state| ("live-migration", state, "Eviction"));
    stage.ends("drain", &expected).await;
}

async fn a_manual_migration_is_published_on_every_channel(on: On) {
    let stage = Stage::new(on).await;
    let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
    let migration = harvester.prepare_migration(vm, "hv-c").await.unwrap();
    stage.becomes(1, "planned").await;
    harvester.copy_memory(&migration).await.unwrap();
    stage.becomes(2, "in-progress").await;
    let order = Order::UpTo1_5;
    harvester.switch_host(&migration, order).await.unwrap();
    stage.becomes(3, "done").await;
    harvester.clean_up_migration(&migration).await.unwrap();
    let expected = ["planned", "in-progress", "done"];
    let expected = expected.map(|state| ("live-migration", state, "MigrationRequested"));
    stage.ends("manual migration", &expected).await;
}

async fn a_failed_migration_is_published_on_every_channel(on: On) {
    let stage = Stage::new(on).await;
    let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
    let migration = harvester.prepare_migration(vm, "hv-b").await.unwrap();
    stage.becomes(1, "planned").await;
    harvester.copy_memory(&migration).await.unwrap();
    stage.becomes(2, "in-progress").await;
    harvester
        .end_as_failed(&migration, "no memory")
        .await
        .unwrap();
    stage.becomes(3, "failed").await;
    assert_eq!(published(&stage.world)[2]["message"], "no memory");
    let expected = ["planned", "in-progress", "failed"];
    let expected = expected.map(|state| ("live-migration", state, "MigrationRequested"));
    stage.ends("failed migration", &expected).await;
}

async fn an_aborted_migration_is_published_on_every_channel(on: On) {
    let stage = Stage::new(on).await;
    let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
    let migration = harvester.prepare_migration(vm, "hv-b").await.unwrap();
    stage.becomes(1, "planned").await;
    harvester.copy_memory(&migration).await.unwrap();
    stage.becomes(2, "in-progress").await;
    harvester.abort_migration(&migration).await.unwrap();
    stage.becomes(3, "canceled").await;
    let expected = ["planned", "in-progress", "canceled"];
    let expected = expected.map(|state| ("live-migration", state, "MigrationRequested"));
    stage.ends("aborted migration", &expected).await;
}

async fn maintenance_with_each_strategy_is_published_on_every_channel(on: On) {
    for (strategy, message) in [
        (
            "ShutdownAndRestartAfterEnable",
            "the VM starts on another host after maintenance mode is enabled",
        ),
        (
            "ShutdownAndRestartAfterDisable",
            "the VM starts after maintenance mode is disabled",
        ),
        ("Shutdown", "the VM stays stopped after the maintenance"),
    ] {
        let stage = Stage::new(on).await;
        let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
        harvester
            .set_maintenance_strategy(vm, strategy)
            .await
            .unwrap();
        harvester.maintain(vm).await.unwrap();
        stage.becomes(1, "in-progress").await;
        let event = published(&stage.world)[0].clone();
        assert_eq!(event["message"], message);
        assert!(event["deadline"].is_string(), "{event}");
        let expected = [("stop", "in-progress", "HostMaintenance")];
        stage
            .ends(&format!("maintenance, {strategy}"), &expected)
            .await;
    }
}

async fn a_stop_a_restart_and_a_deletion_are_published_on_every_channel(on: On) {
    for (name, reason) in [
        ("stop", "VMStopped"),
        ("restart", "VMRestarted"),
        ("deletion", "VMDeleted"),
    ] {
        let stage = Stage::new(on).await;
        let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
        match name {
            "deletion" => harvester.begin_deletion(vm).await.unwrap(),
            _ => harvester.begin_stop(vm, name == "stop").await.unwrap(),
        }
        stage.becomes(1, "in-progress").await;
        let mut expected = vec![("stop", "in-progress", reason)];
        if name == "restart" {
            harvester.end_stop(vm).await.unwrap();
            harvester.start_vm(vm, "hv-b").await.unwrap();
            stage.becomes(2, "done").await;
            expected.push(("stop", "done", reason));
        }
        stage.ends(name, &expected).await;
    }
}

async fn a_killed_agent_neither_repeats_nor_loses_a_state(on: On) {
    let mut stage = Stage::new(on).await;
    stage.world.harvester.evict(&stage.world.vm).await.unwrap();
    stage.becomes(1, "planned").await;
    let state = stage
        .world
        .guest
        .root()
        .join("var/lib/harvester-node-agent/state.json");
    let is_saved = || async {
        std::fs::read_to_string(&state)
            .unwrap()
            .contains("\"planned\"")
    };
    eventually(SOON, "the state is saved", is_saved).await;
    stage.agent.signal(Signal::SIGKILL);
    stage.agent.wait_exit(SOON).await;
    // A reboot loses the file.
    stage
        .world
        .guest
        .remove("/run/harvester-node-agent/events.json");
    let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
    let migration = harvester.prepare_migration(vm, "hv-b").await.unwrap();
    harvester.copy_memory(&migration).await.unwrap();
    harvester
        .switch_host(&migration, Order::UpTo1_5)
        .await
        .unwrap();
    let _agent = serve(&stage.world).await;
    stage.becomes(2, "done").await;
    let events = published(&stage.world);
    assert_eq!(events[0]["id"], events[1]["id"], "{events:#?}");
    assert_eq!(events[1]["targetHost"], "hv-b", "{events:#?}");
}

async fn an_agent_that_is_killed_before_it_saved_a_state_creates_its_event_once(on: On) {
    let mut stage = Stage::new(on).await;
    stage.world.harvester.evict(&stage.world.vm).await.unwrap();
    stage.becomes(1, "planned").await;
    let id = published(&stage.world)[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let is_sent = || async { node_events(&stage.world, &id).await.len() == 1 };
    eventually(SOON, "the Event is sent", is_sent).await;
    stage.agent.signal(Signal::SIGKILL);
    stage.agent.wait_exit(SOON).await;
    for file in [
        "/var/lib/harvester-node-agent/state.json",
        "/run/harvester-node-agent/events.json",
    ] {
        stage.world.guest.remove(file);
    }
    let _agent = serve(&stage.world).await;
    stage.becomes(1, "planned").await;
    assert_eq!(published(&stage.world)[0]["id"], *id);
    // Events are sent in order.
    let (harvester, vm) = (&stage.world.harvester, &stage.world.vm);
    let migration = harvester.prepare_migration(vm, "hv-b").await.unwrap();
    harvester.copy_memory(&migration).await.unwrap();
    let last = "LiveMigrationInProgress";
    let sent = || async { node_events(&stage.world, &id).await };
    let is_sent = || async { sent().await.iter().any(|reason| reason == last) };
    eventually(SOON, "the next Event is sent", is_sent).await;
    assert_eq!(sent().await, ["LiveMigrationPlanned", last]);
}

#[tokio::test]
async fn a_follower_says_that_no_agent_runs() {
    let world = World::lab(WorldOptions::default()).await;
    let mut follower = world.spawn_agent(BINARY, &["events", "--follow", "-o", "json"]);
    let says = |line: &Line| {
        line.text
            .starts_with("warning: later scheduled events are unknown")
    };
    let line = follower.wait_line(says, SOON).await;
    assert_eq!(line.stream, Stream::Stderr);
}

async fn nothing_announced_costs_nothing(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let before = world.agent_writes().await.len();
    world.harvester.touch(&world.vm).await.unwrap();
    // The watch delivers this change after that one.
    let zone = [(ZONE, Some("rack-d"))];
    world.harvester.relabel_host("hv-a", &zone).await.unwrap();
    world.harvester.annotate(&world.vm).await.unwrap();
    label_becomes(&world, ZONE, "rack-d").await;
    let writes = world.agent_writes().await;
    // The Event of a finding is sent beside the loop.
    let mut later = writes[before..].iter();
    let first = later.find(|write| !write.path.contains("/events"));
    let first = &first.unwrap().body;
    assert_eq!(first["metadata"]["labels"][ZONE], "rack-d", "{writes:#?}");
    let requests = world.agent_requests(Side::Harvester).await;
    let of_vm = |request: &&RequestRecord| request.path.contains("/virtualmachines/");
    assert_eq!(requests.iter().filter(of_vm).count(), 0, "{requests:#?}");
    assert!(published(&world).is_empty());
    assert_eq!(condition(&world, "MaintenancePlanned").await, None);
}

/// The definition of the rules, with the limits of the node readiness controller's own.
fn node_readiness_rule_definition() -> Value {
    let name = json!({"type": "string", "minLength": 1, "maxLength": 316});
    let choice = |values: &[&str]| json!({"type": "string", "enum": values});
    let conditions = json!({
        "type": "array", "minItems": 1, "maxItems": 32,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object", "required": ["type", "requiredStatus"],
            "properties": {"type": name, "requiredStatus": choice(&["True", "False", "Unknown"])},
        },
    });
    let taint = json!({
        "type": "object", "required": ["key", "effect"],
        "properties": {"key": name, "value": {"type": "string"}, "effect": {"type": "string"}},
    });
    let spec = json!({
        "type": "object", "required": ["conditions", "taint", "nodeSelector"],
        "properties": {
            "conditions": conditions,
            "taint": taint,
            "enforcementMode": choice(&["bootstrap-only", "continuous"]),
            "nodeSelector": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "dryRun": {"type": "boolean"},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "nodereadinessrules.readiness.node.x-k8s.io",
            // The group is a protected one.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "readiness.node.x-k8s.io",
            "scope": "Cluster",
            "names": {
                "kind": "NodeReadinessRule", "listKind": "NodeReadinessRuleList",
                "plural": "nodereadinessrules", "singular": "nodereadinessrule",
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "required": ["spec"], "properties": {"spec": spec},
                }},
            }],
        },
    })
}

async fn the_shipped_node_readiness_rules_are_valid(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = node_readiness_rule_definition();
    let admin = &world.guest_admin;
    admin
        .create_if_absent(definitions, &definition)
        .await
        .unwrap();
    let rules = "/apis/readiness.node.x-k8s.io/v1alpha1/nodereadinessrules";
    let is_served = || async { admin.get(rules).await.is_ok() };
    eventually(SOON, "the rules are served", is_served).await;
    let text = include_str!("../../packaging/kubernetes/node-readiness-rules.yaml");
    let mut count = 0;
    for part in text.split("\n---\n") {
        let rule: Value = yaml_serde::from_str(part).unwrap();
        let stored = admin.create(rules, &rule).await.unwrap();
        // A field that the definition lacks is dropped.
        assert_eq!(stored["spec"], rule["spec"]);
        for condition in rule["spec"]["conditions"].as_array().unwrap() {
            let known = [
                "MaintenancePlanned",
                "MaintenanceInProgress",
                crate::IDENTITY,
                TOPOLOGY,
            ];
            let kind = condition["type"].as_str().unwrap();
            assert!(known.contains(&kind), "{kind}");
        }
        count += 1;
    }
    assert_eq!(count, 2);
}

#[tokio::test]
async fn a_follower_of_a_file_that_is_damaged_and_repaired_prints_each_state_once() {
    let world = World::lab(WorldOptions::default()).await;
    let path = "/run/harvester-node-agent/events.json";
    let line = |state: &str| {
        format!(
            "{{\"id\":\"a\",\"time\":\"t\",\"state\":\"{state}\",\"type\":\"stop\",\"reason\":\"VMStopped\",\"source\":\"s\"}}\n"
        )
    };
    // As the agent does.
    let write = |text: &str| world.guest.write_as(path, text, 0o644, Writing::Rename);
    let (planned, next) = (line("planned"), line("in-progress"));
    write(&planned);
    let mut follower = world.spawn_agent(BINARY, &["events", "--follow", "-o", "json"]);
    let is = |state: &'static str| move |line: &Line| line.text.contains(state);
    follower.wait_line(is("planned"), SOON).await;
    write(&format!("{planned}{next}"));
    follower.wait_line(is("in-progress"), SOON).await;
    write(&format!("{planned}{{\n"));
    let told = follower
        .wait_line(is("line 2 is not a scheduled event"), SOON)
        .await;
    assert_eq!(told.stream, Stream::Stderr);
    write(&format!("{planned}{next}{}", line("done")));
    follower.wait_line(is("done"), SOON).await;
    let lines = follower.lines().into_iter();
    let events = lines.filter(|line| line.stream == Stream::Stdout);
    assert_eq!(events.count(), 3, "{}", follower.transcript());
}
