// SPDX-License-Identifier: Apache-2.0
//! The gate before the first start of a kubelet, as `harvester-node-agent-gate.service` and the drop-in of the kubelet run it.

use harvester_lab::guest::Distribution;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::process::run_once;
use harvester_lab::world::SOON;

use crate::{
    BINARY, HOST, REGION, ZONE, all_is_well, beside_a_kubelet, guest_api, kubelet, serve,
    status_updates, world,
};

beside_a_kubelet!(a_node_is_registered_with_the_labels_that_the_gate_gave_to_its_kubelet);

const ENVIRONMENT: &str = "/run/harvester-node-agent-gate/kubelet.env";
const SWITCH: &str = "[registration]\nnode_labels = true\n";

async fn a_node_is_registered_with_the_labels_that_the_gate_gave_to_its_kubelet(
    version: Kubernetes,
) {
    let world = world(version).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    world
        .guest
        .write("/usr/lib/systemd/system/kubelet.service", "[Service]\n");
    // A kubelet that never started has no credential.
    world.guest.remove(Distribution::Kubeadm.kubeconfig());
    let _agent = serve(&world).await;
    let gate = async |arguments: &[&str]| {
        let output = run_once(BINARY, world.guest.root(), arguments, 2 * SOON).await;
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    gate(&["gate", "--timeout", "60s"]).await;
    let written = format!("labels written to {ENVIRONMENT}\n");
    assert_eq!(gate(&["gate", "--labels"]).await, written);

    // Its bootstrap gives it one.
    let api = guest_api(&world).endpoint();
    let (url, authority) = (&api.url, &api.authority_pem);
    world
        .guest
        .kubelet(Distribution::Kubeadm, url, authority, &world.kubelet);
    let _kubelet = kubelet(&world, &[]).await;
    all_is_well(&world).await;
    status_updates(&world, 2).await;
    // From the first version of the Node on: no Pod was ever placed without them, and no program had to write them later.
    let always = [[Some("rack-a"), Some("eu-1"), Some("hv-a")]
        .map(|v| v.map(str::to_owned))
        .to_vec()];
    assert_eq!(world.recorder.combinations(&[ZONE, REGION, HOST]), always);
}
