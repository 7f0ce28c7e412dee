// SPDX-License-Identifier: Apache-2.0
//! A real kubelet on Debian's containerd, in a guest's file tree.
//!
//! The tree is its root directory, as it is the agent's `--root`: both find the same files at the same paths, and kubelet's
//! flags come from the file in which kubeadm keeps them. Each program lives in namespaces of its own for mounts and
//! processes, so its end takes along whatever it mounted and started.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::assets;
use crate::guard::Guard;
use crate::guest::GuestTree;
use crate::kubernetes::Kubernetes;
use crate::world::{SOON, eventually};

/// Where kubeadm keeps kubelet's flags. The file is sourced by a shell here, and read by systemd elsewhere.
pub const FLAGS_FILE: &str = "/var/lib/kubelet/kubeadm-flags.env";

/// Kubelet's configuration as kubeadm leaves it.
const CONFIG_FILE: &str = "/var/lib/kubelet/config.yaml";

/// The default socket of containerd.
const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// Where the program is seen from inside; `/usr` is the one of the machine that runs the tests.
const PROGRAM: &str = "/opt/bin/kubelet";

/// The default port of kubelet's API.
const PORT: u16 = 10250;

/// How often kubelet writes its status: a scenario waits for that. The default is ten seconds.
const STATUS_FREQUENCY: &str = "1s";

/// Runs a command with the tree as its root. The tree becomes a mount of its own, for kubelet asks which disk its root is on.
const IN_TREE: &str = r#"
tree=$1; program=$2; shift 2
mount --rbind "$tree" "$tree"
cd "$tree"
mount -t proc proc proc
for place in dev sys usr; do mount --rbind "/$place" "$place"; done
mount --bind "$program" opt/bin/kubelet
exec chroot . "$@"
"#;

/// What kubeadm's drop-in for `kubelet.service` does with the flags, and systemd with the environment file of the agent: each word is
/// an argument.
const START_KUBELET: &str = r#"
. /var/lib/kubelet/kubeadm-flags.env
more=$(sed -n 's/^KUBELET_EXTRA_ARGS=//p' /run/harvester-node-agent-gate/kubelet.env 2>/dev/null)
exec /opt/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS $more
"#;

/// A kubelet with its containerd, one at a time in a process. Dropping it ends both; the Node stays.
#[derive(Debug)]
pub struct Kubelet {
    version: Kubernetes,
    tree: GuestTree,
    program: PathBuf,
    node_name: String,
    starts: usize,
    kubelet: Option<Guard>,
    _containerd: Guard,
}

impl Kubelet {
    /// Whether a kubelet of a version can run here. Says so when it cannot, for a test that returns then.
    #[must_use]
    pub fn available(version: Kubernetes, test: &str) -> bool {
        match why_not(version) {
            None => true,
            Some(why) => {
                crate::skip(test, why);
                false
            }
        }
    }

    /// The program of a version, or where it was looked for.
    pub fn binary(version: Kubernetes) -> Result<PathBuf, String> {
        assets::find("kubelet", version)
    }

    /// Starts containerd, and kubelet with these labels for its Node. The tree must hold kubelet's credential, as kubeadm
    /// keeps it.
    ///
    /// # Panics
    /// With the end of its log, when containerd does not come up.
    pub async fn start(
        version: Kubernetes,
        tree: &GuestTree,
        node_name: &str,
        labels: &[(&str, &str)],
    ) -> Self {
        let program = assets::find("kubelet", version).expect("it was said to be available");
        prepare(tree, version);
        let containerd = in_tree(tree, &program, "containerd", &["containerd"]);
        let mut kubelet = Self {
            version,
            tree: tree.clone(),
            program,
            node_name: node_name.to_owned(),
            starts: 0,
            kubelet: None,
            _containerd: containerd,
        };
        let listens = async || tree.path(CONTAINERD).exists();
        eventually(SOON, "containerd listens", listens).await;
        kubelet.set_node_labels(labels);
        kubelet.restart().await;
        kubelet
    }

    /// Changes the flag `--node-labels`, for the next start.
    pub fn set_node_labels(&self, labels: &[(&str, &str)]) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            labels => format!(" --node-labels={}", labels.join(",")),
        };
        let runtime = match self.version {
            Kubernetes::V1_20 => {
                format!(
                    "--container-runtime=remote --container-runtime-endpoint=unix://{CONTAINERD} "
                )
            }
            // In the configuration file.
            Kubernetes::V1_36 => String::new(),
        };
        let flags = format!("{runtime}--hostname-override={}{labels}", self.node_name);
        let text = format!("KUBELET_KUBEADM_ARGS=\"{flags}\"\n");
        self.tree.write(FLAGS_FILE, text);
    }

    /// Ends kubelet, unless it is not running, and starts it with the flags as they are now.
    ///
    /// # Panics
    /// When the port of the kubelet that ran stays taken.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.starts += 1;
        let name = format!("kubelet-{}", self.starts);
        let command = ["sh", "-c", START_KUBELET];
        self.kubelet = Some(in_tree(&self.tree, &self.program, &name, &command));
    }

    /// Ends kubelet and leaves containerd. Returns when the port is free, so that the next kubelet can listen: the kernel ends the
    /// processes of a namespace after the one that made it.
    ///
    /// # Panics
    /// When the port stays taken.
    pub async fn stop(&mut self) {
        if self.kubelet.take().is_some() {
            let is_free = async || TcpListener::bind((address(), PORT)).is_ok();
            eventually(SOON, "the port of the kubelet that ended is free", is_free).await;
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // Whoever reads of the failure has nothing else: the tree goes with the test.
        if std::thread::panicking() {
            for program in ["containerd".to_owned(), format!("kubelet-{}", self.starts)] {
                let log = format!("/var/log/{program}.log");
                eprintln!("the end of {log}:\n{}", tail(&self.tree.path(&log)));
            }
        }
    }
}

/// What is missing for a kubelet.
fn why_not(version: Kubernetes) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("kubelet needs root".to_owned());
    }
    if !Path::new("/usr/bin/containerd").exists() {
        return Some("no containerd (Debian package containerd)".to_owned());
    }
    assets::find("kubelet", version).err()
}

/// The directories that are mounted over, and kubelet's configuration.
fn prepare(tree: &GuestTree, version: Kubernetes) {
    for place in ["/dev", "/proc", "/sys", "/usr", "/tmp", "/var/log"] {
        std::fs::create_dir_all(tree.path(place)).expect("the tree is writable");
    }
    for place in ["bin", "sbin", "lib", "lib64"] {
        tree.flip_link(&format!("/{place}"), &format!("usr/{place}"));
    }
    tree.write(PROGRAM, "");
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address(),
        "healthzPort": 0,
        "rotateCertificates": true,
        "nodeStatusUpdateFrequency": STATUS_FREQUENCY,
        // Neither swap nor cgroups of this machine are kubelet's, nor is its disk, however full.
        "failSwapOn": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100,
    });
    if version >= Kubernetes::V1_36 {
        // It looks for a user of its own, for user namespaces, and goes on without one.
        tree.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        config["containerRuntimeEndpoint"] = json!(format!("unix://{CONTAINERD}"));
        config["failCgroupV1"] = json!(false);
        config["localStorageCapacityIsolation"] = json!(false);
    }
    tree.write(CONFIG_FILE, config.to_string());
}

/// An address of this process alone, so that the usual port is free: there are kubelets of other runs.
fn address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 0x80, middle, low)
}

/// Starts a command with the tree as its root; what it writes is in `/var/log/NAME.log` of the tree.
fn in_tree(tree: &GuestTree, program: &Path, name: &str, command: &[&str]) -> Guard {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--propagation=private", "--pid", "--fork"])
        .args(["--kill-child=KILL", "sh", "-ec", IN_TREE, name])
        .args([tree.root(), program])
        .args(command);
    let log = tree.path(&format!("/var/log/{name}.log"));
    Guard::start(&unshare, &log, None)
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
