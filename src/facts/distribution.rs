// SPDX-License-Identifier: Apache-2.0
//! What the files of the installed Kubernetes distribution say about this node.

use std::fmt;
use std::path::{Path, PathBuf};

/// One Kubernetes distribution whose files are on this machine; several may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// Which one.
    pub kind: DistributionKind,
    /// Where it keeps its state; `data-dir` moves it for RKE2 and K3s.
    pub data_dir: PathBuf,
    /// The node name that the configuration asks for, before `with_node_id` is applied.
    pub node_name: Option<Configured<String>>,
    /// Whether `-<node id>` is appended to the node name.
    pub with_node_id: bool,
    /// Labels that the kubelet sets when it registers.
    pub node_labels: Vec<StaticLabel>,
    /// The cloud provider, `harvester` where Harvester's is used.
    pub cloud_provider_name: Option<String>,
    /// The cloud provider's configuration, which for `harvester` is the kubeconfig of Harvester's API.
    pub cloud_provider_config: Option<Configured<PathBuf>>,
    /// Where its configuration says what only one machine may be determined.
    pub unshareable: Vec<Unshareable>,
}

impl Distribution {
    /// A distribution of which only the kind is known.
    pub fn new(kind: DistributionKind) -> Self {
        Self {
            kind,
            data_dir: kind.default_data_dir().to_owned(),
            node_name: None,
            with_node_id: false,
            node_labels: Vec::new(),
            cloud_provider_name: None,
            cloud_provider_config: None,
            unshareable: Vec::new(),
        }
    }

    /// A kubelet of unknown origin of which only the node name is known.
    pub fn with_node_name(name: &str) -> Self {
        Self {
            node_name: Some(Configured {
                value: name.to_owned(),
                origin: PathBuf::new(),
            }),
            ..Self::new(DistributionKind::Unknown)
        }
    }

    /// Whether its configuration asks for Harvester's cloud provider.
    pub fn asks_for_harvester(&self) -> bool {
        self.cloud_provider_name.as_deref() == Some("harvester")
    }

    /// The node name that the configuration asks for.
    pub fn configured_node_name(&self) -> Option<&str> {
        self.node_name
            .as_ref()
            .map(|configured| configured.value.as_str())
    }
}

/// The distributions that are distinguished.
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
    /// A kubelet with settings of its own and no files of the others.
    Unknown,
}

impl DistributionKind {
    /// Where it keeps its state unless it is configured otherwise.
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

/// A setting that several machines must not share. A value that is a secret is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unshareable {
    /// What it says.
    pub matter: Matter,
    /// The key, variable or flag.
    pub key: String,
    /// The file that sets it.
    pub origin: PathBuf,
    /// How that file writes it.
    pub form: Form,
}

/// What a setting says that several machines must not share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matter {
    /// A secret.
    Secret,
    /// The name of another file, which holds a secret.
    SecretFile(PathBuf),
    /// The name of the Node.
    NodeName,
    /// Labels that say where the machine is.
    Topology,
}

/// How a file writes a setting, as far as a command for `sed` can take it out and surely leave nothing of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Whole on one line `key: value` of YAML that begins with the key.
    YamlLine,
    /// Whole on lines `- label=value` of YAML.
    YamlItems {
        /// The labels.
        labels: Vec<String>,
        /// Whether these are all items, so that the line `key:` goes with them.
        is_all: bool,
    },
    /// Whole on one line `KEY=value`.
    VariableLine,
    /// A flag in a command line.
    Flag {
        /// The flag with its value.
        old: String,
        /// What may stay of it.
        new: String,
    },
    /// In any other way, such as JSON or on several lines: only without the file is it surely gone.
    Other,
}

/// A label that the kubelet sets when it registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticLabel {
    /// Label key.
    pub key: String,
    /// Label value.
    pub value: String,
    /// The file that says so.
    pub origin: PathBuf,
}
