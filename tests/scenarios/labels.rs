// SPDX-License-Identifier: Apache-2.0
//! What is written, what is left alone, and that nothing is written twice.

use harvester_lab::cloud_controller::fight;
use harvester_lab::harvester::PodLabels;
use harvester_lab::process::Signal;
use harvester_lab::world::{CloudState, HostAccess, VM_NAME, WorldOptions, eventually};

use crate::{
    HOST, IDENTITY, On, REGION, REGION_BETA, SOON, TOPOLOGY, ZONE, ZONE_BETA, agent, condition,
    condition_becomes, findings_become, label_becomes, node_patches, on_both, serve,
};

on_both!(
    once_labels_the_node_and_a_second_once_writes_nothing,
    a_bare_node_gets_no_beta_twins,
    a_dry_run_says_what_it_would_write_and_writes_nothing,
    a_cloud_controller_reverts_nothing,
    a_label_that_a_person_changed_is_put_right,
    a_conflicting_writer_is_reported_and_writes_stop_after_three_reverts,
    a_node_that_was_made_anew_is_labelled_anew,
    a_host_relabelled_in_harvester_is_followed,
    hold_keeps_the_first_zone_and_report_writes_none,
    extra_labels_come_from_the_host_and_foreign_ones_stay,
    an_extra_label_of_the_previous_host_is_reported_until_the_host_can_be_read,
    every_source_is_used_in_its_turn,
);

async fn once_labels_the_node_and_a_second_once_writes_nothing(on: On) {
    let world = on.world(WorldOptions::default()).await;
    // As after a migration that no agent followed.
    world
        .relabel_node("kubelet", &[(ZONE, Some("old")), (ZONE_BETA, Some("old"))])
        .await;
    let first = agent(&world, &["once"]).await;
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    for (key, value) in [
        (REGION, "eu-1"),
        (REGION_BETA, "eu-1"),
        (ZONE, "rack-a"),
        (ZONE_BETA, "rack-a"),
        (HOST, "hv-a"),
    ] {
        assert_eq!(world.node_label(key).await.as_deref(), Some(value), "{key}");
    }
    assert_eq!(
        condition(&world, IDENTITY).await,
        Some(("True".to_owned(), "NamesMatch".to_owned()))
    );
    assert_eq!(
        condition(&world, TOPOLOGY).await,
        Some(("True".to_owned(), "Synced".to_owned()))
    );
    let version = world.node_resource_version().await;
    let second = agent(&world, &["once"]).await;
    assert_eq!(second.code, Some(0), "{}{}", second.stdout, second.stderr);
    assert_eq!(second.stdout, format!("node/{VM_NAME} unchanged\n"));
    assert_eq!(world.node_resource_version().await, version);
    assert_eq!(node_patches(&world).await, 1);
}

async fn a_bare_node_gets_no_beta_twins(on: On) {
    let world = on
        .world(WorldOptions {
            cloud: CloudState::Absent,
            ..WorldOptions::default()
        })
        .await;
    assert_eq!(agent(&world, &["once"]).await.code, Some(0));
    assert_eq!(world.node_label(ZONE).await.as_deref(), Some("rack-a"));
    assert_eq!(world.node_label(ZONE_BETA).await, None);
}

async fn a_dry_run_says_what_it_would_write_and_writes_nothing(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let version = world.node_resource_version().await;
    let output = agent(&world, &["once", "--dry-run"]).await;
    assert!(
        output
            .stdout
            .contains(" labeled: topology.harvesterhci.io/host=hv-a (dry run)\n"),
        "{}",
        output.stdout
    );
    assert_eq!(world.node_resource_version().await, version);
    assert!(world.agent_writes().await.is_empty());
}

async fn a_cloud_controller_reverts_nothing(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let cloud = world.cloud.run();
    // It reacts to each change of the Node in turn: with its reaction to this one, all changes of before are dealt with.
    let reacts = async |size: &str, times: u64| {
        let change = [("beta.kubernetes.io/instance-type", Some(size))];
        world.relabel_node("kubectl-label", &change).await;
        label_becomes(&world, "node.kubernetes.io/instance-type", size).await;
        eventually(SOON, size, || async { cloud.reverts() >= times }).await;
        assert_eq!(cloud.reverts(), times);
    };
    reacts("small", 1).await;
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    assert_eq!(world.node_label(ZONE_BETA).await.as_deref(), Some("rack-b"));
    reacts("large", 2).await;
}

async fn a_label_that_a_person_changed_is_put_right(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world
        .relabel_node(
            "kubectl-label",
            &[(ZONE, None), (HOST, Some("elsewhere")), ("team", Some("a"))],
        )
        .await;
    label_becomes(&world, ZONE, "rack-a").await;
    label_becomes(&world, HOST, "hv-a").await;
    assert_eq!(world.node_label("team").await.as_deref(), Some("a"));
}

async fn a_conflicting_writer_is_reported_and_writes_stop_after_three_reverts(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let before = node_patches(&world).await;
    let rival = fight(
        &world.guest_api.endpoint(),
        "zone-fixer",
        world.node_name(),
        HOST,
        "mine",
    );
    condition_becomes(&world, TOPOLOGY, "False", "LabelConflict").await;
    findings_become(&world, &["label-conflict"]).await;
    let status = world.guest.status().unwrap();
    assert!(
        status["findings"][0]["observed"]
            .as_str()
            .unwrap()
            .contains("zone-fixer"),
        "{status}"
    );
    // What the Node has, and not what is wanted.
    assert_eq!(status["labels"]["owned"][HOST], "mine", "{status:#}");
    let patches = node_patches(&world).await - before;
    assert!(patches <= 3, "{patches} patches");
    drop(rival);
    // Whoever reads the configuration again has ended the fight.
    agent.signal(Signal::SIGHUP);
    label_becomes(&world, HOST, "hv-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
}

async fn a_node_that_was_made_anew_is_labelled_anew(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.recreate_node().await;
    label_becomes(&world, ZONE, "rack-a").await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
}

async fn a_host_relabelled_in_harvester_is_followed(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    world
        .harvester
        .relabel_host("hv-a", &[(ZONE, Some("rack-z"))])
        .await
        .unwrap();
    world.harvester.touch(&world.vm).await.unwrap();
    label_becomes(&world, ZONE, "rack-z").await;
    assert_eq!(world.node_label(ZONE_BETA).await.as_deref(), Some("rack-z"));
}

async fn hold_keeps_the_first_zone_and_report_writes_none(on: On) {
    for (policy, host) in [("hold", Some("hv-b")), ("report", None)] {
        let world = on.world(WorldOptions::default()).await;
        world.guest.agent_config(
            "10-policy.toml",
            &format!("[topology]\non_change = \"{policy}\"\n"),
        );
        let _agent = serve(&world).await;
        world.migrate("hv-b").await;
        findings_become(&world, &["pinned-by-config"]).await;
        condition_becomes(&world, TOPOLOGY, "False", "PinnedByConfig").await;
        assert_eq!(
            world.node_label(ZONE).await.as_deref(),
            Some("rack-a"),
            "{policy}"
        );
        assert_eq!(world.node_label(HOST).await.as_deref(), host, "{policy}");
    }
}

async fn extra_labels_come_from_the_host_and_foreign_ones_stay(on: On) {
    let world = on
        .world(WorldOptions {
            access: HostAccess::Nodes,
            ..WorldOptions::default()
        })
        .await;
    let labels = [
        ("example.com/power", Some("p1")),
        ("example.com/disk", Some("nvme")),
    ];
    world.harvester.relabel_host("hv-a", &labels).await.unwrap();
    world
        .relabel_node("kubectl-label", &[("example.com/disk", Some("by-hand"))])
        .await;
    let extra = "[labels.extra]\n\"example.com/power\" = \"example.com/power\"\n\"example.com/disk\" = \"example.com/disk\"\n";
    world.guest.agent_config("10-extra.toml", extra);
    let _agent = serve(&world).await;
    label_becomes(&world, "example.com/power", "p1").await;
    findings_become(&world, &["label-not-managed"]).await;
    assert_eq!(
        world.node_label("example.com/disk").await.as_deref(),
        Some("by-hand")
    );
}

async fn an_extra_label_of_the_previous_host_is_reported_until_the_host_can_be_read(on: On) {
    const POWER: &str = "example.com/power";
    let world = on
        .world(WorldOptions {
            access: HostAccess::Nodes,
            ..WorldOptions::default()
        })
        .await;
    for (host, power) in [("hv-a", "p1"), ("hv-b", "p2")] {
        let labels = [(POWER, Some(power))];
        world.harvester.relabel_host(host, &labels).await.unwrap();
    }
    let extra = format!("[labels.extra]\n\"{POWER}\" = \"{POWER}\"\n");
    world.guest.agent_config("10-extra.toml", &extra);
    let agent = serve(&world).await;
    label_becomes(&world, POWER, "p1").await;
    world.revoke_host_nodes().await;
    world.migrate("hv-b").await;
    label_becomes(&world, HOST, "hv-b").await;
    condition_becomes(&world, TOPOLOGY, "False", "TopologyPartial").await;
    findings_become(&world, &["topology-partial"]).await;
    assert_eq!(world.node_label(POWER).await.as_deref(), Some("p1"));
    world.grant_host_nodes().await;
    agent.signal(Signal::SIGHUP);
    label_becomes(&world, POWER, "p2").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    findings_become(&world, &[]).await;
}

async fn every_source_is_used_in_its_turn(on: On) {
    let mut world = on
        .world(WorldOptions {
            cloud: CloudState::Absent,
            ..WorldOptions::default()
        })
        .await;
    let source = |text: &str| {
        text.lines()
            .find(|line| line.starts_with("Topology"))
            .unwrap_or_default()
            .trim_end_matches(')')
            .to_owned()
    };
    let whoami = agent(&world, &["whoami"]).await;
    assert!(
        source(&whoami.stdout).ends_with("vmi-annotations"),
        "{}",
        whoami.stdout
    );
    world.grant_host_nodes().await;
    let whoami = agent(&world, &["whoami", "-v"]).await;
    assert!(
        source(&whoami.stdout).ends_with("host-node"),
        "{}",
        whoami.stdout
    );
    assert!(
        whoami.stdout.contains("vmi-annotations not-needed"),
        "{}",
        whoami.stdout
    );
    world.revoke_host_nodes().await;
    // Another VM's shape: nothing annotates it, Kubernetes labels its pod.
    world.harvester.stop_annotating();
    world.harvester = world
        .harvester
        .clone()
        .with_pod_labels(PodLabels::WithTopology);
    world.harvester.restart_vm(&world.vm, "hv-b").await.unwrap();
    let whoami = agent(&world, &["whoami"]).await;
    assert!(
        source(&whoami.stdout).ends_with("launcher-pod"),
        "{}",
        whoami.stdout
    );
    assert!(
        whoami.stdout.contains(", zone rack-b "),
        "{}",
        whoami.stdout
    );
    world.harvester = world.harvester.clone().with_pod_labels(PodLabels::VmiOnly);
    world.harvester.restart_vm(&world.vm, "hv-c").await.unwrap();
    world.harvester.publish_topology("topology").await.unwrap();
    if on.labels_pods() {
        let whoami = agent(&world, &["whoami"]).await.stdout;
        assert!(source(&whoami).ends_with("launcher-pod"), "{whoami}");
        assert!(whoami.contains(", zone rack-c "), "{whoami}");
        world.harvester.unlabel_pods(&world.vm).await.unwrap();
    }
    let whoami = agent(&world, &["whoami"]).await;
    assert!(
        source(&whoami.stdout).ends_with("configmap"),
        "{}",
        whoami.stdout
    );
    assert!(whoami.stdout.contains(" region eu-2,"), "{}", whoami.stdout);
    assert!(
        world.guest.status().is_none(),
        "whoami leaves no status behind"
    );
    eventually(SOON, "no write", || async {
        world.agent_writes().await.is_empty()
    })
    .await;
}
