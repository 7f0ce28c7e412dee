// SPDX-License-Identifier: Apache-2.0
//! What a finding is about.

use crate::facts::observation::Api;

/// What a finding is about: the groups of `doctor`, in its order, from this machine outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The machine itself, and this agent on it.
    Machine,
    /// QEMU's guest agent.
    GuestAgent,
    /// The kubeconfig for Harvester.
    HarvesterCredential,
    /// Harvester's API.
    HarvesterApi,
    /// Which VM this machine is, and whether its names say so.
    Identity,
    /// Which host runs it, and that host's region and zone.
    Placement,
    /// The kubelet's kubeconfig.
    KubeletCredential,
    /// The Node in the guest cluster, and the guest cluster's API.
    Node,
    /// Versions that do not go together.
    Versions,
    /// What the image brought that belongs to one machine.
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

    /// Its heading.
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

    /// Its name in JSON.
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

    /// The API that all in it is about, where there is one: what is wrong with the one explains nothing at the other.
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
