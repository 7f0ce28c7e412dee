// SPDX-License-Identifier: Apache-2.0
//! The gate before the first start of a kubelet, as `harvester-node-agent-gate.service` and the drop-in of the kubelet run it.

use harvester_lab::admin::paths;
use harvester_lab::guest::Distribution;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::process::run_once;
use harvester_lab::world::{SOON, World, eventually};

use crate::{
    BINARY, HOST, REGION, ZONE, all_is_well, beside_a_kubelet, guest_api, kubelet, serve,
    status_updates, world,
};

beside_a_kubelet!(
    a_node_is_registered_with_the_labels_that_the_gate_gave_to_its_kubelet,
    after_each_of_twenty_migrations_the_node_is_registered_with_the_labels_of_its_host,
);

const ENVIRONMENT: &str = "/run/harvester-node-agent-gate/kubelet.env";
const SWITCH: &str = "[registration]\nnode_labels = true\n";

/// A node that passes labels at registration, and whose kubelet has never run: it has no credential.
async fn unregistered(version: Kubernetes) -> World {
    let world = world(version).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    world
        .guest
        .write("/usr/lib/systemd/system/kubelet.service", "[Service]\n");
    world.guest.remove(Distribution::Kubeadm.kubeconfig());
    world
}

async fn gate(world: &World, arguments: &[&str]) -> String {
    let arguments = [&["gate"], arguments].concat();
    let output = run_once(BINARY, world.guest.root(), &arguments, 2 * SOON).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout
}

/// Runs the gate as the start of a kubelet does.
async fn pass_labels(world: &World) {
    let written = format!("labels written to {ENVIRONMENT}\n");
    assert_eq!(gate(world, &["--labels"]).await, written);
}

/// The credential that a bootstrap gives to a kubelet.
fn bootstrap(world: &World) {
    let api = guest_api(world).endpoint();
    let (url, authority) = (&api.url, &api.authority_pem);
    world
        .guest
        .kubelet(Distribution::Kubeadm, url, authority, &world.kubelet);
}

async fn a_node_is_registered_with_the_labels_that_the_gate_gave_to_its_kubelet(
    version: Kubernetes,
) {
    let world = unregistered(version).await;
    let _agent = serve(&world).await;
    gate(&world, &["--timeout", "60s"]).await;
    pass_labels(&world).await;
    bootstrap(&world);
    let _kubelet = kubelet(&world, &[]).await;
    all_is_well(&world).await;
    status_updates(&world, 2).await;
    // From the first version of the Node on: no Pod was ever placed without them, and no program had to write them later.
    assert_eq!(
        world.recorder.combinations(&KEYS),
        [labels("rack-a", "hv-a")]
    );
}

const KEYS: [&str; 3] = [ZONE, REGION, HOST];

fn labels(zone: &str, host: &str) -> [Option<String>; 3] {
    [zone, "eu-1", host].map(|value| Some(value.to_owned()))
}

async fn after_each_of_twenty_migrations_the_node_is_registered_with_the_labels_of_its_host(
    version: Kubernetes,
) {
    let world = unregistered(version).await;
    let _agent = serve(&world).await;
    gate(&world, &["--timeout", "60s"]).await;
    bootstrap(&world);
    pass_labels(&world).await;
    let mut kubelet = kubelet(&world, &[]).await;
    let path = paths::node(world.node_name());
    for turn in 0..20 {
        let (host, zone) = [("hv-b", "rack-b"), ("hv-a", "rack-a")][turn % 2];
        kubelet.stop().await;
        world.guest_admin.delete(&path).await.unwrap();
        world.recorder.clear().await;
        world.migrate(host).await;
        eventually(SOON, "the agent knows the zone", || async {
            let status = world.guest.status().unwrap_or_default();
            status["placement"]["zone"] == zone
        })
        .await;
        pass_labels(&world).await;
        kubelet.restart().await;
        eventually(2 * SOON, "the kubelet registers its Node", async || {
            !world.recorder.versions().is_empty()
        })
        .await;
        status_updates(&world, 1).await;
        // From its first version on.
        let seen = world.recorder.combinations(&KEYS);
        assert_eq!(seen, [labels(zone, host)], "{turn}");
    }
    assert!(!world.guest.path("/etc/systemd").exists(), "a drop-in");
}
