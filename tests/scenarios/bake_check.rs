// SPDX-License-Identifier: Apache-2.0
//! `bake-check` on trees: a clean one passes; each fault, planted alone, is named, and its own fix takes it away.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use harvester_lab::expected::cases_are_expected;
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
        tree.write("/etc/kubernetes/kubelet.conf.d/10-a.conf", "maxPods: 50\n");
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
            let Some((_, path)) = path else {
                let paths = fault["observed"].as_str().unwrap().split(", ");
                paths.for_each(|path| tree.remove(path));
                continue;
            };
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
}

/// Holds that the text has all parts of the findings, and each command on a line of its own: to be pasted, it is never wrapped.
fn is_printed(tree: &Tree, faults: &[Value]) {
    let (_, text) = tree.print(&[]);
    for fault in faults {
        let steps = fault["fix"].as_array().unwrap();
        let parts = ["code", "observed", "impact"].map(|key| &fault[key]);
        for part in parts.into_iter().chain(steps) {
            let part = words(part.as_str().unwrap());
            assert!(words(&text).contains(&part), "{part}: {text}");
        }
        for command in commands(fault) {
            assert!(
                text.contains(&format!("\n            {command}\n")),
                "{text}"
            );
        }
    }
}

#[test]
fn each_place_is_named_and_its_fix_makes_the_image_clean() {
    // Whatever is nothing but a thing at a place: all the places of a code in one tree.
    for (code, places) in PLACES {
        let tree = Tree::clean();
        for place in *places {
            tree.write(&place.replace('*', "x"), &format!("note: \"{CANARY}\"\n"));
        }
        let (exit, faults) = tree.check();
        assert_eq!((exit, codes(&faults)), (Some(1), vec![code.as_str()]));
        let fault = &faults[0];
        // Without its file, the system itself can no longer remove the registration.
        let removed = match code {
            Code::ImageOsRegistration => {
                assert_eq!(commands(fault), [""; 0]);
                fault["observed"].as_str().unwrap()
            }
            _ => commands(fault)[0],
        };
        for place in *places {
            let place = place.replace('*', "x");
            assert!(removed.contains(&place), "{place} is not in: {removed}");
        }
        is_printed(&tree, &faults);
        fix(&tree, &faults);
        assert_eq!(tree.check(), (Some(0), Vec::new()), "{code} after its fix");
    }
}

/// The codes whose fix is not a command or the removal of a file.
const NOT_FIXED_HERE: [Code; 4] = [
    Code::ImageAgentMissing,
    Code::ImageGuestAgentMissing,
    Code::ImageConfigInvalid,
    Code::ImageUnreadable,
];

/// Makes the changes of a case to a tree: files with their lines after `| `, links, and what is removed. Returns the files.
fn plant<'c>(tree: &Tree, case: &'c str) -> Vec<(&'c str, String)> {
    let mut files: Vec<(&str, String)> = Vec::new();
    for line in case.lines() {
        if let Some(text) = line.strip_prefix('|') {
            let text = text.strip_prefix(' ').unwrap_or(text);
            files.last_mut().unwrap().1 += &format!("{text}\n");
        } else if let Some(path) = line.strip_suffix(" removed") {
            tree.remove(path);
        } else if let Some((path, target)) = line.split_once(" -> ") {
            let _ = fs::remove_file(tree.path(path));
            tree.link(target, path);
        } else {
            assert!(line.starts_with('/'), "{case}");
            files.push((line, String::new()));
        }
    }
    for (path, text) in &files {
        tree.write(path, text);
    }
    files
}

/// The file has trees, and what is found in each: the code, the observation, and the commands, or else the steps.
#[test]
fn each_tree_has_the_expected_findings_and_their_fixes_make_it_clean() {
    cases_are_expected("tests/scenarios/expected/bake-check-trees.txt", |case| {
        let tree = Tree::clean();
        let files = plant(&tree, case);
        let (exit, faults) = tree.check();
        assert_eq!(exit, Some(i32::from(!faults.is_empty())), "{case}");
        let dir = tree.root.to_str().unwrap().replace('\'', "'\\''");
        let mut text = String::new();
        for fault in &faults {
            let [code, seen] = ["code", "observed"].map(|key| fault[key].as_str().unwrap());
            text += &format!("{code}: {seen}\n");
            let mut steps = commands(fault);
            if steps.is_empty() {
                let fix = fault["fix"].as_array().unwrap().iter();
                steps.extend(fix.map(|step| step.as_str().unwrap()));
            }
            let steps = steps.into_iter();
            text.extend(steps.map(|step| format!("  {}\n", step.replace(&dir, "TREE"))));
        }
        is_printed(&tree, &faults);
        let is_found = |code: &Code| codes(&faults).contains(&code.as_str());
        if !NOT_FIXED_HERE.iter().any(is_found) {
            fix(&tree, &faults);
            assert_eq!(tree.check(), (Some(0), Vec::new()), "{text}");
        }
        // Only a link to it is removed.
        let shared = files.iter().filter(|(path, _)| path.starts_with("/srv/"));
        for (path, text) in shared {
            assert_eq!(fs::read_to_string(tree.path(path)).unwrap(), *text);
        }
        text
    });
}

#[test]
fn several_faults_are_printed_with_their_fixes_by_code() {
    let tree = Tree::clean();
    tree.write("/etc/machine-id", "7d1a5e0c3c5c4f0e8f3ad2b0a9a7c9d1\n");
    tree.write("/etc/ssh/ssh_host_rsa_key", CANARY);
    let config = format!("token: {CANARY}\nagent-token: {CANARY}\nnode-name: worker-1\n");
    tree.write("/etc/rancher/rke2/config.yaml", &config);
    let (exit, text) = tree.print(&[]);
    assert_eq!(exit, Some(1));
    let dir = tree.root.to_str().unwrap();
    let text = text.replace(&dir.replace('\'', "'\\''"), "TREE");
    crate::expected::is_expected("bake-check", &text.replace(dir, "TREE"));
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
