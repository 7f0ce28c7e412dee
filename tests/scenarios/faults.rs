// SPDX-License-Identifier: Apache-2.0
//! Faults of the two APIs, as only the lab can make them. For each: the finding that names it, labels that stay, an agent
//! that lives, and recovery. More faults, and how many requests each costs, are in `tests/fleet/single.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harvester_lab::faults::{Fault, Matcher, Seen, ServerCertificate};
use harvester_lab::world::{AGENT, World, WorldOptions, eventually};
use serde_json::{Value, json};

use crate::{
    HOST, SOON, TOPOLOGY, ZONE, condition_becomes, findings_become, lab, label_becomes, serve,
};

const VMIS: &str = "virtualmachineinstances";

fn reads() -> Matcher {
    Matcher::path(VMIS).user_agent(AGENT)
}

/// Breaks Harvester's answers, asks for a look, and expects the finding; then mends and expects recovery.
async fn harvester_answers(fault: Fault, finding: &str) {
    let world = World::lab(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let server = lab(&world.harvester_api);
    server.faults().inject(reads(), fault.clone());
    agent.signal(harvester_lab::process::Signal::SIGHUP);
    findings_become(&world, &[finding]).await;
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
    a_login_page: Fault::answer(200, "text/html", "<html>please log in</html>") => "harvester-bad-response";
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

/// Breaks the watch of our VM in the given way while a migration happens: the labels follow all the same.
async fn watch_breaks(fault: Fault) {
    let world = World::lab(WorldOptions::default()).await;
    let soon = "[timing]\nwatch_delay = \"1s\"\n";
    world.guest.agent_config("10-soon.toml", soon);
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let server = lab(&world.harvester_api);
    let broken = server.faults().inject(
        Matcher::path(VMIS).user_agent(AGENT).verb("watch").once(),
        fault.clone(),
    );
    world.migrate("hv-b").await;
    // Again and again: a watch that is being opened is neither dropped nor broken.
    eventually(SOON, &format!("{fault:?} breaks a watch"), async || {
        if broken.hits() > 0 {
            return true;
        }
        server.drop_watches();
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Some faults break a watch at an event. One that was opened after the migration has none otherwise.
        world.harvester.touch(&world.vm).await.unwrap();
        false
    })
    .await;
    label_becomes(&world, ZONE, "rack-b").await;
    // The next poll is minutes away.
    world.migrate("hv-c").await;
    label_becomes(&world, ZONE, "rack-c").await;
    assert_eq!(
        world.node_label(HOST).await.as_deref(),
        Some("hv-c"),
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
async fn an_agent_that_is_killed_between_any_two_requests_leaves_no_half_pair_and_its_successor_ends_right()
 {
    let world = World::lab(WorldOptions::default()).await;
    let faults = lab(&world.guest_api).faults();
    let old = [(ZONE, Some("old")), (crate::ZONE_BETA, Some("old"))];
    world.relabel_node("kubelet", &old).await;
    // It reads its Node, writes labels, and then conditions beside the first watch: what follows the last request is lost too.
    for killed_at in 0..4 {
        let sent = AtomicUsize::new(0);
        let is_lost = move |_: &Seen<'_>| sent.fetch_add(1, Ordering::SeqCst) >= killed_at;
        let last = Matcher::any().user_agent(AGENT).when(is_lost);
        let last = faults.inject(last, Fault::NeverAnswer);
        let mut agent = world.spawn_agent(crate::BINARY, &["run"]);
        let what = format!("request {killed_at} to the guest cluster");
        eventually(SOON, &what, async || last.hits() > 0).await;
        agent.signal(harvester_lab::process::Signal::SIGKILL);
        agent.wait_exit(SOON).await;
        faults.clear();
        // So that the next one has as much to do.
        world.relabel_node("kubelet", &old).await;
    }
    let _agent = serve(&world).await;
    label_becomes(&world, ZONE, "rack-a").await;
    world.settles_on("hv-a", &[]).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    // Only what is a migration is announced as one. Events are sent in order.
    world.migrate("hv-b").await;
    let announced = async || {
        let mut events = world.events().await;
        events.retain(|event| event["reason"] == "HostChanged");
        events
    };
    let is_move = |event: &Value| event["note"].to_string().contains("from hv-a to hv-b,");
    let is_announced = async || announced().await.iter().any(is_move);
    eventually(SOON, "the Event", is_announced).await;
    assert_eq!(announced().await.len(), 1, "{:#?}", announced().await);
    let pairs = || world.recorder.combinations(&[ZONE, crate::ZONE_BETA]);
    let is_seen = async || {
        let pairs = pairs();
        pairs.last().unwrap()[1].as_deref() == Some("rack-b")
    };
    eventually(SOON, "the recorder has seen the last pair", is_seen).await;
    let pairs = pairs();
    assert!(pairs.iter().all(|pair| pair[0] == pair[1]), "{pairs:?}");
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
    let findings = world.guest.status().unwrap()["findings"].to_string();
    assert!(
        findings.contains("it existed and was deleted"),
        "{findings}"
    );
    let fix = "A running kubelet does not register its Node again";
    assert!(findings.contains(fix), "{findings}");
}
