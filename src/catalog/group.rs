// SPDX-License-Identifier: Apache-2.0
//! The groups of findings.

use super::links;
use crate::sys::named::named;

named! {
    /// The two APIs that the agent uses.
    Api {
        /// The API of Harvester, which has the VM.
        Harvester = "harvester",
        /// The API of the guest cluster, which has the Node.
        Guest = "guest",
    }
}

impl Api {
    /// Returns the name of its credential in messages.
    pub fn credential(self) -> &'static str {
        match self {
            Self::Harvester => "Harvester kubeconfig",
            Self::Guest => "kubelet kubeconfig",
        }
    }
}

named! {
    /// The subject of a finding: the groups of `doctor`, in its order, from this machine outwards.
    Group {
        /// The machine itself, and this agent on it.
        Machine = "agent",
        /// The QEMU guest agent.
        GuestAgent = "qemu-guest-agent",
        /// The kubeconfig for Harvester.
        HarvesterCredential = "harvester-credential",
        /// Harvester's API.
        HarvesterApi = "harvester-api",
        /// The VM of this machine, and whether the names match it.
        Identity = "identity",
        /// The host of the VM, and that host's region and zone.
        Placement = "placement",
        /// The kubelet's kubeconfig.
        KubeletCredential = "kubelet-credential",
        /// The Node in the guest cluster, and the guest cluster's API.
        Node = "node",
        /// Versions that are not compatible.
        Versions = "versions",
        /// Machine-specific files that came with the image.
        Image = "image",
    }
}

impl Group {
    /// Returns the group of findings about the credential of an API.
    pub fn of_credential(api: Api) -> Self {
        match api {
            Api::Guest => Self::KubeletCredential,
            Api::Harvester => Self::HarvesterCredential,
        }
    }

    /// Returns the group of findings about an API.
    pub fn of_api(api: Api) -> Self {
        match api {
            Api::Guest => Self::Node,
            Api::Harvester => Self::HarvesterApi,
        }
    }

    /// Returns the heading, the API and the page.
    fn row(self) -> (&'static str, Option<Api>, &'static str) {
        match self {
            Self::Machine => ("agent", None, links::NODE_DRIVER),
            Self::GuestAgent => ("qemu-guest-agent", None, links::GUEST_AGENT),
            Self::HarvesterCredential => (
                "Harvester kubeconfig",
                Some(Api::Harvester),
                links::CLOUD_PROVIDER,
            ),
            Self::HarvesterApi => ("Harvester API", Some(Api::Harvester), links::CLOUD_PROVIDER),
            Self::Identity => ("identity", None, links::NODE_DRIVER),
            Self::Placement => ("placement", None, links::CLOUD_PROVIDER),
            Self::KubeletCredential => (
                "kubelet kubeconfig",
                Some(Api::Guest),
                links::NODE_AUTHORIZATION,
            ),
            Self::Node => ("Node", Some(Api::Guest), links::NODE_LABELS),
            Self::Versions => ("versions", None, links::CSI_DRIVER),
            Self::Image => ("image", None, links::IMAGES),
        }
    }

    /// Returns the heading.
    pub fn title(self) -> &'static str {
        self.row().0
    }

    /// Returns the API of the group, if there is one: a problem with one API does not explain findings of the other.
    pub fn api(self) -> Option<Api> {
        self.row().1
    }

    /// Returns the page that documents the correct setup.
    pub fn link(self) -> &'static str {
        self.row().2
    }
}
