// SPDX-License-Identifier: Apache-2.0
//! The file tree of a guest, for the agent's `--root`: what kernel, cloud-init, RKE2, K3s, kubeadm and Rancher leave there.
//!
//! The setters write in the ways in which the real writers do, since a reader has to live with all of them: in place, by
//! rename, by a flipped link, and half.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::pki::Identity;

mod kubeconfig;

pub use kubeconfig::{KubeconfigForm, harvester_kubeconfig_text};
use kubeconfig::{kubeadm_kubeconfig, rancher_kubeconfig};

/// Namespace of KubeVirt's firmware UUIDs, which were derived from the VM's name before KubeVirt 1.6.
pub const FIRMWARE_NAMESPACE: uuid::Uuid = uuid::uuid!("6a1a24a1-4061-4607-8bf4-a3963d0c5895");

/// Where Rancher's plan puts the Harvester kubeconfig on RKE2.
pub const HARVESTER_KUBECONFIG: &str =
    "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";

/// Where the agent's own configuration lies.
pub const AGENT_CONFIG_DIR: &str = "/etc/harvester-node-agent/config.d";

/// Where the agent says how things stand.
pub const STATUS_FILE: &str = "/run/harvester-node-agent/status.json";

/// A Kubernetes distribution, by the way it keeps the kubelet's credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Files next to the kubeconfig below `/var/lib/rancher/rke2/agent`.
    Rke2,
    /// The same below `/var/lib/rancher/k3s/agent`.
    K3s,
    /// `/etc/kubernetes/kubelet.conf` with key and certificate in one file behind a link.
    Kubeadm,
}

impl Distribution {
    /// The kubelet's kubeconfig.
    #[must_use]
    pub fn kubeconfig(self) -> &'static str {
        match self {
            Self::Rke2 => "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
            Self::K3s => "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
            Self::Kubeadm => "/etc/kubernetes/kubelet.conf",
        }
    }

    fn agent_dir(self) -> &'static str {
        match self {
            Self::Rke2 => "/var/lib/rancher/rke2/agent",
            Self::K3s => "/var/lib/rancher/k3s/agent",
            Self::Kubeadm => "/var/lib/kubelet/pki",
        }
    }
}

/// Features of a virtio NIC that announces itself, a character for each bit, bit 0 first: `STATUS` is 16, `CTRL_VQ` 17,
/// `GUEST_ANNOUNCE` 21.
const FEATURES: &str = "1100010000000000111001000000000010000000000000000000000000000000\n";

/// What kind of network interface stands in `/sys/class/net`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nic {
    /// A virtio device on the PCI bus.
    Physical,
    /// A bridge, veth or other device that the guest made by itself.
    Virtual,
}

/// How a file's new content arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// Truncated and written again, as RKE2 does with its certificates.
    InPlace,
    /// A temporary file in the same directory, then a rename.
    Rename,
}

/// A guest's file tree.
#[derive(Debug, Clone)]
pub struct GuestTree {
    dir: PathBuf,
}

impl GuestTree {
    /// An empty tree below `dir`, with the directories that every guest has.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let tree = Self { dir: dir.into() };
        for path in [
            "/etc",
            "/proc/sys/kernel/random",
            "/run/harvester-node-agent",
            "/sys/class/net",
            "/sys/class/dmi",
            "/var/lib/harvester-node-agent",
            "/usr/lib/harvester-node-agent/config.d",
            AGENT_CONFIG_DIR,
        ] {
            fs::create_dir_all(tree.path(path)).expect("the tree's directory is writable");
        }
        tree.set_mode("/var/lib/harvester-node-agent", 0o700);
        tree
    }

    /// The directory that is the agent's `--root`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.dir
    }

    /// The real place of a path inside the tree.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        self.dir.join(inside.trim_start_matches('/'))
    }

    // ---- writing ----

    /// Writes a file of mode 0644 in place.
    pub fn write(&self, inside: &str, content: impl AsRef<[u8]>) {
        self.write_as(inside, content, 0o644, Writing::InPlace);
    }

    /// Writes a file of mode 0600 in place.
    pub fn write_secret(&self, inside: &str, content: impl AsRef<[u8]>) {
        self.write_as(inside, content, 0o600, Writing::InPlace);
    }

    /// Writes a file with this mode in this way.
    pub fn write_as(&self, inside: &str, content: impl AsRef<[u8]>, mode: u32, way: Writing) {
        let path = self.path(inside);
        let parent = path.parent().expect("a file has a parent");
        fs::create_dir_all(parent).expect("the tree is writable");
        let target = match way {
            Writing::InPlace => path.clone(),
            Writing::Rename => parent.join(format!(".lab-{}", uuid::Uuid::new_v4())),
        };
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&target)
            .expect("the tree is writable");
        file.write_all(content.as_ref())
            .expect("the tree has space");
        file.set_permissions(fs::Permissions::from_mode(mode))
            .expect("the file is ours");
        drop(file);
        if way == Writing::Rename {
            fs::rename(&target, &path).expect("both names are in one directory");
        }
    }

    /// Writes the first half of a content and stops, as a writer that is seen in the middle of its work.
    pub fn write_half(&self, inside: &str, content: impl AsRef<[u8]>) {
        let content = content.as_ref();
        let mode = fs::metadata(self.path(inside))
            .map_or(0o600, |metadata| metadata.permissions().mode() & 0o7777);
        self.write_as(
            inside,
            &content[..content.len() / 2],
            mode,
            Writing::InPlace,
        );
    }

    /// Makes `link` point at `target` in one step.
    pub fn flip_link(&self, link: &str, target: &str) {
        let link = self.path(link);
        let parent = link.parent().expect("a link has a parent");
        fs::create_dir_all(parent).expect("the tree is writable");
        let temporary = parent.join(format!(".lab-{}", uuid::Uuid::new_v4()));
        symlink(target, &temporary).expect("the tree is writable");
        fs::rename(&temporary, &link).expect("both names are in one directory");
    }

    /// Removes a file, or nothing when it is not there.
    pub fn remove(&self, inside: &str) {
        match fs::remove_file(self.path(inside)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("cannot remove `{inside}`: {error}")
            }
            _ => {}
        }
    }

    /// The text of a file in the tree.
    #[must_use]
    pub fn read(&self, inside: &str) -> Option<String> {
        fs::read_to_string(self.path(inside)).ok()
    }

    fn set_mode(&self, inside: &str, mode: u32) {
        fs::set_permissions(self.path(inside), fs::Permissions::from_mode(mode))
            .expect("the file is ours");
    }

    // ---- kernel and firmware ----

    /// The kernel's host name. As in the kernel, no reader sees half of it.
    pub fn kernel_hostname(&self, name: &str) {
        let path = "/proc/sys/kernel/hostname";
        self.write_as(path, format!("{name}\n"), 0o644, Writing::Rename);
    }

    /// The static host name, written by rename as systemd-hostnamed does.
    pub fn static_hostname(&self, name: &str) {
        self.write_as("/etc/hostname", format!("{name}\n"), 0o644, Writing::Rename);
    }

    /// The machine's identity on disk: 32 hexadecimal digits.
    pub fn machine_id(&self, id: &str) {
        self.write_as("/etc/machine-id", format!("{id}\n"), 0o444, Writing::Rename);
    }

    /// A new boot.
    pub fn boot_id(&self, id: uuid::Uuid) {
        self.write("/proc/sys/kernel/random/boot_id", format!("{id}\n"));
    }

    /// The SMBIOS strings that KubeVirt gives, with the modes of sysfs.
    pub fn dmi(&self, firmware_uuid: &str, serial: Option<&str>) {
        let real = "/sys/devices/virtual/dmi/id";
        let serial = serial.unwrap_or_default();
        for (name, value, mode) in [
            ("sys_vendor", "KubeVirt", 0o444),
            ("product_family", "KubeVirt", 0o444),
            ("product_name", "None", 0o444),
            ("product_uuid", firmware_uuid, 0o400),
            ("product_serial", serial, 0o400),
            ("chassis_asset_tag", "", 0o444),
        ] {
            let path = format!("{real}/{name}");
            self.write_as(&path, format!("{value}\n"), mode, Writing::Rename);
        }
        self.flip_link("/sys/class/dmi/id", "../../devices/virtual/dmi/id");
    }

    /// The strings of a machine that is no KubeVirt VM.
    pub fn foreign_dmi(&self, vendor: &str, product: &str) {
        self.dmi(
            "03000200-0400-0500-0006-000700080009",
            Some("Default string"),
        );
        let real = "/sys/devices/virtual/dmi/id";
        for (name, value) in [
            ("sys_vendor", vendor),
            ("product_family", "Default string"),
            ("product_name", product),
        ] {
            let path = format!("{real}/{name}");
            self.write_as(&path, format!("{value}\n"), 0o444, Writing::Rename);
        }
    }

    /// A network interface as sysfs shows it.
    pub fn nic(&self, name: &str, mac: &str, kind: Nic) {
        let (real, assigned) = match kind {
            Nic::Physical => {
                let slot = fs::read_dir(self.path("/sys/class/net")).map_or(0, Iterator::count);
                let device = format!(
                    "/sys/devices/pci0000:00/0000:00:{:02x}.0/virtio{slot}",
                    slot + 3
                );
                let real = format!("{device}/net/{name}");
                self.flip_link(&format!("{real}/device"), &format!("../../../virtio{slot}"));
                self.write(&format!("{device}/modalias"), "virtio:d00000001v00001AF4\n");
                let bus = "../../../../bus/virtio";
                self.flip_link(&format!("{device}/subsystem"), bus);
                self.flip_link(
                    &format!("{device}/driver"),
                    &format!("{bus}/drivers/virtio_net"),
                );
                self.write(&format!("{device}/features"), FEATURES);
                (real, "0")
            }
            Nic::Virtual => (format!("/sys/devices/virtual/net/{name}"), "3"),
        };
        for (file, value) in [
            ("address", mac),
            ("addr_assign_type", assigned),
            ("type", "1"),
            ("operstate", "up"),
        ] {
            let path = format!("{real}/{file}");
            self.write_as(&path, format!("{value}\n"), 0o444, Writing::Rename);
        }
        self.flip_link(
            &format!("/sys/class/net/{name}"),
            &format!("../..{}", real.trim_start_matches("/sys")),
        );
    }

    /// The interfaces of a Kubernetes node: `eth0` and so on with these MACs, and what a CNI plug-in adds.
    pub fn node_nics<M: AsRef<str>>(&self, macs: &[M]) {
        for (index, mac) in macs.iter().enumerate() {
            self.nic(&format!("eth{index}"), mac.as_ref(), Nic::Physical);
        }
        self.nic("lo", "00:00:00:00:00:00", Nic::Virtual);
        self.nic("cni0", "8a:11:fd:30:aa:02", Nic::Virtual);
        self.nic("veth3c9f1a20", "b2:5d:8e:07:41:6c", Nic::Virtual);
        self.nic("cali0b8d2f7a", "ee:ee:ee:ee:ee:ee", Nic::Virtual);
    }

    /// qemu-ga, installed, and its channel, as files and kernel show them without systemd.
    pub fn guest_agent(&self) {
        self.write("/usr/sbin/qemu-ga", "a program");
        self.write(
            "/sys/class/virtio-ports/vport1p1/name",
            "org.qemu.guest_agent.0\n",
        );
    }

    /// What cloud-init learnt from the platform (`NoCloud`).
    pub fn cloud_init(&self, local_hostname: &str, instance_id: &str) {
        let data = json!({
            "base64_encoded_keys": [],
            "ds": {"meta_data": {"instance-id": instance_id, "local-hostname": local_hostname}},
            "v1": {
                "cloud_id": "nocloud", "cloud_name": "unknown", "platform": "nocloud",
                "subplatform": "config-disk (/dev/vdb)", "instance_id": instance_id,
                "local_hostname": local_hostname, "region": null, "availability_zone": null,
            },
        });
        let text = serde_json::to_string_pretty(&data).expect("JSON has a text");
        self.write_as(
            "/run/cloud-init/instance-data.json",
            text,
            0o644,
            Writing::Rename,
        );
        self.write("/run/cloud-init/cloud-id-nocloud", "nocloud\n");
        self.flip_link(
            "/run/cloud-init/cloud-id",
            "/run/cloud-init/cloud-id-nocloud",
        );
    }

    // ---- credentials ----

    /// The kubelet's kubeconfig and the files that it names.
    pub fn kubelet(
        &self,
        distribution: Distribution,
        server: &str,
        authority_pem: &str,
        identity: &Identity,
    ) {
        let dir = distribution.agent_dir();
        let text = if distribution == Distribution::Kubeadm {
            kubeadm_kubeconfig(server, authority_pem)
        } else {
            self.write(&format!("{dir}/server-ca.crt"), authority_pem);
            rancher_kubeconfig(server, dir)
        };
        self.rotate_kubelet_certificate(distribution, identity);
        self.write_secret(distribution.kubeconfig(), text);
    }

    /// New certificate and key of the kubelet, written as the distribution writes them: RKE2 and K3s in place, one after
    /// the other; kubeadm's kubelet into a new file, and then the link is flipped.
    pub fn rotate_kubelet_certificate(&self, distribution: Distribution, identity: &Identity) {
        let dir = distribution.agent_dir();
        if distribution == Distribution::Kubeadm {
            let name = format!("{dir}/kubelet-client-{}.pem", uuid::Uuid::new_v4());
            let both = format!("{}{}", identity.certificate_pem, identity.key_pem);
            self.write_secret(&name, both);
            // For a moment there is none: kubelet removes the link before it renames the new one.
            let link = format!("{dir}/kubelet-client-current.pem");
            self.remove(&link);
            self.flip_link(&link, &name);
        } else {
            self.write_secret(
                &format!("{dir}/client-kubelet.crt"),
                &identity.certificate_pem,
            );
            self.write_secret(&format!("{dir}/client-kubelet.key"), &identity.key_pem);
        }
    }

    /// Rancher's part of the RKE2 configuration: JSON in a file that is called YAML.
    pub fn rancher_config(&self, node_name: Option<&str>) {
        let mut config = json!({
            "cloud-provider-config": HARVESTER_KUBECONFIG,
            "cloud-provider-name": "harvester",
            "cni": "calico",
            "node-label": ["rke.cattle.io/machine=0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d"],
            "server": "https://172.19.106.150:9345",
        });
        if let Some(name) = node_name {
            config["node-name"] = name.into();
        }
        let text = serde_json::to_string_pretty(&config).expect("JSON has a text");
        self.write_secret("/etc/rancher/rke2/config.yaml.d/50-rancher.yaml", text);
    }

    /// The Harvester kubeconfig where Rancher's plan puts it.
    pub fn harvester_kubeconfig(
        &self,
        form: KubeconfigForm,
        server: &str,
        authority_pem: &str,
        token: &str,
        namespace: &str,
    ) {
        let text = harvester_kubeconfig_text(form, server, authority_pem, token, namespace);
        self.write_secret(HARVESTER_KUBECONFIG, text);
    }

    // ---- the agent's own ----

    /// One of the agent's configuration files, below `/etc/harvester-node-agent/config.d`.
    pub fn agent_config(&self, name: &str, toml: &str) {
        self.write_as(
            &format!("{AGENT_CONFIG_DIR}/{name}"),
            toml,
            0o644,
            Writing::Rename,
        );
    }

    /// What the running agent last said; `None` before its first word.
    #[must_use]
    pub fn status(&self) -> Option<Value> {
        let text = self.read(STATUS_FILE)?;
        Some(serde_json::from_str(&text).expect("the status file is always whole and JSON"))
    }
}

/// The firmware UUID that KubeVirt before 1.6 derives from a VM's name.
#[must_use]
pub fn firmware_uuid(vm_name: &str) -> uuid::Uuid {
    uuid::Uuid::new_v5(&FIRMWARE_NAMESPACE, vm_name.as_bytes())
}
