// SPDX-License-Identifier: Apache-2.0
//! What the guest itself tells: a new host name; a system bus that dies or hangs.

use std::path::Path;
use std::time::{Duration, Instant};

use harvester_lab::bus::{Bus, Systemd, Unit};
use harvester_lab::guest::GuestTree;
use harvester_lab::process::{Agent, Line, Signal};
use harvester_lab::world::{World, WorldOptions, eventually};
use tokio::process::Command;

use crate::{
    BINARY, IDENTITY, On, SOON, TOPOLOGY, ZONE, condition_becomes, findings_become, lab,
    label_becomes, on_both, serve,
};

on_both!(a_new_host_name_is_reported_and_complained_about_when_it_has_been_quiet);

/// `timing.hostname_debounce`.
const QUIET: Duration = Duration::from_secs(2);

const KERNEL_NAME: &str = "/proc/sys/kernel/hostname";
/// The end of the line about a wrong name. The one about its end is another.
const COMPLAINT: &str = "(differs) [hostname-differs]";

const OWN_NAME: [&str; 5] = [
    "--map-root-user",
    "--uts",
    "--mount",
    "--propagation",
    "private",
];

/// Starts the agent in namespaces of its own, after a shell has done `prepare` in them. All three are one process.
fn serve_in(namespaces: &[&str], prepare: &str, root: &Path) -> Agent {
    let script = format!("{prepare} && exec \"$0\" \"$@\"");
    let shell = ["sh", "-c", &script, BINARY, "run"];
    Agent::spawn("unshare", root, &[namespaces, &shell].concat(), &[])
}

/// Runs a command in namespaces of the agent.
async fn run_in(agent: &Agent, namespaces: &[&str], command: &[&str]) {
    let output = Command::new("nsenter")
        .args(["--target", &agent.pid().to_string(), "--user"])
        .arg("--preserve-credentials")
        .args(namespaces)
        .args(command)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// The agent on a kernel whose host name is its own.
async fn serve_with_own_name(world: &World) -> Agent {
    let (name, file) = (world.node_name(), world.guest.path(KERNEL_NAME));
    let prepare = format!(
        "hostname {name} && mount --bind {KERNEL_NAME} {}",
        file.display()
    );
    let mut agent = serve_in(&OWN_NAME, &prepare, world.guest.root());
    agent.wait_ready(SOON).await;
    condition_becomes(world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(world, IDENTITY, "True", "NamesMatch").await;
    agent
}

async fn rename(agent: &Agent, name: &str) {
    run_in(agent, &["--uts"], &["hostname", name]).await;
}

/// Waits until the journal tells of the name.
async fn told(agent: &mut Agent, name: &str) {
    let text = format!("` to `{name}`: ");
    let tells =
        |line: &Line| line.text.contains("hostname changed from `") && line.text.contains(&text);
    agent.wait_line(tells, SOON).await;
}

/// Waits until the status file has the name as the kernel's.
async fn in_status(guest: &GuestTree, name: &str) {
    eventually(SOON, &format!("{name} in the status"), async || {
        let status = guest.status().unwrap_or_default();
        let names = status["identity"]["names"].as_array();
        let is_it = |one: &serde_json::Value| one["type"] == "hostname" && one["name"] == name;
        names.is_some_and(|names| names.iter().any(is_it))
    })
    .await;
}

fn complaints(agent: &Agent) -> usize {
    let lines = agent.lines();
    lines
        .iter()
        .filter(|line| line.text.contains(COMPLAINT))
        .count()
}

/// How many Events there are of the condition about names.
async fn events_of_names(world: &World) -> usize {
    let events = world.events().await;
    let reasons = events.iter().filter_map(|event| event["reason"].as_str());
    reasons
        .filter(|reason| ["HostnameDiffers", "IdentityVerified"].contains(reason))
        .count()
}

async fn a_new_host_name_is_reported_and_complained_about_when_it_has_been_quiet(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve_with_own_name(&world).await;
    let mut last = Instant::now();
    for turn in 0..5 {
        let name = format!("name-{turn}");
        last = Instant::now();
        rename(&agent, &name).await;
        in_status(&world.guest, &name).await;
        told(&mut agent, &name).await;
    }

    let is_complaint = |line: &Line| line.text.contains(COMPLAINT);
    let complaint = agent.wait_line(is_complaint, SOON).await;
    // Earlier names may have been quiet for long enough on a slow machine.
    if complaint.text.contains("name-4") {
        assert!(complaint.at - last >= QUIET, "{}", agent.transcript());
    }
    condition_becomes(&world, IDENTITY, "False", "HostnameDiffers").await;
    eventually(SOON, "the Event", || async {
        events_of_names(&world).await == 1
    })
    .await;
    // All names are one trouble, which ends with the right one.
    rename(&agent, world.node_name()).await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    eventually(SOON, "the next Event", || async {
        events_of_names(&world).await == 2
    })
    .await;
    assert_eq!(complaints(&agent), 1, "{}", agent.transcript());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_host_name_is_reported_while_both_apis_are_silent() {
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = serve_with_own_name(&world).await;
    for api in [&world.harvester_api, &world.guest_api] {
        lab(api).stay_silent().await;
        lab(api).drop_connections();
    }
    for turn in 0..5 {
        let name = format!("silent-{turn}");
        rename(&agent, &name).await;
        told(&mut agent, &name).await;
    }
    let is_complaint = |line: &Line| line.text.contains(COMPLAINT);
    agent.wait_line(is_complaint, SOON * 3).await;
}

/// Waits until the status file says how these signals stand.
async fn signals_stand(guest: &GuestTree, names: &[&str], live: bool) {
    let what = format!("{names:?} live: {live}");
    eventually(SOON, &what, || async {
        let status = guest.status().unwrap_or_default();
        let signals = status["eventSources"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let stands = |name: &&str| {
            let mut signals = signals.iter();
            signals.any(|signal| signal["name"] == **name && signal["active"] == live)
        };
        names.iter().all(stands)
    })
    .await;
}

/// A world with a system bus and systemd on it.
async fn world_with_bus() -> (World, Bus, Systemd) {
    let world = World::lab(WorldOptions::default()).await;
    let bus = Bus::start(&world.guest).await;
    let systemd = systemd(&bus).await;
    (world, bus, systemd)
}

async fn systemd(bus: &Bus) -> Systemd {
    let device = r"dev-virtio\x2dports-org.qemu.guest_agent.0.device";
    Systemd::start(bus, &[(UNIT, Unit::running()), (device, Unit::plugged())]).await
}

const UNIT: &str = "qemu-guest-agent.service";
const BUS_SIGNALS: [&str; 1] = ["units"];

/// What `status` says of the signals of the bus.
async fn shown(world: &World) -> Vec<String> {
    let output = crate::agent(world, &["status", "-v"]).await;
    let mut rows: Vec<String> = Vec::new();
    for name in BUS_SIGNALS {
        let row = output
            .stdout
            .lines()
            .find(|line| line.contains(&format!("{name} ")));
        rows.push(row.unwrap_or_default().to_owned());
    }
    rows
}

/// Stops the unit of the guest agent, and waits for the condition of the Node.
async fn the_stopped_guest_agent_is_seen(world: &World, systemd: &Systemd) {
    systemd.set(UNIT, Unit::stopped()).await;
    condition_becomes(
        world,
        "QemuGuestAgentReady",
        "False",
        "GuestAgentNotRunning",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_that_is_killed_and_started_again_is_listened_to_again() {
    let (world, mut bus, dying) = world_with_bus().await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, "QemuGuestAgentReady", "True", "Healthy").await;
    signals_stand(&world.guest, &BUS_SIGNALS, true).await;
    for _ in 0..2 {
        bus.kill().await;
        signals_stand(&world.guest, &BUS_SIGNALS, false).await;
        let rows = shown(&world).await;
        assert!(
            rows.iter().all(|row| row.contains(" inactive: ")),
            "{rows:?}"
        );

        bus.restart().await;
        let systemd = systemd(&bus).await;
        signals_stand(&world.guest, &BUS_SIGNALS, true).await;
        let rows = shown(&world).await;
        assert!(rows.iter().all(|row| row.contains(" active: ")), "{rows:?}");

        the_stopped_guest_agent_is_seen(&world, &systemd).await;
        systemd.set(UNIT, Unit::running()).await;
        condition_becomes(&world, "QemuGuestAgentReady", "True", "Healthy").await;
        findings_become(&world, &[]).await;
    }
    drop(dying);
    assert!(agent.exited().is_none());
    let status = world.guest.status().unwrap();
    assert_eq!(status["agent"]["pid"], agent.pid(), "the same process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_is_labeled_while_the_bus_hangs() {
    let (world, bus, systemd) = world_with_bus().await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, "QemuGuestAgentReady", "True", "Healthy").await;
    signals_stand(&world.guest, &BUS_SIGNALS, true).await;
    bus.hang();
    for (zone, host, asks_the_bus) in [("rack-b", "hv-b", false), ("rack-c", "hv-c", true)] {
        if asks_the_bus {
            agent.signal(Signal::SIGHUP);
        }
        world.migrate(host).await;
        label_becomes(&world, ZONE, zone).await;
    }
    // It has answered nothing until now, which the round after the signal found out: once, however often it is tried again.
    findings_become(&world, &["event-source-unavailable"]).await;
    signals_stand(&world.guest, &BUS_SIGNALS, false).await;
    let status = world.guest.status().unwrap().to_string();
    let words = "no response on the system bus within 2 s";
    assert!(status.contains(words), "{status}");
    bus.go_on();
    findings_become(&world, &[]).await;
    the_stopped_guest_agent_is_seen(&world, &systemd).await;
    let is_of_it = |line: &&Line| line.text.contains("[event-source-unavailable]");
    let lines = agent.lines();
    let told = lines
        .iter()
        .filter(is_of_it)
        .filter(|line| line.text.contains(words));
    assert_eq!(told.count(), 1, "{}", agent.transcript());
}
