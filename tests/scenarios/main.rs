// SPDX-License-Identifier: Apache-2.0
//! The shipped binary against a whole world: each scenario once in the lab, and once against two real kube-apiservers of each version.
//! Faults on the wire, which only the lab can make, are in `faults`.

#![expect(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bake_check;
mod channel;
mod cloud_provider;
mod configuration;
mod credentials;
mod decentralized_migration;
mod doctor;
mod doctor_bundle;
mod doctor_conflicts;
mod doctor_credentials;
mod doctor_reports;
mod downward_metrics;
mod events;
mod expected;
mod faults;
mod guest_agent;
mod hooks;
mod hostile;
mod hostile_doctor;
mod identity;
mod journal;
mod kill;
mod labels;
mod load;
mod malformed;
mod metrics;
mod migration;
mod network;
mod output;
mod pod_info;
mod rbac;
mod reads;
mod registration;
mod sandbox;
mod service;
mod service_account;
mod signals;
mod status;
mod versions;

/// Not in each run: they take minutes, or starve where others need the processor, too.
mod slow {
    mod soak;
    mod starved;
}

use harvester_lab::process::{Agent, Output, run_once};
use harvester_lab::world::{Api, World};

pub use harvester_lab::names::{HOST, IDENTITY, REGION, REGION_BETA, TOPOLOGY, ZONE, ZONE_BETA};
pub use harvester_lab::world::{On, SOON};

pub const BINARY: &str = env!("CARGO_BIN_EXE_harvester-node-agent");

/// Makes tests of each scenario, `lab` and on real servers `kubernetes_1_20` and `kubernetes_1_36`. Those after `real:` are for real
/// servers alone.
#[macro_export]
macro_rules! on_both {
    ($($scenario:ident),* $(,)? $(; real: $($real:ident),* $(,)?)?) => {
        mod lab {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario($crate::On::Lab).await;
                }
            )*
        }
        harvester_lab::on_each_kubernetes!(
            harvester_lab::real::RealApi::available, $crate::On::Real;
            $($scenario,)* $($($real),*)?
        );
    };
}

pub async fn agent(world: &World, args: &[&str]) -> Output {
    run_once(BINARY, world.guest.root(), args, SOON).await
}

pub async fn serve(world: &World) -> Agent {
    // As systemd does, which removes the directory of a service that has ended.
    world.guest.remove("/run/harvester-node-agent/status.json");
    let mut agent = world.spawn_agent(BINARY, &["run"]);
    agent.wait_ready(SOON).await;
    agent
}

/// The words of a text, however it is wrapped.
pub fn words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// Waits until a label of the Node has a value.
pub async fn label_becomes(world: &World, key: &str, value: &str) {
    world.label_becomes(key, value).await;
}

/// Waits until a condition of the Node has a status and a reason.
pub async fn condition_becomes(world: &World, kind: &str, status: &str, reason: &str) {
    world.condition_becomes(kind, status, reason).await;
}

pub async fn condition(world: &World, kind: &str) -> Option<(String, String)> {
    world.condition_state(kind).await
}

/// The codes of the findings in the status file.
pub fn findings(world: &World) -> Vec<String> {
    world.findings()
}

/// Waits until the status file holds exactly these findings. `doctor` then names no other trouble than the running agent.
pub async fn findings_become(world: &World, expected: &[&str]) {
    world.findings_become(expected).await;
    doctor::agrees(world, expected).await;
}

/// Waits until one status, of after the move to this host, holds exactly these findings, and `doctor` agrees.
pub async fn settles_on(world: &World, host: &str, expected: &[&str]) {
    world.settles_on(host, expected).await;
    doctor::agrees(world, expected).await;
}

/// The agent's PATCHes of Node metadata (not of its status).
pub async fn node_patches(world: &World) -> usize {
    world.node_patches().await
}

/// The server of one side, in the lab.
pub fn lab(api: &Api) -> &harvester_lab::server::Server {
    api.lab()
}
