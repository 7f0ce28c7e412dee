// SPDX-License-Identifier: Apache-2.0
//! Faults of the two APIs, as only the lab can make them. For each: the finding that names it, labels that stay, an agent
//! that lives, no storm of requests, and recovery without help.

use std::time::{Duration, Instant};

use harvester_lab::faults::ServerCertificate;
use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::world::{AGENT, World, WorldOptions, eventually};
use serde_json::json;

use crate::{
    HOST, SOON, TOPOLOGY, ZONE, condition_becomes, findings_become, lab, label_becomes,
    node_patches, serve,
};

const VMIS: &str = "virtualmachineinstances";

fn reads() -> Matcher {
    Matcher::path(VMIS).user_agent(AGENT)
}

/// What a fault is a reason to ask once: which permissions there are, which versions, who this machine is.
const ONCE: u32 = 20;

/// Two looks a second with three questions each, and two watches that are asked for again.
const EACH_SECOND: u32 = 8;

/// The most requests in the time that has really passed: on a busy machine that is more than a test waits for.
fn allowed(once: u32, each_second: u32, began: Instant) -> usize {
    (f64::from(once) + f64::from(each_second) * began.elapsed().as_secs_f64()) as usize
}

/// Breaks Harvester's answers, asks for a look, and expects the finding; then mends and expects recovery.
async fn harvester_answers(fault: Fault, finding: &str) {
    let world = World::lab(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let server = lab(&world.harvester_api);
    server.faults().inject(reads(), fault.clone());
    server.clear_requests();
    let began = Instant::now();
    agent.signal(harvester_lab::process::Signal::SIGHUP);
    findings_become(&world, &[finding]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = server.requests_of(AGENT).len();
    let (took, most) = (began.elapsed(), allowed(ONCE, EACH_SECOND, began));
    assert!(asked <= most, "{fault:?}: {asked} requests in {took:?}");
    assert_eq!(
        world.node_label(ZONE).await.as_deref(),
        Some("rack-a"),
        "{fault:?}"
    );
    assert_eq!(
        world.node_label(HOST).await.as_deref(),
        Some("hv-a"),
        "{fault:?}"
    );
    server.faults().clear();
    world.migrate("hv-b").await;
    agent.signal(harvester_lab::process::Signal::SIGHUP);
    label_becomes(&world, ZONE, "rack-b").await;
    // Watches that the fault cut are reported for another ten minutes.
    world.finding_ends(finding).await;
}

macro_rules! harvester_faults {
    ($($name:ident: $fault:expr => $finding:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                harvester_answers($fault, $finding).await;
            }
        )*
    };
}

harvester_faults! {
    unauthorized: Fault::unauthorized() => "harvester-unauthorized";
    forbidden: Fault::forbidden("virtualmachineinstances is forbidden") => "harvester-forbidden";
    a_proxys_error_page: Fault::html(503) => "harvester-unreachable";
    too_many_requests: Fault::too_many_requests("1") => "harvester-unreachable";
    a_redirect: Fault::redirect(302, "https://127.0.0.1:1/") => "harvester-bad-response";
    a_compressed_answer: Fault::Gzip => "harvester-bad-response";
    an_endless_body: Fault::EndlessBody => "harvester-bad-response";
    deep_json: Fault::DeepJson(5000) => "harvester-bad-response";
    a_login_page: Fault::answer(200, "text/html", "<html>please log in</html>") => "harvester-bad-response";
    not_harvester: Fault::answer(404, "application/json", r#"{"kind":"Status","code":404,"message":"the server could not find the requested resource"}"#) => "harvester-bad-response";
    a_truncated_body: Fault::TruncatedBody => "harvester-unreachable";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_that_refuses_connections_and_comes_back() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let server = lab(&world.harvester_api);
    server.refuse_connections().await;
    server.drop_connections();
    findings_become(&world, &["harvester-unreachable"]).await;
    server.serve_again().await;
    findings_become(&world, &[]).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_api_that_is_away_at_the_start_is_waited_for() {
    let world = World::lab(WorldOptions::default()).await;
    let server = lab(&world.guest_api);
    server
        .faults()
        .inject(Matcher::any().user_agent(AGENT), Fault::html(503));
    let _agent = serve(&world).await;
    findings_become(&world, &["guest-api-unreachable"]).await;
    server.faults().clear();
    label_becomes(&world, HOST, "hv-a").await;
    findings_become(&world, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_exist_yet_is_waited_for_and_never_made() {
    let world = World::lab(WorldOptions::default()).await;
    let path = format!("/api/v1/nodes/{}", world.node_name());
    world.guest_admin.delete(&path).await.unwrap();
    let _agent = serve(&world).await;
    findings_become(&world, &["node-missing"]).await;
    assert!(world.agent_writes().await.is_empty());
    // As the kubelet registers it.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": world.node_name()}});
    world
        .guest_admin
        .create("/api/v1/nodes", &node)
        .await
        .unwrap();
    label_becomes(&world, HOST, "hv-a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_prove_nothing_are_distinguished() {
    for certificate in [
        ServerCertificate::OtherAuthority,
        ServerCertificate::OtherName,
        ServerCertificate::Expired,
        ServerCertificate::NotYetValid,
    ] {
        let world = World::lab(WorldOptions::default()).await;
        lab(&world.harvester_api).present(certificate);
        let _agent = serve(&world).await;
        findings_become(&world, &["harvester-tls-error"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_patch_is_named_and_not_hammered() {
    let world = World::lab(WorldOptions::default()).await;
    let server = lab(&world.guest_api);
    let message =
        "nodes is forbidden: is not allowed to modify labels: topology.kubernetes.io/zone";
    server.faults().inject(
        Matcher::any().verb("patch").user_agent(AGENT),
        Fault::forbidden(message),
    );
    let began = Instant::now();
    let _agent = serve(&world).await;
    findings_become(&world, &["node-write-failed"]).await;
    let status = world.guest.status().unwrap();
    assert!(
        status["findings"][0]["observed"]
            .as_str()
            .unwrap()
            .contains("not allowed to modify labels"),
        "{status}"
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    let patches = world.agent_writes().await.len();
    let (took, most) = (began.elapsed(), allowed(10, 5, began));
    assert!(patches <= most, "{patches} patches in {took:?}");
    server.faults().clear();
    label_becomes(&world, HOST, "hv-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
}

/// Breaks the watch of our VM in the given way while a migration happens: the labels follow all the same.
async fn watch_breaks(fault: Fault) {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let server = lab(&world.harvester_api);
    let broken = server.faults().inject(
        Matcher::path(VMIS).user_agent(AGENT).verb("watch").once(),
        fault.clone(),
    );
    world.migrate("hv-b").await;
    // Again and again: a watch that is being opened is neither dropped nor broken.
    let deadline = Instant::now() + SOON;
    while broken.hits() == 0 {
        assert!(Instant::now() < deadline, "{fault:?} breaks no watch");
        server.drop_watches();
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Some faults break a watch at an event. One that was opened after the migration has none otherwise.
        world.harvester.touch(&world.vm).await.unwrap();
    }
    label_becomes(&world, ZONE, "rack-b").await;
    assert_eq!(
        world.node_label(HOST).await.as_deref(),
        Some("hv-b"),
        "{fault:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_may_break_in_any_way() {
    let foreign = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "somebody-else", "namespace": "default", "uid": "x", "resourceVersion": "1"}
    });
    for fault in [
        Fault::WatchCutLine,
        Fault::WatchGarbage("nonsense".to_owned()),
        Fault::WatchWrongObject(foreign),
        Fault::WatchGone,
        Fault::WatchAbort,
        Fault::gone(),
        Fault::html(500),
    ] {
        watch_breaks(fault).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_changes_of_a_rival_cost_few_patches() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let before = node_patches(&world).await;
    let server = lab(&world.guest_api);
    let path = format!("/api/v1/nodes/{}", world.node_name());
    for number in 0..1000 {
        server.update(&path, |node| {
            node["metadata"]["labels"][ZONE] = json!(format!("rival-{number}"));
        });
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let patches = node_patches(&world).await - before;
    assert!((1..=4).contains(&patches), "{patches} patches");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_leaves_no_half_pair_and_its_successor_ends_right() {
    let world = World::lab(WorldOptions::default()).await;
    world
        .relabel_node(
            "kubelet",
            &[(ZONE, Some("old")), (crate::ZONE_BETA, Some("old"))],
        )
        .await;
    for delay in [0, 5, 10, 20, 40, 80] {
        let mut agent = world.spawn_agent(crate::BINARY, &["run"]);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        agent.signal(harvester_lab::process::Signal::SIGKILL);
        agent.wait_exit(SOON).await;
    }
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let pairs = world.recorder.combinations(&[ZONE, crate::ZONE_BETA]);
    assert!(pairs.iter().all(|pair| pair[0] == pair[1]), "{pairs:?}");
    let events = || async {
        world
            .events()
            .await
            .iter()
            .all(|event| event["reason"] != "HostChanged")
    };
    eventually(SOON, "no migration is announced", events).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_gone_before_its_watch_stands_is_missed_soon() {
    let world = World::lab(WorldOptions::default()).await;
    let watches = Matcher::path("/api/v1/nodes").verb("watch");
    let late = Fault::DelayHeaders(Duration::from_secs(3));
    let faults = lab(&world.guest_api).faults();
    faults.inject(watches.user_agent(AGENT), late);
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let node = harvester_lab::admin::paths::node(world.node_name());
    world.guest_admin.delete(&node).await.unwrap();
    findings_become(&world, &["node-missing"]).await;
}
