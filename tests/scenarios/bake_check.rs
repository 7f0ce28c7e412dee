// SPDX-License-Identifier: Apache-2.0
//! `bake-check` on trees: a clean one passes; each fault, planted alone, is named, and its own remedy takes it away.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use harvester_node_agent::commands::bake_check::rules::FaultCode;
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

/// Runs the remedies as a person would who pastes them.
fn remedy(faults: &[Value]) {
    for fault in faults {
        let command = fault["commands"][0]["text"].as_str().unwrap();
        let output = Command::new("sh").args(["-ec", command]).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
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
fn each_fault_is_named_and_its_remedy_makes_the_image_clean() {
    let config = "/etc/harvester-node-agent/config.toml";
    let rke2 = "/etc/rancher/rke2/config.yaml";
    let wants = "/etc/systemd/system/multi-user.target.wants/harvester-node-agent.service";
    let token =
        format!("server: https://192.0.2.1:9345\ntoken: {CANARY}\nagent-token+: \"{CANARY}\"\n");
    let json = format!("{{\"cni\": \"calico\", \"token\": \"{CANARY}\"}}");
    let plant = |code: FaultCode, plant: &dyn Fn(&Tree)| {
        let tree = Tree::clean();
        plant(&tree);
        let (exit, faults) = tree.check();
        assert_eq!(exit, Some(1), "{code}");
        assert!(
            codes(&faults)
                .iter()
                .all(|found| *found == code.entry().name),
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
            for line in fault["commands"][0]["text"].as_str().unwrap().lines() {
                assert!(text.contains(line), "{text}");
            }
        }
        remedy(&faults);
        assert_eq!(
            tree.check(),
            (Some(0), Vec::new()),
            "{code} after its remedy"
        );
        tree
    };
    // Whatever is nothing but a thing at a place: all the places of a code in one tree.
    for code in FaultCode::ALL
        .iter()
        .filter(|code| !code.entry().places.is_empty())
    {
        let places = code.entry().places;
        plant(*code, &|tree| {
            for place in places {
                tree.write(&place.replace('*', "x"), &format!("note: \"{CANARY}\"\n"));
            }
            let (_, faults) = tree.check();
            let removed = faults[0]["commands"][0]["text"].as_str().unwrap();
            for place in places {
                let place = place.replace('*', "x");
                assert!(removed.contains(&place), "{place} is not in: {removed}");
            }
        });
    }
    for id in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        plant(FaultCode::MachineId, &|tree| {
            tree.remove(id);
            tree.write(id, "7d1a5e0c3c5c4f0e8f3ad2b0a9a7c9d1\n");
        });
    }
    plant(FaultCode::Hostname, &|tree| {
        tree.write("/etc/hostname", "worker-1\n");
    });
    plant(FaultCode::AgentNotEnabled, &|tree| tree.remove(wants));
    plant(FaultCode::AgentMasked, &|tree| {
        tree.link(
            "/dev/null",
            "/etc/systemd/system/harvester-node-agent.service",
        );
    });
    plant(FaultCode::GuestAgentMasked, &|tree| {
        tree.link("/dev/null", "/etc/systemd/system/qemu-guest-agent.service");
    });
    plant(FaultCode::GuestAgentNotEnabled, &|tree| {
        tree.remove("/usr/lib/udev/rules.d/60-qemu-guest-agent.rules");
        let unit =
            "[Service]\nExecStart=/usr/sbin/qemu-ga\n[Install]\nWantedBy=multi-user.target\n";
        tree.write("/usr/lib/systemd/system/qemu-guest-agent.service", unit);
    });
    let kept = plant(FaultCode::ConfigurationOfOneVm, &|tree| {
        tree.write(config, "[harvester]\nnamespace = \"team-a\"\nvm = \"worker-1\"\n[guest_cluster]\nnode_name = \"worker-1\"\n");
    });
    let text = fs::read_to_string(kept.path(config)).unwrap();
    assert!(text.contains("\nnamespace = \"team-a\"\n"), "{text}");
    for path in [
        "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
        "/var/lib/rancher/k3s/etc/config-files/cloud-provider-config",
        "/etc/kubernetes/cloud-config",
    ] {
        plant(FaultCode::HarvesterCredential, &|tree| {
            tree.write(path, CANARY);
        });
    }
    plant(FaultCode::HarvesterCredential, &|tree| {
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
        plant(FaultCode::KubeletCredential, &|tree| {
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
        plant(FaultCode::ClusterKeys, &|tree| tree.write(&path, CANARY));
    }
    let kept = plant(FaultCode::ClusterToken, &|tree| tree.write(rke2, &token));
    let text = fs::read_to_string(kept.path(rke2)).unwrap();
    assert_eq!(text, "server: https://192.0.2.1:9345\n");
    plant(FaultCode::ClusterToken, &|tree| {
        tree.write("/etc/rancher/rke2/config.yaml.d/50-rancher.yaml", &json);
    });
    let kept = plant(FaultCode::ClusterToken, &|tree| {
        tree.write(
            "/etc/systemd/system/k3s.service.env",
            &format!("K3S_URL=x\nK3S_TOKEN='{CANARY}'\n"),
        );
    });
    let text = fs::read_to_string(kept.path("/etc/systemd/system/k3s.service.env")).unwrap();
    assert_eq!(text, "K3S_URL=x\n");
    plant(FaultCode::ClusterToken, &|tree| {
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
    remedy(&faults);
    assert_eq!(tree.check().0, Some(0));
}

#[test]
fn what_is_missing_is_named_with_the_command_that_installs_it() {
    let tree = Tree::clean();
    tree.remove("/usr/sbin/qemu-ga");
    tree.remove("/usr/lib/systemd/system/harvester-node-agent.service");
    let (exit, faults) = tree.check();
    assert_eq!(
        (exit, codes(&faults)),
        (
            Some(1),
            vec!["image-agent-missing", "image-guest-agent-missing"]
        )
    );
    for (family, command) in [
        ("debian", "apt-get install -y qemu-guest-agent"),
        (
            "opensuse-leap",
            "zypper --non-interactive install qemu-guest-agent",
        ),
        (
            "rocky\nID_LIKE=\"rhel fedora\"",
            "dnf install -y qemu-guest-agent",
        ),
    ] {
        tree.write("/etc/os-release", &format!("ID={family}\n"));
        let (_, faults) = tree.check();
        let remedies: Vec<&str> = faults
            .iter()
            .map(|fault| fault["commands"][0]["text"].as_str().unwrap())
            .collect();
        assert!(
            remedies.iter().any(|remedy| remedy.ends_with(command)),
            "{remedies:?}"
        );
        assert!(
            remedies
                .iter()
                .all(|remedy| remedy.contains("it'\\''s a tree")),
            "{remedies:?}"
        );
    }
}

#[test]
fn configuration_with_faults_fails_the_build_and_its_remedy_says_where() {
    let tree = Tree::clean();
    tree.write("/etc/harvester-node-agent/config.toml", "watch = \"yes\"\n");
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
    remedy(&faults);
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
fn no_link_leads_out_of_the_tree_neither_for_us_nor_for_the_remedy() {
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
    remedy(&faults);
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
    for fault in &faults {
        let command = fault["commands"][0]["text"].as_str().unwrap();
        Command::new("sh")
            .args(["-c", command])
            .current_dir(dir.path())
            .output()
            .unwrap();
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_secret_is_gone_after_its_remedy_however_it_is_written() {
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
        remedy(&faults);
        assert_eq!(tree.check(), (Some(0), Vec::new()), "{text}");
        let left = fs::read_to_string(tree.path(path)).unwrap_or_default();
        assert!(!left.contains(CANARY), "{left}");
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
fn a_name_or_a_place_for_every_machine_is_found_and_taken_out_of_its_file() {
    let config = "/etc/rancher/rke2/config.yaml";
    let kubelet = "/etc/default/kubelet";
    let (name, place) = ("image-node-name", "image-topology-label");
    let zone = "topology.kubernetes.io/zone";
    for (path, text, code, left) in [
        (
            config,
            "cni: cilium\nnode-name: worker-1\n".to_owned(),
            name,
            Some("cni: cilium\n"),
        ),
        (
            "/etc/default/k3s",
            "K3S_NODE_NAME=worker-1\n".to_owned(),
            name,
            Some(""),
        ),
        (
            kubelet,
            "KUBELET_EXTRA_ARGS=\"--v=2 --hostname-override=worker.1\"\n".to_owned(),
            name,
            Some("KUBELET_EXTRA_ARGS=\"--v=2 \"\n"),
        ),
        (
            kubelet,
            "KUBELET_EXTRA_ARGS=--hostname-override='worker-1'\n".to_owned(),
            name,
            None,
        ),
        (
            config,
            format!("node-label:\n  - \"a=b\"\n  - \"{zone}=z\"\ncni: cilium\n"),
            place,
            Some("node-label:\n  - \"a=b\"\ncni: cilium\n"),
        ),
        (
            config,
            format!("cni: cilium\nnode-label+:\n- {zone}=z\n- topology.harvesterhci.io/host=h\n"),
            place,
            Some("cni: cilium\n"),
        ),
        (config, format!("node-label: a=b,{zone}=z\n"), place, None),
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            format!("KUBELET_KUBEADM_ARGS=\"--node-labels={zone}=z,a=b --v=2\"\n"),
            place,
            Some("KUBELET_KUBEADM_ARGS=\"--node-labels=a=b --v=2\"\n"),
        ),
    ] {
        let tree = Tree::clean();
        tree.write(path, &text);
        let (exit, faults) = tree.check();
        assert_eq!((exit, codes(&faults)), (Some(1), vec![code]), "{text}");
        remedy(&faults);
        assert_eq!(tree.check(), (Some(0), Vec::new()), "{text}");
        assert_eq!(
            fs::read_to_string(tree.path(path)).ok().as_deref(),
            left,
            "{text}"
        );
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
fn where_one_remedy_removes_the_file_no_other_stumbles_over_that() {
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
    remedy(&faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}

#[test]
fn an_empty_file_that_switches_cloud_init_off_counts() {
    let tree = Tree::clean();
    tree.write("/etc/cloud/cloud-init.disabled", "");
    let (_, faults) = tree.check();
    assert_eq!(codes(&faults), ["image-cloud-init-disabled"]);
    remedy(&faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}

#[test]
fn no_path_with_dots_leads_the_remedy_out_of_the_tree() {
    let tree = Tree::clean();
    let dots = format!("data-dir: {}/victim\n", "/..".repeat(20));
    tree.write("/etc/rancher/rke2/config.yaml", &dots);
    tree.write("/victim/server/token", CANARY);
    let (_, faults) = tree.check();
    assert_eq!(codes(&faults), ["image-cluster-keys"]);
    let command = faults[0]["commands"][0]["text"].as_str().unwrap();
    assert!(!command.contains(".."), "{command}");
    remedy(&faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
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
        remedy(&faults);
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
    remedy(&faults);
    assert_eq!(tree.check(), (Some(0), Vec::new()));
}
