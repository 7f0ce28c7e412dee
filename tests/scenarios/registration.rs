// SPDX-License-Identifier: Apache-2.0
//! The first registration: `gate` before the kubelet's first start, and before each start `gate --labels`, which writes the file that
//! tells the kubelet its labels.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use harvester_lab::guest::Distribution;
use harvester_lab::harvester::{Firmware, VmSpec};
use harvester_lab::process::{Agent, Line, Output, Signal};
use harvester_lab::world::{CloudState, VM_NAME, World, WorldOptions, eventually};
use serde_json::Value;

use crate::{
    BINARY, HOST, On, REGION, SOON, ZONE, ZONE_BETA, agent, findings_become, label_becomes,
    node_patches, on_both, serve,
};

on_both!(
    a_node_registers_with_the_labels_of_its_host,
    a_migration_changes_the_file_at_the_next_start_of_the_kubelet_and_not_before,
    a_held_zone_is_held_by_the_file_too,
    a_file_of_another_program_is_not_changed,
    a_read_only_directory_is_one_line_and_delays_nothing,
    labels_that_are_unknown_or_switched_off_are_not_passed_on,
    kubeadm_gets_an_environment_file_unless_another_file_sets_the_arguments,
    a_wrong_hostname_holds_the_kubelet_until_it_is_put_right,
    a_wrong_hostname_holds_no_longer_than_the_bound,
    a_node_name_of_the_configuration_is_the_one_that_counts,
);

const FILE: &str = "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml";
const ENVIRONMENT: &str = "/run/harvester-node-agent-gate/kubelet.env";
const KUBELET: &str = "/usr/lib/systemd/system/kubelet.service";
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
    let found = lines.find(line);
    assert!(found.is_some(), "{output:?}");
    found.unwrap().to_owned()
}

/// Returns the files that contain the labels now.
fn written(output: &Output) -> Vec<&str> {
    let lines = output.stdout.lines();
    lines
        .filter_map(|line| line.strip_prefix("labels written to "))
        .collect()
}

/// What the drop-ins run before each start of RKE2, K3s or the kubelet.
async fn pass_labels(world: &World) -> Output {
    let output = agent(world, &["gate", "--labels"]).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output
}

/// A registered world whose kubelet has started with labels.
async fn labelled(on: On, config: &str) -> (World, Agent) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.agent_config("10-registration.toml", config);
    let agent = serve(&world).await;
    gate(&world, "60s").await;
    assert_eq!(written(&pass_labels(&world).await), [FILE]);
    register(&world, Distribution::Rke2);
    known_becomes(&world, ZONE, "rack-a").await;
    (world, agent)
}

/// Waits until the Node has a label, and the status has it for a kubelet that starts.
async fn known_becomes(world: &World, key: &str, value: &str) {
    label_becomes(world, key, value).await;
    let what = format!("{key}={value} in the status");
    let is_known = || async {
        let status = world.guest.status().unwrap_or_default();
        status["registration"]["labels"][key] == value
    };
    eventually(SOON, &what, is_known).await;
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

fn holding(line: &Line) -> bool {
    line.text.starts_with("delaying the kubelet")
}

async fn a_node_registers_with_the_labels_of_its_host(on: On) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    let _agent = serve(&world).await;
    let output = gate(&world, "60s").await;
    is_opened(&output, "(names-match)");
    assert_eq!(world.guest.read(FILE), None, "the gate only waits");
    let output = pass_labels(&world).await;
    assert_eq!((written(&output), output.stderr.as_str()), (vec![FILE], ""));
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
    // And the next start is none of the gate's business, and changes nothing.
    for output in [gate(&world, "60s").await, pass_labels(&world).await] {
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""));
    }
}

async fn a_migration_changes_the_file_at_the_next_start_of_the_kubelet_and_not_before(on: On) {
    let (world, agent) = labelled(on, SWITCH).await;
    let file = || {
        let metadata = std::fs::metadata(world.guest.path(FILE)).unwrap();
        (metadata.ino(), world.guest.read(FILE))
    };
    let before = file();
    world.migrate("hv-b").await;
    known_becomes(&world, ZONE, "rack-b").await;
    // Our own file is no static label, whatever it says.
    findings_become(&world, &[]).await;
    assert_eq!(file(), before, "the daemon touches no file");
    assert_eq!(written(&pass_labels(&world).await), [FILE]);
    assert!(says(&world, HOST, "hv-b") && says(&world, ZONE, "rack-b"));
    assert!(!says(&world, ZONE, "rack-a"));
    let (after, patches) = (file(), node_patches(&world).await);
    assert_eq!(pass_labels(&world).await.stdout, "");
    // By the time at which a later move is known, the new file has been read.
    agent.reload(SOON).await;
    world.migrate("hv-c").await;
    known_becomes(&world, ZONE, "rack-c").await;
    findings_become(&world, &[]).await;
    assert_eq!((file(), node_patches(&world).await), (after, patches + 1));
}

async fn a_held_zone_is_held_by_the_file_too(on: On) {
    let config = format!("{SWITCH}[topology]\non_change = \"hold\"\n");
    let (world, _agent) = labelled(on, &config).await;
    world.migrate("hv-b").await;
    known_becomes(&world, HOST, "hv-b").await;
    pass_labels(&world).await;
    assert!(says(&world, HOST, "hv-b"), "{:?}", node_labels(&world));
    assert!(says(&world, ZONE, "rack-a"), "{:?}", node_labels(&world));
    findings_become(&world, &["pinned-by-config"]).await;
}

async fn a_file_of_another_program_is_not_changed(on: On) {
    let world = unregistered(on, Distribution::Rke2).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    let theirs = format!("node-label+: [\"{ZONE}=elsewhere\"]\n");
    world.guest.write(FILE, &theirs);
    let daemon = serve(&world).await;
    gate(&world, "60s").await;
    let is_refused = |output: &Output| {
        let line = format!("{FILE} was not changed: it does not begin with the comment");
        assert!(output.stderr.starts_with(&line), "{output:?}");
        assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
        assert_eq!(output.stdout, "");
    };
    is_refused(&pass_labels(&world).await);
    register(&world, Distribution::Rke2);
    label_becomes(&world, ZONE, "rack-a").await;
    findings_become(&world, &["static-node-label"]).await;
    world.migrate("hv-b").await;
    known_becomes(&world, ZONE, "rack-b").await;
    is_refused(&pass_labels(&world).await);
    assert_eq!(world.guest.read(FILE), Some(theirs));
    // Gone, it is ours.
    world.guest.remove(FILE);
    assert_eq!(written(&pass_labels(&world).await), [FILE]);
    assert!(says(&world, ZONE, "rack-b"));
    daemon.signal(Signal::SIGHUP);
    findings_become(&world, &[]).await;
}

async fn a_read_only_directory_is_one_line_and_delays_nothing(on: On) {
    let (world, _daemon) = labelled(on, SWITCH).await;
    world.migrate("hv-b").await;
    known_becomes(&world, ZONE, "rack-b").await;
    let directory = world.guest.path("/etc/rancher");
    let script = format!(
        "mount --bind {0} {0} && mount -o remount,bind,ro {0} && exec \"$@\"",
        directory.display()
    );
    let namespaces = ["--map-root-user", "--mount"];
    let shell = ["sh", "-c", &script, "sh", BINARY, "gate", "--labels"];
    let mut gate = world.spawn_agent("unshare", &[&namespaces[..], &shell].concat());
    let status = gate.wait_exit(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", gate.transcript());
    let lines = gate.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [FILE, "Read-only file system"] {
        assert!(lines[0].text.contains(part), "{lines:?}");
    }
    assert_eq!(written(&pass_labels(&world).await), [FILE]);
}

async fn labels_that_are_unknown_or_switched_off_are_not_passed_on(on: On) {
    let (world, mut daemon) = labelled(on, SWITCH).await;
    let gone = format!("{FILE} removed\n");
    let faulty = "[registration]\nnode_lables = true\n";
    let off = "[registration]\nnode_labels = false\n";
    let report = format!("{SWITCH}[topology]\non_change = \"report\"\n");
    for config in [off, &report] {
        world.guest.agent_config("10-registration.toml", config);
        let output = pass_labels(&world).await;
        assert_eq!(
            (output.stdout, output.stderr),
            (gone.clone(), String::new())
        );
        assert_eq!(node_labels(&world).len(), 1, "the directory stays");
        assert_eq!(world.node_label(ZONE).await.as_deref(), Some("rack-a"));
        world.guest.agent_config("10-registration.toml", SWITCH);
        assert_eq!(written(&pass_labels(&world).await), [FILE]);
    }
    // The daemon goes on with the configuration that was valid.
    world.guest.agent_config("10-registration.toml", faulty);
    let output = pass_labels(&world).await;
    assert_eq!(output.stdout, "");
    assert!(output.stderr.contains("config check"), "{output:?}");
    assert!(says(&world, ZONE, "rack-a"));
    world.guest.agent_config("10-registration.toml", SWITCH);
    // The status is that of the daemon before.
    daemon.signal(Signal::SIGKILL);
    daemon.wait_exit(SOON).await;
    assert!(world.guest.status().unwrap()["registration"]["labels"].is_object());
    let output = pass_labels(&world).await;
    assert_eq!(output.stdout, gone);
    assert!(output.stderr.contains("is not running"), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
    let daemon = serve(&world).await;
    let is_new = || async {
        let status = world.guest.status().unwrap_or_default();
        status["agent"]["pid"] == daemon.pid()
    };
    eventually(SOON, "a status of the daemon", is_new).await;
    known_becomes(&world, ZONE, "rack-a").await;
    assert_eq!(written(&pass_labels(&world).await), [FILE]);
}

/// A world with the unit of a kubelet, which has not registered.
async fn with_kubelet(on: On) -> World {
    let world = unregistered(on, Distribution::Kubeadm).await;
    world.guest.agent_config("10-registration.toml", SWITCH);
    world.guest.write(KUBELET, "[Service]\n");
    world
}

/// The arguments that the kubelet gets from our file.
fn arguments(world: &World) -> Option<String> {
    let text = world.guest.read(ENVIRONMENT)?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let arguments = lines.next()?.strip_prefix("KUBELET_EXTRA_ARGS=")?;
    assert_eq!(lines.next(), None, "{text}");
    Some(arguments.to_owned())
}

/// Those for a host.
fn labels_of(host: &str) -> Option<String> {
    let zone = host.replace("hv-", "rack-");
    Some(format!(
        "--node-labels={HOST}={host},{REGION}=eu-1,{ZONE}={zone}"
    ))
}

async fn kubeadm_gets_an_environment_file_unless_another_file_sets_the_arguments(on: On) {
    let world = with_kubelet(on).await;
    let _agent = serve(&world).await;
    gate(&world, "60s").await;
    assert_eq!(written(&pass_labels(&world).await), [ENVIRONMENT]);
    assert_eq!(arguments(&world), labels_of("hv-a"));
    register(&world, Distribution::Kubeadm);
    label_becomes(&world, ZONE, "rack-a").await;
    world.migrate("hv-b").await;
    known_becomes(&world, ZONE, "rack-b").await;
    assert_eq!(written(&pass_labels(&world).await), [ENVIRONMENT]);
    assert_eq!(arguments(&world), labels_of("hv-b"));
    // Ours would override the first one. The packages of the kubelet bring the second.
    for (path, text) in [
        (KUBELET, "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=2\n"),
        ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n"),
    ] {
        let before = world.guest.read(path).unwrap_or_default();
        world.guest.write(path, text);
        let output = pass_labels(&world).await;
        let line = format!("{path} sets KUBELET_EXTRA_ARGS");
        assert!(output.stderr.starts_with(&line), "{output:?}");
        assert_eq!(arguments(&world), None);
        world.guest.write(path, before);
        assert_eq!(written(&pass_labels(&world).await), [ENVIRONMENT]);
        assert_eq!(arguments(&world), labels_of("hv-b"));
    }
    findings_become(&world, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_each_of_twenty_migrations_the_kubelet_starts_with_the_labels_of_its_host() {
    let world = with_kubelet(On::Lab).await;
    let _agent = serve(&world).await;
    gate(&world, "60s").await;
    register(&world, Distribution::Kubeadm);
    known_becomes(&world, ZONE, "rack-a").await;
    for turn in 0..20 {
        let (host, zone) = [("hv-b", "rack-b"), ("hv-a", "rack-a")][turn % 2];
        world.migrate(host).await;
        known_becomes(&world, ZONE, zone).await;
        assert_eq!(written(&pass_labels(&world).await), [ENVIRONMENT], "{turn}");
        assert_eq!(arguments(&world), labels_of(host), "{turn}");
    }
    assert!(!world.guest.path("/etc/systemd").exists());
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
    pass_labels(&world).await;
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
    let status = world.guest.path("/run/harvester-node-agent/status.json");
    eventually(SOON, "a status", async || status.exists()).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_name_of_the_configuration_that_another_vm_has_holds_the_gate() {
    let world = unregistered(On::Lab, Distribution::Rke2).await;
    let other = VmSpec::named("chosen-1").firmware(Firmware::Random);
    world.harvester.create_vm(other, "hv-b").await.unwrap();
    let _agent = serve(&world).await;
    let is_known = || async {
        let status = world.guest.status();
        status.is_some_and(|status| status["identity"]["state"] == "names-match")
    };
    eventually(SOON, "the VM", is_known).await;
    world.guest.rancher_config(Some("chosen-1"));
    let is_named = || async {
        let findings = world.findings();
        findings.iter().any(|code| code == "name-of-another-vm")
    };
    eventually(SOON, "the other VM", is_named).await;
    let message = reason_at_the_bound(&gate(&world, "1s").await);
    let expected = "node name `chosen-1` does not match";
    assert!(message.contains(expected), "{message}");
    assert!(message.contains("(name-of-another-vm)"), "{message}");
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
