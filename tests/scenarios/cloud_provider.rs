// SPDX-License-Identifier: Apache-2.0
//! Beside Harvester's cloud provider, which follows the annotations of the VMI too: it taints the Node, writes twice, and makes the
//! stable labels equal to their beta twins.

use harvester_lab::admin::paths;
use harvester_lab::cloud_controller::UNINITIALIZED;
use harvester_lab::world::{HOSTS, WorldOptions, eventually};

use crate::{
    HOST, On, REGION, REGION_BETA, SOON, TOPOLOGY, ZONE, ZONE_BETA, condition_becomes,
    label_becomes, node_patches, on_both, serve,
};

on_both!(migrations_with_both_running_end_right);

/// Each change of host in both directions, and more.
const MIGRATIONS: usize = 8;

async fn migrations_with_both_running_end_right(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let labels = world.cloud.run();
    let spec = &world.vm.spec;
    let vmi = paths::grouped("kubevirt.io/v1", &spec.namespace, "virtualmachineinstances");
    let vmi = format!("{vmi}?fieldSelector=metadata.name%3D{}", spec.name);
    let harvester = world.harvester_api.endpoint();
    let annotations = world.cloud.follow(&harvester, &vmi, world.node_name());
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    label_becomes(&world, HOST, HOSTS[0].0).await;
    world.recorder.clear().await;
    let before = node_patches(&world).await;

    let hosts = (1..=MIGRATIONS).map(|round| HOSTS[round % HOSTS.len()]);
    for (host, _, zone) in hosts.clone() {
        world.migrate(host).await;
        label_becomes(&world, HOST, host).await;
        label_becomes(&world, ZONE, zone).await;
    }
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;

    let patches = node_patches(&world).await - before;
    println!(
        "{patches} patches of the agent; the cloud provider wrote topology {} times and twins {} times",
        annotations.reverts(),
        labels.reverts()
    );
    assert!(patches <= MIGRATIONS, "{patches} patches");
    // Each label changes only as the host does: nothing is written and taken back.
    for (key, value) in [
        (HOST, 0),
        (REGION, 1),
        (REGION_BETA, 1),
        (ZONE, 2),
        (ZONE_BETA, 2),
    ] {
        let of_host =
            |(host, region, zone): (&str, &str, &str)| Some([host, region, zone][value].to_owned());
        let mut expected: Vec<_> = std::iter::once(HOSTS[0])
            .chain(hosts.clone())
            .map(of_host)
            .collect();
        expected.dedup();
        let is_right = async || {
            let seen = world.recorder.combinations(&[key]);
            let seen: Vec<_> = seen.into_iter().flatten().collect();
            seen.ends_with(&expected[1..]) && expected.ends_with(&seen)
        };
        eventually(SOON, key, is_right).await;
    }
    let taints = world.node().await["spec"]["taints"].to_string();
    assert!(!taints.contains(UNINITIALIZED), "{taints}");
}
