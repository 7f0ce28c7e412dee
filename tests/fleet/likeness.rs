// SPDX-License-Identifier: Apache-2.0
//! Whether a simulated agent sends what the shipped binary sends: both live through the same story.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use harvester_lab::harvester::VmSpec;
use harvester_lab::process::Signal;
use harvester_lab::world::{AGENT, Api, HostAccess, SOON, World, WorldOptions};
use tokio::time::sleep;

use super::agents::{self, Silent, Trees, settings};
use super::network::Network;
use super::report::variable;
use super::scenarios::simulate;
use super::store::{Side, vm_name};
use crate::decide::schedule::{Phase, Purpose};
use crate::observe::machine::read_machine;
use crate::sys::root::Root;

/// The shortest interval of polls that the configuration takes.
const POLL: Duration = Duration::from_secs(60);

/// When the poll is due in it: early, but not in the tenth that is left out after the start.
const DUE: std::ops::Range<f64> = 0.2..0.3;

/// What happens, and after how long that is over. Within the second step lies the poll.
const STEPS: [(Step, Duration); 5] = [
    (Step::Start, Duration::from_secs(5)),
    (Step::Poll, Duration::from_secs(22)),
    (Step::Migration, Duration::from_secs(5)),
    (Step::HangUp, Duration::from_secs(14)),
    (Step::Idle, Duration::from_secs(10)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Start,
    Poll,
    Migration,
    HangUp,
    Idle,
}

/// How often each request was sent: side, verb and kind of path.
type Requests = BTreeMap<String, usize>;

#[test]
#[ignore = "tests/fleet/run runs it, beside the binary"]
fn a_simulated_agent_sends_what_the_real_one_sends() {
    let binary: PathBuf = variable("FLEET_BINARY").expect("the binary").into();
    let agent = (0..1000).find(|agent| DUE.contains(&due(*agent)));
    let agent = agent.expect("some machine's poll is due then");
    let real = real(&binary, agent);
    let simulated = std::thread::spawn(move || simulated(agent))
        .join()
        .expect("the simulation ends");
    for (((step, _), real), simulated) in STEPS.iter().zip(&real).zip(&simulated) {
        println!("{step:?}: {real:?}");
        if real != simulated {
            println!("  simulated: {simulated:?}");
        }
    }
    assert_eq!(real, simulated, "real and simulated differ");
}

/// When the poll of a machine is due, as a part of the interval.
fn due(agent: usize) -> f64 {
    let trees = Trees::some(std::iter::once(agent));
    let machine = read_machine(&Root::new(trees.root(agent))).phase();
    Phase::of(machine, Purpose::Poll).value()
}

/// Counts requests. Paths of both worlds differ in names only.
fn count<'a>(requests: impl Iterator<Item = (Side, &'a str, &'a str)>) -> Requests {
    let mut counts = Requests::new();
    for (side, verb, path) in requests {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let kind = match &parts[..] {
            ["api", "v1", "nodes"] => "nodes",
            ["api", "v1", "nodes", _] => "node",
            ["api", "v1", "nodes", _, "status"] => "node/status",
            [.., "virtualmachineinstances"] => "vmis",
            [.., "virtualmachineinstances", _] => "vmi",
            // A state of a scheduled event that passes between two reads has no Event.
            [.., "events"] => continue,
            _ => path,
        };
        *counts.entry(format!("{side:?} {verb} {kind}")).or_default() += 1;
    }
    counts
}

fn real(binary: &std::path::Path, agent: usize) -> Vec<Requests> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the kernel gives an event loop");
    runtime.block_on(async {
        let name = vm_name(agent);
        let world = World::lab(WorldOptions {
            vm: VmSpec::named(&name),
            access: HostAccess::Nodes,
            ..WorldOptions::default()
        })
        .await;
        let config = format!("[timing]\npoll_interval = \"{}s\"\n", POLL.as_secs());
        world.guest.write(
            "/etc/harvester-node-agent/config.d/50-fleet.toml",
            config.as_bytes(),
        );
        let mut process = None;
        let mut seen = [0, 0];
        let mut steps = Vec::new();
        for (step, time) in STEPS {
            match step {
                Step::Start => {
                    let mut agent = world.spawn_agent(binary, &["run"]);
                    agent.wait_ready(SOON).await;
                    process = Some(agent);
                }
                Step::Migration => drop(world.migrate("hv-b").await),
                Step::HangUp => process.as_ref().expect("it runs").signal(Signal::SIGHUP),
                Step::Poll | Step::Idle => {}
            }
            sleep(time).await;
            let mut all = Requests::new();
            for (side, api) in [
                (Side::Harvester, &world.harvester_api),
                (Side::Guest, &world.guest_api),
            ] {
                let seen = &mut seen[side.index()];
                let requests = new_requests(api, seen).await;
                let requests = requests
                    .iter()
                    .map(|(verb, path)| (side, verb.as_str(), path.as_str()));
                all.extend(count(requests));
            }
            steps.push(all);
        }
        steps
    })
}

async fn new_requests(api: &Api, seen: &mut usize) -> Vec<(String, String)> {
    let requests = api.requests_of(AGENT).await;
    let new = requests.iter().skip(*seen);
    let new = new
        .map(|request| (request.verb.clone(), request.path.clone()))
        .collect();
    *seen = requests.len();
    new
}

fn simulated(agent: usize) -> Vec<Requests> {
    let trees = Trees::some(std::iter::once(agent));
    simulate(async {
        let network = Arc::new(Network::new(agent + 1));
        agents::attach(&network, 5);
        network.noted();
        let mut settings = settings(agent);
        settings.timing.poll = POLL;
        let mut handle = None;
        let mut steps = Vec::new();
        for (step, time) in STEPS {
            let running = || handle.as_ref().expect("it runs");
            match step {
                Step::Start => {
                    let settings = settings.clone();
                    handle = Some(agents::start_with(
                        settings, Silent, &trees, &network, agent,
                    ));
                }
                Step::Migration => network.migrate(agent).await,
                Step::HangUp => {
                    let handle: &agents::Handle = running();
                    handle.hang_up();
                }
                Step::Poll | Step::Idle => {}
            }
            sleep(time).await;
            let noted = network.noted();
            let requests = noted
                .iter()
                .map(|one| (one.side, one.verb, one.path.as_str()));
            steps.push(count(requests));
        }
        steps
    })
}
