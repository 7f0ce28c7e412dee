// SPDX-License-Identifier: Apache-2.0
//! Input that is made to hurt: objects, documents and messages that are large, dense, ambiguous or another's. For each: one
//! finding that names object and field, labels that stay, and an agent that lives. In `slow` they are as large as can be, and memory
//! stays small; what one of them allocates is measured in `tests/fuzz`.

use std::collections::BTreeMap;

use harvester_lab::bus::{Bus, Hostnamed, Systemd};
use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::process::{Agent, Signal};
use harvester_lab::world::{AGENT, World, WorldOptions, eventually, nothing_is_missing};
use serde_json::{Value, json};

use crate::{HOST, SOON, TOPOLOGY, ZONE, condition_becomes, lab, label_becomes, serve};

/// The most that the agent may ever take, in KiB.
pub(crate) const MOST: u64 = 32 << 10;

/// As large as an object may be.
pub(crate) const OBJECT: usize = 2 << 20;

/// Large enough for more entries than any list or map may have.
pub(crate) const DENSE: usize = 256 << 10;

/// Its peak so far, so once at the end of a test is enough.
pub(crate) fn stays_small(agent: &Agent, most: u64) {
    let peak = agent.usage().unwrap().peak_rss_kib;
    println!("peak {peak} KiB");
    assert!(peak <= most, "{peak} KiB");
}

pub(crate) async fn labels_stay(world: &World, what: &str) {
    for (key, value) in [(ZONE, "rack-a"), (HOST, "hv-a")] {
        assert_eq!(
            world.node_label(key).await.as_deref(),
            Some(value),
            "{what}"
        );
    }
}

/// What the findings of the status file have seen.
fn seen(world: &World) -> String {
    world.guest.status().unwrap_or_default()["findings"].to_string()
}

async fn is_said(world: &World, parts: &[&str]) {
    let missing = async || {
        let seen = seen(world);
        let is_said = parts.iter().all(|part| seen.contains(part));
        (!is_said).then(|| format!("{parts:?} in {seen}"))
    };
    nothing_is_missing(SOON, missing).await;
}

/// The object with `piece` repeated in a list or map at a place of it, up to a size.
pub(crate) fn filled(
    size: usize,
    mut object: Value,
    place: &str,
    piece: impl Fn(usize) -> String,
    brackets: [&str; 2],
) -> String {
    *object.pointer_mut(place).unwrap() = json!("HERE");
    let text = object.to_string();
    let mut pieces = String::new();
    let mut number = 0;
    while text.len() + pieces.len() < size - 4096 {
        if number > 0 {
            pieces.push(',');
        }
        pieces.push_str(&piece(number));
        number += 1;
    }
    text.replace(
        "\"HERE\"",
        &format!("{}{pieces}{}", brackets[0], brackets[1]),
    )
}

/// Those that are dense have this size.
async fn objects_that_cannot_be_trusted(size: usize) -> (World, Agent) {
    let world = World::lab(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let mut vmi = world.harvester.vmi(&world.vm).await.unwrap();
    vmi["kind"] = json!("VirtualMachineInstance");
    let text = vmi.to_string();
    let twice = |field: &str, key: &str| {
        let mut vmi = vmi.clone();
        vmi["metadata"][field] = json!("HERE");
        let text = vmi.to_string();
        text.replace("\"HERE\"", &format!(r#"{{"{key}":"a","{key}":"EVIL"}}"#))
    };
    let mut other = vmi.clone();
    other["metadata"]["namespace"] = json!("stranger");
    let pod = text.replace("\"VirtualMachineInstance\"", "\"Pod\"");
    for (body, code, parts) in [
        (
            twice("labels", "harvesterhci.io/creator"),
            "harvester-bad-response",
            [
                "virtualmachineinstances",
                "`metadata.labels`: duplicate field `harvesterhci.io/creator`",
            ],
        ),
        (
            twice("annotations", ZONE),
            "harvester-bad-response",
            [
                "virtualmachineinstances",
                "`metadata.annotations`: duplicate field `topology.kubernetes.io/zone`",
            ],
        ),
        (
            other.to_string(),
            "unexpected-object",
            ["requested VirtualMachineInstance", ", got "],
        ),
        (
            pod,
            "unexpected-object",
            ["requested VirtualMachineInstance", ", got "],
        ),
    ] {
        let server = lab(&world.harvester_api);
        let matcher = Matcher::path("virtualmachineinstances")
            .user_agent(AGENT)
            .when(|seen| seen.verb != "watch");
        let fault = Fault::answer(200, "application/json", &body);
        server.faults().inject(matcher, fault);
        agent.signal(Signal::SIGHUP);
        world.findings_become(&[code]).await;
        is_said(&world, &parts).await;
        labels_stay(&world, parts[1]).await;
        server.faults().clear();
        agent.signal(Signal::SIGHUP);
        world.findings_become(&[]).await;
    }
    let node = world.node().await;
    let path = format!("/api/v1/nodes/{}", world.node_name());
    let mut labels = node.clone();
    labels["metadata"]["labels"] = json!("HERE");
    let labels = labels
        .to_string()
        .replace("\"HERE\"", r#"{"zone":"a","zone":"EVIL"}"#);
    let mut renamed = node.clone();
    renamed["metadata"]["name"] = json!("stranger");
    for (body, code, parts) in [
        (
            labels,
            "guest-api-bad-response",
            [path.as_str(), "`metadata.labels`: duplicate key `zone`"],
        ),
        (
            renamed.to_string(),
            "unexpected-object",
            ["requested Node", "got Node `stranger`"],
        ),
    ] {
        let server = lab(&world.guest_api);
        let matcher = Matcher::path(&path).user_agent(AGENT).verb("get");
        server
            .faults()
            .inject(matcher, Fault::answer(200, "application/json", &body));
        agent.signal(Signal::SIGHUP);
        world.findings_become(&[code]).await;
        is_said(&world, &parts).await;
        labels_stay(&world, parts[1]).await;
        server.faults().clear();
        agent.signal(Signal::SIGHUP);
        world.findings_become(&[]).await;
    }
    let interfaces = (
        &world.harvester_api,
        "virtualmachineinstances",
        filled(
            size,
            vmi,
            "/status/interfaces",
            |_| "{}".to_owned(),
            ["[", "]"],
        ),
    );
    let conditions = (
        &world.guest_api,
        path.as_str(),
        filled(
            size,
            node,
            "/status/conditions",
            |_| r#"{"type":""}"#.to_owned(),
            ["[", "]"],
        ),
    );
    for (api, path, body) in [interfaces, conditions] {
        let matcher = Matcher::path(path)
            .user_agent(AGENT)
            .when(|seen| seen.verb == "get");
        let fault = Fault::answer(200, "application/json", &body);
        let injected = lab(api).faults().inject(matcher, fault);
        // When the second request comes, the answer to the first one has been read.
        for hits in [1, 2] {
            agent.signal(Signal::SIGHUP);
            eventually(SOON, path, || async { injected.hits() >= hits }).await;
        }
        world.findings_become(&[]).await;
        lab(api).faults().clear();
    }
    (world, agent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_write_into_a_status_takes_no_label_away() {
    let world = World::lab(WorldOptions::default()).await;
    let condition = |number: usize, length: usize| json!({"type": format!("Other{number}"), "status": "True", "message": "m".repeat(length)});
    let mut conditions = vec![condition(0, 40_000)];
    conditions.extend((1..300).map(|number| condition(number, 1)));
    crate::doctor_conflicts::conditions(&world, json!(conditions)).await;
    let path = format!("/api/v1/nodes/{}", world.node_name());
    let status = json!({"status": {"conditions": conditions}});
    let admin = &world.guest_admin;
    admin.strategic_patch_status(&path, &status).await.unwrap();
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    world.settles_on("hv-b", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_cannot_be_trusted_is_named_with_its_field_and_labels_stay() {
    let (_world, _agent) = objects_that_cannot_be_trusted(DENSE).await;
}

/// Those that are too large have this size or more.
async fn entries_that_cannot_be_used(size: usize) -> (World, Agent) {
    let world = World::lab(WorldOptions::default()).await;
    world
        .guest
        .agent_config("10-source.toml", "[topology]\nsources = [\"configmap\"]\n");
    world.harvester.publish_topology("topology").await.unwrap();
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    labels_stay(&world, "at the start").await;
    let name = "entry `hv-a` of ConfigMap harvester-public/topology";
    // Aliases of one scalar, 200 MB when they are expanded; with a few bytes more than an entry may have, and with fewer.
    let aliases = |number: usize| {
        format!(
            "a: &a \"{}\"\nb: [{}]\n",
            "x".repeat(12_000),
            "*a,".repeat(number)
        )
    };
    for (entry, said) in [
        (aliases(19_000), "is larger than 65536 bytes"),
        (aliases(17_000), "uses an alias"),
        ("[".repeat(size), "is larger than 65536 bytes"),
        ("[".repeat(60_000), "nests deeper than 64 levels"),
        ("a: 1\n".repeat(2), "has the duplicate key `a`"),
        ("- a".to_owned(), "is a list, expected a mapping of labels"),
        (
            format!("{ZONE}: [a]"),
            "`topology.kubernetes.io/zone` is a list",
        ),
    ] {
        let data = BTreeMap::from([("hv-a".to_owned(), entry)]);
        world.harvester.publish("topology", &data).await.unwrap();
        agent.signal(Signal::SIGHUP);
        world.findings_become(&["no-topology-source"]).await;
        is_said(&world, &[name, said]).await;
        labels_stay(&world, said).await;
    }
    world.harvester.publish_topology("topology").await.unwrap();
    agent.signal(Signal::SIGHUP);
    world.findings_become(&[]).await;
    (world, agent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_the_configmap_that_cannot_be_used_is_named_and_labels_stay() {
    let (_world, _agent) = entries_that_cannot_be_used(DENSE).await;
}

mod slow {
    use super::*;

    /// The most that signals on the bus may add, in KiB. What is there before is mostly code, and more of it than in a release.
    const MOST_OF_BUS: u64 = 4 << 10;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_large_or_dense_node_takes_little_memory_and_is_labelled() {
        let world = World::lab(WorldOptions::default()).await;
        let agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        let mut node = world.node().await;
        node["x"] = Value::Null;
        node["metadata"]["managedFields"] = json!([]);
        let fields =
            json!([{"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:status": {}}}]);
        let with_fields = |place: &str| {
            let mut node = node.clone();
            node["metadata"]["managedFields"] = fields.clone();
            let place = format!("/metadata/managedFields/0/fieldsV1{place}");
            filled(
                OBJECT,
                node,
                &place,
                |number| format!("\"f:{number}\":{{}}"),
                ["{", "}"],
            )
        };
        let path = format!("/api/v1/nodes/{}", world.node_name());
        for (what, body) in [
            ("fields", with_fields("/f:status")),
            ("fields of labels", with_fields("/f:metadata/f:labels")),
            (
                "managers",
                filled(
                    OBJECT,
                    node.clone(),
                    "/metadata/managedFields",
                    |_| "{}".to_owned(),
                    ["[", "]"],
                ),
            ),
            (
                "a field that nothing reads",
                filled(OBJECT, node.clone(), "/x", |_| "[]".to_owned(), ["[", "]"]),
            ),
        ] {
            let server = lab(&world.guest_api);
            let matcher = Matcher::path(&path).user_agent(AGENT).verb("get");
            let fault = Fault::answer(200, "application/json", &body);
            let injected = server.faults().inject(matcher, fault);
            // When the second request comes, the answer to the first one has been read.
            for hits in [1, 2] {
                agent.signal(Signal::SIGHUP);
                eventually(SOON, what, || async { injected.hits() >= hits }).await;
            }
            world.findings_become(&[]).await;
            labels_stay(&world, what).await;
            server.faults().clear();
        }
        world.migrate("hv-b").await;
        label_becomes(&world, ZONE, "rack-b").await;
        stays_small(&agent, MOST);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn objects_of_the_largest_size_that_cannot_be_trusted_take_little_memory() {
        let (_world, agent) = objects_that_cannot_be_trusted(OBJECT).await;
        stays_small(&agent, MOST);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_entry_of_the_configmap_costs_no_more_than_its_size() {
        let (_world, agent) = entries_that_cannot_be_used(900_000).await;
        stays_small(&agent, MOST);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_signal_of_31_mib_on_the_bus_is_not_kept() {
        let world = World::lab(WorldOptions::default()).await;
        let bus = Bus::start(&world.guest).await;
        let systemd = Systemd::start(&bus, &[]).await;
        let mut agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        eventually(SOON, "it subscribes", async || systemd.is_subscribed()).await;
        let before = agent.usage().unwrap().peak_rss_kib;
        let liar = Hostnamed::impostor(&bus).await;
        let large = "x".repeat(31 << 20);
        // Unique names are counted up: those of the agent are among the first.
        for number in 0..8 {
            liar.announce(Some(&format!(":1.{number}")), &large).await;
        }
        // What comes after them on the same connection is heard.
        world.guest.kernel_hostname("other");
        systemd.unit_files_changed().await;
        agent
            .wait_line(|line| line.text.contains("to `other`: differs"), SOON)
            .await;
        stays_small(&agent, before + MOST_OF_BUS);
        labels_stay(&world, "signals of 31 MiB").await;
    }
}
