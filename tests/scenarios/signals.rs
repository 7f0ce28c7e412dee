// SPDX-License-Identifier: Apache-2.0
//! What the guest itself tells: a new host name, by the kernel and by systemd-hostnamed; a system bus that dies or hangs; a
//! kernel that has much to tell of others.

use std::path::Path;
use std::time::{Duration, Instant};

use harvester_lab::bus::{Bus, Hostnamed, Systemd, Unit};
use harvester_lab::guest::GuestTree;
use harvester_lab::process::{Agent, Line, Signal};
use harvester_lab::world::{World, WorldOptions, always, eventually};
use tokio::process::Command;

use crate::{
    BINARY, IDENTITY, On, SOON, TOPOLOGY, ZONE, condition, condition_becomes, findings_become, lab,
    label_becomes, on_both, serve,
};

on_both!(
    a_new_host_name_is_reported_at_once_and_complained_about_when_it_has_been_quiet,
    a_host_name_that_comes_back_in_time_is_no_complaint,
);

/// Far more than it takes.
const AT_ONCE: Duration = Duration::from_secs(1);

/// `timing.hostname_debounce`, less what a busy machine may take to see a line.
const QUIET: Duration = Duration::from_millis(1900);

/// The agent looks twice a second in the long run, for whatever reasons.
const PACE: Duration = Duration::from_millis(500);

const KERNEL_NAME: &str = "/proc/sys/kernel/hostname";
const COMPLAINT: &str = "[hostname-differs]";

const OWN_NAME: [&str; 5] = [
    "--map-root-user",
    "--uts",
    "--mount",
    "--propagation",
    "private",
];
const OWN_NETWORK: [&str; 2] = ["--map-root-user", "--net"];

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

/// Waits until the journal tells of the name; answers when it did.
async fn told(agent: &mut Agent, name: &str) -> Instant {
    let text = format!("` to `{name}`: ");
    let tells =
        |line: &Line| line.text.contains("hostname changed from `") && line.text.contains(&text);
    agent.wait_line(tells, SOON).await.at
}

/// Waits until the status file has the name as the kernel's.
async fn in_status(guest: &GuestTree, name: &str) -> Instant {
    let has_it = || {
        let status = guest.status()?;
        let names = status["identity"]["names"].as_array()?;
        let is_it = |one: &&serde_json::Value| one["type"] == "hostname" && one["name"] == name;
        names.iter().find(is_it).map(drop)
    };
    let written = async {
        while has_it().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Instant::now()
    };
    tokio::time::timeout(SOON, written).await.unwrap()
}

/// Gives the machine 20 names, no faster than the agent looks, and checks that each is told at once.
/// Answers when the last one was told.
async fn is_reported_at_once(
    how: &str,
    agent: &mut Agent,
    guest: &GuestTree,
    rename: impl AsyncFn(&Agent, &str),
) -> Instant {
    let mut latencies = Vec::new();
    let mut last = Instant::now();
    for turn in 0..20 {
        let name = format!("name-{turn}");
        let began = Instant::now();
        rename(agent, &name).await;
        let written = in_status(guest, &name).await;
        last = told(agent, &name).await;
        latencies.push(written.max(last) - began);
        tokio::time::sleep(PACE).await;
    }
    latencies.sort_unstable();
    let (median, most) = (latencies[10], latencies[19]);
    println!("{how}: 20 names told and in the status after {median:?} (median), {most:?} (max)");
    // The slowest one shows what else the machine does.
    assert!(median < AT_ONCE, "{latencies:?}");
    last
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
        .filter(|reason| reason.starts_with("Identity"))
        .count()
}

async fn a_new_host_name_is_reported_at_once_and_complained_about_when_it_has_been_quiet(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve_with_own_name(&world).await;
    let last = is_reported_at_once("by the kernel", &mut agent, &world.guest, rename).await;
    assert_eq!(complaints(&agent), 0, "{}", agent.transcript());
    let right = condition(&world, IDENTITY).await.unwrap();
    assert_eq!(right, ("True".to_owned(), "NamesMatch".to_owned()));
    assert_eq!(events_of_names(&world).await, 0);

    let is_complaint = |line: &Line| line.text.contains(COMPLAINT);
    let complaint = agent.wait_line(is_complaint, SOON).await;
    assert!(complaint.text.contains("name-19"), "{}", complaint.text);
    let quiet = complaint.at - last;
    println!("complained about {quiet:?} after the last name was told");
    assert!(quiet >= QUIET, "{quiet:?}");
    condition_becomes(&world, IDENTITY, "False", "Mismatch").await;
    eventually(SOON, "the Event", || async {
        events_of_names(&world).await == 1
    })
    .await;
    let once = || async { complaints(&agent) == 1 && events_of_names(&world).await == 1 };
    always(Duration::from_millis(500), "one of each", once).await;
}

async fn a_host_name_that_comes_back_in_time_is_no_complaint(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve_with_own_name(&world).await;
    let version = world.node_resource_version().await;
    let right = world.node_name();
    for name in ["dhcp-17", right] {
        rename(&agent, name).await;
        told(&mut agent, name).await;
        in_status(&world.guest, name).await;
    }
    let nothing = || async {
        complaints(&agent) == 0
            && world.node_resource_version().await == version
            && events_of_names(&world).await == 0
    };
    always(Duration::from_secs(4), "no complaint, no write", nothing).await;
    findings_become(&world, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_host_name_is_reported_at_once_while_both_apis_are_silent() {
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = serve_with_own_name(&world).await;
    for api in [&world.harvester_api, &world.guest_api] {
        lab(api).stay_silent().await;
        lab(api).drop_connections();
    }
    // While the watches are dialled anew, while a look asks in vain, while the next one does.
    for (turn, pause) in [0, 100, 700, 2500, 4500].into_iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let name = format!("silent-{turn}");
        let began = Instant::now();
        rename(&agent, &name).await;
        let took = told(&mut agent, &name).await - began;
        println!("told {took:?} after it was set, both APIs silent");
        assert!(took < AT_ONCE, "{took:?}; {}", agent.transcript());
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
const BUS_SIGNALS: [&str; 2] = ["hostname1", "units"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_name_set_through_hostnamed_is_reported_at_once() {
    let (world, bus, _systemd) = world_with_bus().await;
    let hostnamed = Hostnamed::start(&bus).await;
    let mut agent = serve(&world).await;
    signals_stand(&world.guest, &BUS_SIGNALS, true).await;
    // The files of a tree tell nothing by themselves: it is the signal that does.
    is_reported_at_once("by hostname1", &mut agent, &world.guest, async |_, name| {
        world.guest.kernel_hostname(name);
        hostnamed.announce(None, name).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_hostnamed_causes_no_look() {
    let (world, bus, _systemd) = world_with_bus().await;
    let hostnamed = Hostnamed::start(&bus).await;
    let mut agent = serve(&world).await;
    signals_stand(&world.guest, &BUS_SIGNALS, true).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    condition_becomes(&world, "QemuGuestAgentReady", "True", "Healthy").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let liar = Hostnamed::impostor(&bus).await;
    world.guest.kernel_hostname("evil");
    liar.announce(None, "evil").await;
    // Unique names are counted up: the agent's is among the first.
    for number in 0..10 {
        liar.announce(Some(&format!(":1.{number}")), "evil").await;
    }
    let unseen = || async { !agent.transcript().contains("evil") };
    always(Duration::from_secs(1), "no look", unseen).await;
    hostnamed.announce(None, "evil").await;
    told(&mut agent, "evil").await;
}

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
        let began = Instant::now();
        let systemd = systemd(&bus).await;
        let hostnamed = Hostnamed::start(&bus).await;
        signals_stand(&world.guest, &BUS_SIGNALS, true).await;
        println!("heard again {:?} after the new bus", began.elapsed());
        let rows = shown(&world).await;
        assert!(rows.iter().all(|row| row.contains(" active: ")), "{rows:?}");

        systemd.set(UNIT, Unit::stopped()).await;
        condition_becomes(&world, "QemuGuestAgentReady", "False", "NotRunning").await;
        systemd.set(UNIT, Unit::running()).await;
        condition_becomes(&world, "QemuGuestAgentReady", "True", "Healthy").await;
        findings_become(&world, &[]).await;
        drop(hostnamed);
    }
    drop(dying);
    assert!(agent.exited().is_none());
    let status = world.guest.status().unwrap();
    assert_eq!(status["agent"]["pid"], agent.pid(), "the same process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_that_hangs_holds_up_no_migration() {
    let (world, bus, systemd) = world_with_bus().await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, "QemuGuestAgentReady", "True", "Healthy").await;
    signals_stand(&world.guest, &BUS_SIGNALS, true).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    bus.hang();
    for (zone, host, asks_the_bus) in [("rack-b", "hv-b", false), ("rack-c", "hv-c", true)] {
        if asks_the_bus {
            agent.signal(Signal::SIGHUP);
        }
        world.migrate(host).await;
        let began = Instant::now();
        label_becomes(&world, ZONE, zone).await;
        let took = began.elapsed();
        println!("labelled {took:?} after a migration, bus hung, asked just now: {asks_the_bus}");
        // A question to the bus is given up after two seconds.
        let limit = AT_ONCE + Duration::from_secs(if asks_the_bus { 3 } else { 0 });
        assert!(took < limit, "{took:?}; {}", agent.transcript());
    }
    bus.go_on();
    systemd.set(UNIT, Unit::stopped()).await;
    condition_becomes(&world, "QemuGuestAgentReady", "False", "NotRunning").await;
}

/// Whether a process listens to links: bit 0 of the groups of one of its rtnetlink sockets.
fn listens_to_links(agent: &Agent) -> bool {
    let sockets = std::fs::read_to_string(format!("/proc/{}/net/netlink", agent.pid())).unwrap();
    let fields = sockets
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|fields| fields[1] == "0")
        .any(|fields| u32::from_str_radix(fields[3], 16).unwrap() & 1 == 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interfaces_that_come_and_go_wake_nobody() {
    const CYCLES: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let guest = GuestTree::new(dir.path());
    guest.kernel_hostname("pool1-abcde");
    guest.dmi("e933dfba-2423-5f1e-a6ec-2e465bb621cf", None);
    let mut agent = serve_in(&OWN_NETWORK, "true", guest.root());
    agent.wait_ready(SOON).await;
    eventually(SOON, "it listens", || async { listens_to_links(&agent) }).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let cycle = "link add veth-a type veth peer name veth-b\nlink set veth-a up\nlink del veth-a\n";
    let batch = dir.path().join("batch");
    std::fs::write(&batch, cycle.repeat(CYCLES)).unwrap();

    let before = agent.usage().unwrap();
    let began = Instant::now();
    let all = ["ip", "-batch", batch.to_str().unwrap()];
    run_in(&agent, &["--net"], &all).await;
    let took = began.elapsed();
    let after = agent.usage().unwrap();
    println!(
        "{CYCLES} interfaces made and removed in {took:?}: voluntary context switches {} -> {}, cpu {:?} -> {:?}",
        before.voluntary_switches, after.voluntary_switches, before.cpu, after.cpu
    );
    let woken = after.voluntary_switches - before.voluntary_switches;
    // Its own timers wake it too, and the longer the slower this machine is.
    assert!(woken <= 10 + took.as_secs(), "{woken} wake-ups in {took:?}");
    assert!(listens_to_links(&agent));
}
