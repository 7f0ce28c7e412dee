// SPDX-License-Identifier: Apache-2.0
//! Our own files that pass labels to the kubelet of a distribution, so that a Node registers with them.
//!
//! They contain region and zone under the newer keys, and the host. They do not contain the deprecated beta keys
//! (`failure-domain.beta.kubernetes.io`): only a cloud controller sets those, and where a beta key exists it overwrites the newer
//! key. In a cluster without such a controller, a beta key from us would stay and become outdated.

use std::collections::BTreeMap;
use std::path::Path;

use super::distribution::DistributionKind;
use super::topology::LabelValue;

/// Labels with their values.
pub type Labels = BTreeMap<String, LabelValue>;

/// The beginning of the first line of our files. A file below `/etc` without it belongs to another writer.
pub const MARK: &str = "# Managed by harvester-node-agent";

/// The kinds of files, one for each kind of distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelFileKind {
    /// A drop-in of RKE2's configuration. `node-label+` adds to the labels of earlier files (k3s `pkg/configfilearg/parser.go`).
    Rke2,
    /// A drop-in of K3s's configuration, with the same syntax.
    K3s,
    /// An environment file of the kubelet's unit that sets `KUBELET_EXTRA_ARGS`, which kubeadm's `10-kubeadm.conf` passes on. The
    /// kubelet merges repeated `--node-labels` (`ConfigurationMap` of k8s.io/component-base).
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
            Self::Kubelet => "/run/harvester-node-agent-gate/kubelet.env",
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
