// SPDX-License-Identifier: Apache-2.0
//! `doctor` in every state of a machine: nothing but the root cause is an error, what cannot be seen is said, and what
//! hangs is given up.

use std::process::Stdio;

use harvester_lab::cloud_controller::fight;
use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::guest::{Distribution, GuestTree};
use harvester_lab::process::{Output, run_once};
use harvester_lab::world::{HostAccess, Side, VM_NAME, World, WorldOptions, eventually};
use harvester_node_agent::catalog::{Code, Group};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    BINARY, HOST, On, SOON, TOPOLOGY, agent, condition_becomes, findings_become, lab, on_both,
    serve,
};

on_both!(
    a_healthy_machine_has_no_finding,
    a_credential_that_comes_is_waited_for,
    a_rival_that_only_the_running_agent_has_met_is_named,
    labels_that_nobody_writes_are_named,
);

const HARVESTER: &str = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";
const CERTIFICATE: &str = "/var/lib/rancher/rke2/agent/client-kubelet.crt";

/// What one run said, held against the published schema.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) document: Value,
}

impl Said {
    fn new(output: &Output) -> Self {
        assert_ne!(output.stdout, "", "{}", output.stderr);
        let document = serde_json::from_str(&output.stdout).unwrap();
        conforms(&document);
        assert_eq!(document["exitCode"].as_i64(), output.code.map(i64::from));
        Self {
            code: output.code,
            document,
        }
    }

    fn groups(&self) -> &[Value] {
        self.document["groups"].as_array().unwrap()
    }

    /// What was found. Both servers of a world are on the loopback, which is complained about and not meant here.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &Value> {
        let findings = self.groups().iter();
        let findings = findings.flat_map(|group| group["findings"].as_array().unwrap());
        findings.filter(|finding| finding["code"] != "harvester-on-loopback")
    }

    /// The codes of this severity.
    pub(crate) fn codes(&self, severity: &str) -> Vec<&str> {
        let findings = self
            .findings()
            .filter(|finding| finding["severity"] == severity);
        findings
            .map(|finding| finding["code"].as_str().unwrap())
            .collect()
    }

    /// What could not be seen for this kind of reason.
    fn gaps(&self, kind: &str) -> Vec<&str> {
        let gaps = self
            .groups()
            .iter()
            .flat_map(|group| group["skippedChecks"].as_array().unwrap());
        let gaps = gaps.filter(|gap| gap["reason"] == kind);
        gaps.map(|gap| gap["check"].as_str().unwrap()).collect()
    }
}

/// Holds a document against the schema, in which for this nothing is allowed that it does not describe.
fn conforms(document: &Value) {
    conforms_to("", document);
}

/// The same with one part of the schema.
fn conforms_to(part: &str, document: &Value) {
    let text = include_str!("../../packaging/schema/doctor.schema.json");
    let mut schema: Value = serde_json::from_str(text).unwrap();
    close(&mut schema);
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler
        .add_resource("file:///doctor.json", schema)
        .unwrap();
    let part = format!("file:///doctor.json#{part}");
    let index = compiler.compile(&part, &mut schemas).unwrap();
    let fault = schemas.validate(document, index).err();
    let fault = fault.map(|error| format!("{error:#}"));
    assert_eq!(fault, None, "{document:#}");
}

fn close(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        if object.contains_key("properties") {
            object.insert("additionalProperties".to_owned(), json!(false));
        }
        object.values_mut().for_each(close);
    }
}

pub(crate) async fn doctor(world: &World, args: &[&str]) -> Said {
    let output = agent(world, &[&["doctor", "-ojson"], args].concat()).await;
    Said::new(&output)
}

/// Holds that one look finds what a running agent has found, or the cause of it, and no error beside it.
pub(crate) async fn agrees(world: &World, expected: &[&str]) {
    let said = doctor(world, &[]).await;
    let errors = said.codes("error");
    assert_eq!(said.code == Some(1), !errors.is_empty(), "{errors:?}");
    // One look has no credential of before that it could keep.
    let is_kept =
        |code: &str| expected == ["credential-reload-failed"] && code.ends_with("-invalid");
    // An examination knows more: it names the cause and leaves out what the agent complains of.
    let explains = |code: &str, other: &str| {
        let entry = Code::parse(code).unwrap().entry();
        entry.suppresses.iter().any(|code| code.as_str() == other)
    };
    let is_expected = |code: &&str| {
        expected.contains(code)
            || is_kept(code)
            || expected.iter().any(|other| explains(code, other))
    };
    assert!(
        errors.iter().all(is_expected),
        "{errors:?}, not {expected:?}"
    );
    let codes = said
        .findings()
        .map(|finding| finding["code"].as_str().unwrap());
    let codes: Vec<&str> = codes.collect();
    let is_found =
        |code: &&str| codes.contains(code) || codes.iter().any(|other| explains(other, code));
    assert!(expected.iter().all(is_found), "{codes:?}, not {expected:?}");
}

/// As another user, or in another network, by a program that changes that and then runs ours.
async fn doctor_by(world: &World, program: &[&str]) -> Said {
    let output = Command::new(program[0])
        .args(&program[1..])
        .arg(BINARY)
        .args(["doctor", "-ojson", "--root"])
        .arg(world.guest.root())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let output = Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    Said::new(&output)
}

fn is_root(test: &str) -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        harvester_lab::skip(test, "it needs root");
    }
    is_root
}

async fn a_healthy_machine_has_no_finding(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let before = world.node_resource_version().await;
    let said = doctor(&world, &[]).await;
    assert_eq!(said.findings().collect::<Vec<_>>(), Vec::<&Value>::new());
    assert_eq!(said.code, Some(0));
    assert_eq!(world.node_resource_version().await, before, "it wrote");
    let quiet = agent(&world, &["doctor", "--quiet"]).await;
    assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(0), ""));
}

async fn labels_that_nobody_writes_are_named(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let said = doctor(&world, &[]).await;
    let mut findings = said.findings();
    let is_wrong = |one: &&Value| one["code"] == "agent-not-running" && one["group"] == "node";
    let stopped = findings.find(is_wrong).unwrap()["observed"]
        .as_str()
        .unwrap();
    let differs = "topology.harvesterhci.io/host is none, not hv-a";
    assert!(stopped.contains(differs), "{stopped}");
    let text = agent(&world, &["doctor"]).await.stdout;
    assert!(crate::words(&text).contains(differs), "{text}");
}

async fn a_credential_that_comes_is_waited_for(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let text = world.guest.read(HARVESTER).unwrap();
    world.guest.remove(HARVESTER);
    let (root, args) = (world.guest.root(), ["doctor", "-ojson", "--wait", "50s"]);
    let waiting = run_once(BINARY, root, &args, SOON);
    let heal = async {
        eventually(SOON, "the first look has read the Node", || async {
            !world.agent_requests(Side::Guest).await.is_empty()
        })
        .await;
        world.guest.write_secret(HARVESTER, &text);
    };
    let (output, ()) = tokio::join!(waiting, heal);
    assert_eq!(output.code, Some(0), "{}", output.stdout);
}

async fn a_rival_that_only_the_running_agent_has_met_is_named(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let endpoint = world.guest_api.endpoint();
    let _rival = fight(&endpoint, "zone-fixer", world.node_name(), HOST, "mine");
    findings_become(&world, &["label-conflict"]).await;
    let said = doctor(&world, &[]).await;
    assert_eq!(
        (said.code, said.codes("error")),
        (Some(1), vec!["label-conflict"])
    );
    let mut found = said.findings();
    assert!(
        found.all(|finding| finding["firstObservedTime"].is_string()),
        "{:#}",
        said.document
    );
}

/// A way to break a world, and the one error that names it.
type Trouble = (&'static str, fn(&World));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_trouble_with_a_credential_is_the_only_error() {
    let troubles: [Trouble; 9] = [
        ("harvester-credential-missing", |world| {
            world.guest.remove(HARVESTER);
        }),
        ("harvester-credential-invalid", |world| {
            let text = world.guest.read(HARVESTER).unwrap();
            world.guest.write_half(HARVESTER, text);
        }),
        ("harvester-is-own-api", |world| {
            let kubelet = world.guest.read(Distribution::Rke2.kubeconfig()).unwrap();
            world.guest.write_secret(HARVESTER, kubelet);
        }),
        ("harvester-unauthorized", |world| {
            lab(&world.harvester_api)
                .faults()
                .inject(Matcher::any(), Fault::unauthorized());
        }),
        ("harvester-bad-response", |world| {
            lab(&world.harvester_api)
                .faults()
                .inject(Matcher::any(), Fault::html(200));
        }),
        ("kubelet-credential-missing", |world| {
            world.guest.remove(Distribution::Rke2.kubeconfig());
        }),
        ("kubelet-credential-invalid", |world| {
            world.guest.write_secret(CERTIFICATE, "no certificate");
        }),
        ("guest-api-unauthorized", |world| {
            lab(&world.guest_api)
                .faults()
                .inject(Matcher::any(), Fault::unauthorized());
        }),
        ("config-invalid", |world| {
            world
                .guest
                .agent_config("10-wrong.toml", "[harvestr]\nkubeconfig = \"/x\"\n");
        }),
    ];
    for (code, breaks) in troubles {
        let world = World::lab(WorldOptions::default()).await;
        breaks(&world);
        let said = doctor(&world, &[]).await;
        assert_eq!(said.codes("error"), [code], "{:#}", said.document);
        let expected = if code == "config-invalid" { 78 } else { 1 };
        assert_eq!(said.code, Some(expected), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_may_nothing_is_the_only_error() {
    let world = World::lab(WorldOptions {
        access: HostAccess::Nothing,
        ..WorldOptions::default()
    })
    .await;
    let said = doctor(&world, &[]).await;
    assert_eq!(said.codes("error"), ["harvester-forbidden"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_network_both_apis_are_said_to_be_silent() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    let said = doctor_by(&world, &["unshare", "--map-root-user", "--net"]).await;
    assert_eq!(
        (said.code, &said.document["outcome"]),
        (Some(75), &json!("unreachable"))
    );
    assert_eq!(said.codes("error"), Vec::<&str>::new());
    let warnings = said.codes("warning");
    assert_eq!(warnings, ["harvester-unreachable", "guest-api-unreachable"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apis_that_take_a_call_and_say_nothing_are_given_up() {
    let world = World::lab(WorldOptions::default()).await;
    let (harvester, guest) = (lab(&world.harvester_api), lab(&world.guest_api));
    tokio::join!(harvester.stay_silent(), guest.stay_silent());
    let said = doctor(&world, &[]).await;
    assert_eq!(
        (said.code, &said.document["outcome"]),
        (Some(75), &json!("unreachable"))
    );
}

#[test]
fn an_ordinary_user_is_told_to_run_it_as_root() {
    if !is_root("an_ordinary_user_is_told_to_run_it_as_root") {
        return;
    }
    let nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        BINARY,
        "doctor",
    ];
    let output = std::process::Command::new("setpriv").args(nobody).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(75), vec![]));
    assert!(said.contains("Run as root:\n  sudo "), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_hypervisor_is_said_and_nothing_else() {
    let world = World::lab(WorldOptions::default()).await;
    world.guest.foreign_dmi("QEMU", "Standard PC");
    let said = doctor(&world, &[]).await;
    assert_eq!(
        (said.code, said.codes("error")),
        (Some(4), vec!["not-kubevirt"])
    );
    assert_eq!(world.agent_writes().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_does_not_run_is_a_warning() {
    let world = World::lab(WorldOptions::default()).await;
    let said = doctor(&world, &["--strict"]).await;
    assert_eq!(
        (said.code, said.codes("warning")),
        // The second one is about the labels of the Node.
        (Some(3), vec!["agent-not-running", "agent-not-running"])
    );
    assert_eq!(doctor(&world, &[]).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_network_that_does_not_fit_its_nic_is_a_warning() {
    let world = World::lab(WorldOptions::default()).await;
    let (guest, overlay) = (&world.guest, "/sys/class/net/flannel.1");
    guest.write(&format!("{overlay}/uevent"), "DEVTYPE=vxlan\n");
    guest.write(&format!("{overlay}/mtu"), "1450\n");
    guest.flip_link(&format!("{overlay}/lower_eth0"), "../eth0");
    for (nic, overlay_mtu, is_named) in [
        ("1500", "1450", false),
        ("1400", "1450", true),
        ("1400", "1350", false),
    ] {
        guest.write("/sys/class/net/eth0/mtu", format!("{nic}\n"));
        guest.write(&format!("{overlay}/mtu"), format!("{overlay_mtu}\n"));
        let said = doctor(&world, &[]).await;
        let is_found = said.codes("warning").contains(&"overlay-mtu-too-large");
        assert_eq!(is_found, is_named, "{nic} {overlay_mtu}");
    }
    guest.write(&format!("{overlay}/mtu"), "1450\n");
    let output = agent(&world, &["doctor"]).await;
    let command = "ip link set dev flannel.1 mtu 1350";
    assert!(output.stdout.contains(command), "{}", output.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_hold_the_names_of_this_machine() {
    let world = World::lab(WorldOptions::default()).await;
    for write in [GuestTree::kernel_hostname, GuestTree::static_hostname] {
        write(&world.guest, "localhost");
    }
    let table = agent(&world, &["doctor"]).await;
    let command = format!("\n            hostnamectl set-hostname {VM_NAME}\n");
    assert!(table.stdout.contains(&command), "{}", table.stdout);
    let explained = agent(&world, &["explain", "hostname-differs"]).await;
    assert!(
        explained
            .stdout
            .contains("\n            # on this node, as root\n"),
        "{}",
        explained.stdout
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_text_holds_no_secret_and_refuses_the_format_for_tickets() {
    let world = World::lab(WorldOptions {
        access: HostAccess::Nothing,
        ..WorldOptions::default()
    })
    .await;
    let table = agent(&world, &["doctor"]).await;
    assert_eq!(table.code, Some(1));
    assert!(
        table
            .stdout
            .contains("\n            harvester-node-agent rbac > /root/rbac.yaml\n"),
        "{}",
        table.stdout
    );
    assert!(!table.stdout.contains(&world.token) && !table.stdout.contains('\u{1b}'));
    assert_eq!(
        agent(&world, &["doctor", "-o", "short"]).await.code,
        Some(2)
    );
}

#[test]
fn the_schema_knows_every_code_place_and_group() {
    for code in Code::ALL {
        conforms_to("/$defs/finding/properties/code", &json!(code.as_str()));
        for command in code.entry().commands {
            let command = json!({ "runOn": command.place.as_str(), "text": command.text });
            conforms_to("/$defs/command", &command);
        }
    }
    for group in Group::ALL {
        conforms_to("/$defs/group/properties/group", &json!(group.as_str()));
    }
}

/// What a shell thinks of a script that it does not run.
fn is_shell(script: &str) -> bool {
    let status = std::process::Command::new("bash")
        .args(["-n", "-c", script])
        .stderr(Stdio::null())
        .status();
    status.unwrap().success()
}

#[test]
fn a_shell_understands_every_command_and_none_waits_for_a_key() {
    assert!(!is_shell("echo 'unfinished"));
    for code in Code::ALL {
        for command in code.entry().commands {
            let filled = command.filled(|_| Some("name"));
            assert!(is_shell(&filled), "{code}: {filled}");
            // A pager would take the next lines that are pasted for its own commands.
            let is_paged = ["systemctl status", "journalctl -"]
                .iter()
                .any(|start| filled.starts_with(start));
            assert!(
                !is_paged || filled.contains("--no-pager"),
                "{code}: {filled}"
            );
            // `kubectl get` refuses both at once.
            assert!(
                !(filled.contains("--show-labels") && filled.contains("-o yaml")),
                "{code}: {filled}"
            );
        }
    }
}

mod slow {
    use super::*;

    /// Mounts at `$0` a file system whose server never says a word, and runs the rest. It ends with the process.
    const HUNG: &str = "exec 9<>/dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 hung \"$0\" && exec \"$@\"";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_system_that_hangs_is_given_up_with_honest_gaps() {
        let world = World::lab(WorldOptions::default()).await;
        let rancher = world.guest.root().join("var/lib/rancher");
        let hung = [
            "unshare",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            HUNG,
            rancher.to_str().unwrap(),
        ];
        let works = std::process::Command::new(hung[0])
            .args(&hung[1..])
            .arg("true")
            .stderr(Stdio::null())
            .status();
        if !works.is_ok_and(|status| status.success()) {
            let why = "it needs a user namespace and /dev/fuse";
            harvester_lab::skip("a_file_system_that_hangs_is_given_up_with_honest_gaps", why);
            return;
        }
        let said = doctor_by(&world, &hung).await;
        assert_eq!(
            (said.code, &said.document["outcome"]),
            (Some(75), &json!("unreachable"))
        );
        assert_eq!(said.codes("warning"), ["agent-not-running"]);
        let gaps = said.gaps("unreachable");
        assert_eq!(gaps.len(), said.groups().len(), "{:#}", said.document);
        let why = said.groups()[0]["skippedChecks"][0]["message"]
            .as_str()
            .unwrap();
        assert!(
            why.starts_with("timed out after 20s while reading credentials, both APIs"),
            "{why}"
        );
        let is_well = |group: &&Value| group["state"] == "ok";
        assert_eq!(said.groups().iter().find(is_well), None);
    }
}
