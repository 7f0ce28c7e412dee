// SPDX-License-Identifier: Apache-2.0
//! Live migration: one patch, never a mixture, and nothing when nothing moved.

use std::time::Duration;

use harvester_lab::harvester::Order;
use harvester_lab::process::{Line, Signal};
use harvester_lab::world::{CloudState, HostAccess, WorldOptions, eventually};
use serde_json::Value;

use crate::{
    HOST, IDENTITY, On, REGION, SOON, TOPOLOGY, ZONE, ZONE_BETA, condition, condition_becomes,
    doctor, label_becomes, node_patches, on_both, serve, settles_on,
};

on_both!(
    annotations_that_lag_are_waited_for_and_labels_move_in_one_patch,
    a_credential_that_reads_hosts_needs_no_annotations,
    a_failed_migration_writes_nothing,
    repeated_migrations_end_with_the_labels_of_the_last_host,
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
        world.recorder.clear().await;
        let lag = Duration::from_millis(300);
        world
            .harvester
            .migrate(&world.vm, "hv-c", order, lag)
            .await
            .unwrap();
        label_becomes(&world, ZONE, "rack-c").await;
        eventually(SOON, "the migration in the status", || async {
            let last = &world.guest.status().unwrap()["lastMigration"];
            last["from"] == "hv-a" && last["durationSeconds"].is_f64()
        })
        .await;
        // When the next one is told, nothing of the first is to come.
        world.migrate("hv-b").await;
        for (from, to) in [("hv-a", "hv-c"), ("hv-c", "hv-b")] {
            let told = format!("Harvester host changed from {from} to {to}");
            let is_told = |line: &Line| line.text.contains(&told);
            agent.wait_line(is_told, SOON).await;
        }
        let is_seen =
            || async { combinations(&world).last() == Some(&of_host("eu-1", "rack-b", "hv-b")) };
        eventually(SOON, "the recorder has seen the last host", is_seen).await;
        let seen = combinations(&world);
        let allowed = [
            of_host("eu-1", "rack-a", "hv-a"),
            of_host("eu-2", "rack-c", "hv-c"),
            of_host("eu-1", "rack-b", "hv-b"),
        ];
        assert!(
            seen.iter().all(|labels| allowed.contains(labels)),
            "{order:?}: {seen:?}"
        );
        assert_eq!(node_patches(&world).await - patches, 2, "{order:?}");
        assert_eq!(
            condition(&world, TOPOLOGY).await,
            Some(("True".to_owned(), "Synced".to_owned()))
        );
        eventually(SOON, "two Events", || async {
            let events = world.events().await;
            let moved = events.iter();
            moved
                .filter(|event| event["reason"] == "HostChanged")
                .count()
                == 2
        })
        .await;
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
    let is_later = |status: &Value| status["scheduledEvent"]["state"] == "failed";
    world.status_becomes("the failure", is_later, &[]).await;
    doctor::agrees(&world, &[]).await;
    // The write of the next migration must be the first.
    world.migrate("hv-c").await;
    label_becomes(&world, ZONE, "rack-c").await;
    let of = |node: &Value| node["metadata"]["resourceVersion"].clone();
    let position = || {
        let versions = world.recorder.versions();
        let before = versions.iter().position(|seen| of(&seen.node) == *version);
        before.filter(|at| at + 1 < versions.len())
    };
    let is_seen = || async { position().is_some() };
    eventually(SOON, "the next version of the Node", is_seen).await;
    let next = &world.recorder.versions()[position().unwrap() + 1];
    assert_eq!(next.label(HOST).as_deref(), Some("hv-c"), "{}", next.node);
}

async fn repeated_migrations_end_with_the_labels_of_the_last_host(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    for host in ["hv-b", "hv-a", "hv-c", "hv-a"] {
        world.migrate(host).await;
    }
    // A change at the end of the way, which the watch delivers last.
    let moved = [(ZONE, Some("rack-d"))];
    world.harvester.relabel_host("hv-a", &moved).await.unwrap();
    world.harvester.annotate(&world.vm).await.unwrap();
    label_becomes(&world, ZONE, "rack-d").await;
    assert_eq!(world.node_label(HOST).await.as_deref(), Some("hv-a"));
    let racks = [
        ("eu-1", "rack-a", "hv-a"),
        ("eu-1", "rack-b", "hv-b"),
        ("eu-2", "rack-c", "hv-c"),
        ("eu-1", "rack-d", "hv-a"),
    ];
    let allowed = racks.map(|(region, rack, host)| of_host(region, rack, host));
    let seen = combinations(&world);
    let labelled: Vec<_> = seen.iter().filter(|labels| labels[3].is_some()).collect();
    assert!(
        labelled.iter().all(|labels| allowed.contains(labels)),
        "{seen:?}"
    );
}

async fn a_restart_on_another_host_is_followed(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.harvester.restart_vm(&world.vm, "hv-b").await.unwrap();
    label_becomes(&world, ZONE, "rack-b").await;
    settles_on(&world, "hv-b", &[]).await;
}

async fn a_move_while_the_agent_was_down_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    agent.signal(Signal::SIGKILL);
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
    agent.signal(Signal::SIGTERM);
    agent.wait_exit(SOON).await;
    world.guest.remove("/run/harvester-node-agent/status.json");
    let _agent = serve(&world).await;
    eventually(SOON, "the service tells again", || async {
        told().is_some()
    })
    .await;
    assert_eq!(told(), before);
}
