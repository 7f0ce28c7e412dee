// SPDX-License-Identifier: Apache-2.0
//! A decentralized live migration: another Harvester cluster takes the VM over while it runs.

use harvester_lab::guest::KubeconfigForm;
use harvester_lab::qga::Client;
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{NAMESPACE, Side, World, WorldOptions, eventually};

use crate::channel::{PORT, resync};
use crate::hostile::labels_stay;
use crate::{
    HOST, REGION, SOON, TOPOLOGY, ZONE, condition_becomes, label_becomes, node_patches, serve,
};

/// The host of the second cluster, with its region and zone.
const TARGET: (&str, &str, &str) = ("other-a", "eu-9", "rack-z");

/// A second cluster that runs the same VM.
async fn second_cluster(world: &World) -> World {
    let vm = world.vm.spec.clone();
    let other = World::lab(WorldOptions {
        vm,
        ..WorldOptions::default()
    })
    .await;
    let (host, region, zone) = TARGET;
    let labels = [(REGION, region), (ZONE, zone)];
    other.harvester.add_host(host, &labels).await.unwrap();
    other.migrate(host).await;
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_that_another_cluster_takes_over_has_its_labels_when_the_credential_is_there() {
    let world = World::lab(WorldOptions::default()).await;
    let other = second_cluster(&world).await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.harvester.stop_vm(&world.vm).await.unwrap();
    follows(&world, &other).await;
    assert!(agent.exited().is_none());
}

/// Gives the guest the credential of the second cluster, and waits for its labels.
async fn follows(world: &World, other: &World) {
    let endpoint = other.harvester_api.endpoint();
    let (form, guest) = (KubeconfigForm::HarvesterApi, &world.guest);
    let authority = &endpoint.authority_pem;
    guest.harvester_kubeconfig(form, &endpoint.url, authority, &other.token, NAMESPACE);
    let (host, region, zone) = TARGET;
    label_becomes(world, HOST, host).await;
    for (key, value) in [(REGION, region), (ZONE, zone)] {
        assert_eq!(world.node_label(key).await.as_deref(), Some(value));
    }
    // No version of the Node had a host of one cluster and a zone of the other.
    let pairs = world.recorder.combinations(&[HOST, ZONE]);
    let is_whole = |pair: &Vec<Option<String>>| {
        let is_new = |index: usize, new: &str| pair[index].as_deref() == Some(new);
        is_new(0, host) == is_new(1, zone)
    };
    assert!(pairs.iter().all(is_whole), "{pairs:?}");
    // providerID of the Node never changes, and names the VM object of the first cluster.
    world.findings_become(&["provider-id-differs"]).await;

    other.migrate("hv-c").await;
    label_becomes(world, HOST, "hv-c").await;
}

mod slow {
    use super::*;

    /// The namespace is searched after up to a minute.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn its_labels_stay_with_one_finding_until_the_credential_is_there() {
        let world = World::lab(WorldOptions::default()).await;
        let other = second_cluster(&world).await;
        let mut host_side = Client::new(VirtioPort::offer(&world.guest, PORT));
        let _agent = serve(&world).await;
        host_side.ping().await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        let patches = node_patches(&world).await;

        world.harvester.stop_vm(&world.vm).await.unwrap();
        let is_named = || async { world.findings() == ["vm-moved-away"] };
        eventually(SOON * 3, "the finding", is_named).await;
        labels_stay(&world, "taken over").await;
        for _ in 0..3 {
            let asked = || async { world.agent_requests(Side::Harvester).await.len() };
            let before = asked().await;
            resync(&mut host_side).await;
            eventually(SOON, "another read", || async { asked().await > before }).await;
            assert!(is_named().await, "{:?}", world.findings());
        }
        assert_eq!(node_patches(&world).await, patches);
        follows(&world, &other).await;
    }
}
