// SPDX-License-Identifier: Apache-2.0
//! Where am I, without any credential for Harvester: the host tells its name, our configuration its place.

use std::time::Duration;

use harvester_lab::downward_metrics::{Behaviour, DownwardMetrics};
use harvester_lab::guest::{GuestTree, HARVESTER_KUBECONFIG};
use harvester_lab::process::{Output, Signal, run_once};
use harvester_lab::qga::Client;
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{CloudState, VM_NAME, World, WorldOptions, eventually};
use tokio::task::JoinSet;

use crate::channel::{PORT, resync};
use crate::{
    BINARY, HOST, On, REGION, SOON, ZONE, findings, findings_become, lab, label_becomes,
    node_patches, on_both, serve,
};

/// The lab need not wait as virt-handler does.
const PACE: Duration = Duration::from_millis(10);

const HOSTS: &str = "[hosts.hv-b]\nregion = \"north\"\nzone = \"room-2\"\n\
                     [hosts.hv-c]\nregion = \"north\"\nzone = \"room-3\"\n";

on_both! {
    the_node_is_labelled_by_the_hosts_own_word_and_follows_it,
}

/// A VM of which nothing is known but its firmware, what cloud-init was told, and what its host tells.
fn bare_guest() -> (tempfile::TempDir, GuestTree) {
    let dir = tempfile::tempdir().unwrap();
    let guest = GuestTree::new(dir.path());
    let uuid = harvester_lab::guest::firmware_uuid(VM_NAME).to_string();
    guest.dmi(&uuid, None);
    guest.cloud_init(VM_NAME, &uuid);
    guest.kernel_hostname(VM_NAME);
    guest.static_hostname(VM_NAME);
    guest.agent_config("10-hosts.toml", HOSTS);
    (dir, guest)
}

async fn whoami(guest: &GuestTree) -> Output {
    run_once(BINARY, guest.root(), &["whoami"], SOON).await
}

/// The text of a row.
fn row<'a>(output: &'a Output, name: &str) -> &'a str {
    let row = output.stdout.lines().find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    row.map_or("", |line| line[name.len()..].trim())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoami_needs_no_credential_at_all() {
    let (_dir, guest) = bare_guest();
    let _device = DownwardMetrics::offer_paced(&guest, Behaviour::serve("hv-b"), PACE);
    let output = whoami(&guest).await;
    let rows = ["Host", "Topology"].map(|name| row(&output, name));
    assert_eq!(
        rows,
        [
            "hv-b   (source: downward metrics on virtio-serial)",
            "region north, zone room-2   (source: hosts-table)",
        ],
        "{output:?}"
    );
    assert!(row(&output, "VM").contains(VM_NAME), "{output:?}");
    assert!(
        !output.stdout.contains("harvester-credential-missing"),
        "{output:?}"
    );
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoami_refuses_every_bad_answer_in_one_line() {
    let clock_behind = Behaviour::Serve {
        host: "hv-b".to_owned(),
        clock: -60,
    };
    let mut answers = JoinSet::new();
    for (behaviour, words) in [
        (clock_behind, "stale"),
        (Behaviour::Invalid, "INVALID REQUEST"),
        (Behaviour::Empty, "metrics"),
        (Behaviour::Endless, "65536"),
        (Behaviour::EntityBomb, "document type"),
        (Behaviour::Dtd, "document type"),
    ] {
        answers.spawn(async move {
            let (_dir, guest) = bare_guest();
            let _device = DownwardMetrics::offer_paced(&guest, behaviour.clone(), PACE);
            let output = run_once(BINARY, guest.root(), &["whoami", "-v"], SOON).await;
            (behaviour, words, output)
        });
    }
    for (behaviour, words, output) in answers.join_all().await {
        assert_eq!(row(&output, "Host"), "unknown", "{behaviour:?} {output:?}");
        let all = crate::words(&output.stdout);
        let problems = all.split(" Problem ");
        let mut problems = problems.filter(|part| part.contains("[downward-metrics-unusable]"));
        let seen = problems.next().unwrap_or_default();
        println!("{words}: {}", seen.trim());
        assert!(seen.contains(words), "{behaviour:?} {seen}");
        // What may pass asks to come back.
        assert!(
            matches!(output.code, Some(1 | 75)),
            "{behaviour:?} {output:?}"
        );
    }
}

/// A world whose guest has no credential for Harvester and no cloud controller.
async fn world(on: On) -> World {
    let options = WorldOptions {
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    world.guest.agent_config("10-hosts.toml", HOSTS);
    world
}

async fn the_node_is_labelled_by_the_hosts_own_word_and_follows_it(on: On) {
    let world = world(on).await;
    world.guest.remove(HARVESTER_KUBECONFIG);
    let device = DownwardMetrics::offer_paced(&world.guest, Behaviour::serve("hv-b"), PACE);
    let mut host_side = Client::new(VirtioPort::offer(&world.guest, PORT));
    let _agent = serve(&world).await;
    host_side.ping().await;
    label_becomes(&world, HOST, "hv-b").await;
    label_becomes(&world, ZONE, "room-2").await;
    label_becomes(&world, REGION, "north").await;
    let before = node_patches(&world).await;
    device.set_host("hv-c");
    resync(&mut host_side).await;
    label_becomes(&world, ZONE, "room-3").await;
    label_becomes(&world, HOST, "hv-c").await;
    eventually(SOON, "the migration in the status", || async {
        let status = world.guest.status().unwrap_or_default();
        let last = &status["lastMigration"];
        last["from"] == "hv-b" && last["to"] == "hv-c" && last["durationSeconds"].is_f64()
    })
    .await;
    assert_eq!(node_patches(&world).await, before + 1);
    assert!(
        !findings(&world).contains(&"harvester-credential-missing".to_owned()),
        "{:?}",
        findings(&world)
    );
    // A device that goes away, or lies, changes no label.
    device.behave(Behaviour::Invalid);
    resync(&mut host_side).await;
    eventually(SOON, "the finding", || async {
        findings(&world).contains(&"downward-metrics-unusable".to_owned())
    })
    .await;
    label_becomes(&world, ZONE, "room-3").await;
    assert_eq!(node_patches(&world).await, before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_harvester_is_away_the_host_itself_reports_a_move() {
    let world = world(On::Lab).await;
    let device = DownwardMetrics::offer_paced(&world.guest, Behaviour::serve("hv-a"), PACE);
    let agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    assert_eq!(
        device.requests(),
        0,
        "the host is not asked while the API tells"
    );
    lab(&world.harvester_api).refuse_connections().await;
    device.set_host("hv-b");
    agent.signal(Signal::SIGHUP);
    label_becomes(&world, HOST, "hv-b").await;
    label_becomes(&world, ZONE, "room-2").await;
    findings_become(&world, &["harvester-unreachable"]).await;
}

mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_host_that_says_nothing_is_one_finding_however_often_it_is_asked() {
        let world = world(On::Lab).await;
        world.guest.remove(HARVESTER_KUBECONFIG);
        let device = DownwardMetrics::offer_paced(&world.guest, Behaviour::serve("hv-b"), PACE);
        let mut host_side = Client::new(VirtioPort::offer(&world.guest, PORT));
        let agent = serve(&world).await;
        host_side.sync().await;
        label_becomes(&world, ZONE, "room-2").await;
        let before = (device.requests(), node_patches(&world).await);
        device.behave(Behaviour::Never);
        resync(&mut host_side).await;
        // Each takes 15 s.
        let asked = async || device.requests() >= before.0 + 3;
        eventually(SOON, "three requests", asked).await;
        let code = "downward-metrics-unusable".to_owned();
        assert!(findings(&world).contains(&code));
        let lines = agent.lines();
        let told = lines.iter().filter(|line| line.text.contains(&code));
        assert_eq!(told.count(), 1, "{}", agent.transcript());
        assert_eq!(node_patches(&world).await, before.1);
    }
}
