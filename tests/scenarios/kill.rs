// SPDX-License-Identifier: Apache-2.0
//! SIGKILL at each step of a write. A run under `strace` lists the system calls that write; then each of them kills a run of its own
//! before it is executed, so that each is also killed after the one before. For requests, the server reports the moment: it has
//! the request and does nothing, or it has done it and does not answer. Whatever was killed, the next start converges: every file is
//! whole, nothing is left behind, no Event comes twice, and no two labels of the Node ever belonged to two hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lab::bus::{Bus, Systemd, Unit};
use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::guest::Distribution;
use harvester_lab::process::{Agent, Signal, run_once};
use harvester_lab::world::{AGENT, CloudState, World, WorldOptions, eventually};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{BINARY, HOST, IDENTITY, SOON, TOPOLOGY, ZONE, ZONE_BETA, lab, serve};

/// Runs at the same time.
const PARALLEL: usize = 4;

/// System calls that change a file or a directory. `connect` and what is sent on a connection are points of the server.
const CALLS: &str = "openat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,link,linkat,symlink,symlinkat,\
                     write,pwrite64,writev,chmod,fchmod,fchmodat,fsync,fdatasync,ftruncate,fallocate";

const LABELS: &str = "/run/harvester-node-agent-gate/kubelet.env";
const STATE: &str = "/var/lib/harvester-node-agent/state.json";
const STATUS: &str = "/run/harvester-node-agent/status.json";
const TEXTFILE: &str = "/var/lib/prometheus/node-exporter/harvester_node_agent.prom";
const ON: &str = "[registration]\nnode_labels = true\n";
const OFF: &str = "[metrics]\ntextfile = \"off\"\n";
const MIGRATED: &str = "HostChanged";

/// What runs and is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    /// The daemon starts, follows a migration with all that it may write, and stops.
    Migration,
    /// The daemon starts where an earlier one has left a file that is not wanted any more.
    Removal,
    /// `gate --labels` before the first start of the kubelet.
    Gate,
    /// `doctor --bundle`.
    Bundle,
}

impl Story {
    const ALL: [Self; 4] = [Self::Migration, Self::Removal, Self::Gate, Self::Bundle];

    fn is_daemon(self) -> bool {
        matches!(self, Self::Migration | Self::Removal)
    }

    fn args(self) -> &'static [&'static str] {
        match self {
            Self::Migration | Self::Removal => &["run"],
            Self::Gate => &["gate", "--labels"],
            Self::Bundle => &["doctor", "--bundle"],
        }
    }
}

/// A system call, named by what it changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    call: String,
    /// The path of the object below the root.
    path: String,
    /// Counts calls of this kind on this path in this phase, from 1.
    number: usize,
    /// Whether it comes after the start: then the kill is armed just before the migration, because a thread that is new by
    /// then has a count of its own.
    is_late: bool,
}

/// Where a request is when the agent is killed.
#[derive(Debug, Clone, Copy)]
struct Request {
    what: &'static str,
    verb: &'static str,
    path: &'static str,
    /// Whether the server has carried it out.
    is_done: bool,
}

/// A world in which a story takes place.
struct Scene {
    story: Story,
    daemon: Option<Agent>,
    _systemd: Systemd,
    _bus: Bus,
    /// Whether the configuration wants no metrics.
    is_off: bool,
    // Last: its tree is removed when nothing writes there.
    world: World,
}

impl Scene {
    async fn new(story: Story) -> Self {
        let cloud = match story {
            Story::Gate => CloudState::Absent,
            _ => CloudState::Initialised,
        };
        let options = WorldOptions {
            cloud,
            distribution: Distribution::Kubeadm,
            ..WorldOptions::default()
        };
        let world = World::lab(options).await;
        let guest = &world.guest;
        let bus = Bus::start(guest).await;
        let units = [
            ("kubelet.service", Unit::running()),
            ("harvester-node-agent.service", Unit::running()),
            ("qemu-guest-agent.service", Unit::running()),
            (
                r"dev-virtio\x2dports-org.qemu.guest_agent.0.device",
                Unit::plugged(),
            ),
        ];
        let systemd = Systemd::start(&bus, &units).await;
        guest.write("/usr/lib/systemd/system/kubelet.service", "[Service]\n");
        std::fs::create_dir_all(guest.path(TEXTFILE).parent().unwrap()).unwrap();
        guest.agent_config("10-kill.toml", ON);
        let mut scene = Self {
            story,
            world,
            _systemd: systemd,
            _bus: bus,
            daemon: None,
            is_off: false,
        };
        match story {
            Story::Migration => {}
            Story::Removal => {
                let mut earlier = serve(&scene.world).await;
                assert!(scene.settles(&mut earlier, "hv-a").await);
                earlier.signal(Signal::SIGKILL);
                earlier.wait_exit(SOON).await;
                scene.world.guest.agent_config("10-kill.toml", OFF);
                scene.is_off = true;
            }
            Story::Gate => {
                scene.world.guest.remove(Distribution::Kubeadm.kubeconfig());
                scene.daemon = Some(serve(&scene.world).await);
                let has_labels =
                    || async { scene.said(STATUS)["registration"]["labels"].is_object() };
                eventually(SOON, "labels in the status", has_labels).await;
            }
            Story::Bundle => {
                let mut daemon = serve(&scene.world).await;
                assert!(scene.settles(&mut daemon, "hv-a").await);
                scene.daemon = Some(daemon);
            }
        }
        scene
    }

    fn archive(&self) -> PathBuf {
        self.world.guest.path("/root/doctor.tar")
    }

    /// Command and arguments of the story.
    fn command(&self) -> Vec<String> {
        let mut command: Vec<String> = [&[BINARY], self.story.args()]
            .concat()
            .iter()
            .map(|&word| word.to_owned())
            .collect();
        if self.story == Story::Bundle {
            std::fs::create_dir_all(self.archive().parent().unwrap()).unwrap();
            command.push(self.archive().display().to_string());
        }
        command
    }

    /// Starts the story under `strace` with these options.
    fn trace(&self, options: &[String]) -> Agent {
        let fixed = ["-D", "-f", "-qq"].map(str::to_owned);
        let all = [&fixed[..], options, &self.command()].concat();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.world.spawn_agent("strace", &all)
    }

    fn said(&self, path: &str) -> Value {
        let text = self.world.guest.read(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Waits until all that the story writes is about this host, or the agent has ended. Says which.
    async fn settles(&self, agent: &mut Agent, host: &str) -> bool {
        let zone = format!("rack-{}", host.trim_start_matches("hv-"));
        let deadline = Instant::now() + SOON;
        loop {
            if agent.exited().is_some() {
                return false;
            }
            let Some(missing) = self.unsettled(agent.pid(), host, &zone).await else {
                return true;
            };
            assert!(
                Instant::now() < deadline,
                "{:?} on {host}: {missing}; {}",
                self.story,
                agent.transcript()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What still is missing, if anything.
    async fn unsettled(&self, pid: u32, host: &str, zone: &str) -> Option<String> {
        let guest = &self.world.guest;
        let files = match guest.read(TEXTFILE) {
            Some(text) => !self.is_off && text.contains(host),
            None => self.is_off,
        };
        let status = self.said(STATUS);
        let is_known = status["agent"]["pid"] == pid
            && status.to_string().contains(host)
            && self.said(STATE)["vm"] == self.world.node_name();
        let conditions = [(TOPOLOGY, "Synced"), (IDENTITY, "NamesMatch")];
        let mut missing = Vec::new();
        for (kind, reason) in conditions {
            let wanted = Some(("True".to_owned(), reason.to_owned()));
            if self.world.condition_state(kind).await != wanted {
                missing.push(kind);
            }
        }
        let label = |key| self.world.node_label(key);
        let is_labeled = label(ZONE).await.as_deref() == Some(zone)
            && label(HOST).await.as_deref() == Some(host);
        let findings = self.world.findings();
        if files && is_known && is_labeled && missing.is_empty() && findings.is_empty() {
            return None;
        }
        Some(format!(
            "files {files}, known {is_known}, labeled {is_labeled}, no {missing:?}, {findings:?}"
        ))
    }

    /// Waits until a daemon has done what follows from its start. Says whether it lives.
    async fn begins(&self, agent: &mut Agent) -> bool {
        !self.story.is_daemon() || self.settles(agent, "hv-a").await
    }

    /// Plays the rest of the story to its end, or to the end of the process. Says whether it was killed.
    async fn ends(&self, agent: &mut Agent, mut lives: bool) -> bool {
        if self.story == Story::Migration {
            // What is killed before also misses a migration.
            self.world.migrate("hv-b").await;
            lives = lives && self.settles(agent, "hv-b").await;
            lives = lives && self.sends_an_event(agent, "hv-b").await;
        }
        if self.story.is_daemon() && lives {
            agent.signal(Signal::SIGTERM);
        }
        let status = agent.wait_exit(SOON).await;
        std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
    }

    /// Kills at a point. Says whether it was reached.
    async fn kill(&self, point: &Point) -> bool {
        let options = kill_at(point, self.world.guest.root());
        if !point.is_late {
            let mut agent = self.trace(&options);
            let lives = self.begins(&mut agent).await;
            return self.ends(&mut agent, lives).await;
        }
        let mut agent = serve(&self.world).await;
        let lives = self.begins(&mut agent).await;
        let pid = agent.pid().to_string();
        let mut strace = tokio::process::Command::new("strace");
        let strace = strace.args(["-f", "-qq", "-p", &pid]).args(&options);
        let mut tracer = strace.kill_on_drop(true).spawn().unwrap();
        let is_traced = || async {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|text| !text.contains("TracerPid:\t0\n"))
        };
        eventually(SOON, "a tracer", is_traced).await;
        let is_killed = self.ends(&mut agent, lives).await;
        tracer.wait().await.unwrap();
        is_killed
    }

    /// Waits until the Event of the move to this host is sent, which comes last, or the agent has ended. Says which.
    async fn sends_an_event(&self, agent: &mut Agent, to: &str) -> bool {
        let deadline = Instant::now() + SOON;
        while self.events(to).await != 1 {
            if agent.exited().is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "{}", agent.transcript());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    async fn events(&self, to: &str) -> usize {
        let events = self.world.events().await;
        let is_to = |note: &str| note.contains(&format!(" to {to},"));
        let is_one = |event: &&Value| {
            event["reason"] == MIGRATED && event["note"].as_str().is_some_and(is_to)
        };
        events.iter().filter(is_one).count()
    }

    /// Lets an agent that has started anew follow one more move. Events are sent in order: with that of this move, all is sent that it
    /// had to say about the move before.
    async fn moves_on(&self, agent: &mut Agent) {
        self.world.migrate("hv-c").await;
        assert!(self.sends_an_event(agent, "hv-c").await);
        let is_seen = || async {
            let versions = self.world.recorder.versions();
            versions.last().unwrap().label(HOST).as_deref() == Some("hv-c")
        };
        eventually(SOON, "the recorder has seen the last host", is_seen).await;
    }

    /// Runs the story once more, without a trace, and checks what then is. Answers which files there are.
    async fn recover(&mut self, what: &str) -> BTreeSet<String> {
        match self.story {
            Story::Migration | Story::Removal => {
                let host = match self.story {
                    Story::Migration => "hv-b",
                    _ => "hv-a",
                };
                let mut agent = serve(&self.world).await;
                assert!(self.settles(&mut agent, host).await, "{what}");
                if self.story == Story::Migration {
                    self.moves_on(&mut agent).await;
                }
                agent.signal(Signal::SIGTERM);
                let status = agent.wait_exit(SOON).await;
                assert_eq!(status.code(), Some(0), "{what}");
            }
            Story::Gate => {
                let output =
                    run_once(BINARY, self.world.guest.root(), self.story.args(), SOON).await;
                assert_eq!(output.code, Some(0), "{what}: {}", output.stderr);
                let text = self.world.guest.read(LABELS).unwrap();
                assert!(text.contains("rack-a"), "{what}: {text}");
            }
            Story::Bundle => {
                let command = self.command();
                let args: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
                let output = run_once(BINARY, self.world.guest.root(), &args, SOON).await;
                assert_ne!(output.code, Some(1), "{what}: {}", output.stderr);
                let bytes = std::fs::read(self.archive()).unwrap();
                assert!(
                    tar_is_whole(&self.archive()),
                    "{what}: {} bytes",
                    bytes.len()
                );
            }
        }
        if let Some(mut daemon) = self.daemon.take() {
            daemon.signal(Signal::SIGTERM);
            daemon.wait_exit(SOON).await;
        }
        assert!(self.events("hv-b").await <= 1, "{what}: a doubled Event");
        let pairs = self.world.recorder.combinations(&[ZONE, ZONE_BETA]);
        let is_half = |pair: &Vec<Option<String>>| pair[1].is_some() && pair[0] != pair[1];
        assert!(!pairs.iter().any(is_half), "{what}: {pairs:?}");
        let hosts = self.world.recorder.combinations(&[ZONE, HOST]);
        let end = |value: &Option<String>| {
            value
                .as_deref()
                .map(|text| text[text.len() - 1..].to_owned())
        };
        let is_torn =
            |pair: &Vec<Option<String>>| pair[1].is_some() && end(&pair[0]) != end(&pair[1]);
        assert!(!hosts.iter().any(is_torn), "{what}: {hosts:?}");
        files(self.world.guest.root())
    }
}

fn tar_is_whole(path: &Path) -> bool {
    let listed = std::process::Command::new("tar")
        .arg("-tf")
        .arg(path)
        .output();
    listed.is_ok_and(|output| output.status.success() && output.stdout.ends_with(b"\n"))
}

/// What is below the directories that the agent writes to, as paths from the root.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left: Vec<PathBuf> = ["run", "var", "etc", "root"]
        .map(|name| root.join(name))
        .into();
    while let Some(path) = left.pop() {
        if let Ok(entries) = std::fs::read_dir(&path) {
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
        found.insert(path.strip_prefix(root).unwrap().display().to_string());
    }
    // A kubelet's certificate has a name of its own in each world.
    found.retain(|path| !path.contains("kubelet-client-"));
    found
}

/// The points in a trace that `strace -y` has written.
fn points(trace: &str, root: &Path, is_late: bool) -> Vec<Point> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut points = Vec::new();
    for line in trace.lines() {
        let Some((call, path)) = target(line, root) else {
            continue;
        };
        let count = counts.entry((call.clone(), path.clone())).or_default();
        *count += 1;
        points.push(Point {
            call,
            path,
            number: *count,
            is_late,
        });
    }
    points
}

/// The system call of a line, and the path that it changes; `None` for those that change nothing below the root.
fn target(line: &str, root: &Path) -> Option<(String, String)> {
    let root = root.to_str()?;
    // With `-f`, the thread comes first.
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let (call, rest) = line.split_once('(')?;
    if call.contains(' ')
        || (call == "openat" && !rest.contains("O_CREAT") && !rest.contains("O_TMPFILE"))
    {
        return None;
    }
    // What is linked has no name yet; the new one is the last.
    let quoted = rest.split('"').nth(if call == "linkat" { 3 } else { 1 });
    let of_descriptor = rest
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'));
    let directory = of_descriptor.map(|(path, _)| path);
    let is_named = [
        "openat", "mkdirat", "renameat", "unlinkat", "linkat", "fchmodat",
    ];
    let path = match quoted.filter(|_| is_named.iter().any(|name| call.starts_with(name))) {
        Some(name) if name.starts_with('/') => name.to_owned(),
        Some(name) => format!("{}/{name}", directory?),
        None => directory?.to_owned(),
    };
    let path = path.strip_prefix(root)?.to_owned();
    // What is written to a file without a name changes nothing that a later process can see.
    if path.contains('#') && call != "fsync" {
        return None;
    }
    let path = path.split('#').next()?.to_owned();
    Some((call.to_owned(), path))
}

/// The options that kill at a point. `strace` compares paths as they are passed, and those of descriptors.
fn kill_at(point: &Point, root: &Path) -> Vec<String> {
    let mut options = vec![
        "-o".to_owned(),
        "/dev/null".to_owned(),
        "-e".to_owned(),
        format!("trace={}", point.call),
        "-e".to_owned(),
        format!("inject={}:signal=SIGKILL:when={}", point.call, point.number),
    ];
    // Only one file without a name is written.
    if !point.path.ends_with('/') {
        let name = point.path.rsplit('/').next().unwrap_or_default();
        let whole = format!("{}{}", root.display(), point.path);
        options.extend(["-P".to_owned(), whole, "-P".to_owned(), name.to_owned()]);
    }
    options
}

/// Whether this machine lets a process trace another one.
pub(crate) async fn can_trace() -> Result<(), String> {
    let mut command = tokio::process::Command::new("strace");
    let output = command
        .args(["-D", "-f", "-qq", "-o", "/dev/null", "true"])
        .output();
    match output.await {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("strace: {error}")),
    }
}

/// The points of a story, and the files that it leaves.
async fn undisturbed(story: Story) -> (Vec<Point>, BTreeSet<String>) {
    let mut scene = Scene::new(story).await;
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("trace");
    let options = [
        "-y".to_owned(),
        "-s200".to_owned(),
        "-o".to_owned(),
        log.display().to_string(),
        "-e".to_owned(),
        format!("trace={CALLS}"),
    ];
    let mut agent = scene.trace(&options);
    let lives = scene.begins(&mut agent).await;
    let start = match story {
        Story::Migration => std::fs::read_to_string(&log).unwrap(),
        _ => String::new(),
    };
    let is_killed = scene.ends(&mut agent, lives).await;
    assert!(!is_killed, "{story:?}: {}", agent.transcript());
    let trace = std::fs::read_to_string(&log).unwrap();
    // The last line may not be whole.
    let end = start.rfind('\n').map_or(trace.len(), |at| at + 1);
    let (early, late) = trace.split_at(end);
    let root = scene.world.guest.root();
    let found = [points(early, root, false), points(late, root, true)].concat();
    assert!(!found.is_empty(), "{story:?}: {trace}");
    if story == Story::Bundle {
        std::fs::remove_file(scene.archive()).unwrap();
    }
    let files = scene.recover("undisturbed").await;
    (found, files)
}

/// Kills a run of its own at each of the points of a story that are chosen. Whether a point is reached depends on the pace of the run:
/// how often the status is written, for example.
async fn killed_at(story: Story, is_chosen: impl Fn(&[Point], &Point) -> bool) {
    let (points, files) = undisturbed(story).await;
    let (places, files) = (Arc::new(Semaphore::new(PARALLEL)), Arc::new(files));
    let mut runs = tokio::task::JoinSet::new();
    for point in points.iter().filter(|point| is_chosen(&points, point)) {
        let (point, places, files) = (point.clone(), places.clone(), files.clone());
        runs.spawn(async move {
            let _place = places.acquire().await.unwrap();
            let mut scene = Scene::new(story).await;
            let is_killed = scene.kill(&point).await;
            if !is_killed && story == Story::Bundle {
                scene.world.guest.remove("/root/doctor.tar");
            }
            let phase = if point.is_late { " late" } else { "" };
            let what = format!(
                "{story:?}{phase}, before {} {} of {}",
                point.call, point.number, point.path
            );
            let left = scene.recover(&what).await;
            let other: Vec<_> = left.symmetric_difference(&files).collect();
            assert!(other.is_empty(), "{what}: {other:?}");
            let outcome = if is_killed { "killed" } else { "not reached" };
            println!("{what:<100} {outcome}, converged");
            is_killed
        });
    }
    let mut kills = 0;
    while let Some(ended) = runs.join_next().await {
        match ended {
            Ok(is_killed) => kills += usize::from(is_killed),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    assert!(kills > 0, "{story:?}: nothing was killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_the_first_or_last_write_of_a_file_leaves_nothing() {
    let test = "a_kill_at_the_first_or_last_write_of_a_file_leaves_nothing";
    if let Err(why) = can_trace().await {
        return harvester_lab::skip(test, why);
    }
    let is_end = |points: &[Point], point: &Point| {
        let mut of_file = points.iter().filter(|other| other.path == point.path);
        let first = of_file.next();
        first == Some(point) || of_file.next_back() == Some(point)
    };
    killed_at(Story::Gate, is_end).await;
    killed_at(Story::Bundle, is_end).await;
}

mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_kill_before_and_after_each_write_leaves_nothing_and_the_next_start_converges() {
        let test = "a_kill_before_and_after_each_write_leaves_nothing_and_the_next_start_converges";
        if let Err(why) = can_trace().await {
            return harvester_lab::skip(test, why);
        }
        for story in Story::ALL {
            killed_at(story, |_, _| true).await;
        }
    }
}

/// Each write to an API: not carried out, and carried out without an answer.
const REQUESTS: [(&str, &str, &str); 3] = [
    ("PATCH of the labels", "patch", ""),
    ("PATCH of the conditions", "patch", "/status"),
    ("POST of the Event", "create", "events"),
];

async fn killed_during(request: Request) {
    let mut scene = Scene::new(Story::Migration).await;
    scene.world.guest.agent_config("10-kill.toml", "");
    let guest = lab(&scene.world.guest_api);
    let (verb, end) = (request.verb, request.path);
    let node = format!("/api/v1/nodes/{}", scene.world.node_name());
    let matcher = Matcher::any()
        .user_agent(AGENT)
        .verb(verb)
        .when(move |seen| match end {
            "events" => seen.path.ends_with("/events"),
            _ => seen.path == format!("{node}{end}"),
        });
    let mut agent = serve(&scene.world).await;
    for (kind, reason) in [(TOPOLOGY, "Synced"), (IDENTITY, "NamesMatch")] {
        scene.world.condition_becomes(kind, "True", reason).await;
    }
    let fault = match request.is_done {
        true => Fault::Trickle(Duration::from_secs(60)),
        false => Fault::NeverAnswer,
    };
    let injected = guest.faults().inject(matcher, fault);
    if end == "/status" {
        // A wrong hostname changes a condition.
        scene.world.guest.kernel_hostname("other");
        agent.signal(Signal::SIGHUP);
    } else {
        scene.world.migrate("hv-b").await;
    }
    let reached = || async { injected.hits() > 0 };
    eventually(SOON, request.what, reached).await;
    match end {
        _ if !request.is_done => {}
        "" => scene.world.label_becomes(ZONE, "rack-b").await,
        "/status" => {
            let is_told = || async {
                let state = scene.world.condition_state(IDENTITY).await;
                state.is_some_and(|(status, _)| status == "False")
            };
            eventually(SOON, "the condition", is_told).await;
        }
        _ => assert!(scene.sends_an_event(&mut agent, "hv-b").await),
    }
    agent.signal(Signal::SIGKILL);
    agent.wait_exit(SOON).await;
    guest.faults().clear();
    if end == "/status" {
        let name = scene.world.node_name().to_owned();
        scene.world.guest.kernel_hostname(&name);
        scene.world.migrate("hv-b").await;
    }
    let mut agent = serve(&scene.world).await;
    // Its predecessor may have written all of it, but this status is its own.
    scene.world.settles_on("hv-b", &[]).await;
    scene.world.label_becomes(ZONE, "rack-b").await;
    scene
        .world
        .condition_becomes(IDENTITY, "True", "NamesMatch")
        .await;
    scene.moves_on(&mut agent).await;
    agent.signal(Signal::SIGTERM);
    agent.wait_exit(SOON).await;
    let events = scene.events("hv-b").await;
    assert!(events <= 1, "{request:?}: {events} Events");
    let pairs = scene.world.recorder.combinations(&[ZONE, ZONE_BETA]);
    let is_half = |pair: &Vec<Option<String>>| pair[1].is_some() && pair[0] != pair[1];
    assert!(!pairs.iter().any(is_half), "{request:?}: {pairs:?}");
    let moment = if request.is_done { "after" } else { "before" };
    println!(
        "{moment} the {:<60} killed, converged, {events} Events",
        request.what
    );
    drop(scene.daemon.take());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_around_each_request_causes_no_duplicate_and_no_partial_labels() {
    for (what, verb, path) in REQUESTS {
        for is_done in [false, true] {
            killed_during(Request {
                what,
                verb,
                path,
                is_done,
            })
            .await;
        }
    }
}
