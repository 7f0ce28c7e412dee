// SPDX-License-Identifier: Apache-2.0
//! The groups of findings.

use crate::facts::observation::Api;

/// The subject of a finding: the groups of `doctor`, in its order, from this machine outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The machine itself, and this agent on it.
    Machine,
    /// The QEMU guest agent.
    GuestAgent,
    /// The kubeconfig for Harvester.
    HarvesterCredential,
    /// Harvester's API.
    HarvesterApi,
    /// The VM of this machine, and whether the names match it.
    Identity,
    /// The host of the VM, and that host's region and zone.
    Placement,
    /// The kubelet's kubeconfig.
    KubeletCredential,
    /// The Node in the guest cluster, and the guest cluster's API.
    Node,
    /// Versions that are not compatible.
    Versions,
    /// Machine-specific files that came with the image.
    Image,
}

impl Group {
    /// All groups, in their order.
    pub const ALL: &[Self] = &[
        Self::Machine,
        Self::GuestAgent,
        Self::HarvesterCredential,
        Self::HarvesterApi,
        Self::Identity,
        Self::Placement,
        Self::KubeletCredential,
        Self::Node,
        Self::Versions,
        Self::Image,
    ];

    /// Returns the heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Machine => "agent",
            Self::GuestAgent => "qemu-guest-agent",
            Self::HarvesterCredential => "Harvester kubeconfig",
            Self::HarvesterApi => "Harvester API",
            Self::Identity => "identity",
            Self::Placement => "placement",
            Self::KubeletCredential => "kubelet kubeconfig",
            Self::Node => "Node",
            Self::Versions => "versions",
            Self::Image => "image",
        }
    }

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "agent",
            Self::GuestAgent => "qemu-guest-agent",
            Self::HarvesterCredential => "harvester-credential",
            Self::HarvesterApi => "harvester-api",
            Self::Identity => "identity",
            Self::Placement => "placement",
            Self::KubeletCredential => "kubelet-credential",
            Self::Node => "node",
            Self::Versions => "versions",
            Self::Image => "image",
        }
    }

    /// Returns the API of the group, if there is one: a problem with one API does not explain findings of the other.
    pub fn api(self) -> Option<Api> {
        match self {
            Self::HarvesterCredential | Self::HarvesterApi => Some(Api::Harvester),
            Self::KubeletCredential | Self::Node => Some(Api::Guest),
            Self::Machine
            | Self::GuestAgent
            | Self::Identity
            | Self::Placement
            | Self::Versions
            | Self::Image => None,
        }
    }
}
