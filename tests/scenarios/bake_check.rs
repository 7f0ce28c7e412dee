// SPDX-License-Identifier: Apache-2.0
//! `bake-check` on trees: a clean one passes; each fault, planted alone, is named, and its own fix takes it away.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use harvester_node_agent::catalog::Code;
use harvester_node_agent::commands::bake_check::places::PLACES;
use serde_json::Value;

use crate::BINARY;

/// Must never be printed.
const CANARY: &str = "K10canary::server:f00";

/// The tree of an image as Debian's packages leave it, with nothing of any machine in it.
struct Tree {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Tree {
    fn clean() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // A shell must not trip over the name.
        let root = dir.path().join("it's a tree");
        let tree = Self { _dir: dir, root };
        tree.write("/etc/os-release", "ID=debian\nVERSION_ID=12\n");
        tree.write("/etc/machine-id", "uninitialized\n");
        tree.write("/etc/hostname", "debian\n");
        tree.write("/usr/bin/harvester-node-agent", "program");
        tree.write("/usr/sbin/qemu-ga", "program");
        tree.write(
            "/usr/lib/systemd/system/harvester-node-agent.service",
            "[Service]\nExecStart=/usr/bin/harvester-node-agent run\n[Install]\nWantedBy=multi-user.target\n",
        );
        tree.link(
            "/usr/lib/systemd/system/harvester-node-agent.service",
            "/etc/systemd/system/multi-user.target.wants/harvester-node-agent.service",
        );
        tree.write(
            "/usr/lib/systemd/system/qemu-guest-agent.service",
            "[Service]\nExecStart=-/usr/sbin/qemu-ga\n\n[Install]\n",
        );
        tree.write(
            "/usr/lib/udev/rules.d/60-qemu-guest-agent.rules",
            "SUBSYSTEM==\"virtio-ports\", ATTR{name}==\"org.qemu.guest_agent.0\", \\\n  TAG+=\"systemd\" ENV{SYSTEMD_WANTS}=\"qemu-guest-agent.service\"\n",
        );
        // What may stay: empty logs and leases, images and manifests for an installation without a network.
        tree.write("/var/log/cloud-init.log", "");
        tree.write("/var/lib/dhcp/dhclient.leases", "");
        tree.write("/var/lib/rancher/rke2/agent/images/rke2.tar.zst", "images");
        tree.write("/var/lib/rancher/rke2/server/manifests/ours.yaml", "a: b");
        tree.write("/etc/rancher/rke2/config.yaml", "cni: cilium\n");
        fs::create_dir_all(tree.path("/var/lib/cloud/seed")).unwrap();
        tree.link("/etc/machine-id", "/var/lib/dbus/machine-id");
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    /// The exit code and the faults.
    fn check(&self) -> (Option<i32>, Vec<Value>) {
        let (code, text) = self.print(&["-o", "json"]);
        let answer: Value = serde_json::from_str(&text).unwrap();
        let faults = answer["findings"].as_array().unwrap().clone();
        assert_eq!(answer["clean"], faults.is_empty());
        (code, faults)
    }

    fn print(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = Command::new(BINARY)
            .args(["bake-check", "--root"])
            .arg(&self.root)
            .args(arguments)
            .output()
            .unwrap();
        let text =
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains(CANARY), "{text}");
        (output.status.code(), text)
    }
}

/// The words of a text, however it is wrapped.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn codes(faults: &[Value]) -> Vec<&str> {
    let codes = faults.iter().map(|fault| fault["code"].as_str().unwrap());
    codes.collect()
}

/// The commands of a finding.
fn commands(fault: &Value) -> Vec<&str> {
    let commands = fault["commands"].as_array().unwrap().iter();
    commands
        .map(|command| command["text"].as_str().unwrap())
        .collect()
}

/// Does what the fixes say: pastes the commands, and removes the file of a setting.
fn fix(tree: &Tree, faults: &[Value]) {
    for fault in faults {
        for command in commands(fault) {
            let output = Command::new("sh").args(["-ec", command]).output().unwrap();
            assert!(output.status.success(), "{command}: {output:?}");
        }
        if commands(fault).is_empty() {
            let step = fault["fix"][0].as_str().unwrap();
            let path = step.split_once("` from ").or(step.split_once("` in "));
            let (_, path) = path.unwrap();
            let end = [" line ", " (a link to ", "."];
            let end = end.iter().filter_map(|end| path.rfind(end)).min().unwrap();
            let _ = fs::remove_file(tree.path(&path[..end]));
        }
    }
}

#[test]
fn a_clean_image_passes() {
    let tree = Tree::clean();
    assert_eq!(tree.check(), (Some(0), Vec::new()));
    let (code, text) = tree.print(&[]);
    assert_eq!(
        (code, text),
        (Some(0), format!("{}: clean\n", tree.root.display()))
    );
    for name in ["", "localhost", "localhost.localdomain"] {
        tree.write("/etc/hostname", name);
        assert_eq!(tree.check().0, Some(0), "{name}");
    }
    for absent in ["/etc/machine-id", "/etc/hostname"] {
        tree.remove(absent);
        assert_eq!(tree.check().0, Some(0), "{absent}");
    }
}

#[test]
fn each_fault_is_named_and_its_fix_makes_the_image_clean() {
    let config = "/etc/harvester-node-agent/config.toml";
    let rke2 = "/etc/rancher/rke2/config.yaml";
    let wants = "/etc/systemd/system/multi-user.target.wants/harvester-node-agent.service";
    let token =
        format!("server: https://192.0.2.1:9345\ntoken: {CANARY}\nagent-token+: \"{CANARY}\"\n");
    let json = format!("{{\"cni\": \"calico\", \"token\": \"{CANARY}\"}}");
    let plant = |code: Code, plant: &dyn Fn(&Tree)| {
        let tree = Tree::clean();
        plant(&tree);
        let (exit, faults) = tree.check();
        assert_eq!(exit, Some(1), "{code}");
        assert!(
            codes(&faults).iter().all(|found| *found == code.as_str()),
            "{code}: {faults:#?}"
        );
        let (exit, text) = tree.print(&[]);
        assert_eq!(exit, Some(1));
        for fault in &faults {
            for key in ["code", "observed", "impact"] {
                let shown = words(&text).contains(&words(fault[key].as_str().unwrap()));
                assert!(shown, "{key} of {code}: {text}");
            }
            // To be pasted, and therefore never wrapped.
            for command in commands(fault) {
                assert!(
                    text.contains(&format!("\n            {command}\n")),
                    "{text}"
                );
            }
            for step in fault["fix"].as_array().unwrap() {
                let step = words(step.as_str().unwrap());
                assert!(words(&text).contains(&step), "{step}: {text}");
            }
        }
        fix(&tree, &faults);
        assert_eq!(tree.check(), (Some(0), Vec::new()), "{code} after its fix");
    };
    // Whatever is nothing but a thing at a place: all the places of a code in one tree.
    for (code, places) in PLACES {
        plant(*code, &|tree| {
            for place in *places {
                tree.write(&place.replace('*', "x"), &format!("note: \"{CANARY}\"\n"));
            }
            let (_, faults) = tree.check();
            let removed = commands(&faults[0])[0];
            for place in *places {
                let place = place.replace('*', "x");
                assert!(removed.contains(&place), "{place} is not in: {removed}");
            }
        });
    }
    for id in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        plant(Code::ImageMachineId, &|tree| {
            tree.remove(id);
            tree.write(id, "7d1a5e0c3c5c4f0e8f3ad2b0a9a7c9d1\n");
        });
    }
    plant(Code::ImageHostname, &|tree| {
        tree.write("/etc/hostname", "worker-1\n");
    });
    plant(Code::ImageAgentNotEnabled, &|tree| tree.remove(wants));
    plant(Code::ImageAgentMasked, &|tree| {
        tree.link(
            "/dev/null",
            "/etc/systemd/system/harvester-node-agent.service",
        );
    });
    plant(Code::ImageGuestAgentMasked, &|tree| {
        tree.link("/dev/null", "/etc/systemd/system/qemu-guest-agent.service");
    });
    plant(Code::ImageGuestAgentNotEnabled, &|tree| {
        tree.remove("/usr/lib/udev/rules.d/60-qemu-guest-agent.rules");
        let unit =
            "[Service]\nExecStart=/usr/sbin/qemu-ga\n[Install]\nWantedBy=multi-user.target\n";
        tree.write("/usr/lib/systemd/system/qemu-guest-agent.service", unit);
    });
    plant(Code::ImageConfigurationOfOneVm, &|tree| {
        tree.write(config, "[harvester]\nnamespace = \"team-a\"\nvm = \"worker-1\"\n[guest_cluster]\nnode_name = \"worker-1\"\n");
    });
    for path in [
        "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
        "/var/lib/rancher/k3s/etc/config-files/cloud-provider-config",
        "/etc/kubernetes/cloud-config",
    ] {
        plant(Code::ImageHarvesterCredential, &|tree| {
            tree.write(path, CANARY);
        });
    }
    plant(Code::ImageHarvesterCredential, &|tree| {
        tree.write(config, "[harvester]\nkubeconfig = \"/opt/our own\"\n");
        tree.write("/opt/our own", CANARY);
    });
    for path in [
        "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
        "/var/lib/rancher/k3s/agent/k3scontroller.kubeconfig",
        "/var/lib/rancher/rke2/agent/client-kubelet.key",
        "/var/lib/rancher/rke2/agent/client-kubelet.crt",
        "/etc/kubernetes/kubelet.conf",
    ] {
        plant(Code::ImageKubeletCredential, &|tree| {
            tree.write(path, CANARY);
        });
    }
    for path in [
        "server/tls/server-ca.key",
        "server/token",
        "server/cred/admin.kubeconfig",
        "server/db/state.db",
    ] {
        let path = format!("/var/lib/rancher/rke2/{path}");
        plant(Code::ImageClusterKeys, &|tree| tree.write(&path, CANARY));
    }
    plant(Code::ImageClusterToken, &|tree| tree.write(rke2, &token));
    plant(Code::ImageClusterToken, &|tree| {
        tree.write("/etc/rancher/rke2/config.yaml.d/50-rancher.yaml", &json);
    });
    plant(Code::ImageClusterToken, &|tree| {
        tree.write(
            "/etc/systemd/system/k3s.service.env",
            &format!("K3S_URL=x\nK3S_TOKEN='{CANARY}'\n"),
        );
    });
    plant(Code::ImageClusterToken, &|tree| {
        tree.write("/etc/rancher/k3s/config.yaml", "token-file: /opt/token\n");
        tree.write("/opt/token", CANARY);
    });
}

#[test]
fn a_moved_data_directory_is_looked_into() {
    let tree = Tree::clean();
    tree.write("/etc/rancher/rke2/config.yaml", "data-dir: /data/rke2\n");
    tree.write("/data/rke2/etc/config-files/cloud-provider-config", CANARY);
    tree.write("/data/rke2/agent/client-kubelet.key", CANARY);
    tree.write("/data/rke2/server/node-token", CANARY);
    let (_, faults) = tree.check();
    let expected = [
        "image-harvester-credential",
        "image-kubelet-credential",
        "image-cluster-keys",
    ];
    assert_eq!(codes(&faults), expected);
    fix(&tree, &faults);
    assert_eq!(tree.check().0, Some(0));
}

#[test]
fn what_is_missing_is_named() {
    let tree = Tree::clean();
    tree.remove("/usr/sbin/qemu-ga");
    tree.remove("/usr/lib/systemd/system/harvester-node-agent.service");
    let (exit, faults) = tree.check();
    assert_eq!(exit, Some(1));
    assert_eq!(
        codes(&faults),
        ["image-agent-missing", "image-guest-agent-missing"]
    );
    for (fault, package) in faults
        .iter()
        .zip(["harvester-node-agent", "qemu-guest-agent"])
    {
        let step = fault["fix"][0].as_str().unwrap();
        assert!(step.contains("Install the package"), "{step}");
        assert!(step.contains(package), "{step}");
    }
}

#[test]
fn configuration_with_faults_fails_the_build_and_says_where() {
    let tree = Tree::clean();
    tree.write(
        "/etc/harvester-node-agent/config.toml",
        "log.level = \"loud\"\n",
    );
    let (exit, faults) = tree.check();
    assert_eq!(
        (exit, codes(&faults)),
        (Some(1), vec!["image-config-invalid"])
    );
    let seen = faults[0]["observed"].as_str().unwrap();
    assert!(
        seen.contains("/etc/harvester-node-agent/config.toml:1"),
        "{seen}"
    );
}

#[test]
fn what_cannot_be_read_is_not_clean() {
    let tree = Tree::clean();
    tree.write(
        "/etc/rancher/rke2/config.yaml",
        &format!("token: [{CANARY}\n"),
    );
    let (exit, faults) = tree.check();
    assert_eq!((exit, codes(&faults)), (Some(1), vec!["image-unreadable"]));
    // Root has read it, and would be told the same for ever.
    let step = faults[0]["fix"][0].as_str().unwrap();
    assert!(step.contains("Correct or remove"), "{step}");
    tree.remove("/etc/rancher/rke2/config.yaml");
    assert_eq!(tree.check(), (Some(0), Vec::new()));
    tree.link("loop", "/etc/kubernetes/pki");
    tree.link("pki", "/etc/kubernetes/loop");
    let (exit, faults) = tree.check();
    assert_eq!((exit, codes(&faults)), (Some(1), vec!["image-unreadable"]));
}

#[test]
fn no_image_at_all_is_not_a_clean_one() {
    for dir in ["/nowhere/at/all", "/etc/passwd"] {
        let output = Command::new(BINARY)
            .args(["bake-check", "--root", dir])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("not a directory") && stderr.contains(dir));
    }
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY)
        .args(["bake-check", "--root"])
        .arg(empty.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn no_link_leads_out_of_the_tree_neither_for_us_nor_for_the_fix() {
    let tree = Tree::clean();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("rke2.yaml"), CANARY).unwrap();
    fs::write(outside.path().join("k3s.yaml"), CANARY).unwrap();
    // As seen from the machine, this leads to a directory that it does not have.
    tree.link(outside.path(), "/etc/rancher/k3s");
    tree.link(
        outside.path().join("rke2.yaml"),
        "/etc/rancher/rke2/rke2.yaml",
    );
    assert_eq!(tree.check(), (Some(0), Vec::new()));
    // And here the machine has it.
    let inside = outside.path().join("k3s.yaml");
    tree.write(inside.to_str().unwrap(), CANARY);
    let (exit, faults) = tree.check();
    assert_eq!(
        (exit, codes(&faults)),
        (Some(1), vec!["image-admin-kubeconfig"])
    );
    fix(&tree, &faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
    assert_eq!(fs::read_to_string(inside).unwrap(), CANARY);
}

#[test]
fn names_from_the_tree_can_neither_move_the_cursor_nor_run_a_command() {
    let tree = Tree::clean();
    let name = "/etc/ssh/ssh_host_';touch owned;'\u{1b}[2J";
    tree.write(name, CANARY);
    tree.write("/etc/hostname", "\u{1b}]0;owned\u{7}");
    let (exit, text) = tree.print(&[]);
    assert_eq!(exit, Some(1));
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{7}'),
        "{text}"
    );
    let (_, faults) = tree.check();
    let dir = tempfile::tempdir().unwrap();
    for command in faults.iter().flat_map(commands) {
        Command::new("sh")
            .args(["-c", command])
            .current_dir(dir.path())
            .output()
            .unwrap();
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_secret_is_found_however_it_is_written() {
    let config = "/etc/rancher/rke2/config.yaml";
    let variables = "/etc/default/k3s";
    for (path, text) in [
        (
            config,
            format!("server: https://192.0.2.1:9345\ntoken: >-\n  {CANARY}\n"),
        ),
        (
            config,
            format!("server: https://192.0.2.1:9345\ntoken:\n  {CANARY}\n"),
        ),
        (config, format!("token: |\n  # {CANARY}\ncni: cilium\n")),
        (config, format!("  cni: cilium\n  token: {CANARY}\n")),
        (
            config,
            format!("# of ours\n{{cni: cilium, token: '{CANARY}'}}\n"),
        ),
        (config, format!("token: [{CANARY}]\ncni: cilium\n")),
        (
            config,
            format!("datastore-endpoint: postgres://k3s:{CANARY}@db:5432/k3s\n"),
        ),
        (
            config,
            format!("etcd-s3-secret-key: {CANARY}\netcd-s3-session-token: {CANARY}\n"),
        ),
        (variables, format!("K3S_TOKEN=\\\n{CANARY}\nK3S_URL=x\n")),
        (variables, format!("K3S_TOKEN=\"{CANARY}\n{CANARY}\"\n")),
        (
            variables,
            format!("K3S_DATASTORE_ENDPOINT='mysql://k3s:{CANARY}@tcp(db:3306)/k3s'\n"),
        ),
        (
            "/etc/rancher/k3s/registries.yaml",
            format!("configs:\n  registry.example:\n    auth:\n      password: {CANARY}\n"),
        ),
    ] {
        let tree = Tree::clean();
        tree.write(path, &text);
        let (exit, faults) = tree.check();
        assert_eq!(exit, Some(1), "{text}");
        assert!(
            codes(&faults)
                .iter()
                .all(|code| *code == "image-cluster-token"),
            "{faults:?}"
        );
        fix(&tree, &faults);
        assert_eq!(tree.check(), (Some(0), Vec::new()), "{text}");
    }
    let tree = Tree::clean();
    tree.write(config, "datastore-endpoint: https://192.0.2.1:2379\n");
    tree.write(
        "/etc/rancher/rke2/registries.yaml",
        "mirrors:\n  docker.io: {endpoint: [https://mirror.example]}\nconfigs:\n  a: {auth: }\n",
    );
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}

#[test]
fn a_name_or_a_place_for_every_machine_is_found_with_its_file() {
    let config = "/etc/rancher/rke2/config.yaml";
    let kubelet = "/etc/default/kubelet";
    let (name, place) = ("image-node-name", "image-topology-label");
    let zone = "topology.kubernetes.io/zone";
    for (path, text, code, key) in [
        (
            config,
            "cni: cilium\nnode-name: worker-1\n".to_owned(),
            name,
            "node-name",
        ),
        (
            "/etc/default/k3s",
            "K3S_NODE_NAME=worker-1\n".to_owned(),
            name,
            "K3S_NODE_NAME",
        ),
        (
            kubelet,
            "KUBELET_EXTRA_ARGS=\"--v=2 --hostname-override=worker.1\"\n".to_owned(),
            name,
            "--hostname-override",
        ),
        (
            kubelet,
            "KUBELET_EXTRA_ARGS=--hostname-override='worker-1'\n".to_owned(),
            name,
            "--hostname-override",
        ),
        (
            config,
            format!("node-label:\n  - \"a=b\"\n  - \"{zone}=z\"\ncni: cilium\n"),
            place,
            "node-label",
        ),
        (
            config,
            format!("cni: cilium\nnode-label+:\n- {zone}=z\n- topology.harvesterhci.io/host=h\n"),
            place,
            "node-label+",
        ),
        (
            config,
            format!("node-label: a=b,{zone}=z\n"),
            place,
            "node-label",
        ),
        (
            config,
            "kubelet-arg: [max-pods=200, hostname-override=w-1]\n".to_owned(),
            name,
            "kubelet-arg",
        ),
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            format!("KUBELET_KUBEADM_ARGS=\"--node-labels={zone}=z,a=b --v=2\"\n"),
            place,
            "--node-labels",
        ),
    ] {
        let tree = Tree::clean();
        tree.write(path, &text);
        let (exit, faults) = tree.check();
        assert_eq!((exit, codes(&faults)), (Some(1), vec![code]), "{text}");
        let step = if code == place {
            format!("Remove the topology keys from `{key}` in {path}.")
        } else {
            format!("Remove `{key}` from {path}.")
        };
        assert_eq!(faults[0]["fix"], serde_json::json!([step]));
        fix(&tree, &faults);
        assert_eq!(tree.check(), (Some(0), Vec::new()), "{text}");
    }
    let tree = Tree::clean();
    tree.write(
        config,
        "node-name: worker\nwith-node-id: true\nnode-label: [a=b]\n",
    );
    assert_eq!(tree.check(), (Some(0), Vec::new()));
    tree.write("/etc/rancher/node/id", "0a1b2c3d");
    assert_eq!(codes(&tree.check().1), [name]);
}

#[test]
fn each_setting_of_a_file_is_named() {
    let tree = Tree::clean();
    let text = format!("token: {CANARY}\nagent-token: >-\n  {CANARY}\nnode-name: worker-1\n");
    tree.write("/etc/rancher/rke2/config.yaml", &text);
    let (_, faults) = tree.check();
    assert_eq!(
        codes(&faults),
        [
            "image-node-name",
            "image-cluster-token",
            "image-cluster-token"
        ]
    );
    fix(&tree, &faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}

#[test]
fn an_empty_file_that_switches_cloud_init_off_counts() {
    let tree = Tree::clean();
    tree.write("/etc/cloud/cloud-init.disabled", "");
    let (_, faults) = tree.check();
    assert_eq!(codes(&faults), ["image-cloud-init-disabled"]);
    fix(&tree, &faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}

#[test]
fn no_path_with_dots_leads_the_fix_out_of_the_tree() {
    let tree = Tree::clean();
    let dots = format!("data-dir: {}/victim\n", "/..".repeat(20));
    tree.write("/etc/rancher/rke2/config.yaml", &dots);
    tree.write("/victim/server/token", CANARY);
    let (_, faults) = tree.check();
    assert_eq!(codes(&faults), ["image-cluster-keys"]);
    let command = commands(&faults[0])[0];
    assert!(!command.contains(".."), "{command}");
    fix(&tree, &faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}

#[test]
fn a_directory_where_a_setting_names_a_file_is_reported_and_never_removed() {
    for setting in ["token-file: /usr", "cloud-provider-config: /usr"] {
        let tree = Tree::clean();
        tree.write("/usr/bin/true", "");
        tree.write("/etc/rancher/rke2/config.yaml", &format!("{setting}\n"));
        let (exit, faults) = tree.check();
        assert_eq!((exit, codes(&faults)), (Some(1), vec!["image-unreadable"]));
        let seen = faults[0]["observed"].as_str().unwrap();
        assert!(seen.contains("/usr as a file"), "{seen}");
        let step = faults[0]["fix"][0].as_str().unwrap();
        assert!(step.contains("Correct the setting"), "{step}");
        let all = commands(&faults[0]).join("\n");
        assert!(!all.contains("rm "), "{all}");
    }
}

#[test]
fn of_a_link_only_the_link_is_removed_and_what_is_behind_is_named() {
    let id = "7d1a5e0c3c5c4f0e8f3ad2b0a9a7c9d1";
    for (link, code) in [
        ("/var/lib/rancher/rke2/server/db", "image-cluster-keys"),
        (
            "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
            "image-cluster-token",
        ),
        ("/etc/machine-id", "image-machine-id"),
        ("/var/lib/dbus/machine-id", "image-machine-id"),
        ("/etc/hostname", "image-hostname"),
    ] {
        let tree = Tree::clean();
        let shared = format!("{{\"token\": \"{id}\"}}");
        tree.write("/srv/shared/one", &shared);
        let _ = fs::remove_file(tree.path(link));
        let target = match code {
            "image-cluster-keys" => "/srv/shared",
            _ => "/srv/shared/one",
        };
        tree.link(target, link);
        let (exit, faults) = tree.check();
        assert_eq!((exit, codes(&faults)), (Some(1), vec![code]), "{link}");
        let seen = faults[0]["observed"].as_str().unwrap();
        assert!(seen.contains(link) && seen.contains(target), "{seen}");
        fix(&tree, &faults);
        assert_eq!(tree.check(), (Some(0), Vec::new()), "{link}");
        let kept = fs::read_to_string(tree.path("/srv/shared/one")).unwrap();
        assert_eq!(kept, shared);
    }
    // Where the one is a link to the other, the other is the fault.
    let tree = Tree::clean();
    tree.remove("/etc/machine-id");
    tree.remove("/var/lib/dbus/machine-id");
    tree.write("/var/lib/dbus/machine-id", id);
    tree.link("../var/lib/dbus/machine-id", "/etc/machine-id");
    let (_, faults) = tree.check();
    assert_eq!(codes(&faults), ["image-machine-id"]);
    fix(&tree, &faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}
