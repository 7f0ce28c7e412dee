// SPDX-License-Identifier: Apache-2.0
//! The first registration: `gate` before the kubelet's first start, and the file that tells the kubelet its labels.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use harvester_lab::bus::{Bus, Systemd, Unit};
use harvester_lab::guest::Distribution;
use harvester_lab::harvester::{Firmware, VmSpec};
use harvester_lab::process::{Agent, Line, Notification, Output, Signal};
use harvester_lab::world::{CloudState, Side, VM_NAME, World, WorldOptions, eventually};
use serde_json::Value;

use crate::{
    BINARY, HOST, On, REGION, SOON, ZONE, ZONE_BETA, agent, findings_become, label_becomes,
    node_patches, on_both, serve,
};

on_both!(
    a_node_registers_with_the_labels_of_its_host,
    a_migration_changes_the_file_before_the_node_and_then_all_rests,
    a_held_zone_is_held_by_the_file_too,
    a_file_of_another_program_and_one_that_is_not_there_stay_so,
    a_read_only_directory_is_a_finding_with_the_command_that_helps,
    switched_off_the_file_goes_and_its_directory_stays,
    kubeadm_gets_a_drop_in_of_the_kubelets_unit,
    a_file_that_cannot_be_written_is_a_failure_of_once,
    a_reload_that_a_killed_agent_missed_is_repeated,
    a_wrong_hostname_holds_the_kubelet_until_it_is_put_right,
    a_wrong_hostname_holds_no_longer_than_the_bound,
    a_node_name_of_the_configuration_is_the_one_that_counts,
);

const FILE: &str = "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml";
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/05-harvester-node-agent.conf";
const SWITCH: &str = "[registration]\nnode_labels = true\n";

/// A world before the first start of its kubelet.
async fn unregistered(on: On, distribution: Distribution) -> World {
    let options = WorldOptions {
        cloud: CloudState::Absent,
        distribution,
        ..WorldOptions::default()
    };
    let world = on.world(options).await;
    world.guest.remove(distribution.kubeconfig());
    world
}

/// The kubelet has started.
fn register(world: &World, distribution: Distribution) {
    let endpoint = world.guest_api.endpoint();
    world.guest.kubelet(
        distribution,
        &endpoint.url,
        &endpoint.authority_pem,
        &world.kubelet,
    );
}

async fn gate(world: &World, timeout: &str) -> Output {
    let output = agent(world, &["gate", "--timeout", timeout]).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output
}

/// Asserts that it opened at once and without a warning, and that its first line has this text.
fn is_opened(output: &Output, text: &str) {
    let line = output.stdout.lines().next().unwrap_or_default();
    assert!(line.contains(text), "{output:?}");
    assert!(!output.stderr.contains("the kubelet starts"), "{output:?}");
}

/// Returns why the kubelet starts although it was delayed up to the bound.
fn reason_at_the_bound(output: &Output) -> String {
    let line = |line: &&str| line.starts_with("the kubelet starts, although");
    let mut lines = output.stderr.lines();
    lines.find(line).unwrap().to_owned()
}

/// Returns the files that contain the labels now.
fn written(output: &Output) -> Vec<&str> {
    let lines = output.stdout.lines();
    lines
        .filter_map(|line| line.strip_prefix("labels written to "))
        .collect()
}

/// A registered world whose daemon keeps a file that `gate` has made.
async fn labelled(on: On, config: &str) -> (World, Agent) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.agent_config("10-registration.toml", config);
    let agent = serve(&world).await;
    gate(&world, "60s").await;
    register(&world, Distribution::Rke2);
    label_becomes(&world, ZONE, "rack-a").await;
    (world, agent)
}

/// The labels that RKE2 passes on to its kubelet, by its own rules (k3s `pkg/configfilearg`): files by name, a key replaces that
/// of the files before, `key+` adds to it.
fn node_labels(world: &World) -> Vec<String> {
    let dir = world.guest.path("/etc/rancher/rke2/config.yaml.d");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    paths.sort();
    let mut labels = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        let file: Value = yaml_serde::from_str(&text).unwrap();
        for (key, value) in file.as_object().unwrap() {
            if key == "node-label" {
                labels.clear();
            }
            if key.trim_end_matches('+') == "node-label" {
                let list = value.as_array().unwrap().iter();
                labels.extend(list.map(|label| label.as_str().unwrap().to_owned()));
            }
        }
    }
    labels
}

fn says(world: &World, key: &str, value: &str) -> bool {
    node_labels(world).contains(&format!("{key}={value}"))
}

async fn file_says(world: &World, key: &str, value: &str) {
    let what = format!("{key}={value} in {FILE}");
    eventually(SOON, &what, || async { says(world, key, value) }).await;
}

fn holding(line: &Line) -> bool {
    line.text.starts_with("delaying the kubelet")
}

async fn a_node_registers_with_the_labels_of_its_host(on: On) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    let _agent = serve(&world).await;
    let output = gate(&world, "60s").await;
    is_opened(&output, "(names-match)");
    assert_eq!(written(&output), [FILE]);
    assert_eq!(
        node_labels(&world),
        [
            "rke.cattle.io/machine=0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d".to_owned(),
            format!("{HOST}=hv-a"),
            format!("{REGION}=eu-1"),
            format!("{ZONE}=rack-a"),
        ]
    );
    let mode = std::fs::metadata(world.guest.path(FILE)).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o644);
    // A kubelet that starts sets them; then there is nothing for the agent to change.
    let labels = [
        (HOST, Some("hv-a")),
        (REGION, Some("eu-1")),
        (ZONE, Some("rack-a")),
    ];
    world.relabel_node("kubelet", &labels).await;
    register(&world, Distribution::Rke2);
    let annotation = "node-agent.harvesterhci.io/host";
    eventually(SOON, "an annotated Node", || async {
        world.node_annotation(annotation).await.as_deref() == Some("hv-a")
    })
    .await;
    let written = world.agent_writes().await;
    assert!(
        written
            .iter()
            .all(|write| write.body["metadata"]["labels"].is_null()),
        "{written:#?}"
    );
    assert_eq!(world.node_label(ZONE_BETA).await, None);
    findings_become(&world, &[]).await;
    // And the next start is none of the gate's business.
    let output = gate(&world, "60s").await;
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""));
}

async fn a_migration_changes_the_file_before_the_node_and_then_all_rests(on: On) {
    let (world, mut daemon) = labelled(on, SWITCH).await;
    world.migrate("hv-b").await;
    eventually(SOON, "the new zone on the Node", || async {
        let zone = world.node_label(ZONE).await;
        let is_new = zone.as_deref() == Some("rack-b");
        assert!(
            !is_new || says(&world, ZONE, "rack-b"),
            "the Node came first"
        );
        is_new
    })
    .await;
    assert!(says(&world, HOST, "hv-b") && !says(&world, ZONE, "rack-a"));
    findings_become(&world, &[]).await;
    let inode = || std::fs::metadata(world.guest.path(FILE)).unwrap().ino();
    let (before, patches) = (inode(), node_patches(&world).await);
    let reads = async || {
        let requests = world.agent_requests(Side::Guest).await.into_iter();
        requests.filter(|request| request.verb == "get").count()
    };
    // The APIs are read some seconds after a reload. The second reload comes after all that follows from that read.
    for count in 1..=2 {
        let before = reads().await;
        daemon.signal(Signal::SIGHUP);
        let mut reloads = 0;
        let is_reload = |one: &Notification| {
            reloads += usize::from(one.has("RELOADING"));
            reloads == count
        };
        daemon.wait_notify(is_reload, SOON).await;
        if count == 1 {
            let is_read = || async { reads().await > before };
            eventually(SOON, "a read of the Node", is_read).await;
        }
    }
    assert_eq!((inode(), node_patches(&world).await), (before, patches));
}

async fn a_held_zone_is_held_by_the_file_too(on: On) {
    let config = format!("{SWITCH}[topology]\non_change = \"hold\"\n");
    let (world, _agent) = labelled(on, &config).await;
    world.migrate("hv-b").await;
    label_becomes(&world, HOST, "hv-b").await;
    file_says(&world, HOST, "hv-b").await;
    assert!(says(&world, ZONE, "rack-a"), "{:?}", node_labels(&world));
    findings_become(&world, &["pinned-by-config"]).await;
}

async fn a_file_of_another_program_and_one_that_is_not_there_stay_so(on: On) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    let theirs = format!("node-label+: [\"{ZONE}=elsewhere\"]\n");
    world.guest.write(FILE, &theirs);
    let daemon = serve(&world).await;
    let output = gate(&world, "60s").await;
    assert!(
        output.stderr.contains("not managed by the agent"),
        "{output:?}"
    );
    register(&world, Distribution::Rke2);
    label_becomes(&world, ZONE, "rack-a").await;
    findings_become(&world, &["label-file-not-managed", "static-node-label"]).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    assert_eq!(world.guest.read(FILE), Some(theirs));
    let record = |line: &&Line| line.text.contains("[label-file-not-managed]");
    assert_eq!(daemon.lines().iter().filter(record).count(), 1);
    // Gone, it is not made anew.
    world.guest.remove(FILE);
    findings_become(&world, &[]).await;
    world.migrate("hv-a").await;
    label_becomes(&world, ZONE, "rack-a").await;
    assert_eq!(world.guest.read(FILE), None);
}

async fn a_read_only_directory_is_a_finding_with_the_command_that_helps(on: On) {
    let (world, mut daemon) = labelled(on, SWITCH).await;
    daemon.signal(Signal::SIGTERM);
    daemon.wait_exit(SOON).await;
    let directory = world.guest.path("/etc/rancher");
    let script = format!(
        "mount --bind {0} {0} && mount -o remount,bind,ro {0} && exec \"$@\"",
        directory.display()
    );
    let namespaces = ["--map-root-user", "--mount"];
    let shell = ["sh", "-c", &script, "sh", BINARY, "run"];
    let mut daemon = world.spawn_agent("unshare", &[&namespaces[..], &shell].concat());
    daemon.wait_ready(SOON).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    findings_become(&world, &["label-file-not-written"]).await;
    let status = world.guest.status().unwrap();
    let findings = status["findings"].as_array().unwrap().iter();
    let finding = findings.filter(|finding| finding["code"] == "label-file-not-written");
    let text = finding.map(ToString::to_string).collect::<String>();
    for part in ["Read-only file system", "Restart the agent"] {
        assert!(text.contains(part), "{text}");
    }
    // Restarted, it sees the directory as it is.
    daemon.signal(Signal::SIGTERM);
    daemon.wait_exit(SOON).await;
    let _daemon = serve(&world).await;
    file_says(&world, ZONE, "rack-b").await;
    findings_become(&world, &[]).await;
}

async fn switched_off_the_file_goes_and_its_directory_stays(on: On) {
    let (world, daemon) = labelled(on, SWITCH).await;
    world.guest.agent_config(
        "10-registration.toml",
        "[registration]\nnode_labels = false\n",
    );
    daemon.signal(Signal::SIGHUP);
    eventually(SOON, "no file", || async {
        world.guest.read(FILE).is_none()
    })
    .await;
    assert_eq!(node_labels(&world).len(), 1);
    assert_eq!(world.node_label(ZONE).await.as_deref(), Some("rack-a"));
}

async fn kubeadm_gets_a_drop_in_of_the_kubelets_unit(on: On) {
    let world = unregistered(on, Distribution::Kubeadm).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    world
        .guest
        .write("/usr/lib/systemd/system/kubelet.service", "[Service]\n");
    let _agent = serve(&world).await;
    let output = gate(&world, "60s").await;
    assert_eq!(written(&output), [DROP_IN], "{output:?}");
    let line = |zone: &str, host: &str| {
        format!(
            "Environment=\"KUBELET_EXTRA_ARGS=--node-labels={HOST}={host},{REGION}=eu-1,{ZONE}={zone}\""
        )
    };
    let reads = |wanted: String| {
        let text = world.guest.read(DROP_IN).unwrap();
        text.lines().any(|line| line == wanted)
    };
    assert!(reads(line("rack-a", "hv-a")));
    register(&world, Distribution::Kubeadm);
    label_becomes(&world, ZONE, "rack-a").await;
    world.migrate("hv-b").await;
    let moved = || async { reads(line("rack-b", "hv-b")) };
    eventually(SOON, "the drop-in of the new host", moved).await;
    findings_become(&world, &[]).await;
    // The packages of the kubelet bring this line.
    world
        .guest
        .write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n");
    world.migrate("hv-a").await;
    findings_become(&world, &["label-file-without-effect"]).await;
    let says_nothing = || async {
        let text = world.guest.read(DROP_IN).unwrap();
        text.lines().all(|line| line.starts_with('#'))
    };
    eventually(SOON, "a drop-in that says nothing", says_nothing).await;
}

async fn a_file_that_cannot_be_written_is_a_failure_of_once(on: On) {
    let (world, mut daemon) = labelled(on, SWITCH).await;
    daemon.signal(Signal::SIGTERM);
    daemon.wait_exit(SOON).await;
    world.migrate("hv-b").await;
    // Ours by its text, and not to be replaced: another name leads to it.
    let other = world.guest.path("/etc/rancher/other");
    std::fs::hard_link(world.guest.path(FILE), other).unwrap();
    let output = agent(&world, &["once"]).await;
    assert_eq!(output.code, Some(1), "{}{}", output.stdout, output.stderr);
    let refusal = format!("error: did not write `{FILE}`");
    assert!(output.stderr.contains(&refusal), "{}", output.stderr);
    std::fs::remove_file(world.guest.path("/etc/rancher/other")).unwrap();
    let output = agent(&world, &["once"]).await;
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    assert!(says(&world, ZONE, "rack-b"));
}

async fn a_reload_that_a_killed_agent_missed_is_repeated(on: On) {
    let world = unregistered(on, Distribution::Kubeadm).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    let unit = "/usr/lib/systemd/system/kubelet.service";
    world.guest.write(unit, "[Service]\n");
    let mut daemon = serve(&world).await;
    gate(&world, "60s").await;
    register(&world, Distribution::Kubeadm);
    label_becomes(&world, ZONE, "rack-a").await;
    findings_become(&world, &[]).await;
    daemon.signal(Signal::SIGKILL);
    daemon.wait_exit(SOON).await;
    // The file was renamed to its place, and then the agent was killed.
    let bus = Bus::start(&world.guest).await;
    let missed = Unit {
        needs_reload: true,
        ..Unit::running()
    };
    let systemd = Systemd::start(&bus, &[("kubelet.service", missed)]).await;
    let reloads = || {
        systemd
            .calls()
            .iter()
            .filter(|call| *call == "Reload")
            .count()
    };
    let mut daemon = serve(&world).await;
    eventually(SOON, "a reload of systemd", || async { reloads() == 1 }).await;
    // Killed again, there is nothing to make good.
    daemon.signal(Signal::SIGKILL);
    daemon.wait_exit(SOON).await;
    let _daemon = serve(&world).await;
    findings_become(&world, &[]).await;
    assert_eq!(reloads(), 1);
}

async fn a_wrong_hostname_holds_the_kubelet_until_it_is_put_right(on: On) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.kernel_hostname("localhost");
    let _agent = serve(&world).await;
    let mut gate = world.spawn_agent(BINARY, &["gate"]);
    // Another wrong name changes nothing but the text.
    for name in ["localhost", "elsewhere"] {
        world.guest.kernel_hostname(name);
        world.guest.static_hostname(name);
        let what = format!("hostname `{name}` does not match VM");
        let is_hold = |line: &Line| holding(line) && line.text.contains(&what);
        let line = gate.wait_line(is_hold, SOON).await;
        let remedy = format!("hostnamectl set-hostname {VM_NAME}");
        assert!(line.text.contains(&remedy), "{}", line.text);
    }
    assert!(gate.exited().is_none(), "{}", gate.transcript());
    world.guest.kernel_hostname(VM_NAME);
    world.guest.static_hostname(VM_NAME);
    let status = gate.wait_exit(SOON).await;
    assert_eq!(status.code(), Some(0));
    let opened = format!("hostname `{VM_NAME}` matches VM `{VM_NAME}` (names-match)");
    assert!(gate.transcript().contains(&opened), "{}", gate.transcript());
    assert_eq!(world.guest.read(FILE), None, "nothing asked for labels");
}

async fn a_wrong_hostname_holds_no_longer_than_the_bound(on: On) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.kernel_hostname("localhost");
    world.guest.agent_config("10-registration.toml", SWITCH);
    let _agent = serve(&world).await;
    let is_known = || async {
        let status = world.guest.status().unwrap_or_default();
        status["placement"]["zone"] == "rack-a"
    };
    eventually(SOON, "the zone in the status", is_known).await;
    let began = Instant::now();
    let output = gate(&world, "2s").await;
    assert!(Instant::now() >= began + Duration::from_secs(2));
    assert!(
        output.stderr.starts_with("delaying the kubelet for up to"),
        "{}",
        output.stderr
    );
    let message = reason_at_the_bound(&output);
    assert!(
        message.starts_with("the kubelet starts, although hostname `localhost`"),
        "{message}"
    );
    // Which host runs the VM is known all the same.
    assert!(says(&world, ZONE, "rack-a"));
}

async fn a_node_name_of_the_configuration_is_the_one_that_counts(on: On) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.kernel_hostname("localhost");
    world.guest.rancher_config(Some("chosen-1"));
    let _agent = serve(&world).await;
    let output = gate(&world, "60s").await;
    is_opened(&output, "node name `chosen-1`");
    is_opened(&output, "(configured-override)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_kubevirt_makes_of_two_vms_does_not_match_itself() {
    let options = WorldOptions {
        vm: VmSpec::named("web.prod-2").firmware(Firmware::Random),
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    };
    let world = World::lab(options).await;
    let other = VmSpec::named("web.prod-1").firmware(Firmware::Random);
    world.harvester.create_vm(other, "hv-b").await.unwrap();
    world.guest.remove(Distribution::Rke2.kubeconfig());
    world.guest.kernel_hostname("web");
    world.guest.static_hostname("web");
    world.guest.cloud_init("web", "i-1");
    let mut daemon = serve(&world).await;
    let output = gate(&world, "1s").await;
    reason_at_the_bound(&output);
    assert!(!output.stderr.contains("VM `web`"), "{output:?}");
    // A read that a user waits for lists the namespace at once.
    daemon.signal(Signal::SIGTERM);
    daemon.wait_exit(SOON).await;
    let output = agent(&world, &["once"]).await;
    assert!(
        output.stderr.contains("[hostname-of-several-vms]"),
        "{}",
        output.stderr
    );
    let whoami = agent(&world, &["whoami"]).await.stdout;
    assert!(whoami.contains("web.prod-2"), "{whoami}");
    assert!(whoami.contains("(hostname-of-several-vms)"), "{whoami}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubelet_credential_of_another_machine_holds_the_gate_with_a_sentence() {
    let world = World::lab(WorldOptions::default()).await;
    // The disk of another machine, with the state of its agent.
    let state = r#"{"version":1,"machine":{"machineId":null,"productUuid":"0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d"},"vm":"a","lastMigration":null,"lastLatency":null}"#;
    world
        .guest
        .write("/var/lib/harvester-node-agent/state.json", state);
    let message = reason_at_the_bound(&gate(&world, "1s").await);
    for part in [
        VM_NAME,
        "of another machine",
        "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d",
    ] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
    // The VM has the name of the Node all the same: its firmware UUID was changed.
    let _agent = serve(&world).await;
    let output = gate(&world, "60s").await;
    assert_eq!(output.stdout, "", "{output:?}");
    assert!(!output.stderr.contains("although"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_beside_its_original_holds_the_gate_whatever_its_configuration_says() {
    let world = World::lab(WorldOptions::default()).await;
    let clone = VmSpec::named("clone").firmware(Firmware::Random);
    let clone = world.harvester.create_vm(clone, "hv-b").await.unwrap();
    let serial = clone.spec.serial.as_deref();
    world.guest.dmi(&clone.firmware_uuid, serial);
    world.guest.node_nics(&clone.spec.macs);
    world.guest.kernel_hostname("clone");
    world.guest.static_hostname("clone");
    world.guest.rancher_config(Some(VM_NAME));
    let _agent = serve(&world).await;
    findings_become(&world, &["name-of-another-vm"]).await;
    let message = reason_at_the_bound(&gate(&world, "1s").await);
    assert!(message.contains("the name of another VM"), "{message}");
    assert_eq!(node_patches(&world).await, 0);
}

#[tokio::test]
async fn the_gate_does_not_delay_a_registered_kubelet_and_logs_nothing() {
    let world = World::lab(WorldOptions::default()).await;
    world.guest.kernel_hostname("localhost");
    let output = agent(&world, &["gate"]).await;
    assert_eq!(output.code, Some(0));
    assert_eq!(
        (output.stdout, output.stderr),
        (String::new(), String::new())
    );
}

#[tokio::test]
async fn without_a_daemon_the_kubelet_starts_at_the_bound_with_the_command_to_look() {
    let world = unregistered(On::Lab, Distribution::Rke2).await;
    let output = agent(&world, &["gate", "--timeout", "1s"]).await;
    assert_eq!(output.code, Some(0));
    let told = output.stderr.lines().last().unwrap();
    assert!(
        told.contains("harvester-node-agent.service is not running"),
        "{told}"
    );
    assert!(
        told.contains("systemctl status harvester-node-agent"),
        "{told}"
    );
}

/// The sandbox of the gate's unit lets it write only to directories that exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_are_made_for_installed_distributions_and_where_labels_are_wanted() {
    let world = unregistered(On::Lab, Distribution::Rke2).await;
    let directory = world.guest.path("/etc/rancher/rke2/config.yaml.d");
    std::fs::remove_dir_all(world.guest.path("/etc/rancher")).unwrap();
    world.guest.write("/usr/local/bin/rke2", "a program");
    let prepare = async || {
        let output = agent(&world, &["gate", "--make-directories"]).await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""));
        directory.exists()
    };
    assert!(!prepare().await, "nothing asks for labels");
    world.guest.agent_config("10-registration.toml", SWITCH);
    assert!(prepare().await);
    assert!(!world.guest.path("/etc/rancher/k3s").exists());
    assert!(!world.guest.path("/etc/systemd/system").exists());
    std::fs::remove_dir_all(world.guest.path("/etc/rancher")).unwrap();
    register(&world, Distribution::Rke2);
    assert!(!prepare().await, "the kubelet has registered");
}

#[tokio::test]
async fn a_machine_that_is_not_kubevirts_is_not_held() {
    let world = unregistered(On::Lab, Distribution::Rke2).await;
    world
        .guest
        .foreign_dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)");
    is_opened(&gate(&world, "60s").await, "not a KubeVirt virtual machine");
}

#[tokio::test]
async fn a_faulty_configuration_holds_nothing_and_is_named() {
    let world = unregistered(On::Lab, Distribution::Rke2).await;
    world
        .guest
        .agent_config("10-faulty.toml", "[topology]\nhost_lable = false\n");
    let output = gate(&world, "60s").await;
    let line = output.stderr.lines().next().unwrap_or_default();
    for part in [
        "invalid configuration",
        "the kubelet starts without the check",
        "harvester-node-agent config check",
    ] {
        assert!(line.contains(part), "{output:?}");
    }
}
