// SPDX-License-Identifier: Apache-2.0
//! A whole node: the kubelet runs in the machine that moves, on a real API server of its own version.

use std::time::{Duration, Instant};

use harvester_lab::admin::paths;
use harvester_lab::pki::Validity;
use harvester_lab::world::{NodeVersion, eventually};
use serde_json::Value;

use super::migration::{SIGN, label_patch_times, label_patches};
use crate::figures::Figures;
use crate::hardware::Port;
use crate::inside::UNIT;
use crate::kubelet::{CURRENT, POD};
use crate::machine::BOOT_LIMIT;
use crate::stage::{REGISTRATION, Stage, Telling, WRONG_NAME, condition, wall_clock};
use crate::table::Figure;
use crate::timeline::{self, Step};
use crate::{HOST, IDENTITY, REGION, TOPOLOGY, ZONE};

/// A certificate that is about to expire.
const OLD: &str = "/var/lib/kubelet/pki/kubelet-client-old.pem";

const GATE: &str = "harvester-node-agent-gate.service";

/// Whether systemd has loaded the drop-in of the kubelet.
const LOADED: &str = "[ $(systemctl show --value --property=NeedDaemonReload kubelet) = no ]";

/// Whether the kubelet has been refused another Node than its own.
const REFUSED: &str =
    "journalctl --unit=kubelet --boot --output=cat | grep --quiet 'renamed.*forbidden'";

/// How many migrations a Node must outlive with the agent, and how many without it for comparison.
const MIGRATIONS: usize = 10;
const WITHOUT_AGENT: usize = 5;

/// The conditions of the kubelet, and those of the agent.
const CONDITIONS: [&str; 6] = [
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "Ready",
    IDENTITY,
    TOPOLOGY,
];

const VISIBLE: &str = "labels visible after Harvester shows region and zone";

/// The validity of the lease of a kubelet: a Node whose lease is not renewed for so long is not ready.
const LEASE: Duration = Duration::from_secs(40);

/// What a renewal that is missed adds to the time between two: a kubelet renews at this interval
/// (`nodeLeaseDurationSeconds` times 0.25).
const MISSED: Duration = Duration::from_secs(10);

/// The gate delays the kubelet while the machine has a wrong name. The first version of the Node has the right name, region,
/// zone and host.
pub async fn a_kubelet_waits_for_its_name_and_registers_with_its_placement(
    stage: &mut Stage,
    _: &mut Figures,
) {
    stage.cloud_init_ended().await;
    stage.started().await;
    assert_eq!(stage.inside.sh("hostname").await, WRONG_NAME);
    let gate = format!("[ $(systemctl show --value --property=ActiveState {GATE}) = activating ]");
    stage.inside.until(&gate).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let kubelet = stage.inside.property("kubelet", "ActiveState").await;
    assert_eq!(kubelet, "inactive", "the gate delays it");
    assert!(stage.world.recorder.versions().is_empty());

    stage.registered().await;
    pod_started(stage).await;
    stage.synced().await;

    let versions = stage.world.recorder.versions();
    assert_eq!(versions[0].kind, "ADDED");
    let placement = [Some("eu-1"), Some("rack-a"), Some("hv-a")];
    let always = [placement.map(|value| value.map(str::to_owned)).to_vec()];
    let seen = stage.world.recorder.combinations(&[REGION, ZONE, HOST]);
    assert_eq!(seen, always, "from the first version on");
    let version = &versions[0].node["status"]["nodeInfo"]["kubeletVersion"];
    println!("kubelet {version} in the machine");
    println!("{}", stage.inside.journal("").await);
    let gate = format!("journalctl --unit={GATE} --output=cat");
    println!("{}", stage.inside.sh(&gate).await);
}

/// The Node stays ready, its pod runs, the labels follow each time in one write, and nobody undoes what another one writes. The
/// lease is renewed as it is without the agent.
pub async fn ten_migrations_leave_the_node_ready_and_its_pod_running(
    stage: &mut Stage,
    figures: &mut Figures,
) {
    stage.settled().await;
    stage.synced().await;
    let started = pod_started(stage).await;
    let first = stage.world.recorder.versions().len() - 1;
    let began = Instant::now();
    for turn in 0..MIGRATIONS {
        let (patches, version) = (
            label_patches(stage).await,
            stage.world.recorder.versions().len(),
        );
        let to = ["hv-b", "hv-a"][turn % 2];
        let migration = stage.migrate(to, Telling::default()).await;
        stage.labelled(to).await;
        assert_eq!(label_patches(stage).await - patches, 1, "migration {turn}");
        let visible = visible_at(stage, version, to);
        let since = visible.saturating_duration_since(migration.annotated);
        figures.sample(VISIBLE, since.as_secs_f64() * 1000.0);
    }
    stage.synced().await;
    let with_agent = lease_gap(stage, began).await;
    draw(stage, figures).await;
    let versions = stage.world.recorder.versions();
    let transition = |node: &Value| condition(node, "Ready")["lastTransitionTime"].clone();
    let before = transition(&versions[first].node);
    let mut heartbeats = [""; CONDITIONS.len()];
    for version in &versions[first..] {
        let node = &version.node;
        assert_eq!(condition(node, "Ready")["status"], "True");
        assert_eq!(transition(node), before, "the Node was not ready meanwhile");
        for (kind, last) in CONDITIONS.into_iter().zip(&mut heartbeats) {
            let heartbeat = condition(node, kind)["lastHeartbeatTime"].as_str();
            let heartbeat = heartbeat.unwrap_or_else(|| panic!("{kind} was removed"));
            assert!(
                heartbeat >= *last,
                "{kind} was undone: {heartbeat} after {last}"
            );
            *last = heartbeat;
        }
    }
    figures.summarise(VISIBLE, None, "ten migrations of a node with a kubelet");
    assert_eq!(pod_started(stage).await, started);

    stage.inside.sh(&format!("systemctl stop {UNIT}")).await;
    let began = Instant::now();
    for turn in 0..WITHOUT_AGENT {
        stage
            .migrate(["hv-b", "hv-a"][turn % 2], Telling::default())
            .await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let without_agent = lease_gap(stage, began).await;
    stage.inside.sh(&format!("systemctl start {UNIT}")).await;
    stage.labelled("hv-b").await;
    stage.migrate("hv-a", Telling::default()).await;
    stage.synced().await;
    figures.add(
        Figure::new(
            format!(
                "{}: longest time between two renewals of the lease, ten migrations",
                stage.label()
            ),
            with_agent.as_secs_f64(),
            "s",
        )
        .beside(Some(without_agent.as_secs_f64()), "without the agent"),
    );
    assert!(with_agent < LEASE, "{with_agent:?}");
    assert!(
        with_agent < without_agent + MISSED / 2,
        "the kubelet missed a renewal: {with_agent:?} with the agent, {without_agent:?} without"
    );
}

/// A kubelet sets the labels of its flags at each start. The agent keeps them those of the host.
pub async fn a_kubelet_restarted_after_a_migration_registers_with_the_new_host(
    stage: &mut Stage,
    _: &mut Figures,
) {
    stage.settled().await;
    stage.synced().await;
    for to in ["hv-b", "hv-a"] {
        stage.migrate(to, Telling::default()).await;
        stage.labelled(to).await;
        let zone = stage.world.node_label(ZONE).await.unwrap();
        let written = format!("grep -rq zone={zone} /etc/systemd/system/kubelet.service.d");
        stage.inside.until(&written).await;
        // systemd is reloaded after the Node is labeled, and starts the kubelet with what it has loaded.
        stage.inside.until(LOADED).await;
        stage.world.recorder.clear();
        let patches = label_patches(stage).await;
        let heartbeat = ready_at(stage).await;
        stage.inside.sh("systemctl restart kubelet").await;
        eventually(REGISTRATION, "the kubelet writes its status", || async {
            ready_at(stage).await > heartbeat
        })
        .await;
        let seen = stage.world.recorder.combinations(&[REGION, ZONE, HOST]);
        assert_eq!(seen.len(), 1, "never a mixture: {seen:?}");
        assert_eq!(label_patches(stage).await, patches);
        stage.labelled(to).await;
    }
}

/// The kubelet asks for a new certificate before the old one expires; the agent writes with it.
pub async fn a_certificate_that_the_kubelet_renews_is_used(stage: &mut Stage, _: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
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
    stage.inside.has_no_finding().await;
    stage.says_that_it_is_synced().await;
    let remove = format!("rm {OLD}");
    stage.inside.sh(&remove).await;
    for to in ["hv-c", "hv-a"] {
        stage.migrate(to, Telling::default()).await;
        stage.labelled(to).await;
    }
    stage.inside.has_no_finding().await;
}

/// The machine of a registered Node gets another name, and its kubelet starts with it. The certificate is for the Node, so no second
/// one appears. The agent reports the name and labels the Node until the name is right again.
pub async fn a_registered_node_whose_machine_is_renamed_is_reported_and_labelled(
    stage: &mut Stage,
    _: &mut Figures,
) {
    stage.settled().await;
    stage.synced().await;
    let right = stage.world.node_name().to_owned();
    let (heartbeat, patches) = (ready_at(stage).await, label_patches(stage).await);
    let rename = |name: &str| format!("hostnamectl hostname {name} && systemctl restart kubelet");
    stage.inside.sh(&rename("renamed")).await;
    stage.condition_becomes(IDENTITY, "False", "Mismatch").await;
    stage.inside.has_finding("hostname-differs").await;
    stage.inside.until(REFUSED).await;
    stage.migrate("hv-b", Telling::default()).await;
    stage.labelled("hv-b").await;
    assert_eq!(label_patches(stage).await - patches, 1);
    let nodes = stage.world.guest_admin.list(paths::NODES).await.unwrap();
    let names: Vec<_> = nodes.iter().map(|node| &node["metadata"]["name"]).collect();
    assert_eq!(names, [&right], "no second Node");

    stage.inside.sh(&rename(&right)).await;
    stage
        .condition_becomes(IDENTITY, "True", "NamesMatch")
        .await;
    eventually(REGISTRATION, "the kubelet writes its status", || async {
        ready_at(stage).await > heartbeat
    })
    .await;
    stage.migrate("hv-a", Telling::default()).await;
    stage.synced().await;
    stage.inside.has_no_finding().await;
    pod_started(stage).await;
}

/// The host goes down for maintenance: the machine is stopped, and started on another host.
pub async fn a_machine_stopped_for_maintenance_starts_with_the_labels_of_its_new_host(
    stage: &mut Stage,
    _: &mut Figures,
) {
    stage.settled().await;
    stage.synced().await;
    let started = pod_started(stage).await;
    stage.power_off().await;
    stage.world.recorder.clear();
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
    let seen = stage.world.recorder.combinations(&[REGION, ZONE, HOST]);
    assert!(seen.len() <= 2, "never a mixture: {seen:?}");
    println!("{}", stage.inside.journal("--boot").await);
    stage.spent = true;
}

/// One more migration, for the picture: what happens when, from the pause on.
async fn draw(stage: &mut Stage, figures: &mut Figures) {
    stage.inside.trace_announcements().await;
    stage.begin().await;
    let (patches, versions) = (
        label_patches(stage).await,
        stage.world.recorder.versions().len(),
    );
    let migration = stage.migrate("hv-b", Telling::default()).await;
    stage.labelled("hv-b").await;
    let records = stage.recorded("labeled in").await;
    let hint = records
        .iter()
        .find(|record| record.message().starts_with(SIGN))
        .expect("the guest's own signal");
    let announced = stage.inside.announced().await.unwrap() + hint.wall_ahead();
    let moved = &migration.moved;
    let downtime = moved.downtime.as_secs_f64() * 1000.0;
    let in_guest = |at: i128| downtime + (at - migration.resumed_in_guest()) as f64 / 1000.0;
    let on_host = |at: Instant| {
        let since = wall_clock(at).duration_since(moved.resumed);
        downtime + since.unwrap_or_default().as_secs_f64() * 1000.0
    };
    let written = label_patch_times(stage).await[patches];
    let visible = visible_at(stage, versions, "hv-b");
    let mut heartbeat = None;
    eventually(REGISTRATION, "the next heartbeat", || async {
        renewals(stage).await.iter().any(|at| *at > written)
    })
    .await;
    for at in renewals(stage).await {
        heartbeat = heartbeat.or((at > written).then_some(at));
    }
    let step = |actor, what, at| Step { actor, what, at };
    let steps = vec![
        step("QEMU", "pauses the VM on the source host", 0.0),
        step("QEMU", "resumes it on the target host", downtime),
        step(
            "guest kernel",
            "announces the NIC on the new network port",
            in_guest(announced),
        ),
        step(
            "agent",
            "logs the hint: possible live migration",
            in_guest(hint.sent_at()),
        ),
        step(
            "Harvester API",
            "shows the new host",
            on_host(migration.shown),
        ),
        step(
            "Harvester API",
            "shows its region and zone",
            on_host(migration.annotated),
        ),
        step(
            "agent",
            "sends the PATCH of region, zone and host",
            on_host(written),
        ),
        step(
            "guest API server",
            "shows the labels to everyone",
            on_host(visible),
        ),
        step(
            "kubelet",
            "renews the lease of the Node",
            on_host(heartbeat.unwrap()),
        ),
    ];
    let title = "A live migration, in milliseconds since the pause";
    figures.draw(timeline::svg(title, steps));
    stage.migrate("hv-a", Telling::default()).await;
    stage.synced().await;
}

/// When the first version of the Node since this one had the label of a host.
fn visible_at(stage: &Stage, since: usize, host: &str) -> Instant {
    let versions = stage.world.recorder.versions();
    let has_it = |version: &&NodeVersion| version.label(HOST).as_deref() == Some(host);
    versions[since..].iter().find(has_it).unwrap().at
}

/// When the kubelet renewed the lease of its Node.
async fn renewals(stage: &Stage) -> Vec<Instant> {
    let requests = stage.world.guest_api.requests_of("kubelet/").await;
    let renewals = requests.iter().filter(|request| {
        request.path.contains("/leases/") && request.is_write() && request.status < 300
    });
    renewals.map(|request| request.at).collect()
}

/// When the kubelet last wrote that its Node is ready.
async fn ready_at(stage: &Stage) -> String {
    let node = stage.world.node().await;
    let condition = condition(&node, "Ready");
    condition["lastHeartbeatTime"].as_str().unwrap().to_owned()
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

/// The longest time between two renewals of the lease of the Node since then.
async fn lease_gap(stage: &Stage, since: Instant) -> Duration {
    let mut times = renewals(stage).await;
    times.push(Instant::now());
    times
        .windows(2)
        .filter(|pair| pair[1] > since)
        .map(|pair| pair[1] - pair[0])
        .max()
        .expect("the kubelet renews its lease")
}
