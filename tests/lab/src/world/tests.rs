// SPDX-License-Identifier: Apache-2.0
//! The players on trial, each against every kind of server that is there.

use super::*;
use crate::cloud_controller;
use crate::harvester::{Firmware, PodLabels};
use crate::names::{ZONE, ZONE_BETA};

/// Runs each scenario on two servers of the lab, and on two real ones of each version where there are any.
macro_rules! in_every_world {
    ($($scenario:ident),+ $(,)?) => {
        mod lab {
            use super::*;
            $(
                #[tokio::test]
                async fn $scenario() {
                    super::$scenario(On::Lab).await;
                }
            )+
        }

        crate::on_each_kubernetes!(crate::real::RealApi::available, crate::world::On::Real; $($scenario),+);
    };
}

in_every_world!(
    the_world_is_as_described,
    a_migration_updates_the_vmi_in_the_order_of_its_version,
    a_failed_migration_leaves_the_host_as_it_was,
    annotations_follow_a_relabelled_host_at_the_next_update_only,
    a_restart_changes_the_vmi_and_not_the_vm,
    the_cloud_controller_reverts_a_patch_of_the_newer_key_alone,
    a_rival_writes_its_value_again,
    a_second_machine_is_a_guest_of_its_own,
    the_kubelet_is_held_to_its_own_node,
    the_credential_reads_hosts_only_when_granted,
);

async fn vmi(world: &World) -> Value {
    world.harvester.vmi(&world.vm).await.unwrap()
}

async fn the_world_is_as_described(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let vmi = vmi(&world).await;
    assert_eq!(vmi["status"]["nodeName"], "hv-a");
    assert_eq!(vmi["metadata"]["annotations"][ZONE], "rack-a");
    assert_eq!(vmi["metadata"]["ownerReferences"][0]["uid"], world.vm.uid);
    let node = world.node().await;
    assert_eq!(node["spec"]["providerID"], world.vm.provider_id());
    assert_eq!(world.node_label(ZONE).await.unwrap(), "rack-a");
    assert_eq!(world.node_label(ZONE_BETA).await.unwrap(), "rack-a");
    assert!(world.condition("Ready").await.is_some());
    assert!(world.events().await.is_empty());
    assert!(world.agent_writes().await.is_empty());
    let uuid = world.guest.read("/sys/class/dmi/id/product_uuid").unwrap();
    assert_eq!(vmi["spec"]["domain"]["firmware"]["uuid"], uuid.trim());
    let version = world.node_resource_version().await;
    world.relabel_node("me", &[("a", Some("b"))]).await;
    assert_ne!(world.node_resource_version().await, version);

    // The guest's own files lead to both servers.
    let endpoint = world.harvester_api.endpoint();
    let guest = Admin::with_token(&endpoint, "harvester-node-agent/0", &world.token);
    let path = paths::vmi(NAMESPACE, VM_NAME);
    assert_eq!(guest.get(&path).await.unwrap()["metadata"]["name"], VM_NAME);
    let requests = world.agent_requests(Side::Harvester).await;
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (requests[0].verb.as_str(), requests[0].status),
        ("get", 200)
    );
    assert!(world.agent_requests(Side::Guest).await.is_empty());

    world.recreate_node().await;
    assert_eq!(world.node_label(ZONE).await, None);
    eventually(SOON, "the recorder saw the Node go and come", || async {
        let kinds: Vec<String> = world
            .recorder
            .versions()
            .into_iter()
            .map(|version| version.kind)
            .collect();
        kinds.contains(&"DELETED".to_owned()) && kinds.last().is_some_and(|kind| kind != "DELETED")
    })
    .await;
}

/// What a watcher sees of the VMI: host, `completed`, zone annotation, number of active pods.
async fn observe_moves(world: &World, action: impl Future) -> Vec<(String, bool, String, usize)> {
    let path = paths::grouped("kubevirt.io/v1", NAMESPACE, "virtualmachineinstances");
    let endpoint = world.harvester_api.endpoint();
    let mut watch = Admin::new(&endpoint).watch(&path, "").await.unwrap();
    action.await;
    world.harvester.stop_annotating();
    world.harvester.touch(&world.vm).await.unwrap();
    world.harvester.resume_annotating();
    let last = vmi(world).await["metadata"]["resourceVersion"].clone();
    let mut seen = Vec::new();
    loop {
        let event = tokio::time::timeout(SOON, watch.next()).await.unwrap();
        let event = event.unwrap().unwrap();
        if event.kind == "BOOKMARK" {
            continue;
        }
        let vmi = event.object;
        seen.push((
            text(&vmi["status"]["nodeName"]).unwrap_or_default(),
            vmi["status"]["migrationState"]["completed"] == true,
            text(&vmi["metadata"]["annotations"][ZONE]).unwrap_or_default(),
            vmi["status"]["activePods"]
                .as_object()
                .map_or(0, serde_json::Map::len),
        ));
        if vmi["metadata"]["resourceVersion"] == last {
            seen.dedup();
            return seen;
        }
    }
}

async fn a_migration_updates_the_vmi_in_the_order_of_its_version(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let seen = |host: &str, completed, zone: &str, pods| {
        (host.to_owned(), completed, zone.to_owned(), pods)
    };
    let lag = Duration::from_millis(50);
    let migrate = |to, order| world.harvester.migrate(&world.vm, to, order, lag);
    let moves = observe_moves(&world, migrate("hv-b", Order::UpTo1_5)).await;
    let expected = [
        seen("hv-a", false, "rack-a", 1),
        seen("hv-a", false, "rack-a", 2),
        seen("hv-b", true, "rack-a", 2),
        seen("hv-b", true, "rack-b", 2),
        seen("hv-b", true, "rack-b", 1),
    ];
    assert_eq!(moves, expected);
    let moves = observe_moves(&world, migrate("hv-c", Order::From1_6)).await;
    let expected = [
        seen("hv-b", true, "rack-b", 1),
        seen("hv-b", false, "rack-b", 2),
        seen("hv-c", false, "rack-b", 2),
        seen("hv-c", true, "rack-b", 2),
        seen("hv-c", true, "rack-c", 2),
        seen("hv-c", true, "rack-c", 1),
    ];
    assert_eq!(moves, expected);
    let pods = world.harvester.pods(&world.vm).await.unwrap();
    let vmi = vmi(&world).await;
    assert_eq!(pods.len(), 1);
    assert_eq!(vmi["status"]["activePods"][&pods[0].uid], "hv-c");
    assert_eq!(vmi["metadata"]["labels"]["kubevirt.io/nodeName"], "hv-c");
    assert_eq!(
        vmi["metadata"]["annotations"]["kubernetes.io/hostname"],
        "hv-c"
    );
}

async fn a_failed_migration_leaves_the_host_as_it_was(on: On) {
    let world = on.world(WorldOptions::default()).await;
    world
        .harvester
        .fail_migration(&world.vm, "hv-b", "out of luck")
        .await
        .unwrap();
    let vmi = vmi(&world).await;
    assert_eq!(vmi["status"]["nodeName"], "hv-a");
    assert_eq!(vmi["status"]["migrationState"]["failed"], true);
    assert_eq!(vmi["metadata"]["annotations"][ZONE], "rack-a");
    assert_eq!(world.harvester.pods(&world.vm).await.unwrap().len(), 1);
}

async fn annotations_follow_a_relabelled_host_at_the_next_update_only(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let zone = async || vmi(&world).await["metadata"]["annotations"][ZONE].clone();
    world
        .harvester
        .relabel_host("hv-a", &[(ZONE, Some("rack-z"))])
        .await
        .unwrap();
    assert_eq!(zone().await, "rack-a");
    world.harvester.stop_annotating();
    world.harvester.touch(&world.vm).await.unwrap();
    assert_eq!(zone().await, "rack-a");
    world.harvester.resume_annotating();
    world.harvester.touch(&world.vm).await.unwrap();
    assert_eq!(zone().await, "rack-z");
    world
        .harvester
        .relabel_host("hv-a", &[(ZONE, None)])
        .await
        .unwrap();
    world.harvester.touch(&world.vm).await.unwrap();
    assert!(zone().await.is_null());

    // A VM that the node driver did not make is never annotated; its pod tells where Kubernetes is new enough.
    let harvester = world
        .harvester
        .clone()
        .with_pod_labels(PodLabels::WithTopology);
    let spec = VmSpec::named("by-hand")
        .created_by(Some("harvester"))
        .firmware(Firmware::Random);
    let other = harvester.create_vm(spec, "hv-b").await.unwrap();
    let annotations = harvester.vmi(&other).await.unwrap()["metadata"]["annotations"].clone();
    assert!(annotations[ZONE].is_null(), "{annotations}");
    let pods = harvester
        .admin()
        .list(&paths::core(NAMESPACE, "pods"))
        .await
        .unwrap();
    let zones: Vec<&Value> = pods
        .iter()
        .map(|pod| &pod["metadata"]["labels"][ZONE])
        .collect();
    assert!(zones.contains(&&json!("rack-b")));
    assert_eq!(zones.contains(&&Value::Null), !on.labels_pods());

    harvester.publish_topology("topology").await.unwrap();
    harvester.publish_topology("topology").await.unwrap();
    let endpoint = world.harvester_api.endpoint();
    let guest = Admin::with_token(&endpoint, "guest", &world.token);
    let published = guest
        .get(&paths::core("harvester-public", "configmaps/topology"))
        .await
        .unwrap();
    assert!(
        published["data"]["hv-b"]
            .as_str()
            .unwrap()
            .contains("rack-b")
    );
}

async fn a_restart_changes_the_vmi_and_not_the_vm(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let before = vmi(&world).await;
    world.harvester.restart_vm(&world.vm, "hv-c").await.unwrap();
    let after = vmi(&world).await;
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(after["metadata"]["ownerReferences"][0]["uid"], world.vm.uid);
    assert_eq!(after["metadata"]["annotations"][ZONE], "rack-c");
    assert_eq!(
        after["spec"]["domain"]["firmware"]["uuid"],
        world.vm.firmware_uuid
    );
    world.harvester.delete_vm(&world.vm).await.unwrap();
    assert_eq!(
        world.harvester.vmi(&world.vm).await.unwrap_err().code(),
        Some(404)
    );
    assert!(world.harvester.pods(&world.vm).await.unwrap().is_empty());
}

async fn the_cloud_controller_reverts_a_patch_of_the_newer_key_alone(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let running = world.cloud.run();
    world.relabel_node("agent", &[(ZONE, Some("rack-b"))]).await;
    eventually(SOON, "the controller reverts", || async {
        running.reverts() == 1
    })
    .await;
    assert_eq!(world.node_label(ZONE).await.unwrap(), "rack-a");
    world.recorder.clear().await;
    world
        .relabel_node(
            "agent",
            &[(ZONE, Some("rack-b")), (ZONE_BETA, Some("rack-b"))],
        )
        .await;
    // Both keys stay: what is reverted next is a later change of the newer one.
    world.relabel_node("agent", &[(ZONE, Some("rack-c"))]).await;
    eventually(SOON, "the controller reverts again", || async {
        running.reverts() >= 2
    })
    .await;
    let pair = |newer: &str, beta: &str| vec![Some(newer.to_owned()), Some(beta.to_owned())];
    let both = pair("rack-b", "rack-b");
    let expected = [both.clone(), pair("rack-c", "rack-b"), both];
    eventually(SOON, "the recorder saw the last one", || async {
        world.recorder.combinations(&[ZONE, ZONE_BETA]).len() >= expected.len()
    })
    .await;
    assert_eq!(world.recorder.combinations(&[ZONE, ZONE_BETA]), expected);
    assert_eq!(running.reverts(), 2);

    // Its other half: annotations that differ lead to a new initialisation.
    assert!(
        world
            .cloud
            .resync_topology(VM_NAME, &vmi(&world).await)
            .await
            .unwrap()
    );
    assert_eq!(world.node_label(ZONE_BETA).await.unwrap(), "rack-a");
    assert!(
        !world
            .cloud
            .resync_topology(VM_NAME, &vmi(&world).await)
            .await
            .unwrap()
    );
    let node = world.node().await;
    assert!(
        !node["spec"]["taints"]
            .to_string()
            .contains(cloud_controller::UNINITIALIZED)
    );
}

async fn a_rival_writes_its_value_again(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let endpoint = world.guest_api.endpoint();
    let rival = cloud_controller::fight(&endpoint, "rival", VM_NAME, "example.com/rack", "mine");
    for round in 1..=2 {
        eventually(SOON, "the rival writes", || async {
            rival.reverts() == round
        })
        .await;
        assert_eq!(world.node_label("example.com/rack").await.unwrap(), "mine");
        if round == 1 {
            world
                .relabel_node("other", &[("example.com/rack", Some("yours"))])
                .await;
        }
    }
    let node = world.node().await;
    let fields = node["metadata"]["managedFields"].as_array().unwrap();
    let owner = fields
        .iter()
        .find(|entry| entry["fieldsV1"].to_string().contains("example.com/rack"));
    assert_eq!(owner.unwrap()["manager"], "rival");
}

async fn a_second_machine_is_a_guest_of_its_own(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut spec = VmSpec::named("gc8-pool1-q99l7-zz9zz");
    spec.hostname = Some("worker-2".to_owned());
    let second = world.add_machine(spec, "hv-b").await;
    assert_ne!(second.vm.spec.macs, world.vm.spec.macs);
    assert_ne!(second.tree.root(), world.guest.root());
    let hostname = second.tree.read("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(hostname, "worker-2\n");
    let node = world
        .guest_admin
        .get(&paths::node("worker-2"))
        .await
        .unwrap();
    assert!(node["spec"]["providerID"].is_null());
    let endpoint = world.guest_api.endpoint();
    let kubelet = Admin::with_identity(&endpoint, "kubelet", &second.kubelet);
    let label = json!({"metadata": {"labels": {"example.com/rack": "x"}}});
    kubelet
        .merge_patch(&paths::node("worker-2"), &label)
        .await
        .unwrap();
    let refused = kubelet
        .merge_patch(&paths::node(VM_NAME), &label)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(403));
}

async fn the_kubelet_is_held_to_its_own_node(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let endpoint = world.guest_api.endpoint();
    let kubelet = Admin::with_identity(&endpoint, "kubelet", &world.kubelet);
    let own = paths::node(VM_NAME);
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    kubelet
        .merge_patch(&own, &label("topology.harvesterhci.io/host"))
        .await
        .unwrap();
    let refused = kubelet
        .merge_patch(&own, &label("topology.kubernetes.io/rack"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(403));
    assert!(
        refused
            .to_string()
            .contains("is not allowed to modify labels: topology.kubernetes.io/rack")
    );
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}});
    world.guest_admin.create(paths::NODES, &node).await.unwrap();
    let refused = kubelet
        .merge_patch(&paths::node("other"), &label(ZONE))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(403));
    let condition = json!({"status": {"conditions": [{"type": "QemuGuestAgentReady", "status": "True", "reason": "Yes"}]}});
    kubelet
        .strategic_patch_status(&own, &condition)
        .await
        .unwrap();
    assert!(
        world.condition("QemuGuestAgentReady").await.is_some()
            && world.condition("Ready").await.is_some()
    );
}

async fn the_credential_reads_hosts_only_when_granted(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let endpoint = world.harvester_api.endpoint();
    let guest = Admin::with_token(&endpoint, "guest", &world.token);
    let host = paths::node("hv-a");
    let readable = async || guest.get(&host).await.is_ok();
    assert!(!readable().await);
    world.grant_host_nodes().await;
    assert!(readable().await);
    world.revoke_host_nodes().await;
    assert!(!readable().await);
    // The list is never granted.
    assert_eq!(guest.get(paths::NODES).await.unwrap_err().code(), Some(403));
}

#[tokio::test]
#[should_panic(expected = "not within 30ms: pigs fly")]
async fn what_never_comes_is_named() {
    eventually(Duration::from_millis(30), "pigs fly", || async { false }).await;
}
