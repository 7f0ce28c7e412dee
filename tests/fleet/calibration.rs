// SPDX-License-Identifier: Apache-2.0
//! What real agents cost real API servers: idle and at an orderly restart, beside kubelets that renew their leases.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use harvester_lab::Endpoint;
use harvester_lab::admin::Admin;
use harvester_lab::harvester::VmSpec;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::pki::Identity;
use harvester_lab::process::{Agent, Usage};
use harvester_lab::real::RealApi;
use harvester_lab::world::{AGENT, Api, HOSTS, HostAccess, Machine, SOON, World, WorldOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::time::{Instant, interval, sleep};

use super::report::variable;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A kubelet renews its lease this often.
const RENEWAL: Duration = Duration::from_secs(10);

/// Each figure is taken over this time.
const SPAN: Duration = Duration::from_secs(60);

/// After the start of the agents, and after a restart, until all is quiet.
const SETTLE: Duration = Duration::from_secs(90);

/// The watches of a whole fleet are back within this time.
const BACK: Duration = Duration::from_secs(125);

/// Between two starts of agents.
const STAGGER: Duration = Duration::from_millis(100);

/// Clock ticks in a second, as `/proc` counts them on every Linux (`USER_HZ`).
const TICKS: f64 = 100.0;

#[test]
#[ignore = "tests/fleet/run --calibrate runs it"]
fn real_processes() {
    let binary: PathBuf = variable("FLEET_BINARY").expect("the binary").into();
    let count = variable("FLEET_PROCESSES").expect("their number");
    let count: usize = count.parse().expect("a number");
    let directory: PathBuf = variable("FLEET_DIRECTORY").expect("a directory").into();
    if !RealApi::available(Kubernetes::V1_20, "fleet::calibration") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the kernel gives an event loop");
    let text = runtime.block_on(measure(&binary, count));
    print!("{text}");
    fs::write(directory.join("calibration.txt"), text).expect("the directory is writable");
}

/// The processor time and the resident memory of a process.
#[derive(Debug, Clone, Copy)]
struct Cost {
    cpu: f64,
    rss_mb: f64,
}

impl Cost {
    fn of(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may hold spaces: utime and stime are the 12th and 13th field.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let field = |index| -> f64 {
            let field = fields.split_whitespace().nth(index);
            field.and_then(|field| field.parse().ok()).unwrap_or(0.0)
        };
        let rss = Usage::of(pid).map_or(0, |usage| usage.rss_kib);
        Self {
            cpu: (field(11) + field(12)) / TICKS,
            rss_mb: rss as f64 / 1024.0,
        }
    }
}

/// A renewal of a lease: when it began, and how long it took.
type Renewals = Arc<Mutex<Vec<(Instant, Duration, bool)>>>;

/// Renews a lease as a kubelet does.
async fn renew(endpoint: Endpoint, kubelet: Identity, node: String, renewals: Renewals) {
    let admin = Admin::with_identity(&endpoint, "kubelet-lease", &kubelet);
    let path = format!("{LEASES}/{node}");
    let lease = |version: Option<&str>| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node, "namespace": "kube-node-lease", "resourceVersion": version},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 40},
        })
    };
    let mut version: Option<String> = None;
    let mut ticks = interval(RENEWAL);
    loop {
        ticks.tick().await;
        let began = Instant::now();
        let answer = match &version {
            None => admin.create(LEASES, &lease(None)).await,
            Some(version) => admin.replace(&path, &lease(Some(version))).await,
        };
        let renewal = (began, began.elapsed(), answer.is_ok());
        if let Ok(answer) = answer {
            version = answer["metadata"]["resourceVersion"]
                .as_str()
                .map(str::to_owned);
        }
        renewals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(renewal);
    }
}

/// The median and the 99th percentile of the renewals since a moment, in milliseconds, and how many failed.
fn latencies(renewals: &Renewals, since: Instant) -> String {
    let renewals = renewals.lock().unwrap_or_else(PoisonError::into_inner);
    let recent = renewals.iter().filter(|(began, _, _)| *began >= since);
    let (good, bad): (Vec<_>, Vec<_>) = recent.partition(|(_, _, is_ok)| *is_ok);
    let mut took: Vec<Duration> = good.iter().map(|(_, took, _)| *took).collect();
    took.sort();
    let at = |percent: usize| {
        let index = took.len().saturating_sub(1) * percent / 100;
        took.get(index)
            .map_or(0.0, |took| took.as_secs_f64() * 1000.0)
    };
    format!(
        "lease p50 {:.1} ms, p99 {:.1} ms, failed {}",
        at(50),
        at(99),
        bad.len()
    )
}

/// The API server that listens at this endpoint.
fn server(endpoint: &Endpoint) -> u32 {
    let port = endpoint.url.rsplit(':').next().unwrap_or_default();
    let flag = format!("--secure-port={port}");
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let serves = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let is_server = words
            .next()
            .is_some_and(|name| name.ends_with(b"kube-apiserver"));
        is_server && words.any(|word| word == flag.as_bytes())
    };
    pids.find(serves).expect("the API server runs")
}

/// Restarts the guest cluster's API server in order. Answers when it was back.
async fn restart(world: &mut World) -> Instant {
    let pid = server(&world.guest_api.endpoint());
    let pid = Pid::from_raw(i32::try_from(pid).expect("process ids are small"));
    kill(pid, Signal::SIGTERM).expect("it is ours");
    while kill(pid, None).is_ok() {
        sleep(Duration::from_millis(20)).await;
    }
    let Api::Real(api) = &mut world.guest_api else {
        panic!("the API server is a real one");
    };
    // On a busy machine a start may take longer than the lab waits for it.
    let mut failure = String::new();
    for _ in 0..3 {
        match api.start_server().await {
            Ok(()) => return Instant::now(),
            Err(why) => failure = why,
        }
    }
    panic!("the API server does not start again: {failure}");
}

async fn measure(binary: &std::path::Path, count: usize) -> String {
    let options = WorldOptions {
        access: HostAccess::Nodes,
        ..WorldOptions::default()
    };
    let mut world = World::real(Kubernetes::V1_20, options).await;
    let mut machines: Vec<Machine> = Vec::new();
    for index in 1..count {
        let (host, _, _) = HOSTS[index % HOSTS.len()];
        let spec = VmSpec::named(&format!("fleet-{index:04}"));
        machines.push(world.add_machine(spec, host).await);
    }
    let mut text = format!(
        "{count} real agents, two real kube-apiservers, {count} kubelet-like leases every 10 s\n"
    );
    let sides = |world: &World| {
        let guest = Cost::of(server(&world.guest_api.endpoint()));
        (guest, Cost::of(server(&world.harvester_api.endpoint())))
    };
    let mut line = |name: &str,
                    before: (Cost, Cost),
                    after: (Cost, Cost),
                    time: Duration,
                    more: &str| {
        let percent =
            |before: Cost, after: Cost| (after.cpu - before.cpu) / time.as_secs_f64() * 100.0;
        let line = format!(
            "{name:<44} guest API {:>6.2} % CPU {:>4.0} MB, Harvester API {:>6.2} % CPU {:>4.0} MB; {more}",
            percent(before.0, after.0),
            after.0.rss_mb,
            percent(before.1, after.1),
            after.1.rss_mb
        );
        // Each as soon as it is known: all of it takes ten minutes.
        eprintln!("{line}");
        text.push_str(&line);
        text.push('\n');
    };
    sleep(Duration::from_secs(20)).await;
    let before = sides(&world);
    sleep(SPAN).await;
    line("no client", before, sides(&world), SPAN, "");

    let renewals = Renewals::default();
    let endpoint = world.guest_api.endpoint();
    let mut kubelets = Vec::new();
    for machine in &machines {
        let name = machine.vm.guest_name().to_owned();
        let renewals = Arc::clone(&renewals);
        let task = renew(endpoint.clone(), machine.kubelet.clone(), name, renewals);
        kubelets.push(tokio::spawn(task));
        sleep(RENEWAL / u32::try_from(count).unwrap_or(1)).await;
    }
    sleep(RENEWAL).await;
    let (before, since) = (sides(&world), Instant::now());
    sleep(SPAN).await;
    line(
        "leases",
        before,
        sides(&world),
        SPAN,
        &latencies(&renewals, since),
    );
    let since = restart(&mut world).await;
    let before = sides(&world);
    sleep(BACK).await;
    line(
        "leases, 125 s after an orderly restart",
        before,
        sides(&world),
        BACK,
        &latencies(&renewals, since),
    );

    let mut agents: Vec<Agent> = Vec::new();
    agents.push(world.spawn_agent(binary, &["run"]));
    for machine in &machines {
        agents.push(Agent::spawn(binary, machine.tree.root(), &["run"], &[]));
        sleep(STAGGER).await;
    }
    for agent in &mut agents {
        agent.wait_ready(SOON * 3).await;
    }
    sleep(SETTLE).await;
    let (before, since) = (sides(&world), Instant::now());
    sleep(SPAN).await;
    line(
        "leases and agents, idle",
        before,
        sides(&world),
        SPAN,
        &latencies(&renewals, since),
    );
    let memory: Vec<u64> = agents
        .iter()
        .filter_map(Agent::usage)
        .map(|usage| usage.rss_kib)
        .collect();
    let mean = memory.iter().sum::<u64>() as f64 / memory.len().max(1) as f64 / 1024.0;

    let earlier = world.guest_api.requests_of(AGENT).await.len();
    let since = restart(&mut world).await;
    let before = sides(&world);
    sleep(BACK).await;
    let after = sides(&world);
    line(
        "leases and agents, 125 s after a restart",
        before,
        after,
        BACK,
        &latencies(&renewals, since),
    );
    let requests = world.guest_api.requests_of(AGENT).await;
    let new = requests.get(earlier..).unwrap_or_default();
    let first = new.iter().map(|request| request.at).min();
    let mut seconds = std::collections::BTreeMap::<u64, usize>::new();
    for request in new {
        let second = first.map_or(0, |first| request.at.duration_since(first).as_secs());
        *seconds.entry(second).or_default() += 1;
    }
    let of = |verb: &str| new.iter().filter(|request| request.verb == verb).count();
    let _ = writeln!(
        text,
        "requests of the agents after the restart: {} WATCH, {} GET, {} LIST, {} PATCH; fullest second {}, the last {} s after the first; one agent {mean:.1} MB RSS",
        of("watch"),
        of("get"),
        of("list"),
        of("patch"),
        seconds.values().max().copied().unwrap_or_default(),
        seconds.keys().max().copied().unwrap_or_default(),
    );
    for kubelet in kubelets {
        kubelet.abort();
    }
    let is_good = of("list") == 0 && of("watch") >= count;
    let word = if is_good { "ok" } else { "FAILED" };
    let _ = writeln!(text, "test fleet::calibration ... {word}");
    text
}
