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

/// Declares the groups with their name in JSON, their heading, their API and the page that documents the correct setup.
macro_rules! groups {
    ($($(#[$doc:meta])* $group:ident, $name:literal, $title:literal, $api:expr, $link:ident;)*) => {
        /// The subject of a finding: the groups of `doctor`, in its order, from this machine outwards.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum Group {
            $($(#[$doc])* #[serde(rename = $name)] $group,)*
        }

        impl Group {
            /// All groups, in their order.
            pub const ALL: &[Self] = &[$(Self::$group),*];

            /// Returns the name in JSON, the heading, the API and the page.
            fn row(self) -> (&'static str, &'static str, Option<Api>, &'static str) {
                match self {
                    $(Self::$group => ($name, $title, $api, links::$link),)*
                }
            }
        }
    };
}

groups! {
    /// The machine itself, and this agent on it.
    Machine, "agent", "agent", None, NODE_DRIVER;
    /// The QEMU guest agent.
    GuestAgent, "qemu-guest-agent", "qemu-guest-agent", None, GUEST_AGENT;
    /// The kubeconfig for Harvester.
    HarvesterCredential, "harvester-credential", "Harvester kubeconfig", Some(Api::Harvester), CLOUD_PROVIDER;
    /// Harvester's API.
    HarvesterApi, "harvester-api", "Harvester API", Some(Api::Harvester), CLOUD_PROVIDER;
    /// The VM of this machine, and whether the names match it.
    Identity, "identity", "identity", None, NODE_DRIVER;
    /// The host of the VM, and that host's region and zone.
    Placement, "placement", "placement", None, CLOUD_PROVIDER;
    /// The kubelet's kubeconfig.
    KubeletCredential, "kubelet-credential", "kubelet kubeconfig", Some(Api::Guest), NODE_AUTHORIZATION;
    /// The Node in the guest cluster, and the guest cluster's API.
    Node, "node", "Node", Some(Api::Guest), NODE_LABELS;
    /// Versions that are not compatible.
    Versions, "versions", "versions", None, CSI_DRIVER;
    /// Machine-specific files that came with the image.
    Image, "image", "image", None, IMAGES;
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

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Returns the heading.
    pub fn title(self) -> &'static str {
        self.row().1
    }

    /// Returns the API of the group, if there is one: a problem with one API does not explain findings of the other.
    pub fn api(self) -> Option<Api> {
        self.row().2
    }

    /// Returns the page that documents the correct setup.
    pub fn link(self) -> &'static str {
        self.row().3
    }
}
