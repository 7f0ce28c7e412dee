// SPDX-License-Identifier: Apache-2.0
//! A whole node: the kubelet runs in the machine that moves, on a real API server of its own version.

use harvester_lab::admin::paths;
use harvester_lab::pki::Validity;
use harvester_lab::world::{HOSTS, NodeVersion, condition_of, eventually};
use serde_json::Value;
use time::format_description::well_known::Rfc3339;

use super::migration::{is_sign, label_patches};
use crate::hardware::Port;
use crate::inside::codes_of;
use crate::kubelet::{CURRENT, POD};
use crate::machine::BOOT_LIMIT;
use crate::stage::{REGISTRATION, Stage, Telling, WRONG_NAME};
use crate::{HOST, IDENTITY, LIMIT, REGION, TOPOLOGY, ZONE};

/// A certificate that is about to expire.
const OLD: &str = "/var/lib/kubelet/pki/kubelet-client-old.pem";

const GATE: &str = "harvester-node-agent-gate.service";

/// Whether the kubelet has been refused another Node than its own.
const REFUSED: &str =
    "journalctl --unit=kubelet --boot --output=cat | grep --quiet 'renamed.*forbidden'";

/// How many migrations a Node must outlive, unless `tests/vm/run` was told another number.
const MIGRATIONS: usize = 4;

/// The conditions of the kubelet, and those of the agent.
const CONDITIONS: [&str; 6] = [
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "Ready",
    IDENTITY,
    TOPOLOGY,
];

/// A machine installs the agent at its first boot. The gate delays the kubelet while the name is wrong; the first version of the Node has
/// the right name, region, zone and host. A migration changes the labels by one PATCH. The kubelet sets the labels of its flags at each
/// start, and they are those of the new host.
pub async fn a_first_boot_a_migration_and_a_restart_of_the_kubelet_leave_the_right_labels(
    stage: &mut Stage,
) {
    let held = format!(
        "journalctl --unit={GATE} --boot --output=cat | grep 'delaying the kubelet.*{WRONG_NAME}.* does not match VM'"
    );
    // The limit of one wait is not that of a whole first boot.
    stage.started().await;
    stage.inside.until(&held).await;
    let kubelet = stage.inside.property("kubelet", "ActiveState").await;
    assert_eq!(kubelet, "inactive", "the gate delays it");
    assert!(stage.world.recorder.versions().is_empty());

    stage.registered().await;
    pod_started(stage).await;
    stage.synced().await;
    let versions = stage.world.recorder.versions();
    assert_eq!(versions[0].kind, "ADDED");
    let names = |version: &NodeVersion| version.node["metadata"]["name"].clone();
    let right = stage.world.node_name();
    assert!(versions.iter().all(|version| names(version) == right));
    assert_eq!(combinations(stage), [placement("hv-a")], "from the first");
    let (started, patches) = (pod_started(stage).await, label_patches(stage).await);

    stage.begin().await;
    stage.migrate("hv-b", Telling::default()).await;
    stage.synced().await;
    let records = stage.recorded("labeled in").await;
    assert!(records.iter().any(is_sign), "{records:#?}");
    eventually(LIMIT, "the recorder has seen the labels too", || async {
        combinations(stage).last() == Some(&placement("hv-b"))
    })
    .await;
    let seen = combinations(stage);
    assert_eq!(seen, [placement("hv-a"), placement("hv-b")], "no mixture");
    assert_eq!(label_patches(stage).await - patches, 1);

    let restart = "systemctl stop kubelet; sleep 1; date --utc +%FT%TZ; systemctl start kubelet";
    let restarted = stage.inside.sh(restart).await;
    eventually(REGISTRATION, "the kubelet writes its status", || async {
        let versions = stage.world.recorder.versions();
        versions
            .last()
            .is_some_and(|last| heartbeat(&last.node) >= restarted.as_str())
    })
    .await;
    let zone = stage.world.node_label(ZONE).await.unwrap();
    let is_passed = format!(
        "grep -qz -- '--node-labels=.*zone={zone}' /proc/$(systemctl show --value --property=MainPID kubelet)/cmdline"
    );
    stage.inside.until(&is_passed).await;
    assert_eq!(combinations(stage), seen, "the kubelet changes nothing");
    assert_eq!(label_patches(stage).await - patches, 1);
    assert_eq!(pod_started(stage).await, started);
}

/// Region, zone and host of the Node so far, one after the other.
fn combinations(stage: &Stage) -> Vec<Vec<Option<String>>> {
    stage.world.recorder.combinations(&[REGION, ZONE, HOST])
}

/// Those of a host.
fn placement(host: &str) -> Vec<Option<String>> {
    let mut hosts = HOSTS.iter();
    let (host, region, zone) = hosts.find(|(name, ..)| *name == host).unwrap();
    [region, zone, host]
        .map(|value| Some((*value).to_owned()))
        .to_vec()
}

/// The Node stays ready, its pod runs, each migration is noticed by the guest's own signal and leads to one write of the labels, and no program
/// undoes what another one writes.
pub async fn migrations_leave_the_node_ready_and_its_pod_running(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    let started = pod_started(stage).await;
    let first = stage.world.recorder.versions().len() - 1;
    let number = std::env::var("VM_MIGRATIONS").ok();
    let number = number.map_or(MIGRATIONS, |number| number.parse().unwrap());
    for turn in 0..number {
        stage.begin().await;
        let patches = label_patches(stage).await;
        let to = ["hv-b", "hv-a"][turn % 2];
        stage.migrate(to, Telling::default()).await;
        stage.labelled(to).await;
        let records = stage.recorded("labeled in").await;
        assert!(records.iter().any(is_sign), "{records:#?}");
        assert_eq!(label_patches(stage).await - patches, 1, "migration {turn}");
        println!("migration {turn}: noticed by the guest, one patch");
    }
    stage.synced().await;
    let versions = stage.world.recorder.versions();
    let transition = |node: &Value| condition_of(node, "Ready")["lastTransitionTime"].clone();
    let before = transition(&versions[first].node);
    let mut heartbeats = [""; CONDITIONS.len()];
    for version in &versions[first..] {
        let node = &version.node;
        assert_eq!(condition_of(node, "Ready")["status"], "True");
        assert_eq!(transition(node), before, "the Node was not ready meanwhile");
        for (kind, last) in CONDITIONS.into_iter().zip(&mut heartbeats) {
            let heartbeat = condition_of(node, kind)["lastHeartbeatTime"].as_str();
            let heartbeat = heartbeat.unwrap_or_else(|| panic!("{kind} was removed"));
            assert!(
                heartbeat >= *last,
                "{kind} was undone: {heartbeat} after {last}"
            );
            *last = heartbeat;
        }
    }
    assert_eq!(pod_started(stage).await, started);
}

/// The kubelet asks for a new certificate before the old one expires; the agent writes with it.
pub async fn a_certificate_that_the_kubelet_renews_is_used(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    let expiry = |status: &Value| status["credentials"]["kubelet"]["expirationTime"].to_string();
    let first = expiry(&stage.inside.status().await);
    let user = format!("system:node:{}", stage.world.node_name());
    let guest = stage.world.guest_api.real();
    let validity = Validity::from_now(time::Duration::minutes(5));
    let old = guest
        .authority()
        .client_identity_with(&user, &["system:nodes"], validity);
    let pem = format!("{}{}", old.certificate_pem, old.key_pem);
    let script = format!(
        "cat >{OLD} <<'PEM'\n{pem}\nPEM\nln -sf {OLD} {CURRENT}; systemctl restart kubelet"
    );
    stage.inside.sh(&script).await;
    let renewed = format!("[ $(readlink {CURRENT}) != {OLD} ]");
    stage.inside.until(&renewed).await;
    // Neither that of before nor the old one, both of which may have been without a finding.
    let old = validity.not_after.replace_nanosecond(0).unwrap();
    let old = format!("{:?}", old.format(&Rfc3339).unwrap());
    let is_new = |status: &Value| {
        let now = expiry(status);
        now != "null" && now != first && now != old && codes_of(status).is_empty()
    };
    let what = "the new certificate and no finding";
    stage.inside.status_becomes(what, is_new).await;
    let remove = format!("rm {OLD}");
    stage.inside.sh(&remove).await;
    stage.migrate("hv-c", Telling::default()).await;
    stage.labelled("hv-c").await;
    stage.inside.has_no_finding_on("hv-c").await;
}

/// The machine of a registered Node gets another name, and its kubelet starts with it. The certificate is for the Node, so no second
/// one appears. The agent reports the name and labels the Node until the name is right again.
pub async fn a_registered_node_whose_machine_is_renamed_is_reported_and_labelled(
    stage: &mut Stage,
) {
    stage.settled().await;
    stage.synced().await;
    let right = stage.world.node_name().to_owned();
    let (heartbeat, patches) = (ready_at(stage).await, label_patches(stage).await);
    // On an emulated processor, systemd-hostnamed may start too late for its first client.
    let rename = |name: &str| format!("hostnamectl hostname {name} && systemctl restart kubelet");
    stage.inside.until(&rename("renamed")).await;
    stage
        .condition_becomes(IDENTITY, "False", "HostnameDiffers")
        .await;
    stage.inside.has_finding("hostname-differs").await;
    stage.inside.until(REFUSED).await;
    stage.migrate("hv-b", Telling::default()).await;
    stage.labelled("hv-b").await;
    assert_eq!(label_patches(stage).await - patches, 1);
    let nodes = stage.world.guest_admin.list(paths::NODES).await.unwrap();
    let names: Vec<_> = nodes.iter().map(|node| &node["metadata"]["name"]).collect();
    assert_eq!(names, [&right], "no second Node");

    stage.inside.until(&rename(&right)).await;
    stage
        .condition_becomes(IDENTITY, "True", "NamesMatch")
        .await;
    eventually(REGISTRATION, "the kubelet writes its status", || async {
        ready_at(stage).await > heartbeat
    })
    .await;
    stage.synced().await;
    stage.inside.has_no_finding().await;
    pod_started(stage).await;
}

/// The host goes down for maintenance: the machine is stopped, and started on another host.
pub async fn a_machine_stopped_for_maintenance_starts_with_the_labels_of_its_new_host(
    stage: &mut Stage,
) {
    stage.settled().await;
    stage.synced().await;
    let started = pod_started(stage).await;
    stage.power_off().await;
    stage.world.recorder.clear().await;
    let (harvester, vm) = (stage.world.harvester.clone(), stage.world.vm.clone());
    harvester.restart_vm(&vm, "hv-c").await.unwrap();
    harvester.annotate(&vm).await.unwrap();
    "hv-c".clone_into(&mut stage.host);
    stage.machine.power_on().await;
    let port = stage.machine.port_opens(Port::GuestAgent, true, BOOT_LIMIT);
    port.await;
    stage.reattach().await;
    stage.started().await;
    stage.registered().await;
    stage.labelled("hv-c").await;
    stage.synced().await;
    eventually(REGISTRATION, "the pod runs again", || async {
        let pod = running_pod(stage).await;
        pod.is_some_and(|pod| pod != started)
    })
    .await;
    let seen = combinations(stage);
    assert!(seen.len() <= 2, "never a mixture: {seen:?}");
    stage.spent = true;
}

/// When the kubelet last wrote that its Node is ready.
async fn ready_at(stage: &Stage) -> String {
    heartbeat(&stage.world.node().await).to_owned()
}

/// The same in a version of the Node.
fn heartbeat(node: &Value) -> &str {
    let heartbeat = condition_of(node, "Ready")["lastHeartbeatTime"].as_str();
    heartbeat.unwrap_or_default()
}

/// Waits until the static pod runs; when it started.
async fn pod_started(stage: &Stage) -> String {
    eventually(REGISTRATION, "the static pod runs", || async {
        running_pod(stage).await.is_some()
    })
    .await;
    running_pod(stage).await.unwrap()
}

/// When the container of the static pod started, if it runs.
async fn running_pod(stage: &Stage) -> Option<String> {
    let name = format!("{POD}-{}", stage.world.node_name());
    let path = format!("{}/{name}", paths::core("default", "pods"));
    let pod = stage.world.guest_admin.find(&path).await.unwrap()?;
    let started = &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
    started.as_str().map(str::to_owned)
}
