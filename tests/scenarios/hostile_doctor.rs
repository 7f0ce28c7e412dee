// SPDX-License-Identifier: Apache-2.0
//! `doctor` against objects that are as dense as they may be, or denser: it says which field is wrong. In `slow` they are as large as
//! they may be, and it takes little memory.

use harvester_lab::faults::{Fault, Injected, Matcher};
use harvester_lab::server::Server;
use harvester_lab::world::{AGENT, World, WorldOptions};
use serde_json::{Value, json};

use crate::hostile::{DENSE, filled};
use crate::{agent, lab};

/// An object or a list in place of what the server has.
struct Case {
    what: String,
    body: String,
    /// What `doctor` says of it.
    said: &'static str,
}

impl Case {
    fn inject(&self, server: &Server, path: &str) -> Injected {
        let matcher = Matcher::path(path)
            .user_agent(AGENT)
            .when(|seen| seen.verb != "watch");
        let fault = Fault::answer(200, "application/json", &self.body);
        server.faults().inject(matcher, fault)
    }
}

const LIST: [&str; 2] = ["[", "]"];
const MAP: [&str; 2] = ["{", "}"];

fn path_of_node(world: &World) -> String {
    format!("/api/v1/nodes/{}", world.node_name())
}

/// Nodes of a size.
async fn nodes(world: &World, size: usize) -> Vec<Case> {
    let mut node = world.node().await;
    node["x"] = Value::Null;
    node["metadata"]["managedFields"] = json!([]);
    let mut cases = Vec::new();
    for (place, piece, brackets, said) in [
        ("/x", "[]", LIST, ""),
        ("/x", "{}", LIST, ""),
        ("/metadata/managedFields", "{}", LIST, ""),
        ("/spec/taints", "{}", LIST, ""),
        ("/status/addresses", "{}", LIST, ""),
        (
            "/metadata/annotations",
            "\"N\":\"\"",
            MAP,
            "`metadata.annotations`: more than 10000 entries",
        ),
    ] {
        let mut node = node.clone();
        node["spec"]["taints"] = json!([]);
        node["status"]["addresses"] = json!([]);
        node["metadata"]["annotations"] = json!({});
        let piece_of = |number: usize| piece.replace('N', &number.to_string());
        cases.push(Case {
            what: format!("{place} of the Node with {piece}"),
            body: filled(size, node, place, piece_of, brackets),
            said,
        });
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
        let long = json!("x".repeat(300_000));
        node["metadata"][place] = match place {
            "uid" => long,
            _ => json!({"a": long}),
        };
        cases.push(Case {
            what: said.to_owned(),
            body: node.to_string(),
            said,
        });
    }
    cases
}

/// VMIs of a size.
async fn vmis(world: &World, size: usize) -> Vec<Case> {
    let mut vmi = world.harvester.vmi(&world.vm).await.unwrap();
    vmi["kind"] = json!("VirtualMachineInstance");
    vmi["x"] = Value::Null;
    vmi["status"]["interfaces"][0]["ipAddresses"] = json!([]);
    let case = |(place, piece, said): (&str, &str, &'static str)| Case {
        what: format!("{place} of the VMI with {piece}"),
        body: filled(size, vmi.clone(), place, |_| piece.to_owned(), LIST),
        said,
    };
    let cases = [
        ("/x", "[]", ""),
        ("/status/interfaces/0/ipAddresses", "\"::\"", ""),
        ("/status/interfaces", r#"{"ipAddresses":["::"]}"#, ""),
        ("/status/conditions", r#"{"type":"LiveMigratable"}"#, ""),
    ];
    cases.map(case).into()
}

/// Lists of pods of a size.
fn pods(size: usize) -> Vec<Case> {
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []});
    let dense = r#"{"spec":{"containers":[C]}}"#;
    let image = r#"{"image":"rancher/harvester-csi-driver:v0.2.2"}"#;
    let case = |(piece, said): (String, &'static str)| Case {
        what: format!("pods with {piece:.40}"),
        body: filled(size, pods.clone(), "/items", |_| piece.clone(), LIST),
        said,
    };
    let cases = [
        ("{}".to_owned(), "more than 10000 entries"),
        (dense.replace('C', &vec![image; 200].join(",")), ""),
        (dense.replace('C', &vec!["{}"; 300].join(",")), ""),
    ];
    cases.map(case).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_the_field_of_an_object_that_is_too_dense() {
    let world = World::lab(WorldOptions::default()).await;
    let (guest, harvester) = (lab(&world.guest_api), lab(&world.harvester_api));
    let vmi = format!("virtualmachineinstances/{}", world.node_name());
    let node = path_of_node(&world);
    for (server, path, cases) in [
        (guest, node.as_str(), nodes(&world, DENSE).await),
        (harvester, vmi.as_str(), vmis(&world, DENSE).await),
        (guest, "/api/v1/pods", pods(DENSE)),
    ] {
        for case in cases.iter().filter(|case| !case.said.is_empty()) {
            let injected = case.inject(server, path);
            let output = agent(&world, &["doctor", "-ojson"]).await;
            assert!(injected.hits() >= 1, "{}: no request", case.what);
            let text = output.stdout;
            assert!(text.contains(case.said), "{}\n{text}", case.said);
            server.faults().clear();
        }
    }
}

mod slow {
    use std::time::Duration;

    use harvester_lab::process::Agent;

    use super::*;
    use crate::hostile::{MOST, OBJECT};
    use crate::{BINARY, SOON};

    /// The most that a list may bring it to, in KiB: a page of 8 MiB is in memory as a whole, and `MemoryMax=` is 64 MiB.
    const MOST_OF_LIST: u64 = 48 << 10;

    /// Runs `doctor`, and returns what it printed and the most memory that it took. Between two looks it waits for a second, so that
    /// this is read before it ends.
    async fn doctor(world: &World) -> (String, u64) {
        let args = ["doctor", "-ojson", "--strict", "--wait", "4s"];
        let mut doctor = Agent::spawn(BINARY, world.guest.root(), &args, &[]);
        let mut peak = 0;
        while doctor.exited().is_none() {
            let usage = doctor.usage();
            peak = usage.map_or(peak, |usage| usage.peak_rss_kib.max(peak));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // All lines have arrived when the last one has.
        doctor.wait_line(|line| line.text == "}", SOON).await;
        let lines = doctor.lines();
        let lines = lines.iter().map(|line| line.text.clone() + "\n");
        (lines.collect(), peak)
    }

    async fn takes_little_memory(world: &World, server: &Server, path: &str, cases: &[Case]) {
        for case in cases {
            let injected = case.inject(server, path);
            let (text, peak) = doctor(world).await;
            println!("peak {peak} KiB: {}", case.what);
            assert!(injected.hits() >= 1, "{}: no request", case.what);
            assert!((1..=MOST).contains(&peak), "{}: {peak} KiB", case.what);
            assert!(text.contains(case.said), "{}\n{text}", case.said);
            server.faults().clear();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn doctor_takes_little_memory_for_a_large_or_dense_node() {
        let world = World::lab(WorldOptions::default()).await;
        let cases = nodes(&world, OBJECT).await;
        let path = path_of_node(&world);
        takes_little_memory(&world, lab(&world.guest_api), &path, &cases).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn doctor_takes_little_memory_for_a_large_or_dense_vmi() {
        let world = World::lab(WorldOptions::default()).await;
        let cases = vmis(&world, OBJECT).await;
        let path = format!("virtualmachineinstances/{}", world.node_name());
        takes_little_memory(&world, lab(&world.harvester_api), &path, &cases).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn doctor_takes_little_memory_for_many_or_dense_pods() {
        let world = World::lab(WorldOptions::default()).await;
        let server = lab(&world.guest_api);
        takes_little_memory(&world, server, "/api/v1/pods", &pods(OBJECT)).await;
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
        let (_, peak) = doctor(&world).await;
        let hits: Vec<usize> = pages.iter().map(Injected::hits).collect();
        println!("peak {peak} KiB, pages {hits:?}");
        // This binary is not optimized, and may give up the objects as a whole after their metadata.
        assert!(hits.iter().all(|hits| *hits >= 1), "{hits:?}");
        assert!((1..=MOST_OF_LIST).contains(&peak), "{peak} KiB");
    }
}
