// SPDX-License-Identifier: Apache-2.0
//! The configuration of this node in the files of the installed Kubernetes distribution.

use std::fmt;
use std::path::{Path, PathBuf};

use super::names::without_node_id;

/// A Kubernetes distribution whose files are on this machine. There may be several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// The kind of distribution.
    pub kind: DistributionKind,
    /// The data directory; RKE2 and K3s can change it with `data-dir`.
    pub data_dir: PathBuf,
    /// The configured node name, before `with_node_id` is applied.
    pub node_name: Option<Configured<String>>,
    /// Whether `-<node id>` is appended to the node name.
    pub with_node_id: bool,
    /// The labels that the kubelet sets when it registers.
    pub node_labels: Vec<StaticLabel>,
    /// The cloud provider; `harvester` for Harvester's cloud provider.
    pub cloud_provider_name: Option<String>,
    /// The configuration file of the cloud provider. For `harvester` it is the kubeconfig of Harvester's API.
    pub cloud_provider_config: Option<Configured<PathBuf>>,
}

impl Distribution {
    /// Creates a distribution of which only the kind is known.
    pub fn new(kind: DistributionKind) -> Self {
        Self {
            kind,
            data_dir: kind.default_data_dir().to_owned(),
            node_name: None,
            with_node_id: false,
            node_labels: Vec::new(),
            cloud_provider_name: None,
            cloud_provider_config: None,
        }
    }

    /// Reports whether Harvester's cloud provider is configured.
    pub fn asks_for_harvester(&self) -> bool {
        self.cloud_provider_name.as_deref() == Some("harvester")
    }

    /// Reports whether the configuration gives a Node this name, which is in lower case: the kubelet converts the configured one, and
    /// `with-node-id` appends to it.
    pub fn registers_as(&self, name: &str) -> bool {
        let Some(configured) = self.configured_node_name() else {
            return false;
        };
        let configured = configured.trim().to_ascii_lowercase();
        name == configured
            || self.with_node_id && without_node_id(name) == Some(configured.as_str())
    }

    /// Returns the configured node name.
    pub fn configured_node_name(&self) -> Option<&str> {
        self.node_name.as_ref().map(|name| name.value.as_str())
    }
}

/// The kinds of distributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DistributionKind {
    /// RKE2.
    Rke2,
    /// K3s.
    K3s,
    /// kubeadm.
    Kubeadm,
    /// RKE1, the kubelet in a Docker container.
    Rke1,
    /// A kubelet with its own settings and no files of the other distributions.
    Unknown,
}

impl DistributionKind {
    /// Returns the default data directory.
    pub fn default_data_dir(self) -> &'static Path {
        Path::new(match self {
            Self::Rke2 => "/var/lib/rancher/rke2",
            Self::K3s => "/var/lib/rancher/k3s",
            Self::Kubeadm | Self::Rke1 | Self::Unknown => "/var/lib/kubelet",
        })
    }
}

impl fmt::Display for DistributionKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Rke2 => "RKE2",
            Self::K3s => "K3s",
            Self::Kubeadm => "kubeadm",
            Self::Rke1 => "RKE1",
            Self::Unknown => "kubelet",
        })
    }
}

/// A setting and the file that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured<T> {
    /// The setting.
    pub value: T,
    /// The file.
    pub origin: PathBuf,
}

/// A label that the kubelet sets when it registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticLabel {
    /// The label key.
    pub key: String,
    /// The label value.
    pub value: String,
    /// The file that contains the label.
    pub origin: PathBuf,
}
