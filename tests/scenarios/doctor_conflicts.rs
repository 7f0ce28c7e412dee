// SPDX-License-Identifier: Apache-2.0
//! What `doctor` finds in versions, in the Node, in addresses and in everybody else who has a hand in them: each trouble is
//! made, named, and nothing else is an error.

use harvester_lab::admin::paths;
use harvester_lab::harvester::{Firmware, VmSpec};
use harvester_lab::world::{CloudState, HostAccess, NAMESPACE, VM_NAME, World, WorldOptions};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use crate::{On, ZONE, ZONE_BETA, agent, on_both};

on_both!(
    a_world_in_order_has_none_of_these_findings,
    versions_that_do_not_go_together_are_named_with_their_pods,
    a_version_that_is_no_release_is_a_gap_and_not_fine,
    a_node_that_no_cloud_provider_takes_on_is_named_with_the_likely_cause,
    a_node_of_another_name_is_judged_by_what_each_release_does_with_it,
    a_node_of_another_cloud_provider_is_named,
    a_rival_and_a_twin_that_disagrees_are_named,
    a_vm_with_hardware_of_ours_is_named,
    what_harvester_says_of_the_vm_is_named,
    the_next_host_maintenance_is_named,
    addresses_that_disagree_are_named,
);

/// The findings that this file is about.
const OURS: [&str; 15] = [
    "hardware-shared",
    "vm-labels-missing",
    "not-live-migratable",
    "not-migrated-at-maintenance",
    "topology-label-overwritten",
    "beta-labels-differ",
    "node-uninitialized",
    "provider-id-not-harvester",
    "kubevirt-cloud-provider",
    "address-differs",
    "internal-ip-missing",
    "guest-agent-not-connected",
    "harvester-too-old",
    "cloud-provider-too-old",
    "kubelet-too-old",
];

/// The findings of one look: code and what was seen. Fails on an error that is none of ours.
async fn found(world: &World) -> Vec<(String, String)> {
    let output = agent(world, &["doctor", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    assert!(document.is_object(), "{}{}", output.stdout, output.stderr);
    let groups = document["groups"].as_array().unwrap().iter();
    let findings = groups.flat_map(|group| group["findings"].as_array().unwrap());
    let findings: Vec<&Value> = findings.collect();
    for finding in &findings {
        let is_ours = OURS.contains(&finding["code"].as_str().unwrap());
        assert!(is_ours || finding["severity"] != "error", "{finding}");
    }
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    findings
        .iter()
        .map(|finding| (text(finding, "code"), text(finding, "observed")))
        .filter(|(code, _)| OURS.contains(&code.as_str()))
        .collect()
}

/// Asserts that exactly these are found, in any order, and answers what was seen of the first.
async fn finds(world: &World, codes: &[&str]) -> String {
    let found = found(world).await;
    let mut seen: Vec<&str> = found.iter().map(|(code, _)| code.as_str()).collect();
    let mut expected = codes.to_vec();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected, "{found:#?}");
    let first = codes.first().copied().unwrap_or_default();
    let text = found.into_iter().find(|(code, _)| code == first);
    text.map(|(_, text)| text).unwrap_or_default()
}

fn assert_says(text: &str, parts: &[&str]) {
    let text = crate::words(text);
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

/// A change of our Node by an administrator.
async fn change_node(world: &World, patch: Value) {
    let path = paths::node(world.node_name());
    let admin = &world.guest_admin;
    admin.merge_patch(&path, &patch).await.unwrap();
}

/// The conditions of our instance, as virt-handler writes them.
pub(crate) async fn conditions(world: &World, conditions: Value) {
    let path = paths::vmi(&world.vm.spec.namespace, &world.vm.spec.name);
    let patch = json!({"status": {"conditions": conditions}});
    let admin = world.harvester.admin();
    admin.merge_patch(&path, &patch).await.unwrap();
}

pub(crate) async fn addresses(world: &World, addresses: Value) {
    let path = paths::node(world.node_name());
    let patch = json!({"status": {"addresses": addresses}});
    let admin = &world.guest_admin;
    admin.merge_patch_status(&path, &patch).await.unwrap();
}

/// The taint of a Node that no cloud provider has taken on.
fn untouched_since(time: Option<&str>) -> Value {
    let mut taint = json!({
        "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule",
    });
    if let Some(time) = time {
        taint["timeAdded"] = json!(time);
    }
    taint
}

/// Our Node has that taint since an hour ago; answers since when.
pub(crate) async fn uninitialized(world: &World) -> String {
    let hour_ago = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
    let hour_ago = hour_ago.replace_nanosecond(0).unwrap();
    let hour_ago = hour_ago.format(&Rfc3339).unwrap();
    let taints = json!([untouched_since(Some(&hour_ago))]);
    change_node(world, json!({"spec": {"taints": taints}})).await;
    hour_ago
}

async fn a_world_in_order_has_none_of_these_findings(on: On) {
    let world = on.world(WorldOptions::default()).await;
    finds(&world, &[]).await;
}

async fn versions_that_do_not_go_together_are_named_with_their_pods(on: On) {
    let options = WorldOptions {
        server_version: "v1.1.2".to_owned(),
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    let image = "rancher/harvester-cloud-provider:v0.2.1";
    world.run_pod("ccm", image).await;
    // The cloud provider stumbles over VMs that are no Nodes of this cluster.
    let other = VmSpec::named("another-cluster");
    world.harvester.create_vm(other, "hv-b").await.unwrap();
    let codes = ["cloud-provider-too-old", "harvester-too-old"];
    let text = finds(&world, &codes).await;
    assert_says(
        &text,
        &["v0.2.1 (pod kube-system/ccm)", "v0.2.2", "issues/4459"],
    );
}

async fn a_version_that_is_no_release_is_a_gap_and_not_fine(on: On) {
    let options = WorldOptions {
        server_version: "v1.7-27934bc3-head".to_owned(),
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    world
        .run_pod("csi", "rancher/harvester-csi-driver:main-head")
        .await;
    finds(&world, &[]).await;
    let output = agent(&world, &["doctor", "-v"]).await;
    // The version of the CSI driver is only shown.
    assert_says(
        &output.stdout,
        &["`v1.7-27934bc3-head` is not a release version"],
    );
}

async fn a_node_that_no_cloud_provider_takes_on_is_named_with_the_likely_cause(on: On) {
    let options = WorldOptions {
        access: HostAccess::Nodes,
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    // A Node that is as new as this one has no fault.
    let taints = json!([untouched_since(None)]);
    change_node(&world, json!({"spec": {"taints": taints}})).await;
    finds(&world, &[]).await;
    let hour_ago = uninitialized(&world).await;
    // Without an address, which is its consequence.
    addresses(&world, json!([])).await;
    let text = finds(&world, &["node-uninitialized"]).await;
    assert_says(
        &text,
        &["NoSchedule", &hour_ago, "(60 min)", "is not running"],
    );
}

async fn a_node_of_another_name_is_judged_by_what_each_release_does_with_it(on: On) {
    let mut vm = VmSpec::named(VM_NAME);
    vm.hostname = Some("renamed".to_owned());
    let options = WorldOptions {
        vm,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    let ccm = "rancher/harvester-cloud-provider";
    world.run_pod("ccm", &format!("{ccm}:v0.2.2")).await;
    finds(&world, &[]).await;
    let path = paths::core("kube-system", "pods/ccm");
    world.guest_admin.delete(&path).await.unwrap();
    world.run_pod("ccm", &format!("{ccm}:v0.1.5")).await;
    let taint = json!({
        "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "PreferNoSchedule", "value": "true",
    });
    change_node(&world, json!({"spec": {"taints": [taint]}})).await;
    let codes = ["node-uninitialized", "cloud-provider-too-old"];
    let text = finds(&world, &codes).await;
    let cause = format!("the Node is `renamed`, its VM is `{VM_NAME}`");
    assert_says(&text, &[&cause, "too old to find a VM with another name"]);
}

async fn a_node_of_another_cloud_provider_is_named(on: On) {
    let options = WorldOptions {
        access: HostAccess::Nodes,
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    change_node(&world, json!({"spec": {"providerID": "rke2://other"}})).await;
    let text = finds(&world, &["provider-id-not-harvester"]).await;
    assert_says(&text, &["`rke2://other`"]);
    let image = "quay.io/kubevirt/kubevirt-cloud-controller-manager:v0.5.1";
    world.run_pod("kccm", image).await;
    let text = finds(&world, &["kubevirt-cloud-provider"]).await;
    assert_says(&text, &["pod kube-system/kccm"]);
}

async fn a_rival_and_a_twin_that_disagrees_are_named(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let both = [(ZONE, Some("rack-z")), (ZONE_BETA, Some("rack-z"))];
    world.relabel_node("kubectl-label", &both).await;
    let text = finds(&world, &["topology-label-overwritten"]).await;
    assert_says(
        &text,
        &[&format!(
            "`kubectl-label` wrote {ZONE}=rack-z, the host has rack-a"
        )],
    );
    world
        .relabel_node("terraform", &[(ZONE, Some("rack-a"))])
        .await;
    let text = finds(
        &world,
        &["beta-labels-differ", "topology-label-overwritten"],
    )
    .await;
    assert_says(
        &text,
        &[&format!(
            "{ZONE} is rack-a (by `terraform`), {ZONE_BETA} is rack-z (by `kubectl-label`)"
        )],
    );
    // The agent puts both right, and neither is found any more.
    assert_eq!(agent(&world, &["once"]).await.code, Some(0));
    finds(&world, &[]).await;
}

async fn a_vm_with_hardware_of_ours_is_named(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut copy = VmSpec::named("gc8-pool1-copy").firmware(Firmware::Random);
    copy.macs.clone_from(&world.vm.spec.macs);
    let mac = world.vm.spec.macs[0].clone();
    world.harvester.create_vm(copy, "hv-b").await.unwrap();
    let text = finds(&world, &["hardware-shared"]).await;
    assert_says(&text, &["default/gc8-pool1-copy", &mac]);
}

async fn what_harvester_says_of_the_vm_is_named(on: On) {
    let mut vm = VmSpec::named(VM_NAME).created_by(Some("harvester"));
    vm.cluster = None;
    let options = WorldOptions {
        vm,
        access: HostAccess::Nodes,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    let text = finds(&world, &["vm-labels-missing"]).await;
    assert_says(
        &text,
        &[
            "creator is harvester",
            "guestcluster.harvesterhci.io/name is missing",
        ],
    );
    let migratable = json!({
        "type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable",
        "message": "VMI uses a PCI host devices",
    });
    let heard = json!({"type": "AgentConnected", "status": "True"});
    conditions(&world, json!([migratable, heard])).await;
    let text = finds(&world, &["not-live-migratable", "vm-labels-missing"]).await;
    assert_says(
        &text,
        &["HostDeviceNotLiveMigratable: VMI uses a PCI host devices"],
    );
    conditions(&world, json!([])).await;
    finds(&world, &["guest-agent-not-connected", "vm-labels-missing"]).await;
}

async fn the_next_host_maintenance_is_named(on: On) {
    let options = WorldOptions {
        access: HostAccess::Nodes,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    let heard = json!({"type": "AgentConnected", "status": "True"});
    let immobile = json!({
        "type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable",
        "message": "cannot migrate VMI: PVC data is not shared",
    });
    let path = paths::vmi(NAMESPACE, VM_NAME);
    let label = "harvesterhci.io/maintain-mode-strategy";
    let told = "at the next host maintenance, the VM";
    for (strategy, is_immobile, code, parts) in [
        (None, false, None, [""; 2]),
        (Some("Migrate"), false, None, [""; 2]),
        (
            None,
            true,
            Some("not-live-migratable"),
            ["blocks maintenance mode", "PVC data is not shared"],
        ),
        (
            Some("Shutdown"),
            true,
            Some("not-migrated-at-maintenance"),
            ["not restarted", "strategy=Shutdown"],
        ),
        (
            Some("ShutdownAndRestartAfterEnable"),
            true,
            Some("not-migrated-at-maintenance"),
            ["started on another host", "AfterEnable"],
        ),
        (
            Some("ShutdownAndRestartAfterDisable"),
            false,
            Some("not-migrated-at-maintenance"),
            ["maintenance mode is disabled", "AfterDisable"],
        ),
    ] {
        let all = match is_immobile {
            true => json!([immobile, heard]),
            false => json!([heard]),
        };
        conditions(&world, all).await;
        let patch = json!({"metadata": {"labels": {label: strategy}}});
        let admin = world.harvester.admin();
        admin.merge_patch(&path, &patch).await.unwrap();
        let codes: Vec<&str> = code.into_iter().collect();
        let text = finds(&world, &codes).await;
        println!("{strategy:?}, immobile {is_immobile}: {text}");
        if code.is_some() {
            assert_says(&text, &[told, parts[0], parts[1]]);
        }
        let verbose = agent(&world, &["doctor", "-v"]).await;
        assert_says(&verbose.stdout, &[told]);
    }
}

async fn addresses_that_disagree_are_named(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let name = json!({"type": "Hostname", "address": VM_NAME});
    let stale = json!({"type": "InternalIP", "address": "192.0.2.77"});
    addresses(&world, json!([stale, name])).await;
    let text = finds(&world, &["address-differs"]).await;
    let believed = format!("Harvester has {}", world.vm.spec.address());
    assert_says(&text, &["InternalIP 192.0.2.77", &believed]);
    addresses(&world, json!([name])).await;
    let text = finds(&world, &["internal-ip-missing"]).await;
    assert_says(&text, &[&believed]);
}
