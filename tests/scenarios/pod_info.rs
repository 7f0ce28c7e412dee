// SPDX-License-Identifier: Apache-2.0
//! Where am I, without a network and without any credential for Harvester: the files of the virt-launcher pod, through virtiofs.

use harvester_lab::guest::{GuestTree, HARVESTER_KUBECONFIG};
use harvester_lab::pod_info::{Pod, share_labels};
use harvester_lab::process::{Output, Signal, run_once};
use harvester_lab::world::{CloudState, NAMESPACE, VM_NAME, World, WorldOptions, eventually};
use serde_json::{Value, json};

use crate::{
    BINARY, HOST, On, REGION, SOON, ZONE, findings, findings_become, lab, label_becomes,
    node_patches, on_both, serve,
};

on_both! {
    the_node_follows_its_pod_without_harvester,
    labels_are_right_while_harvester_is_unreachable_from_the_start,
    ; real: the_policy_for_harvester_adds_the_file_system_to_new_vms,
}

/// The pod on the first host.
const FIRST: Pod<'_> = Pod {
    vm: VM_NAME,
    suffix: "aaaaa",
    host: "hv-b",
    place: Some(("north", "room-2")),
};

/// A VM of which nothing is known but its firmware and its pod: no name of it is that of the VM.
fn bare_guest() -> (tempfile::TempDir, GuestTree) {
    let dir = tempfile::tempdir().unwrap();
    let guest = GuestTree::new(dir.path());
    guest.dmi("11111111-1111-4111-8111-111111111111", None);
    guest.kernel_hostname(VM_NAME);
    guest.static_hostname(VM_NAME);
    (dir, guest)
}

async fn whoami(guest: &GuestTree) -> Output {
    let args = ["whoami", "-v"];
    run_once(BINARY, guest.root(), &args, SOON).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoami_needs_neither_a_network_nor_a_credential() {
    let (_dir, guest) = bare_guest();
    FIRST.share(&guest);
    let output = whoami(&guest).await;
    println!("{}", output.stdout);
    let said = crate::words(&output.stdout);
    for part in [
        "hv-b (source: virt-launcher pod through virtiofs)",
        "region north, zone room-2 (source: pod-info)",
        &format!("default/{VM_NAME}"),
        "pod-info",
    ] {
        assert!(said.contains(part), "{part}: {output:?}");
    }
    assert!(!said.contains("harvester-credential-missing"), "{output:?}");
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_not_of_a_pod_are_one_finding_and_no_host() {
    for (labels, said) in [
        ("\u{1b}[31m\n", "line 1 of the labels"),
        ("kubevirt.io/nodeName=\"../hv-b\"\n", "kubevirt.io/nodeName"),
        (&"a=\"b\"\n".repeat(20_000), "larger than 65536 bytes"),
    ] {
        let (_dir, guest) = bare_guest();
        share_labels(&guest, VM_NAME, "aaaaa", labels);
        let output = whoami(&guest).await;
        let all = crate::words(&output.stdout);
        let mut problems = all.split(" Problem ");
        let seen = problems.find(|part| part.contains("[pod-info-unusable]"));
        println!("{said}: {seen:?}");
        assert!(seen.is_some_and(|seen| seen.contains(said)), "{output:?}");
        assert!(!output.stdout.contains('\u{1b}'), "{output:?}");
        assert_eq!(output.code, Some(1), "{output:?}");
    }
}

/// A world whose guest has no cloud controller.
async fn world(on: On) -> World {
    let options = WorldOptions {
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    };
    on.world(options).await
}

async fn the_node_follows_its_pod_without_harvester(on: On) {
    let world = world(on).await;
    world.guest.remove(HARVESTER_KUBECONFIG);
    FIRST.share(&world.guest);
    let agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-b").await;
    label_becomes(&world, ZONE, "room-2").await;
    label_becomes(&world, REGION, "north").await;
    findings_become(&world, &[]).await;
    let before = node_patches(&world).await;
    // The pod of the target has the label of the source at first; its region and zone are right.
    let late = Pod {
        suffix: "bbbbb",
        place: Some(("north", "room-3")),
        ..FIRST
    };
    late.share(&world.guest);
    agent.signal(Signal::SIGHUP);
    label_becomes(&world, ZONE, "room-3").await;
    label_becomes(&world, HOST, "hv-b").await;
    // Nothing tells the guest that the label changed.
    Pod {
        host: "hv-c",
        ..late
    }
    .share(&world.guest);
    label_becomes(&world, HOST, "hv-c").await;
    eventually(SOON, "the migration in the status", || async {
        let status = world.guest.status().unwrap_or_default();
        let last = &status["lastMigration"];
        last["from"] == "hv-b" && last["to"] == "hv-c"
    })
    .await;
    assert_eq!(node_patches(&world).await, before + 2);
    // Files that cannot be used any more change no label.
    share_labels(&world.guest, VM_NAME, "bbbbb", "?");
    agent.signal(Signal::SIGHUP);
    eventually(SOON, "the finding", || async {
        findings(&world).contains(&"pod-info-unusable".to_owned())
    })
    .await;
    label_becomes(&world, ZONE, "room-3").await;
    assert_eq!(node_patches(&world).await, before + 2);
}

async fn labels_are_right_while_harvester_is_unreachable_from_the_start(on: On) {
    let world = world(on).await;
    if on == On::Lab {
        lab(&world.harvester_api).refuse_connections().await;
    } else {
        // A server that exists nowhere, and a credential that is valid.
        let text = world.guest.read(HARVESTER_KUBECONFIG).unwrap();
        let lines = text.lines().map(|line| match line.split_once("server:") {
            Some((indent, _)) => format!("{indent}server: https://127.0.0.1:9\n"),
            None => format!("{line}\n"),
        });
        world
            .guest
            .write_secret(HARVESTER_KUBECONFIG, lines.collect::<String>());
    }
    FIRST.share(&world.guest);
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-b").await;
    label_becomes(&world, ZONE, "room-2").await;
    eventually(SOON, "the finding", || async {
        findings(&world).contains(&"harvester-unreachable".to_owned())
    })
    .await;
}

/// The stanzas for a VM and the policy are the same, and a real API server applies both.
async fn the_policy_for_harvester_adds_the_file_system_to_new_vms(on: On) {
    let world = world(on).await;
    let admin = world.harvester.admin();
    let shipped = |file: &str| {
        let path = format!("{}/packaging/kubevirt/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let policy = shipped("pod-info-policy.yaml");
    let collections = [
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ];
    let mut made = Vec::new();
    for (text, collection) in policy.split("\n---\n").zip(collections) {
        let object: Value = yaml_serde::from_str(text).unwrap();
        let path = format!("/apis/admissionregistration.k8s.io/v1/{collection}");
        let result = admin.create(&path, &object).await;
        if !on.labels_pods() {
            // The API exists since Kubernetes 1.36.
            assert!(result.is_err(), "{result:?}");
            return;
        }
        result.unwrap();
        made.push(format!("{path}/harvester-node-agent-pod-info"));
    }
    let label = json!({"metadata": {"labels": {"node-agent.harvesterhci.io/pod-info": "enabled"}}});
    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    admin.merge_patch(&namespace, &label).await.unwrap();
    // The stanzas for a single VM, as a JSON patch of one without any.
    let stanzas: Value = yaml_serde::from_str(&shipped("pod-info-vm.yaml")).unwrap();
    let [filesystems, volume] = [&stanzas[0]["value"], &stanzas[1]["value"]];
    let own = json!({"name": "disk-0", "persistentVolumeClaim": {"claimName": "a"}});
    let vm = |name: String, creator: &str, volumes: Option<Value>| {
        let mut spec = json!({"domain": {"devices": {}}});
        if let Some(volumes) = volumes {
            spec["volumes"] = volumes;
        }
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "labels": {"harvesterhci.io/creator": creator}},
            "spec": {"template": {"spec": spec}},
        })
    };
    let vms = format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines");
    let (driver, mut count) = ("docker-machine-driver-harvester", 0);
    // The admission plugin learns of a new policy a moment later.
    eventually(SOON, "the policy", || {
        count += 1;
        let object = vm(format!("probe-{count}"), driver, None);
        let (admin, vms) = (&admin, &vms);
        async move {
            let made = admin.create(vms, &object).await.unwrap();
            made["spec"]["template"]["spec"]["volumes"].is_array()
        }
    })
    .await;
    for (name, creator, volumes, expected) in [
        ("none", driver, None, json!([volume])),
        ("one", driver, Some(json!([own])), json!([own, volume])),
        ("both", driver, Some(json!([volume])), json!([volume])),
        ("other", "harvester", Some(json!([own])), json!([own])),
    ] {
        let object = vm(name.to_owned(), creator, volumes);
        let made = admin.create(&vms, &object).await.unwrap();
        let spec = &made["spec"]["template"]["spec"];
        println!("{name}: {spec}");
        assert_eq!(spec["volumes"], expected, "{name}");
        if ["none", "one"].contains(&name) {
            assert_eq!(spec["domain"]["devices"]["filesystems"], *filesystems);
        }
    }
    for path in made {
        admin.delete(&path).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_info_path_is_where_the_files_are_read() {
    let (_dir, guest) = bare_guest();
    FIRST.share(&guest);
    std::fs::rename(guest.path("/run/podinfo"), guest.path("/run/elsewhere")).unwrap();
    guest.agent_config("10-pod.toml", "[pod_info]\npath = \"/run/elsewhere\"\n");
    assert!(whoami(&guest).await.stdout.contains("room-2"));
    guest.agent_config("10-pod.toml", "[pod_info]\npath = \"off\"\n");
    assert!(!whoami(&guest).await.stdout.contains("room-2"));
}
