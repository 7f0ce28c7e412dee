// SPDX-License-Identifier: Apache-2.0
//! Live migration: one patch, never a mixture, and nothing when nothing moved.

use std::time::Duration;

use harvester_lab::harvester::Order;
use harvester_lab::world::{CloudState, HostAccess, WorldOptions, always, eventually};

use crate::{
    HOST, IDENTITY, On, REGION, SOON, TOPOLOGY, ZONE, ZONE_BETA, condition, condition_becomes,
    findings_become, label_becomes, node_patches, on_both, serve,
};

on_both!(
    annotations_that_lag_are_waited_for_and_labels_move_in_one_patch,
    a_credential_that_reads_hosts_needs_no_annotations,
    a_failed_migration_writes_nothing,
    there_and_back_ends_right,
    a_restart_on_another_host_is_followed,
    a_move_while_the_agent_was_down_is_reported,
    the_last_migration_is_reported_after_a_restart_too,
);

/// Every combination of labels that was ever visible after the first labelling.
fn combinations(world: &harvester_lab::world::World) -> Vec<Vec<Option<String>>> {
    world
        .recorder
        .combinations(&[REGION, ZONE, ZONE_BETA, HOST])
}

fn of_host(region: &str, rack: &str, host: &str) -> Vec<Option<String>> {
    [region, rack, rack, host]
        .map(|text| Some(text.to_owned()))
        .to_vec()
}

async fn annotations_that_lag_are_waited_for_and_labels_move_in_one_patch(on: On) {
    for order in [Order::UpTo1_5, Order::From1_6] {
        let world = on.world(WorldOptions::default()).await;
        let mut agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        let patches = node_patches(&world).await;
        world.recorder.clear();
        let lag = Duration::from_millis(300);
        world
            .harvester
            .migrate(&world.vm, "hv-c", order, lag)
            .await
            .unwrap();
        label_becomes(&world, ZONE, "rack-c").await;
        let told = |line: &harvester_lab::process::Line| {
            line.text
                .contains("migrated from Harvester host hv-a to hv-c")
        };
        agent.wait_line(told, SOON).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let seen = combinations(&world);
        let allowed = [
            of_host("eu-1", "rack-a", "hv-a"),
            of_host("eu-2", "rack-c", "hv-c"),
        ];
        assert!(
            seen.iter().all(|labels| allowed.contains(labels)),
            "{order:?}: {seen:?}"
        );
        assert_eq!(node_patches(&world).await - patches, 1, "{order:?}");
        assert_eq!(
            condition(&world, TOPOLOGY).await,
            Some(("True".to_owned(), "Synced".to_owned()))
        );
        let events = world.events().await;
        let moved = events
            .iter()
            .filter(|event| event["reason"] == "HostChanged")
            .count();
        assert_eq!(moved, 1, "{order:?}: {events:?}");
        let status = world.guest.status().unwrap();
        assert_eq!(status["lastMigration"]["from"], "hv-a");
        assert!(
            status["lastMigration"]["durationSeconds"].is_f64(),
            "{}",
            status["lastMigration"]
        );
    }
}

async fn a_credential_that_reads_hosts_needs_no_annotations(on: On) {
    let options = WorldOptions {
        access: HostAccess::Nodes,
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    world.harvester.stop_annotating();
    let _agent = serve(&world).await;
    label_becomes(&world, ZONE, "rack-a").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    assert_eq!(world.node_label(HOST).await.as_deref(), Some("hv-b"));
}

async fn a_failed_migration_writes_nothing(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    let version = world.node_resource_version().await;
    world
        .harvester
        .fail_migration(&world.vm, "hv-b", "no memory")
        .await
        .unwrap();
    let unchanged = || async { world.node_resource_version().await == version };
    always(
        Duration::from_millis(500),
        "the Node is not written",
        unchanged,
    )
    .await;
    findings_become(&world, &[]).await;
}

async fn there_and_back_ends_right(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    for host in ["hv-b", "hv-a", "hv-c", "hv-a"] {
        world.migrate(host).await;
    }
    label_becomes(&world, HOST, "hv-a").await;
    label_becomes(&world, ZONE, "rack-a").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let racks = [
        ("eu-1", "rack-a", "hv-a"),
        ("eu-1", "rack-b", "hv-b"),
        ("eu-2", "rack-c", "hv-c"),
    ];
    let allowed = racks.map(|(region, rack, host)| of_host(region, rack, host));
    let seen = combinations(&world);
    let labelled: Vec<_> = seen.iter().filter(|labels| labels[3].is_some()).collect();
    assert!(
        labelled.iter().all(|labels| allowed.contains(labels)),
        "{seen:?}"
    );
    assert_eq!(world.node_label(ZONE).await.as_deref(), Some("rack-a"));
}

async fn a_restart_on_another_host_is_followed(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.harvester.restart_vm(&world.vm, "hv-b").await.unwrap();
    label_becomes(&world, ZONE, "rack-b").await;
    findings_become(&world, &[]).await;
}

async fn a_move_while_the_agent_was_down_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    agent.signal(harvester_lab::process::Signal::SIGKILL);
    agent.wait_exit(SOON).await;
    world.migrate("hv-b").await;
    let _agent = serve(&world).await;
    label_becomes(&world, ZONE, "rack-b").await;
    let annotation = world
        .node_annotation("node-agent.harvesterhci.io/last-migration")
        .await
        .unwrap();
    assert!(
        annotation.contains(r#""from":"hv-a","to":"hv-b""#),
        "{annotation}"
    );
}

async fn the_last_migration_is_reported_after_a_restart_too(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    let told = || {
        let last = &world.guest.status()?["lastMigration"];
        last["durationSeconds"].is_f64().then(|| last.clone())
    };
    eventually(SOON, "the migration is told", || async { told().is_some() }).await;
    let before = told();
    agent.signal(harvester_lab::process::Signal::SIGTERM);
    agent.wait_exit(SOON).await;
    world.guest.remove("/run/harvester-node-agent/status.json");
    let _agent = serve(&world).await;
    eventually(SOON, "the service tells again", || async {
        told().is_some()
    })
    .await;
    assert_eq!(told(), before);
}
