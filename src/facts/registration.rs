// SPDX-License-Identifier: Apache-2.0
//! The files of our own through which a distribution hands labels to its kubelet, so that a Node registers with them.
//!
//! Region and zone under the newer keys, and the host. Not the deprecated beta keys (`failure-domain.beta.kubernetes.io`): only a
//! cloud controller makes those, and where one exists it rules over the newer key, so a beta key that we brought into a cluster
//! without such a controller would stay there as a second truth.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::distribution::DistributionKind;
use super::topology::LabelValue;

/// Key to value.
pub type Labels = BTreeMap<String, LabelValue>;

/// How the first line of a file of ours begins. Without it a file is someone else's.
pub const MARK: &str = "# Managed by harvester-node-agent";

/// A kind of file, one for each kind of distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelFileKind {
    /// A drop-in of RKE2's configuration; `node-label+` adds to the labels of the files before it (k3s
    /// `pkg/configfilearg/parser.go`).
    Rke2,
    /// The same of K3s.
    K3s,
    /// A drop-in of the kubelet's unit that sets `KUBELET_EXTRA_ARGS`, as kubeadm's `10-kubeadm.conf` passes it on. It
    /// holds nothing while anyone else sets that variable: of several `Environment=` the last one counts (systemd.exec(5)),
    /// and arguments of an administrator must never be taken away. The kubelet adds up repeated `--node-labels` (`ConfigurationMap` of k8s.io/component-base).
    Kubelet,
}

impl LabelFileKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Rke2, Self::K3s, Self::Kubelet];

    /// Where the file is.
    pub fn path(self) -> &'static Path {
        Path::new(match self {
            Self::Rke2 => "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml",
            Self::K3s => "/etc/rancher/k3s/config.yaml.d/90-harvester-node-agent.yaml",
            Self::Kubelet => "/etc/systemd/system/kubelet.service.d/05-harvester-node-agent.conf",
        })
    }

    /// The kind of a distribution. RKE1's kubelet is started by Docker with arguments that no file of ours reaches.
    pub fn of(kind: DistributionKind) -> Option<Self> {
        match kind {
            DistributionKind::Rke2 => Some(Self::Rke2),
            DistributionKind::K3s => Some(Self::K3s),
            DistributionKind::Kubeadm | DistributionKind::Unknown => Some(Self::Kubelet),
            DistributionKind::Rke1 => None,
        }
    }
}

/// A file that stands at the place of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelFile {
    /// Which one.
    pub kind: LabelFileKind,
    /// Whose it is.
    pub content: LabelFileContent,
    /// A file that sets the same variable; ours then holds nothing.
    pub hidden_by: Option<PathBuf>,
}

impl LabelFile {
    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.content, LabelFileContent::Ours(_))
    }
}

/// State of the kubelet's unit in systemd's manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropIn {
    /// Whether a file of the unit changed after it was loaded (`NeedDaemonReload`).
    pub needs_reload: bool,
    /// Whether our file is among the loaded drop-ins (`DropInPaths`).
    pub is_listed: bool,
}

/// What stands in such a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelFileContent {
    /// Our own text.
    Ours(String),
    /// Something else, or nothing that can be read; why it does not count as ours.
    Foreign(String),
}
