// SPDX-License-Identifier: Apache-2.0
//! What the agent costs the API servers, counted on the wire. What it costs over minutes is in `tests/fleet/single.rs`.

use harvester_lab::process::{Agent, Signal};
use harvester_lab::server::{RequestRecord, Server};
use harvester_lab::world::{AGENT, HostAccess, Side, World, WorldOptions, eventually};
use serde_json::json;

use crate::{
    IDENTITY, On, SOON, TOPOLOGY, ZONE, agent, condition_becomes, lab, label_becomes, node_patches,
    on_both, serve,
};

on_both!(
    a_migration_costs_three_calls_and_four_events_at_most_and_no_read_of_what_the_watch_delivers
);

const VMIS: &str = "virtualmachineinstances";

fn both(world: &World) -> [&Server; 2] {
    [lab(&world.harvester_api), lab(&world.guest_api)]
}

/// An agent in the lab that has labeled its Node and watches.
async fn watching(world: &World) -> Agent {
    let agent = serve(world).await;
    condition_becomes(world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(world, IDENTITY, "True", "NamesMatch").await;
    for server in both(world) {
        eventually(SOON, "a watch", async || server.watches_of(AGENT) > 0).await;
    }
    agent
}

/// What the agent asked of both APIs.
fn asked(world: &World) -> Vec<RequestRecord> {
    let requests = both(world).map(|server| server.requests_of(AGENT));
    requests.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_and_a_reload_list_nothing_where_the_name_fits() {
    let world = World::lab(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let of_vmis = |requests: &[RequestRecord], verb: &str| {
        let requests = requests.iter().filter(|one| one.path.contains(VMIS));
        requests.filter(|one| one.verb == verb).count()
    };
    assert_eq!(of_vmis(&asked(&world), "list"), 0, "{:#?}", asked(&world));
    let reads = of_vmis(&asked(&world), "get");
    assert!(reads <= 2, "{reads} reads of the VM at the start");
    agent.signal(Signal::SIGHUP);
    let read_again = async || of_vmis(&asked(&world), "get") > reads;
    eventually(SOON, "the reads after the reload", read_again).await;
    // What follows the reads is over when the next change has been followed.
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    assert_eq!(of_vmis(&asked(&world), "list"), 0, "{:#?}", asked(&world));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_reads_each_object_once() {
    let world = World::lab(WorldOptions::default()).await;
    let output = agent(&world, &["once"]).await;
    assert_eq!(output.code, Some(0), "{}", output.stdout);
    let requests = asked(&world);
    let mut reads: Vec<&str> = requests
        .iter()
        .filter(|one| matches!(one.verb.as_str(), "get" | "list"))
        .map(|one| one.path.as_str())
        .collect();
    let all = reads.len();
    reads.sort_unstable();
    reads.dedup();
    assert_eq!(reads.len(), all, "{requests:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_that_cannot_be_sent_back_does_not_end_the_watch_for_good() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = watching(&world).await;
    let version = "9".repeat(70_000);
    let bookmark = json!({"type": "BOOKMARK", "object": {
        "kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1",
        "metadata": {"resourceVersion": version},
    }});
    let server = lab(&world.harvester_api);
    server.write_to_watches(format!("{bookmark}\n").as_bytes());
    server.end_watches();
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    eventually(SOON, "a watch", async || server.watches_of(AGENT) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_events_does_not_hide_a_migration() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = watching(&world).await;
    let server = lab(&world.harvester_api);
    let vmi = world.harvester.vmi(&world.vm).await.unwrap();
    let event = |number: usize| {
        let mut vmi = vmi.clone();
        vmi["metadata"]["annotations"]["example.com/number"] = json!(number.to_string());
        format!("{}\n", json!({"type": "MODIFIED", "object": vmi}))
    };
    let flood: String = (0..10_000).map(event).collect();
    let before = node_patches(&world).await;
    server.write_to_watches(flood.as_bytes());
    // The stream with all that is old is left, and the next one tells what is true.
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    assert_eq!(node_patches(&world).await, before + 1);
}

async fn a_migration_costs_three_calls_and_four_events_at_most_and_no_read_of_what_the_watch_delivers(
    on: On,
) {
    let options = WorldOptions {
        access: HostAccess::Nodes,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    let of_harvester = async || world.agent_requests(Side::Harvester).await;
    let of_guest = async || world.agent_requests(Side::Guest).await;
    // All is told and nothing is left to do when the Event of a new host and that of the end of its migration are there.
    let announced = async |moves: usize| {
        let events = async |reason: &str| {
            let events = world.events().await;
            let events = events.iter().filter(|event| event["reason"] == reason);
            events.count()
        };
        eventually(SOON, "the Events", async || {
            events("HostChanged").await >= moves && events("LiveMigrationDone").await >= moves
        })
        .await;
    };
    world.migrate("hv-c").await;
    label_becomes(&world, ZONE, "rack-c").await;
    announced(1).await;
    let before = (of_harvester().await.len(), of_guest().await.len());
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    announced(2).await;
    let mut requests = of_harvester().await.split_off(before.0);
    requests.extend(of_guest().await.split_off(before.1));
    let calls: Vec<String> = requests
        .iter()
        .map(|one| format!("{} {}", one.verb, one.path))
        .collect();
    println!("{calls:?}");
    // The three states of the scheduled event, and the new host.
    let events = calls.iter().filter(|call| call.ends_with("/events"));
    assert!(events.count() <= 4, "{calls:#?}");
    assert!(calls.len() <= 7, "{calls:#?}");
    let reads = calls.iter().filter(|call| call.starts_with("get "));
    let reads: Vec<&String> = reads.collect();
    let of_host = ["get /api/v1/nodes/hv-b"];
    assert!(reads.is_empty() || reads == of_host, "{calls:#?}");
}
