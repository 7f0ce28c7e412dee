// SPDX-License-Identifier: Apache-2.0
//! A machine that has too little of something: descriptors, threads, memory, space, time. The agent goes on with what it has, says
//! what is wrong and not again and again, and recovers without help.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harvester_lab::guest::GuestTree;
use harvester_lab::process::{Agent, Signal};
use harvester_lab::world::{AGENT, World, WorldOptions, always, eventually};

use crate::{BINARY, HOST, SOON, TOPOLOGY, ZONE, condition_becomes, lab, label_becomes, serve};

/// How long a machine starves. An idle thread that blocks on behalf of others ends after ten seconds.
const STARVES: Duration = Duration::from_secs(12);

/// The most lines in the journal while it does: a finding has up to three, and all reads and writes fail.
const FEW_LINES: usize = 24;

/// What a release may take is measured elsewhere; this is room for a debug build, beyond the peak of a quiet one.
const ROOM: u64 = 16 << 20;

const TEXTFILE: &str = "/var/lib/prometheus/node-exporter/harvester_node_agent.prom";
const STATE: &str = "/var/lib/harvester-node-agent/state.json";

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Sets the soft limit of descriptors of a running agent.
fn allow_descriptors(agent: &Agent, number: u32) {
    let (pid, limit) = (agent.pid().to_string(), format!("--nofile={number}:"));
    succeeds(Command::new("prlimit").args(["--pid", &pid, &limit]));
}

fn descriptors(agent: &Agent) -> usize {
    let directory = format!("/proc/{}/fd", agent.pid());
    std::fs::read_dir(directory).unwrap().count()
}

async fn synced(world: &World) {
    condition_becomes(world, TOPOLOGY, "True", "Synced").await;
    world.findings_become(&[]).await;
}

/// Harvester is asked over a new connection, and the VM runs elsewhere.
async fn migrates_unseen(world: &World) {
    lab(&world.harvester_api).drop_connections();
    lab(&world.guest_api).drop_connections();
    world.harvester.admin().hang_up();
    world.migrate("hv-b").await;
}

async fn follows(world: &World, host: &str) {
    label_becomes(world, ZONE, &host.replace("hv", "rack")).await;
    world.settles_on(host, &[]).await;
}

fn lives_and_is_brief(agent: &mut Agent, lines_before: usize) {
    assert!(agent.exited().is_none(), "{}", agent.transcript());
    let lines = agent.lines().split_off(lines_before);
    let mut heads: Vec<_> = lines
        .iter()
        .filter(|line| line.text.contains('['))
        .map(|line| &line.text)
        .collect();
    let all = heads.len();
    heads.sort_unstable();
    heads.dedup();
    assert_eq!(heads.len(), all, "said twice: {}", agent.transcript());
    let lines = lines.len();
    println!("{lines} lines while it starved");
    assert!(lines <= FEW_LINES, "{}", agent.transcript());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_descriptors_the_agent_waits_and_then_follows() {
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    synced(&world).await;
    // By then, all connections are open.
    world.migrate("hv-c").await;
    follows(&world, "hv-c").await;
    for server in [&world.harvester_api, &world.guest_api] {
        let is_open = async || lab(server).watches_of(AGENT) > 0;
        eventually(SOON, "a watch", is_open).await;
    }
    let (before, lines) = (descriptors(&agent), agent.lines().len());
    allow_descriptors(&agent, 3);
    migrates_unseen(&world).await;
    let is_said = |line: &harvester_lab::process::Line| line.text.contains("oo many open files");
    agent.wait_line(is_said, SOON).await;
    tokio::time::sleep(STARVES).await;
    lives_and_is_brief(&mut agent, lines);
    assert_eq!(world.node_label(ZONE).await.as_deref(), Some("rack-c"));
    allow_descriptors(&agent, 1024);
    follows(&world, "hv-b").await;
    let as_before = || async { descriptors(&agent) <= before };
    eventually(SOON, "no descriptor more than before", as_before).await;
}

/// A control group of a controller, in the first or second version of the interface.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str) -> Result<Self, String> {
        let top = Path::new("/sys/fs/cgroup");
        let parent = match top.join("cgroup.controllers").exists() {
            true => top.to_owned(),
            false => top.join(controller),
        };
        let path = parent.join(format!("harvester-node-agent-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let group = Self(path);
        let file = format!(
            "{controller}.{}",
            if controller == "pids" {
                "max"
            } else {
                "usage_in_bytes"
            }
        );
        let is_there = group.0.join(file).exists() || group.0.join("memory.max").exists();
        is_there
            .then_some(())
            .ok_or(format!("no controller {controller}"))?;
        Ok(group)
    }

    /// Sets the first of these files that exists.
    fn set(&self, names: &[&str], value: &str) {
        let path = names
            .iter()
            .map(|name| self.0.join(name))
            .find(|path| path.exists());
        std::fs::write(path.unwrap(), value).unwrap();
    }

    fn take(&self, agent: &Agent) {
        std::fs::write(self.0.join("cgroup.procs"), agent.pid().to_string()).unwrap();
    }
}

impl Drop for Group {
    #[expect(clippy::disallowed_methods, reason = "a drop cannot await")]
    fn drop(&mut self) {
        // What ran in it may take a moment to end.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn group(controller: &str, test: &str) -> Option<Group> {
    Group::new(controller)
        .inspect_err(|why| harvester_lab::skip(test, why))
        .ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_threads_the_agent_follows_all_the_same() {
    let Some(group) = group("pids", "without_threads_the_agent_follows_all_the_same") else {
        return;
    };
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    synced(&world).await;
    let lines = agent.lines().len();
    group.take(&agent);
    group.set(&["pids.max"], "1");
    tokio::time::sleep(STARVES).await;
    world.migrate("hv-b").await;
    label_becomes(&world, HOST, "hv-b").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    lives_and_is_brief(&mut agent, lines);
    group.set(&["pids.max"], "max");
    follows(&world, "hv-b").await;
    file_has(&world, STATE, "hv-b").await;
    agent.signal(Signal::SIGTERM);
    assert_eq!(
        agent.wait_exit(SOON).await.code(),
        Some(0),
        "{}",
        agent.transcript()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_threads_is_followed_by_one_that_works() {
    let Some(group) = group(
        "pids",
        "a_start_without_threads_is_followed_by_one_that_works",
    ) else {
        return;
    };
    let world = World::lab(WorldOptions::default()).await;
    group.set(&["pids.max"], "1");
    let script = format!(
        "echo $$ >{}/cgroup.procs && exec \"$0\" \"$@\"",
        group.0.display()
    );
    let mut agent = world.spawn_agent("sh", &["-c", &script, BINARY, "run"]);
    agent.wait_ready(SOON).await;
    label_becomes(&world, HOST, "hv-a").await;
    assert!(agent.exited().is_none(), "{}", agent.transcript());
    group.set(&["pids.max"], "max");
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    file_has(&world, STATE, "hv-b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_megabytes_beyond_its_peak_are_enough_for_migrations_and_broken_connections() {
    let name = "sixteen_megabytes_beyond_its_peak_are_enough_for_migrations_and_broken_connections";
    let Some(group) = group("memory", name) else {
        return;
    };
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    synced(&world).await;
    let peak = agent.usage().unwrap().peak_rss_kib << 10;
    group.take(&agent);
    let limit = (peak + ROOM).to_string();
    group.set(&["memory.limit_in_bytes", "memory.max"], &limit);
    for host in ["hv-b", "hv-c", "hv-a", "hv-b"] {
        world.migrate(host).await;
        lab(&world.harvester_api).drop_connections();
        label_becomes(&world, HOST, host).await;
    }
    follows(&world, "hv-b").await;
    assert!(agent.exited().is_none(), "{}", agent.transcript());
    let after = agent.usage().unwrap().peak_rss_kib << 10;
    println!("peak {peak} bytes at rest, {after} after four migrations, limit {limit}");
}

async fn file_has(world: &World, path: &str, text: &str) {
    let what = format!("{text} in {path}");
    let has = || async { world.guest.read(path).is_some_and(|all| all.contains(text)) };
    eventually(SOON, &what, has).await;
}

const OWN_MOUNTS: [&str; 2] = ["--map-root-user", "--mount"];

/// Starts the agent with a small file system of its own on each of these directories, which keep their files.
fn serve_on_small_disks(guest: &GuestTree, directories: &[&str]) -> Agent {
    let mut script = "set -e\n".to_owned();
    for directory in directories {
        let path = guest.path(directory);
        std::fs::create_dir_all(&path).unwrap();
        let path = path.display();
        script.push_str(&format!(
            "mode=$(stat --format=%a {path}); mkdir {path}.kept; cp -a {path}/. {path}.kept\n\
             mount -t tmpfs -o size=64k,mode=$mode tmpfs {path}; cp -a {path}.kept/. {path}; rm -r {path}.kept\n"
        ));
    }
    script.push_str("exec \"$0\" \"$@\"");
    let shell = ["sh", "-c", &script, BINARY, "run"];
    Agent::spawn(
        "unshare",
        guest.root(),
        &[&OWN_MOUNTS[..], &shell].concat(),
        &[],
    )
}

/// A path as the agent sees it.
fn seen_by(agent: &Agent, world: &World, path: &str) -> PathBuf {
    let inside = world.guest.path(path);
    let inside = inside.strip_prefix("/").unwrap();
    Path::new(&format!("/proc/{}/root", agent.pid())).join(inside)
}

async fn seen_has(agent: &Agent, world: &World, path: &str, text: &str) {
    let place = seen_by(agent, world, path);
    let what = format!("{text} in {path}");
    let has = || async { std::fs::read_to_string(&place).is_ok_and(|all| all.contains(text)) };
    eventually(SOON, &what, has).await;
}

const DIRECTORIES: [&str; 2] = ["/run/harvester-node-agent", "/var/lib/harvester-node-agent"];

/// A daemon with each of its directories on a disk of its own.
async fn on_small_disks() -> (World, Agent) {
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = serve_on_small_disks(&world.guest, &DIRECTORIES);
    agent.wait_ready(SOON).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    seen_has(
        &agent,
        &world,
        "/run/harvester-node-agent/status.json",
        "hv-a",
    )
    .await;
    (world, agent)
}

/// A migration while nothing can be written, and one after it.
async fn is_followed_without_a_disk(
    world: &World,
    agent: &mut Agent,
    error: &str,
    end: impl AsyncFnOnce(&Agent),
) {
    let lines = agent.lines().len();
    world.migrate("hv-b").await;
    label_becomes(world, ZONE, "rack-b").await;
    for file in ["status.json", "state.json"] {
        let is_said = |line: &harvester_lab::process::Line| {
            line.text.contains(error) && line.text.contains(file)
        };
        agent.wait_line(is_said, SOON).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    lives_and_is_brief(agent, lines);
    end(agent).await;
    // What was refused is written by itself, or with the next change.
    agent.signal(Signal::SIGHUP);
    seen_has(agent, world, STATE, "hv-b").await;
    seen_has(
        agent,
        world,
        "/run/harvester-node-agent/status.json",
        "hv-b",
    )
    .await;
    world.migrate("hv-a").await;
    label_becomes(world, ZONE, "rack-a").await;
    let status = seen_by(agent, world, "/run/harvester-node-agent/status.json");
    let is_well = || async {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        let findings = status["findings"].as_array().cloned().unwrap_or_default();
        findings
            .iter()
            .all(|finding| finding["code"] == "harvester-on-loopback")
    };
    eventually(SOON, "no finding", is_well).await;
    for directory in DIRECTORIES {
        let entries = std::fs::read_dir(seen_by(agent, world, directory)).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        let is_left = |name: &&std::ffi::OsString| name.to_str().unwrap().ends_with(".new");
        assert!(
            !names.iter().any(|name| is_left(&name)),
            "{directory}: {names:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disks_delay_no_label_and_files_follow_when_there_is_room() {
    let (world, mut agent) = on_small_disks().await;
    for directory in DIRECTORIES {
        let filler = seen_by(&agent, &world, directory).join("filler");
        // Until the disk is full.
        let _ = std::fs::write(filler, vec![0; 1 << 20]);
    }
    is_followed_without_a_disk(
        &world,
        &mut agent,
        "No space left on device",
        async |agent| {
            for directory in DIRECTORIES {
                std::fs::remove_file(seen_by(agent, &world, directory).join("filler")).unwrap();
            }
        },
    )
    .await;
}

/// Runs commands on a directory of an agent, in its mounts.
fn with_mounts_of(agent: &Agent, world: &World, directory: &str, commands: &[&[&str]]) {
    let (pid, path) = (agent.pid().to_string(), world.guest.path(directory));
    for command in commands {
        let mut enter = Command::new("nsenter");
        enter.args([
            "--target",
            &pid,
            "--user",
            "--preserve-credentials",
            "--mount",
        ]);
        succeeds(enter.args(*command).arg(&path));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_that_become_read_only_delay_no_label_and_files_follow_afterwards() {
    let (world, mut agent) = on_small_disks().await;
    // The kernel refuses it for a file system on which a file is open to be written, so another view of it comes on top.
    for directory in DIRECTORIES {
        let path = world.guest.path(directory).display().to_string();
        let over: &[&str] = &["mount", "--bind", &path];
        with_mounts_of(
            &agent,
            &world,
            directory,
            &[over, &["mount", "-o", "remount,bind,ro"]],
        );
    }
    is_followed_without_a_disk(&world, &mut agent, "Read-only file system", async |agent| {
        for directory in DIRECTORIES {
            with_mounts_of(agent, &world, directory, &[&["umount"]]);
        }
    })
    .await;
}

/// The file system of `/var`, in the mounts of an agent.
struct Var<'a>(&'a Agent, PathBuf);

impl Var<'_> {
    fn fsfreeze(&self, what: &str) {
        let pid = self.0.pid().to_string();
        let mut command = Command::new("nsenter");
        let command = command.args(["--target", &pid, "--mount", "fsfreeze", what]);
        succeeds(command.arg(&self.1));
    }
}

impl Drop for Var<'_> {
    /// A process that writes to it would outlive the test.
    fn drop(&mut self) {
        let pid = self.0.pid().to_string();
        let mut command = Command::new("nsenter");
        let command = command.args(["--target", &pid, "--mount", "fsfreeze", "--unfreeze"]);
        let _ = command.arg(&self.1).status();
    }
}

/// Starts an agent in a mount namespace in which `/var` is a file system of its own, after `command`. Says why if that cannot be.
fn agent_with_own_var(world: &World, command: &str) -> Result<Agent, String> {
    let (var, image) = (world.guest.path("/var"), world.guest.path("/image"));
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(8 << 20).unwrap();
    std::fs::create_dir_all(world.guest.path(TEXTFILE).parent().unwrap()).unwrap();
    let mut format = Command::new("mkfs.ext4");
    succeeds(format.args(["-q", "-d"]).arg(&var).arg(&image));
    let (image, var) = (image.display().to_string(), var.display().to_string());
    let script = format!("mount -o loop \"$0\" \"$1\"; VAR=$1; shift; {command} exec \"$@\"");
    let own_mount = |script| ["--mount", "sh", "-ec", script, &image, &var].map(str::to_owned);
    let tried = Command::new("unshare")
        .args(own_mount("mount -o loop \"$0\" \"$1\""))
        .output();
    let tried = tried.map_err(|error| error.to_string())?;
    if !tried.status.success() {
        return Err(format!("{tried:?}"));
    }
    let arguments = own_mount(&script);
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend([BINARY, "run"]);
    Ok(world.spawn_agent("unshare", &arguments))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_file_system_delays_no_label_is_one_finding_and_all_files_follow() {
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = match agent_with_own_var(&world, "") {
        Ok(agent) => agent,
        Err(why) => {
            let test = "a_frozen_file_system_delays_no_label_is_one_finding_and_all_files_follow";
            harvester_lab::skip(test, why);
            return;
        }
    };
    agent.wait_ready(SOON).await;
    synced(&world).await;
    for file in [STATE, TEXTFILE] {
        seen_has(&agent, &world, file, world.node_name()).await;
    }
    let frozen = Var(&agent, world.guest.path("/var"));
    frozen.fsfreeze("--freeze");
    for (host, zone) in [("hv-b", "rack-b"), ("hv-c", "rack-c")] {
        world.migrate(host).await;
        label_becomes(&world, ZONE, zone).await;
        file_has(&world, "/run/harvester-node-agent/status.json", host).await;
    }
    world.findings_become(&["file-not-written"]).await;
    for file in [STATE, TEXTFILE] {
        let text = std::fs::read_to_string(seen_by(&agent, &world, file)).unwrap();
        assert!(!text.contains("hv-c"), "{file}");
    }
    frozen.fsfreeze("--unfreeze");
    for file in [STATE, TEXTFILE] {
        seen_has(&agent, &world, file, "hv-c").await;
    }
    world.findings_become(&[]).await;
    drop(frozen);
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.wait_exit(SOON).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_on_a_frozen_file_system_writes_labels() {
    let world = World::lab(WorldOptions::default()).await;
    let mut agent = match agent_with_own_var(&world, "fsfreeze --freeze \"$VAR\";") {
        Ok(agent) => agent,
        Err(why) => {
            harvester_lab::skip(
                "an_agent_that_starts_on_a_frozen_file_system_writes_labels",
                why,
            );
            return;
        }
    };
    agent.wait_ready(SOON).await;
    label_becomes(&world, HOST, "hv-a").await;
    world.findings_become(&["file-not-written"]).await;
    let frozen = Var(&agent, world.guest.path("/var"));
    frozen.fsfreeze("--unfreeze");
    seen_has(&agent, &world, STATE, world.node_name()).await;
    world.findings_become(&[]).await;
    drop(frozen);
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.wait_exit(SOON).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_stopped_for_a_while_goes_on_where_it_was() {
    let world = World::lab(WorldOptions::default()).await;
    let env = [("WATCHDOG_USEC", "400000")];
    let mut agent = Agent::spawn(BINARY, world.guest.root(), &["run"], &env);
    agent.wait_ready(SOON).await;
    synced(&world).await;
    agent.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let fed = watchdogs(&agent);
    world.migrate("hv-b").await;
    world.migrate("hv-c").await;
    // Both servers have dropped it by then.
    lab(&world.harvester_api).drop_connections();
    lab(&world.guest_api).drop_connections();
    let rests = || async { watchdogs(&agent) == fed };
    always(STARVES, "no word to the watchdog", rests).await;
    agent.signal(Signal::SIGCONT);
    follows(&world, "hv-c").await;
    let is_fed = || async { watchdogs(&agent) > fed + 1 };
    eventually(SOON, "a word to the watchdog", is_fed).await;
    assert!(agent.exited().is_none());
}

fn watchdogs(agent: &Agent) -> usize {
    agent.notified("WATCHDOG")
}

/// The loop is held up in the call with which it waits for events; all other threads go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_hangs_does_not_feed_the_watchdog() {
    if let Err(why) = crate::kill::can_trace().await {
        harvester_lab::skip("a_loop_that_hangs_does_not_feed_the_watchdog", why);
        return;
    }
    let world = World::lab(WorldOptions::default()).await;
    let env = [("WATCHDOG_USEC", "400000")];
    let mut agent = Agent::spawn(BINARY, world.guest.root(), &["run"], &env);
    agent.wait_ready(SOON).await;
    synced(&world).await;
    let pid = agent.pid().to_string();
    let mut tracer = tokio::process::Command::new("strace")
        .args([
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=epoll_wait,epoll_pwait",
        ])
        .args(["-e", "inject=epoll_wait,epoll_pwait:delay_enter=4s:when=2"])
        .args(["-p", &pid])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let longest = async {
        let (mut longest, mut last, mut count) = (
            Duration::ZERO,
            tokio::time::Instant::now(),
            watchdogs(&agent),
        );
        let end = last + Duration::from_secs(8);
        while tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if watchdogs(&agent) != count {
                count = watchdogs(&agent);
                last = tokio::time::Instant::now();
            }
            longest = longest.max(tokio::time::Instant::now() - last);
        }
        longest
    }
    .await;
    println!("the watchdog heard nothing for {longest:?}, of 200 ms between words");
    assert!(longest >= Duration::from_secs(3), "{longest:?}");
    tracer.kill().await.unwrap();
    let fed = watchdogs(&agent);
    let is_fed = || async { watchdogs(&agent) > fed + 1 };
    eventually(SOON, "a word to the watchdog", is_fed).await;
    assert!(agent.exited().is_none());
}

/// A preloaded library shifts the wall clock of the agent alone; its other clocks go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_ten_years_off_changes_no_label_and_ends_with_the_clock() {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    if !Path::new(library).exists() {
        let test = "a_clock_that_is_ten_years_off_changes_no_label_and_ends_with_the_clock";
        harvester_lab::skip(test, format!("no {library}"));
        return;
    }
    let world = World::lab(WorldOptions::default()).await;
    let file = world.guest.path("/clock");
    let set = |offset: &str| world.guest.write("/clock", offset);
    set("+0");
    let env = [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("WATCHDOG_USEC", "400000"),
    ];
    let mut agent = Agent::spawn(BINARY, world.guest.root(), &["run"], &env);
    agent.wait_ready(SOON).await;
    synced(&world).await;
    let mut lines = agent.lines().len();
    for (offset, to) in [("+3650d", "b"), ("-3650d", "a")] {
        set(offset);
        // What stands is used on.
        world.migrate(&format!("hv-{to}")).await;
        label_becomes(&world, ZONE, &format!("rack-{to}")).await;
        lab(&world.harvester_api).drop_connections();
        lab(&world.guest_api).drop_connections();
        // No certificate is valid by this clock. In the past, TLS resumes a session of the future, which needs none.
        let is_said = || async {
            let mut findings = world.findings().into_iter();
            findings.any(|code| code.ends_with("tls-error"))
        };
        if offset.starts_with('+') {
            eventually(SOON, "a finding about TLS", is_said).await;
        }
        let fed = watchdogs(&agent);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(
            watchdogs(&agent) > fed + 3,
            "timers depend on the wall clock"
        );
        assert_eq!(world.node_label(ZONE).await, Some(format!("rack-{to}")));
        lives_and_is_brief(&mut agent, lines);
        set("+0");
        world.findings_become(&[]).await;
        lines = agent.lines().len();
    }
    world.migrate("hv-c").await;
    follows(&world, "hv-c").await;
}
