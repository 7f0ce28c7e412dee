// SPDX-License-Identifier: Apache-2.0
//! What keys of the configuration do: each test fails if its key has no effect. Those of durations are in `tests/fleet/single.rs`.

use harvester_lab::guest::{Distribution, GuestTree};
use harvester_lab::harvester::VmSpec;
use harvester_lab::process::run_once;
use harvester_lab::server::User;
use harvester_lab::world::{CloudState, NAMESPACE, VM_NAME, World, WorldOptions};

use crate::{BINARY, SOON, ZONE, agent, lab};

const HARVESTER: &str = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";

/// A world whose Node has no topology labels before the agent writes them.
async fn world() -> World {
    World::lab(WorldOptions {
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    })
    .await
}

/// Changes a file of the guest.
fn edit(world: &World, path: &str, change: impl Fn(&str) -> String) {
    let before = world.guest.read(path).unwrap();
    let after = change(&before);
    assert_ne!(before, after);
    world.guest.write_secret(path, after);
}

/// Holds that `once` labels the Node with this configuration, and does not without it.
async fn labels_only_with(world: &World, toml: &str) {
    let without = agent(world, &["once"]).await;
    assert_ne!(without.code, Some(0), "{}", without.stdout);
    assert_eq!(world.node_label(ZONE).await, None, "{}", without.stdout);
    world.guest.agent_config("10-key.toml", toml);
    let with = agent(world, &["once"]).await;
    let zone = world.node_label(ZONE).await;
    assert_eq!(zone.as_deref(), Some("rack-a"), "{}", with.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harvester_kubeconfig_is_read_from_where_it_says() {
    let world = world().await;
    let text = world.guest.read(HARVESTER).unwrap();
    world.guest.remove(HARVESTER);
    world.guest.write_secret("/opt/harvester.yaml", text);
    labels_only_with(
        &world,
        "[harvester]\nkubeconfig = \"/opt/harvester.yaml\"\n",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_cluster_kubeconfig_is_read_from_where_it_says() {
    let world = world().await;
    let usual = Distribution::Rke2.kubeconfig();
    let text = world.guest.read(usual).unwrap();
    world.guest.remove(usual);
    world.guest.write_secret("/opt/kubelet.yaml", text);
    labels_only_with(
        &world,
        "[guest_cluster]\nkubeconfig = \"/opt/kubelet.yaml\"\n",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harvester_namespace_replaces_that_of_the_kubeconfig() {
    let world = world().await;
    let named = format!("namespace: \"{NAMESPACE}\"");
    edit(&world, HARVESTER, |text| {
        text.replace(&named, "namespace: \"elsewhere\"")
    });
    let toml = format!("[harvester]\nnamespace = \"{NAMESPACE}\"\n");
    labels_only_with(&world, &toml).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_cluster_node_name_counts_where_no_certificate_names_the_node() {
    let world = world().await;
    let user = User::new(
        &format!("system:node:{}", world.node_name()),
        &["system:nodes"],
    );
    lab(&world.guest_api).add_token("of-the-node", user);
    edit(&world, Distribution::Rke2.kubeconfig(), |text| {
        let (before, _) = text.split_once("    client-certificate:").unwrap();
        format!("{before}    token: of-the-node\n")
    });
    let toml = format!("[guest_cluster]\nnode_name = \"{}\"\n", world.node_name());
    labels_only_with(&world, &toml).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topology_configmap_is_the_one_that_is_read() {
    let vm = VmSpec::named(VM_NAME).created_by(None);
    let world = World::lab(WorldOptions {
        vm,
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    })
    .await;
    world.harvester.publish_topology("places").await.unwrap();
    labels_only_with(
        &world,
        "[topology]\nconfigmap = \"harvester-public/places\"\n",
    )
    .await;
}

#[tokio::test]
async fn assume_kubevirt_lets_the_agent_run_on_other_firmware() {
    let dir = tempfile::tempdir().unwrap();
    let guest = GuestTree::new(dir.path());
    guest.foreign_dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)");
    let code = async || run_once(BINARY, dir.path(), &["whoami"], SOON).await.code;
    assert_eq!(code().await, Some(4));
    guest.agent_config("10-key.toml", "[machine]\nassume_kubevirt = true\n");
    assert_ne!(code().await, Some(4));
}
