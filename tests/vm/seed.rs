// SPDX-License-Identifier: Apache-2.0
//! What the platform gives to a new machine: cloud-init's NoCloud seed, as KubeVirt writes it, with the user-data of
//! `cloud-init/rke2-custom.yaml` and real credentials in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use harvester_lab::guest::GuestTree;
use serde_json::{Value, json};

use crate::machine::run;

/// Where this machine is, as guests of QEMU's user network see it.
const OUTSIDE: &str = "https://10.0.2.2:";

/// The user-data that a person pastes into Harvester.
const EXAMPLE: &str = include_str!("../../cloud-init/rke2-custom.yaml");

/// The user-data that installs the agent where the image has none.
const INSTALL: &str = include_str!("../../cloud-init/install-package.yaml");

/// Where a machine that installs from its seed has mounted it.
pub const MOUNTED: &str = "/opt/node";

/// The kubelet's credential on RKE2.
const KUBELET: [&str; 4] = [
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/server-ca.crt",
    "/var/lib/rancher/rke2/agent/client-kubelet.crt",
    "/var/lib/rancher/rke2/agent/client-kubelet.key",
];

/// The credential for Harvester, and Rancher's configuration that names it.
const HARVESTER: [&str; 2] = [
    "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
    "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
];

/// Replaces the address of this machine in a text by the one that guests reach it at.
pub fn as_seen_by_guests(text: &str) -> String {
    text.replace("https://127.0.0.1:", OUTSIDE)
}

/// A seed.
#[derive(Debug, Clone)]
pub struct Seed {
    meta_data: Value,
    user_data: Value,
    /// Files of the example that wait for their content.
    blanks: Vec<Value>,
    /// Files beside the two, which only the disk carries.
    more: Vec<PathBuf>,
}

impl Seed {
    /// A machine of this name, without any credential, in which the agent is enabled.
    pub fn new(hostname: &str, instance_id: &str) -> Self {
        let mut user_data: Value = yaml_serde::from_str(EXAMPLE).unwrap();
        let blanks = std::mem::replace(&mut user_data["write_files"], json!([]));
        // What takes an emulated processor long.
        user_data["ssh_genkeytypes"] = json!(["ed25519"]);
        user_data["locale"] = false.into();
        Self {
            meta_data: json!({"instance-id": instance_id, "local-hostname": hostname}),
            user_data,
            blanks: blanks.as_array().unwrap().clone(),
            more: Vec::new(),
        }
    }

    /// The same with a copy of a file of this machine on its disk, whose label is `cidata`.
    pub fn carrying(mut self, file: &Path) -> Self {
        self.more.push(file.to_owned());
        self
    }

    /// The same for an image without the agent, which comes as this package on the disk of the seed. The examples say how to combine them.
    pub fn installing(mut self, package: &Path) -> Self {
        let name = package.file_name().unwrap().to_string_lossy();
        let digest = ring::digest::digest(&ring::digest::SHA256, &std::fs::read(package).unwrap());
        let sum: String = digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut example: Value = yaml_serde::from_str(INSTALL).unwrap();
        let mut script = example["write_files"][0].take();
        let lines = script["content"].as_str().unwrap().lines();
        let lines = lines.map(|line| match line.split_once('=') {
            Some(("url", _)) => format!("url=file://{MOUNTED}/{name}\n"),
            Some(("sha256", _)) => format!("sha256={sum}\n"),
            _ => format!("{line}\n"),
        });
        script["content"] = lines.collect::<String>().into();
        self.user_data["write_files"]
            .as_array_mut()
            .unwrap()
            .push(script);
        self.user_data["runcmd"] = example["runcmd"].take();
        let disk = json!([[
            "/dev/disk/by-label/cidata",
            MOUNTED,
            "iso9660",
            "ro,nofail",
            "0",
            "0"
        ]]);
        self.carrying(package).with_user_data("mounts", disk)
    }

    /// The same with both credentials of a guest.
    pub fn with_credentials(self, guest: &GuestTree) -> Self {
        self.with_kubelet(guest).with_files_of(guest, &HARVESTER)
    }

    /// The same with the kubelet's credential of a guest.
    pub fn with_kubelet(self, guest: &GuestTree) -> Self {
        self.with_files_of(guest, &KUBELET)
    }

    /// The same with the Harvester kubeconfig of a guest.
    pub fn with_harvester(self, guest: &GuestTree) -> Self {
        self.with_files_of(guest, &HARVESTER[..1])
    }

    /// The same with a command at the end of the first boot.
    pub fn running(mut self, command: Value) -> Self {
        let commands = self.user_data["runcmd"].as_array_mut().unwrap();
        commands.push(command);
        self
    }

    fn with_files_of(mut self, guest: &GuestTree, paths: &[&str]) -> Self {
        for path in paths {
            let text = guest.read(path).unwrap();
            self = self.with_file(path, &as_seen_by_guests(&text));
        }
        self
    }

    /// The same with one more file: as the example has it, else for root alone.
    pub fn with_file(mut self, path: &str, text: &str) -> Self {
        let blank = self.blanks.iter().find(|blank| blank["path"] == path);
        let mut file = blank
            .cloned()
            .unwrap_or_else(|| json!({"path": path, "permissions": "0600"}));
        file["content"] = text.into();
        let files = self.user_data["write_files"].as_array_mut().unwrap();
        files.push(file);
        self
    }

    /// The same with a key of user-data.
    pub fn with_user_data(mut self, key: &str, value: Value) -> Self {
        self.user_data[key] = value;
        self
    }

    /// Writes the disk.
    pub fn write(&self, iso: &Path) {
        let dir = tempfile::tempdir().unwrap();
        // JSON is YAML.
        let user_data = format!("#cloud-config\n{:#}\n", self.user_data);
        std::fs::write(dir.path().join("meta-data"), self.meta_data.to_string()).unwrap();
        std::fs::write(dir.path().join("user-data"), user_data).unwrap();
        run(Command::new("genisoimage")
            .args(["-quiet", "-volid", "cidata", "-joliet", "-rock", "-output"])
            .arg(iso)
            .arg(dir.path())
            .args(&self.more));
    }
}
