// SPDX-License-Identifier: Apache-2.0
//! What the agent costs the API servers, counted on the wire: little at rest, less and less in an overload, and nothing that a
//! fleet would do in the same second.

use std::time::{Duration, Instant};

use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::harvester::{Firmware, VmSpec};
use harvester_lab::process::{Agent, Line, Signal};
use harvester_lab::server::{RequestRecord, Server};
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{AGENT, HostAccess, VM_NAME, World, WorldOptions, eventually};
use serde_json::json;

use crate::{
    HOST, IDENTITY, SOON, TOPOLOGY, ZONE, agent, condition_becomes, lab, label_becomes, serve,
};

const PORT: &str = "io.harvesterhci.node_agent.0";
const VMIS: &str = "virtualmachineinstances";

fn both(world: &World) -> [&Server; 2] {
    [lab(&world.harvester_api), lab(&world.guest_api)]
}

/// An agent that has nothing left to do; what it asked for until then is forgotten.
async fn at_rest(world: &World) -> Agent {
    let agent = serve(world).await;
    condition_becomes(world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(world, IDENTITY, "True", "NamesMatch").await;
    for server in both(world) {
        eventually(SOON, "a watch", async || server.watch_count() > 0).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for server in both(world) {
        server.clear_requests();
    }
    agent
}

/// What the agent asked of both APIs.
fn asked(world: &World) -> Vec<RequestRecord> {
    let requests = both(world).map(|server| server.requests_of(AGENT));
    requests.into_iter().flatten().collect()
}

fn count(requests: &[RequestRecord], verb: &str) -> usize {
    requests.iter().filter(|one| one.verb == verb).count()
}

/// Ends all watches in order, and waits until all are back.
async fn watches_come_back(world: &World) {
    for server in both(world) {
        server.end_watches();
        let asked = || count(&server.requests_of(AGENT), "watch") > 0;
        eventually(SOON, "the next watch", async || asked()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overload_of_a_minute_is_asked_less_and_less_by_reads_and_watch_together() {
    let world = World::lab(WorldOptions::default()).await;
    let agent = at_rest(&world).await;
    for server in both(&world) {
        server.faults().inject(
            Matcher::any().user_agent(AGENT),
            Fault::too_many_requests("1"),
        );
        server.end_watches();
    }
    let began = Instant::now();
    agent.signal(Signal::SIGHUP);
    tokio::time::sleep(Duration::from_secs(60)).await;
    for server in both(&world) {
        let requests = server.requests_of(AGENT);
        let half = began + Duration::from_secs(30);
        let early = requests.iter().filter(|one| one.at < half).count();
        let late = requests.len() - early;
        println!(
            "{}: {early} requests in the first half of the minute, {late} in the second",
            server.url()
        );
        assert!(requests.len() <= 25, "{} requests", requests.len());
        assert!(late <= early, "{early}, then {late}");
        assert!(early >= 2, "the agent does not try: {early}");
        server.faults().clear();
    }
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
    tokio::time::sleep(Duration::from_secs(1)).await;
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
async fn a_daemon_lists_late_where_no_name_leads_to_its_vm_and_then_labels() {
    let world = World::lab(WorldOptions::default()).await;
    // The kubelet's name is the VM's in this lab, so the VM gets another one: a copy of it with the same hardware.
    let mut other = VmSpec::named("gc8-renamed");
    other.serial.clone_from(&world.vm.spec.serial);
    other.macs.clone_from(&world.vm.spec.macs);
    other.firmware = Firmware::Fixed(world.vm.firmware_uuid.clone());
    world.harvester.create_vm(other, "hv-b").await.unwrap();
    let path = harvester_lab::admin::paths::vmi(&world.vm.spec.namespace, VM_NAME);
    world.harvester.admin().delete(&path).await.unwrap();
    let _agent = serve(&world).await;
    let server = lab(&world.harvester_api);
    let lists = || count(&server.requests_of(AGENT), "list");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let early = lists();
    let patience = Duration::from_secs(80);
    let labelled = async || world.node_label(HOST).await.as_deref() == Some("hv-b");
    eventually(patience, "the VM of another name is found", labelled).await;
    println!("{early} lists in the first second, {} in all", lists());
    assert!(lists() <= 2, "{} lists", lists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_end_come_back_where_they_stood_with_nothing_read_beside_them() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = at_rest(&world).await;
    watches_come_back(&world).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let requests = asked(&world);
    assert_eq!(count(&requests, "watch"), 2, "{requests:#?}");
    assert_eq!(requests.len(), 2, "{requests:#?}");
    let fresh = requests.iter().filter(|one| {
        let mut query = one.query.split('&');
        query.any(|part| part == "resourceVersion=0")
    });
    assert_eq!(fresh.count(), 0, "{requests:#?}");
    // And they work.
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_while_watches_wait_is_labelled_after_the_hint_of_the_guest() {
    let world = World::lab(WorldOptions::default()).await;
    let calm = "[timing]\nwatch_delay = \"10m\"\n";
    world.guest.agent_config("10-calm.toml", calm);
    let mut port = VirtioPort::offer(&world.guest, PORT);
    let agent = at_rest(&world).await;
    for server in both(&world) {
        server.end_watches();
    }
    let is_sign = |line: &Line| line.text.contains("possible live migration (port:");
    let deadline = Instant::now() + SOON;
    while !agent.lines().iter().any(is_sign) {
        assert!(Instant::now() < deadline, "{}", agent.transcript());
        port.hang_up();
        port.come_back();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.migrate("hv-b").await;
    let told = Instant::now();
    label_becomes(&world, ZONE, "rack-b").await;
    let took = told.elapsed();
    println!("labelled {took:?} after the API told it");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(
        count(&asked(&world), "watch"),
        0,
        "a watch was back already"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_that_cannot_be_sent_back_does_not_end_the_watch_for_good() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = at_rest(&world).await;
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
    assert_eq!(server.watch_count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_costs_three_calls_and_four_events_at_most_and_no_read_of_what_the_watch_delivers()
 {
    let options = WorldOptions {
        access: HostAccess::Nodes,
        ..WorldOptions::default()
    };
    let world = World::lab(options).await;
    let _agent = at_rest(&world).await;
    for (host, zone) in [("hv-b", "rack-b"), ("hv-c", "rack-c"), ("hv-b", "rack-b")] {
        for server in both(&world) {
            server.clear_requests();
        }
        world.migrate(host).await;
        label_becomes(&world, ZONE, zone).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let requests = asked(&world);
        let calls: Vec<String> = requests
            .iter()
            .map(|one| format!("{} {}", one.verb, one.path))
            .collect();
        println!("{calls:?}");
        // The three states of the scheduled event, and the new host.
        let events = requests.iter().filter(|one| one.path.ends_with("/events"));
        assert!(events.count() <= 4, "{calls:#?}");
        assert!(calls.len() <= 7, "{calls:#?}");
        let reads: Vec<&RequestRecord> = requests.iter().filter(|one| one.verb == "get").collect();
        assert!(reads.len() <= 1, "{calls:#?}");
        let of_host = format!("/api/v1/nodes/{host}");
        assert!(reads.iter().all(|one| one.path == of_host), "{calls:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_events_costs_little_of_a_processor() {
    const EVENTS: usize = 1000;
    let world = World::lab(WorldOptions::default()).await;
    let agent = at_rest(&world).await;
    let path = harvester_lab::admin::paths::vmi(&world.vm.spec.namespace, VM_NAME);
    let server = lab(&world.harvester_api);
    let vmi = server.get(&path).unwrap();
    let event = |number: usize| {
        let mut vmi = vmi.clone();
        vmi["metadata"]["annotations"]["example.com/number"] = json!(number.to_string());
        format!("{}\n", json!({"type": "MODIFIED", "object": vmi}))
    };
    let flood: String = (0..EVENTS).map(event).collect();
    let before = agent.usage().unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        server.write_to_watches(flood.as_bytes());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = agent.usage().unwrap();
    let took = began.elapsed();
    let part = (after.cpu - before.cpu).as_secs_f64() / took.as_secs_f64();
    println!(
        "{:.1} % of a processor, RSS {} KiB",
        part * 100.0,
        after.rss_kib
    );
    // This binary is not optimized; the one that is shipped needs a fifth of it.
    assert!(part <= 0.20, "{part}");
    // The stream with all that is old is left, and the next one tells what is true.
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
}
