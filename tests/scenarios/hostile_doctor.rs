// SPDX-License-Identifier: Apache-2.0
//! `doctor` against objects that are as large and as dense as they may be: it takes little memory, and says which field is wrong.

use std::time::Duration;

use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::process::Agent;
use harvester_lab::server::Server;
use harvester_lab::world::{AGENT, World, WorldOptions};
use serde_json::{Value, json};

use crate::hostile::{MOST, filled};
use crate::{BINARY, lab};

/// The most that a list may bring it to, in KiB: a page of 8 MiB is in memory as a whole, and `MemoryMax=` is 64 MiB.
const MOST_OF_LIST: u64 = 48 << 10;

/// Runs `doctor` while one object has this body, and returns what it printed. Between two looks it waits for a second, so that the
/// most memory that it took is read before it ends.
async fn doctor(world: &World, server: &Server, path: &str, body: &str, what: &str) -> String {
    let matcher = Matcher::path(path)
        .user_agent(AGENT)
        .when(|seen| seen.verb != "watch");
    let fault = Fault::answer(200, "application/json", body);
    let injected = server.faults().inject(matcher, fault);
    let args = ["doctor", "-ojson", "--strict", "--wait", "4s"];
    let mut doctor = Agent::spawn(BINARY, world.guest.root(), &args, &[]);
    let mut peak = 0;
    while doctor.exited().is_none() {
        let usage = doctor.usage();
        peak = usage.map_or(peak, |usage| usage.peak_rss_kib.max(peak));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // All lines have arrived when the last one has.
    doctor.wait_line(|line| line.text == "}", crate::SOON).await;
    println!("peak {peak} KiB: {what}");
    // A second round is up to the machine's load; the process lives for 4 s in any case, so that its peak is read.
    assert!(injected.hits() >= 1, "{what}: no request");
    assert!((1..=MOST).contains(&peak), "{what}: {peak} KiB");
    server.faults().clear();
    doctor
        .lines()
        .iter()
        .map(|line| line.text.clone() + "\n")
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_takes_little_memory_for_a_large_or_dense_node() {
    let world = World::lab(WorldOptions::default()).await;
    let mut node = world.node().await;
    node["x"] = Value::Null;
    node["metadata"]["managedFields"] = json!([]);
    let list = ["[", "]"];
    let path = format!("/api/v1/nodes/{}", world.node_name());
    for (place, piece, brackets, said) in [
        ("/x", "[]", list, ""),
        ("/x", "{}", list, ""),
        ("/metadata/managedFields", "{}", list, ""),
        (
            "/spec/taints",
            "{}",
            list,
            "`spec.taints`: more than 256 entries",
        ),
        (
            "/status/addresses",
            "{}",
            list,
            "`status.addresses`: more than 256 entries",
        ),
        (
            "/metadata/annotations",
            "\"N\":\"\"",
            ["{", "}"],
            "`metadata.annotations`: more than 10000 entries",
        ),
    ] {
        let mut node = node.clone();
        node["spec"]["taints"] = json!([]);
        node["status"]["addresses"] = json!([]);
        node["metadata"]["annotations"] = json!({});
        let body = filled(
            node,
            place,
            |number| piece.replace('N', &number.to_string()),
            brackets,
        );
        let what = format!("{place} of the Node with {piece}");
        let text = doctor(&world, lab(&world.guest_api), &path, &body, &what).await;
        assert!(text.contains(said), "{said}\n{text}");
    }
    for (place, said) in [
        (
            "annotations",
            "`metadata.annotations`: longer than 262144 bytes",
        ),
        ("labels", "`metadata.labels`: longer than 262144 bytes"),
        ("uid", "`metadata.uid`: longer than 253 bytes"),
    ] {
        let mut node = node.clone();
        let long = json!("x".repeat(2_000_000));
        node["metadata"][place] = match place {
            "uid" => long,
            _ => json!({"a": long}),
        };
        let body = node.to_string();
        let text = doctor(&world, lab(&world.guest_api), &path, &body, said).await;
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_takes_little_memory_for_a_large_or_dense_vmi() {
    let world = World::lab(WorldOptions::default()).await;
    let mut vmi = world.harvester.vmi(&world.vm).await.unwrap();
    vmi["kind"] = json!("VirtualMachineInstance");
    vmi["x"] = Value::Null;
    vmi["status"]["interfaces"][0]["ipAddresses"] = json!([]);
    let list = ["[", "]"];
    for (place, piece, said) in [
        ("/x", "[]", ""),
        ("/status/interfaces/0/ipAddresses", "\"::\"", ""),
        (
            "/status/interfaces",
            r#"{"ipAddresses":["::"]}"#,
            "`status.interfaces`: more than 4096 entries",
        ),
        (
            "/status/conditions",
            r#"{"type":"LiveMigratable"}"#,
            "`status.conditions`: more than 256 entries",
        ),
    ] {
        let body = filled(vmi.clone(), place, |_| piece.to_owned(), list);
        let what = format!("{place} of the VMI with {piece}");
        let server = lab(&world.harvester_api);
        let path = format!("virtualmachineinstances/{}", world.node_name());
        let text = doctor(&world, server, &path, &body, &what).await;
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_of_dense_vms_takes_little_memory() {
    const PAGES: usize = 4;
    const OF_PAGE: usize = 70;
    let world = World::lab(WorldOptions::default()).await;
    let server = lab(&world.harvester_api);
    let mut vmi = world.harvester.vmi(&world.vm).await.unwrap();
    vmi["metadata"]["annotations"] = json!("HERE");
    vmi["spec"] = json!({});
    // As many as an object may have, and in one of them more.
    let annotations = |count: usize| {
        let entries: Vec<String> = (0..count).map(|key| format!("\"k{key}\":\"\"")).collect();
        format!("{{{}}}", entries.join(","))
    };
    let (dense, denser) = (annotations(10_000), annotations(10_001));
    let mut pages = Vec::new();
    for page in 0..PAGES {
        let item = |number: usize| {
            let number = page * OF_PAGE + number;
            let mut vmi = vmi.clone();
            vmi["metadata"]["name"] = json!(format!("other-{number}"));
            vmi["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
            let annotations = if number == 1 { &denser } else { &dense };
            vmi.to_string().replace("\"HERE\"", annotations)
        };
        let items: Vec<String> = (0..OF_PAGE).map(item).collect();
        let next = if page + 1 < PAGES {
            format!("p{}", page + 1)
        } else {
            String::new()
        };
        let body = format!(
            r#"{{"kind":"VirtualMachineInstanceList","metadata":{{"continue":"{next}"}},"items":[{}]}}"#,
            items.join(",")
        );
        let matcher = Matcher::path("/virtualmachineinstances")
            .user_agent(AGENT)
            .verb("list")
            .when(move |seen| match page {
                0 => !seen.query.contains("continue="),
                _ => seen.query.contains(&format!("continue=p{page}")),
            });
        let fault = Fault::answer(200, "application/json", &body);
        pages.push(server.faults().inject(matcher, fault));
    }
    let args = ["doctor", "-ojson", "--wait", "4s"];
    let mut doctor = Agent::spawn(BINARY, world.guest.root(), &args, &[]);
    let mut peak = 0;
    while doctor.exited().is_none() {
        let usage = doctor.usage();
        peak = usage.map_or(peak, |usage| usage.peak_rss_kib.max(peak));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let hits: Vec<usize> = pages
        .iter()
        .map(harvester_lab::faults::Injected::hits)
        .collect();
    println!("peak {peak} KiB, pages {hits:?}");
    // This binary is not optimized, and may give up the objects as a whole after their metadata.
    assert!(hits.iter().all(|hits| *hits >= 1), "{hits:?}");
    assert!((1..=MOST_OF_LIST).contains(&peak), "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_takes_little_memory_for_many_or_dense_pods() {
    let world = World::lab(WorldOptions::default()).await;
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []});
    let dense = r#"{"spec":{"containers":[C]}}"#;
    let image = r#"{"image":"rancher/harvester-csi-driver:v0.2.2"}"#;
    for (piece, said) in [
        ("{}".to_owned(), "more than 10000 entries"),
        (dense.replace('C', &vec![image; 200].join(",")), ""),
        (
            dense.replace('C', &vec!["{}"; 300].join(",")),
            "`spec.containers`: more than 256 entries",
        ),
    ] {
        let body = filled(pods.clone(), "/items", |_| piece.clone(), ["[", "]"]);
        let what = format!("pods with {:.40}", piece);
        let server = lab(&world.guest_api);
        let text = doctor(&world, server, "/api/v1/pods", &body, &what).await;
        assert!(text.contains(said), "{said}\n{text}");
    }
}
