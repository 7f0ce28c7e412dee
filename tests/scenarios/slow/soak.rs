// SPDX-License-Identifier: Apache-2.0
//! One daemon against two real kube-apiservers for as long as `tests/soak/run` says: migrations, rotations, restarts of the APIs and other
//! faults in a random order. After each of them labels are right and no descriptor is left open; at the end the memory is as it was
//! after the warm-up.

use std::time::{Duration, Instant};

use harvester_lab::guest::Distribution;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::process::{Agent, Signal};
use harvester_lab::real::RealApi;
use harvester_lab::world::{ACCOUNT, Api, NAMESPACE, World, WorldOptions, eventually};

use crate::{HOST, TOPOLOGY, ZONE, condition_becomes, serve};

/// Until everything is right again after a step, on a busy machine and after an API was away.
const PATIENCE: Duration = Duration::from_secs(180);

/// What the end may have more than the end of the warm-up.
const GROWTH: f64 = 1.05;

/// How much of the time is the warm-up.
const WARM_UP: f64 = 0.2;

/// Descriptors that come and go: a connection that is replaced while the old one ends, and a file that is read.
const SPARE_DESCRIPTORS: usize = 3;

/// SplitMix64: the same steps for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// At a checkpoint: seconds since the start, resident memory in KiB.
type Sample = (f64, u64);

/// Takes a step, and says which.
async fn step(
    world: &mut World,
    agent: &Agent,
    random: &mut Random,
    at: &mut usize,
) -> &'static str {
    match random.below(16) {
        0..8 => {
            *at = (*at + 1 + random.below(2) as usize) % 3;
            world.migrate(harvester_lab::world::HOSTS[*at].0).await;
            "migration"
        }
        8 => {
            let node = format!("system:node:{}", world.node_name());
            let identity = world.guest_api.client_identity(&node, &["system:nodes"]);
            world
                .guest
                .rotate_kubelet_certificate(Distribution::Rke2, &identity);
            "rotation of the kubelet's certificate"
        }
        9 => {
            let path = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";
            let text = world.guest.read(path).unwrap();
            world.guest.write_half(path, &text);
            tokio::time::sleep(Duration::from_millis(300)).await;
            world.guest.write_secret(path, text);
            "Harvester kubeconfig written in two parts"
        }
        10 | 11 => {
            let (api, what) = match random.below(2) {
                0 => (&mut world.harvester_api, "restart of the Harvester API"),
                _ => (&mut world.guest_api, "restart of the guest cluster API"),
            };
            if let Api::Real(api) = api {
                api.stop_server();
                tokio::time::sleep(Duration::from_millis(random.below(4000))).await;
                api.start_server().await.unwrap();
            }
            what
        }
        12 => {
            agent.signal(Signal::SIGHUP);
            "SIGHUP"
        }
        13 => {
            agent.signal(Signal::SIGSTOP);
            tokio::time::sleep(Duration::from_secs(2)).await;
            agent.signal(Signal::SIGCONT);
            "SIGSTOP for 2s"
        }
        14 => {
            world
                .harvester
                .unbind_cloud_provider(NAMESPACE, ACCOUNT)
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
            world
                .harvester
                .bind_cloud_provider(NAMESPACE, ACCOUNT)
                .await
                .unwrap();
            agent.signal(Signal::SIGHUP);
            "role removed for 2s"
        }
        _ => {
            world.guest.kernel_hostname("other");
            tokio::time::sleep(Duration::from_secs(1)).await;
            world.guest.kernel_hostname(world.node_name());
            agent.signal(Signal::SIGHUP);
            "hostname changed for 1s"
        }
    }
}

fn descriptors(agent: &Agent) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", agent.pid()))
        .unwrap()
        .count()
}

/// Both labels, whenever the API answers.
async fn labels_are(world: &World, at: usize) -> bool {
    let (host, _, zone) = harvester_lab::world::HOSTS[at];
    let path = harvester_lab::admin::paths::node(world.node_name());
    let Ok(node) = world.guest_admin.get(&path).await else {
        return false;
    };
    let labels = &node["metadata"]["labels"];
    labels[HOST] == host && labels[ZONE] == zone
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var_os(name)
        .and_then(|text| text.to_str()?.parse().ok())
        .unwrap_or(default)
}

/// Of the checkpoints in a stretch of time, the one in the middle: a single one shows a request that is under way.
fn median(samples: &[Sample], from: f64, to: f64) -> u64 {
    let mut sizes: Vec<u64> = samples
        .iter()
        .filter(|(at, _)| (from..=to).contains(at))
        .map(|sample| sample.1)
        .collect();
    sizes.sort_unstable();
    sizes[sizes.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "tests/soak/run runs it"]
async fn labels_stay_right_and_memory_stays_the_same() {
    let (seconds, seed) = (number("SOAK_SECONDS", 300), number("SOAK_SEED", 1));
    let version = Kubernetes::ALL
        .into_iter()
        .rev()
        .find(|version| RealApi::binary(*version).is_ok());
    let version = version.expect("kube-apiserver is installed; tests/soak/run does that");
    println!("seed {seed}, {seconds} s, Kubernetes {version:?}");
    let mut world = World::real(version, WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let (mut random, mut at, mut samples) = (Random(seed), 0, Vec::new());
    let (began, length) = (Instant::now(), Duration::from_secs(seconds));
    let warm = seconds as f64 * WARM_UP;
    let mut open = 0;
    let mut steps = std::collections::BTreeMap::<&str, usize>::new();
    let passed = || Instant::now() - began;
    while passed() < length {
        let what = step(&mut world, &agent, &mut random, &mut at).await;
        *steps.entry(what).or_default() += 1;
        eventually(
            PATIENCE,
            &format!("the labels of the host after: {what}"),
            || labels_are(&world, at),
        )
        .await;
        assert!(agent.exited().is_none(), "{what}: {}", agent.transcript());
        let is_warm = passed().as_secs_f64() > warm;
        if is_warm {
            let rests = || async { descriptors(&agent) <= open + SPARE_DESCRIPTORS };
            eventually(
                PATIENCE,
                &format!("no more than {open} descriptors after: {what}"),
                rests,
            )
            .await;
        } else {
            open = open.max(descriptors(&agent));
        }
        let usage = agent.usage().unwrap();
        samples.push((passed().as_secs_f64(), usage.rss_kib));
        tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
    }
    let last = samples.last().unwrap().0;
    let first = median(&samples, warm * 0.5, warm * 1.5);
    let end = median(&samples, last - warm, last);
    let ratio = end as f64 / first as f64;
    println!(
        "{steps:#?}\n{} checkpoints, {open} descriptors, RSS {first} KiB after the warm-up, {end} KiB at the end: {ratio:.3}",
        samples.len()
    );
    assert!(ratio <= GROWTH, "{ratio:.3}");
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.wait_exit(PATIENCE).await.code(), Some(0));
}
