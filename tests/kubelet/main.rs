// SPDX-License-Identifier: Apache-2.0
//! The shipped binary beside a real kubelet, on the Node that this kubelet registers, with the credential that it uses.
//! `tests/run` makes what this needs.

#![expect(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gate;
mod node;
mod static_labels;

/// Not in each run: certificates take a minute to expire.
mod slow {
    mod credential;
}

use harvester_lab::admin::paths;
use harvester_lab::guest::Distribution;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::process::Agent;
use harvester_lab::real::{Kubelet, RealApi};
use harvester_lab::world::{
    CloudState, Registration, SOON, World, WorldOptions, condition_of, eventually,
};

pub use harvester_lab::names::{HOST, IDENTITY, REGION, TOPOLOGY, ZONE};

pub const BINARY: &str = env!("CARGO_BIN_EXE_harvester-node-agent");

/// Makes a test of each scenario on each version of Kubernetes.
#[macro_export]
macro_rules! beside_a_kubelet {
    ($($scenario:ident),* $(,)?) => {
        harvester_lab::on_each_kubernetes!($crate::available, std::convert::identity; $($scenario),*);
    };
}

/// Whether there are all programs of a version.
pub fn available(version: Kubernetes, test: &str) -> bool {
    Kubelet::available(version, test) && RealApi::available(version, test)
}

/// The standard story on a kubeadm node that its kubelet has yet to register.
pub async fn world(version: Kubernetes) -> World {
    let options = WorldOptions {
        distribution: Distribution::Kubeadm,
        cloud: CloudState::Absent,
        registration: Registration::Kubelet,
        ..WorldOptions::default()
    };
    let world = World::real(version, options).await;
    // The kubelet reports the UUID of the machine that the test runs on.
    world.guest.remove("/sys/class/dmi/id/product_uuid");
    world
}

pub fn guest_api(world: &World) -> &RealApi {
    world.guest_api.real()
}

pub async fn serve(world: &World) -> Agent {
    let mut agent = world.spawn_agent(BINARY, &["run"]);
    agent.wait_ready(SOON).await;
    agent
}

/// Starts a kubelet whose flag `--node-labels` has these, and waits for its Node.
pub async fn kubelet(world: &World, labels: &[(&str, &str)]) -> Kubelet {
    let version = guest_api(world).version();
    let kubelet = Kubelet::start(version, &world.guest, world.node_name(), labels).await;
    node_appears(world).await;
    kubelet
}

pub async fn node_appears(world: &World) {
    let path = paths::node(world.node_name());
    eventually(2 * SOON, "the kubelet registers its Node", || async {
        world.guest_admin.find(&path).await.unwrap().is_some()
    })
    .await;
}

/// Waits until the labels are those of `hv-a`, the conditions are true and nothing is found wrong.
pub async fn all_is_well(world: &World) {
    world.label_becomes(HOST, "hv-a").await;
    world.label_becomes(ZONE, "rack-a").await;
    world.label_becomes(REGION, "eu-1").await;
    world
        .condition_becomes(IDENTITY, "True", "NamesMatch")
        .await;
    world.condition_becomes(TOPOLOGY, "True", "Synced").await;
    world.findings_become(&[]).await;
}

/// Waits until the kubelet has written its status so often from now on.
pub async fn status_updates(world: &World, times: usize) {
    let from = world.recorder.versions().len();
    let what = format!("the kubelet writes its status {times} times");
    eventually(SOON, &what, || async {
        let versions = world.recorder.versions();
        let mut heartbeats: Vec<_> = versions[from - 1..]
            .iter()
            .map(|version| condition_of(&version.node, "Ready")["lastHeartbeatTime"].clone())
            .collect();
        heartbeats.dedup();
        heartbeats.len() > times
    })
    .await;
}
