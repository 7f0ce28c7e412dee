// SPDX-License-Identifier: Apache-2.0
//! Our own files that pass labels to the kubelet of a distribution, so that a Node registers with them.
//!
//! They contain region and zone under the newer keys, and the host. They do not contain the deprecated beta keys
//! (`failure-domain.beta.kubernetes.io`): only a cloud controller sets those, and where a beta key exists it overwrites the newer
//! key. In a cluster without such a controller, a beta key from us would stay and become outdated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::distribution::DistributionKind;
use super::topology::LabelValue;

/// Labels with their values.
pub type Labels = BTreeMap<String, LabelValue>;

/// The beginning of the first line of our files. A file without it belongs to another writer.
pub const MARK: &str = "# Managed by harvester-node-agent";

/// The kinds of files, one for each kind of distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelFileKind {
    /// A drop-in of RKE2's configuration. `node-label+` adds to the labels of earlier files (k3s `pkg/configfilearg/parser.go`).
    Rke2,
    /// A drop-in of K3s's configuration, with the same syntax.
    K3s,
    /// A drop-in of the kubelet's unit that sets `KUBELET_EXTRA_ARGS`, which kubeadm's `10-kubeadm.conf` passes on. It has no
    /// arguments while another file sets that variable: the last `Environment=` takes precedence (systemd.exec(5)), and arguments
    /// of an administrator must never be overridden. The kubelet merges repeated `--node-labels` (`ConfigurationMap` of
    /// k8s.io/component-base).
    Kubelet,
}

impl LabelFileKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Rke2, Self::K3s, Self::Kubelet];

    /// Returns the path of the file.
    pub fn path(self) -> &'static Path {
        Path::new(match self {
            Self::Rke2 => "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml",
            Self::K3s => "/etc/rancher/k3s/config.yaml.d/90-harvester-node-agent.yaml",
            Self::Kubelet => "/etc/systemd/system/kubelet.service.d/05-harvester-node-agent.conf",
        })
    }

    /// Returns the kind for a distribution. RKE1's kubelet is started by Docker with arguments that our files cannot change.
    pub fn of(kind: DistributionKind) -> Option<Self> {
        match kind {
            DistributionKind::Rke2 => Some(Self::Rke2),
            DistributionKind::K3s => Some(Self::K3s),
            DistributionKind::Kubeadm | DistributionKind::Unknown => Some(Self::Kubelet),
            DistributionKind::Rke1 => None,
        }
    }
}

/// A file at the path of one of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelFile {
    /// The kind of file.
    pub kind: LabelFileKind,
    /// The content, and whether it is ours.
    pub content: LabelFileContent,
    /// The file that sets the same variable; ours then has no arguments.
    pub hidden_by: Option<PathBuf>,
}

impl LabelFile {
    /// Reports whether the file is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.content, LabelFileContent::Ours(_))
    }
}

/// The state of the kubelet's unit in systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropIn {
    /// Whether a file of the unit changed after it was loaded (`NeedDaemonReload`).
    pub needs_reload: bool,
    /// Whether our file is among the loaded drop-ins (`DropInPaths`).
    pub is_listed: bool,
}

/// The content of such a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelFileContent {
    /// Our own text.
    Ours(String),
    /// Other content, or a file that cannot be read, with the reason.
    Foreign(String),
}
