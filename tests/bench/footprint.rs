// SPDX-License-Identifier: Apache-2.0
//! What the shipped binary costs: size, memory, wake-ups, latencies, calls; beside Debian's `qemu-ga` in the same run where
//! it applies. It measures and never fails for a figure: the targets stand beside the figures.
//!
//! `tests/bench/footprint` runs it, with the release build and a file for the figures as JSON.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark ends at the first surprise, as a test does"
)]

mod migrations;
mod process;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harvester_lab::figures::{Figure, Figures, Samples, milliseconds};
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::names::{IDENTITY, TOPOLOGY, ZONE};
use harvester_lab::process::{Agent, Signal, Usage, run_once};
use harvester_lab::real::RealApi;
use harvester_lab::world::{AGENT, HOSTS, HostAccess, SOON, World, WorldOptions, eventually};
use serde_json::json;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use migrations::requests_since;
use process::{Activity, Memory, QEMU_GA, QemuGa, run_time, size_mb};

/// After the last write at the start, until memory is read.
const SETTLE: Duration = Duration::from_secs(5);

/// How long the agent is watched doing nothing.
const IDLE: Duration = Duration::from_secs(60);

/// As a unit with `WatchdogSec=60` has it; a ping is due each half of it.
const WATCHDOG: (&str, &str) = ("WATCHDOG_USEC", "60000000");

/// Where the agent is asked for metrics, and how often.
const METRICS: &str = "127.0.0.1:9879";
const SCRAPES: usize = 100;

/// Starts per figure.
const STARTS: usize = 20;

/// The shortest interval of polls that the configuration takes; the default is in `DEFAULT_POLL`.
const SHORT_POLL: &str = "[timing]\npoll_interval = \"60s\"\n";

/// Twice the short interval and a tenth of jitter are the longest wait for a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(140);

/// The agent's own default.
const DEFAULT_POLL: Duration = Duration::from_secs(600);

/// Calls of one poll follow each other within milliseconds.
const POLL_GAP: Duration = Duration::from_secs(2);

const HOUR: Duration = Duration::from_secs(3600);

/// Watch events that the agent gets at once, and how many of them are written together.
const FLOOD: usize = 317_500;
const FLOOD_PART: usize = 500;
const FLOOD_TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // Not the binary that Cargo hands to a benchmark: that one is built with unwinding.
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(binary), Some(json)) = (arguments.next(), arguments.next()) else {
        panic!("BINARY and a file for the figures: tests/bench/footprint gives them");
    };
    let binary = &binary;
    let mut figures = Figures::default();
    figures.add(
        Figure::new("binary size", size_mb(binary), "MB")
            .target(5.0)
            .beside(Some(size_mb(&QemuGa::binary())), QEMU_GA)
            .note("qemu-ga needs glib and others beside its file"),
    );
    say("idle: memory, wake-ups, processor");
    let (idle, poll) = idle_and_poll(binary).await;
    figures.extend(idle);
    say("scrapes");
    figures.extend(scrapes(binary).await);
    say("starts");
    figures.extend(starts(binary).await);
    say("doctor");
    figures.extend(doctor(binary).await);
    say("migrations in the lab: event to patch");
    figures.extend(event_to_patch(binary).await);
    say("migrations against a real kube-apiserver: annotation to label");
    let is_there = |version: &Kubernetes| RealApi::binary(*version).is_ok();
    let newest = Kubernetes::ALL.into_iter().rfind(is_there);
    figures.extend(visible(binary, newest.unwrap_or(Kubernetes::V1_36)).await);
    say("migrations in the lab: calls");
    figures.extend(calls(binary).await);
    say("a flood of watch events");
    figures.extend(flood(binary).await);
    figures.extend(poll);

    println!("{}", figures.print());
    figures.write(&json);
    println!("written to {}", json.display());
}

/// Starts the agent and waits until both conditions are written and both watches are open.
pub async fn started(world: &World, binary: &Path, environment: &[(&str, &str)]) -> Agent {
    let mut agent = Agent::spawn(binary, world.guest.root(), &["run"], environment);
    agent.wait_ready(SOON).await;
    for (kind, reason) in [(IDENTITY, "NamesMatch"), (TOPOLOGY, "Synced")] {
        world.condition_becomes(kind, "True", reason).await;
    }
    // By the agent's own word: the log of a real server tells of a watch only when it is over.
    eventually(SOON, "both watches are open", || async {
        let status = world.guest.status().unwrap_or_default();
        let signals = status["eventSources"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_live = |name| {
            let mut signals = signals.iter();
            signals.any(|signal| signal["name"] == name && signal["active"] == true)
        };
        is_live("vmi") && is_live("node")
    })
    .await;
    agent
}

/// The poll of another agent is waited for in the same minutes, but only once memory is read: two processes of one binary
/// share its pages, and each would look smaller than it is.
async fn idle_and_poll(binary: &Path) -> (Vec<Figure>, Vec<Figure>) {
    let world = World::lab(WorldOptions::default()).await;
    let qemu_ga = QemuGa::start().await;
    let agent = started(&world, binary, &[WATCHDOG]).await;
    tokio::time::sleep(SETTLE).await;
    let (ours, theirs) = (Memory::of(agent.pid()), Memory::of(qemu_ga.pid()));
    let minutes = async {
        let first = minute(&world, &agent, &qemu_ga).await;
        // The timers of the watches' silence, armed at the start, come due in this one only.
        (first, minute(&world, &agent, &qemu_ga).await)
    };
    let ((first, second), poll) = tokio::join!(minutes, poll(binary));

    let beside = |value| (Some(value), QEMU_GA);
    let memory = |name, ours, (theirs, what)| Figure::new(name, ours, "MB").beside(theirs, what);
    let mut figures = vec![
        memory("RSS, both watches open", ours.rss_mb, beside(theirs.rss_mb)).target(6.5),
        memory("PSS, both watches open", ours.pss_mb, beside(theirs.pss_mb)).target(4.2),
        memory(
            "anonymous memory, both watches open",
            ours.anonymous_mb,
            beside(theirs.anonymous_mb),
        )
        .target(1.0),
        Figure::new("threads", ours.threads, "")
            // The loop, the writer of the journal.
            .target(2.0)
            .beside(Some(theirs.threads), QEMU_GA),
    ];
    for (name, minute) in [("first", first), ("second", second)] {
        let Minute {
            bookmarks,
            pings,
            calls,
            ..
        } = minute;
        figures.extend([
            Figure::new(
                format!("wake-ups in the {name} 60 s idle"),
                minute.ours.wake_ups,
                "",
            )
            .beside(Some(minute.theirs.wake_ups), QEMU_GA)
            .note(format!(
                "{bookmarks} bookmarks, {pings} watchdog pings, {calls} API calls in that time"
            )),
            Figure::new(
                "  other than bookmarks and watchdog pings",
                minute.ours.wake_ups - bookmarks - pings,
                "",
            )
            .target(0.0)
            .note("bookmarks that come together are one wake-up, so this may be one too few"),
            Figure::new("  CPU", minute.ours.cpu_ms, "ms")
                .target(5.0 / 60.0)
                .beside(Some(minute.theirs.cpu_ms), QEMU_GA)
                .note("the target is 5 ms in an hour"),
        ]);
    }
    (figures, poll)
}

/// What happened while nothing happened.
struct Minute {
    ours: Activity,
    theirs: Activity,
    bookmarks: f64,
    pings: f64,
    calls: usize,
}

async fn minute(world: &World, agent: &Agent, qemu_ga: &QemuGa) -> Minute {
    let usage = || {
        let of = |pid| Usage::of(pid).expect("the process runs");
        (of(agent.pid()), of(qemu_ga.pid()))
    };
    let (from, before) = (Instant::now(), usage());
    tokio::time::sleep(IDLE).await;
    let (after, to) = (usage(), Instant::now());
    let window = from..to;
    let bookmarks = [&world.harvester_api, &world.guest_api]
        .into_iter()
        .flat_map(|api| api.lab().watch_writes())
        .filter(|write| write.user_agent.starts_with(AGENT))
        .filter(|write| write.event == "BOOKMARK" && window.contains(&write.at))
        .count() as f64;
    let pings = agent
        .notifications()
        .iter()
        .filter(|word| word.has("WATCHDOG") && window.contains(&word.at))
        .count() as f64;
    Minute {
        ours: Activity::between(before.0, after.0),
        theirs: Activity::between(before.1, after.1),
        bookmarks,
        pings,
        calls: requests_since(world, from).await.len(),
    }
}

/// Calls of one poll, and from that and from how long the watches ask to be served, calls of an idle hour.
async fn poll(binary: &Path) -> Vec<Figure> {
    let world = World::lab(WorldOptions::default()).await;
    world.guest.agent_config("footprint.toml", SHORT_POLL);
    let agent = started(&world, binary, &[]).await;
    tokio::time::sleep(POLL_GAP).await;
    let mark = Instant::now();
    eventually(POLL_TIMEOUT, "the agent polls", || async {
        !requests_since(&world, mark).await.is_empty()
    })
    .await;
    tokio::time::sleep(POLL_GAP).await;
    let calls = requests_since(&world, mark).await;
    let first = calls[0].at;
    let calls: Vec<_> = calls
        .into_iter()
        .take_while(|call| call.at < first + POLL_GAP)
        .collect();
    let polls = HOUR.as_secs_f64() / DEFAULT_POLL.as_secs_f64();
    let requests = requests_since(&world, agent.started()).await;
    let times: Vec<f64> = requests
        .iter()
        .filter(|request| request.verb == "watch")
        .filter_map(|request| {
            let parameters = request.query.split('&');
            let time = parameters
                .filter_map(|parameter| parameter.strip_prefix("timeoutSeconds="))
                .next()?;
            time.parse().ok()
        })
        .collect();
    let watches: f64 = times.iter().map(|time| HOUR.as_secs_f64() / time).sum();
    let paths: Vec<String> = calls
        .iter()
        .map(|call| format!("{} {}", call.verb, call.path))
        .collect();
    vec![
        Figure::new("API calls of one poll", calls.len() as f64, "").note(paths.join(", ")),
        Figure::new(
            "API calls per idle hour, extrapolated",
            watches + polls * calls.len() as f64,
            "",
        )
        .note(format!(
            "{} watches that ask for {times:?} s each, and {polls} polls",
            times.len()
        )),
    ]
}

/// What it costs to be asked for metrics.
async fn scrapes(binary: &Path) -> Vec<Figure> {
    let world = World::lab(WorldOptions::default()).await;
    let listen = format!("[metrics]\nlisten = \"{METRICS}\"\n");
    world.guest.agent_config("footprint.toml", &listen);
    let agent = started(&world, binary, &[]).await;
    let page = scrape().await;
    tokio::time::sleep(SETTLE).await;
    let usage = || Usage::of(agent.pid()).expect("the process runs");
    let before = usage();
    for _ in 0..SCRAPES {
        assert!(!scrape().await.is_empty(), "the page is empty");
    }
    let Activity { wake_ups, cpu_ms } = Activity::between(before, usage());
    let each = |sum: f64| sum / SCRAPES as f64;
    vec![
        Figure::new("CPU of a scrape", each(cpu_ms), "ms")
            .target(1.0)
            .note(format!(
                "of {SCRAPES}; {} wake-ups each, {} bytes",
                each(wake_ups),
                page.len()
            )),
    ]
}

async fn scrape() -> String {
    let mut stream = TcpStream::connect(METRICS)
        .await
        .expect("the agent listens");
    let request = b"GET /metrics HTTP/1.1\r\nHost: guest\r\n\r\n";
    stream
        .write_all(request)
        .await
        .expect("the agent reads the request");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("the agent answers");
    let (head, page) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    page.to_owned()
}

async fn starts(binary: &Path) -> Vec<Figure> {
    let world = World::lab(WorldOptions::default()).await;
    // The first start writes labels; what is measured is a restart on a Node that is right.
    let mut first = started(&world, binary, &[]).await;
    stop(&mut first).await;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..STARTS {
        let began = Instant::now();
        let mut agent = Agent::spawn(binary, world.guest.root(), &["run"], &[]);
        let ready = agent.wait_ready(SOON).await;
        ours.push(milliseconds(ready.at - began));
        stop(&mut agent).await;
        theirs.push(milliseconds(run_time(&QemuGa::binary(), "--version").await));
    }
    vec![
        Figure::new("exec -> READY=1, p50", ours.median(), "ms")
            .target(8.0)
            .beside(theirs.median(), QEMU_GA)
            .note("beside it `qemu-ga --version` from start to end, as a measure of starting a process"),
        Figure::new("exec -> READY=1, max", ours.max(), "ms")
            .target(20.0)
            .beside(theirs.max(), QEMU_GA),
    ]
}

/// With both servers on this machine, and on the same tree with a refused connection in their place.
async fn doctor(binary: &Path) -> Vec<Figure> {
    let world = World::lab(WorldOptions::default()).await;
    let online = look(binary, &world, Some(0)).await;
    let (harvester, guest) = (world.harvester_api.lab(), world.guest_api.lab());
    tokio::join!(harvester.refuse_connections(), guest.refuse_connections());
    let offline = look(binary, &world, Some(75)).await;
    vec![
        Figure::new("doctor, offline, p50", offline.median(), "ms").target(50.0),
        Figure::new("doctor, online, p50", online.median(), "ms")
            .target(500.0)
            .note("from start to end, both servers on this machine"),
    ]
}

async fn look(binary: &Path, world: &World, code: Option<i32>) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..STARTS {
        let began = Instant::now();
        let output = run_once(binary, world.guest.root(), &["doctor"], SOON).await;
        samples.push(milliseconds(began.elapsed()));
        assert_eq!(output.code, code, "{}", output.stdout);
    }
    samples
}

async fn stop(agent: &mut Agent) {
    agent.signal(Signal::SIGTERM);
    agent.wait_exit(SOON).await;
}

async fn event_to_patch(binary: &Path) -> Vec<Figure> {
    let samples = migrations::event_to_patch(binary).await;
    vec![
        Figure::new("VMI event -> PATCH, lab, p50", samples.median(), "ms")
            .target(0.5)
            .note("both ends as the lab's server saw them"),
        Figure::new("VMI event -> PATCH, lab, max", samples.max(), "ms").target(5.0),
    ]
}

async fn visible(binary: &Path, version: Kubernetes) -> Vec<Figure> {
    let name = format!("VMI event -> label visible, kube-apiserver {version}");
    if let Err(why) = RealApi::binary(version) {
        return vec![Figure::new(name, None, "ms").target(20.0).note(why)];
    }
    let mut figures = Vec::new();
    for (access, source) in [
        (HostAccess::Annotations, ", annotations"),
        (HostAccess::Nodes, ", host's labels kept"),
    ] {
        let visible = migrations::event_to_label(binary, version, access).await;
        let label = visible.label.median();
        let ratio = |beside: Option<f64>| label.zip(beside).map(|(label, beside)| label / beside);
        let (small, same) = (visible.one_annotation.median(), visible.same_write.median());
        figures.extend([
            Figure::new(format!("{name}{source}, p50"), label, "ms")
                .target(20.0)
                .beside(same, "bare PATCH")
                .note(format!(
                    "{} migrations; beside it a PATCH of as many labels and annotations with the kubelet's credential",
                    migrations::ROUNDS
                )),
            Figure::new(format!("{name}{source}, max"), visible.label.max(), "ms")
                .beside(visible.same_write.max(), "bare PATCH"),
            Figure::new(format!("{name}{source} / bare PATCH, p50"), ratio(same), "x").target(2.0),
            Figure::new(format!("{name}{source} / PATCH of one annotation, p50"), ratio(small), "x"),
        ]);
    }
    figures
}

async fn calls(binary: &Path) -> Vec<Figure> {
    let calls = migrations::calls(binary).await;
    let mut figures = vec![
        Figure::new(
            "PATCHes of the Node per migration, median",
            calls.node_patches.median(),
            "",
        )
        .target(1.0),
        Figure::new(
            "PATCHes of the Node per migration, max",
            calls.node_patches.max(),
            "",
        )
        .target(1.0),
        Figure::new("API calls per migration, median", calls.total.median(), "").target(4.0),
    ];
    figures.extend(calls.by_verb.iter().map(|(verb, samples)| {
        Figure::new(format!("  of these {verb}, median"), samples.median(), "")
    }));
    figures
}

/// A watch whose events name two hosts by turns, and then a migration to a third.
async fn flood(binary: &Path) -> Vec<Figure> {
    let world = World::lab(WorldOptions::default()).await;
    let agent = started(&world, binary, &[]).await;
    let vmi = world.harvester.vmi(&world.vm).await.expect("the VM runs");
    let event = |number: usize| {
        let mut vmi = vmi.clone();
        vmi["status"]["nodeName"] = HOSTS[number % 2].0.into();
        format!("{}\n", json!({"type": "MODIFIED", "object": vmi}))
    };
    let part: String = (0..FLOOD_PART).map(event).collect();
    tokio::time::sleep(SETTLE).await;
    let usage = || Usage::of(agent.pid()).expect("the process runs");
    let (before, mark) = (usage(), Instant::now());
    let server = world.harvester_api.lab();
    server.flood_watches(part.as_bytes(), FLOOD / FLOOD_PART);
    let (last, _, zone) = HOSTS[2];
    world.migrate(last).await;
    eventually(FLOOD_TIMEOUT, "the label of the last host", || async {
        world.node().await["metadata"]["labels"][ZONE] == zone
    })
    .await;
    let (after, took) = (usage(), mark.elapsed());
    let requests = requests_since(&world, mark).await;
    let patches = requests.iter().filter(|request| request.verb == "patch");
    let patches = patches
        .filter(|request| !request.path.ends_with("/status"))
        .count();
    // A round may write, and the pace of rounds is twenty at once and two a second.
    let rounds = 20 + 2 * (1 + took.as_secs());
    assert!(patches as u64 <= rounds, "{patches} PATCHes");
    let cpu = milliseconds(after.cpu - before.cpu);
    vec![
        Figure::new("CPU of a flood of watch events", cpu, "ms").note(format!(
            "{FLOOD} that name two hosts by turns, {} bytes each; the label of a third is there after {:.1} s",
            part.len() / FLOOD_PART,
            took.as_secs_f64()
        )),
        Figure::new("  PATCHes of the Node meanwhile", patches as f64, ""),
        Figure::new("  RSS afterwards", Memory::of(agent.pid()).rss_mb, "MB"),
    ]
}

fn say(what: &str) {
    println!("== {what}");
}
