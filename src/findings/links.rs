// SPDX-License-Identifier: Apache-2.0
//! Where to read on: the page about the group of a finding, and reports of people who had the same.

use super::{Code, Group};

const CLOUD_PROVIDER: &str = "https://docs.harvesterhci.io/latest/rancher/cloud-provider/";
const CSI_DRIVER: &str = "https://docs.harvesterhci.io/latest/rancher/csi-driver/";
const NODE_DRIVER: &str = "https://docs.harvesterhci.io/latest/rancher/node/node-driver/";
const NODE_AUTHORIZATION: &str = "https://kubernetes.io/docs/reference/access-authn-authz/node/";
const NODE_LABELS: &str = "https://kubernetes.io/docs/reference/labels-annotations-taints/";
const GUEST_AGENT: &str = "https://kubevirt.io/user-guide/user_workloads/guest_agent_information/";

/// An issue of Harvester.
macro_rules! issue {
    ($number:literal) => {
        concat!("https://github.com/harvester/harvester/issues/", $number)
    };
}

impl Group {
    /// The page that says how it should be.
    pub fn link(self) -> &'static str {
        match self {
            Self::Machine | Self::Identity | Self::Image => NODE_DRIVER,
            Self::GuestAgent => GUEST_AGENT,
            Self::HarvesterCredential | Self::HarvesterApi | Self::Placement => CLOUD_PROVIDER,
            Self::KubeletCredential => NODE_AUTHORIZATION,
            Self::Node => NODE_LABELS,
            Self::Versions => CSI_DRIVER,
        }
    }
}

impl Code {
    /// Where to read on: first the page about its group, then reports of the same trouble.
    pub fn links(self) -> Vec<&'static str> {
        let page = self.entry().group.link();
        [page]
            .into_iter()
            .chain(self.reports().iter().copied())
            .collect()
    }

    /// Reports of people who had this.
    fn reports(self) -> &'static [&'static str] {
        match self {
            Self::HostnameDiffers => &[CSI_DRIVER, issue!(4291), issue!(4947), issue!(11682)],
            Self::HostnameOfAnotherVm | Self::IdentityAmbiguous => {
                &[CSI_DRIVER, issue!(6981), issue!(9798)]
            }
            Self::TopologyUnknown => &[issue!(10399), issue!(1417)],
            Self::AnnotationsStale => &[issue!(3142)],
            Self::HostWithoutTopology => &[issue!(6546)],
            Self::LabelFight | Self::LabelHeld => {
                &["https://github.com/kubevirt/cloud-provider-kubevirt/issues/225"]
            }
            Self::HarvesterCredentialMissing
            | Self::CredentialIsDirectory
            | Self::CredentialIsEmpty
            | Self::CredentialNotAtNamedPath => &[issue!(6286), issue!(9503)],
            Self::CredentialOfRancher | Self::RancherTokenRefused => &[
                issue!(5827),
                "https://github.com/rancher/rancher/issues/44912",
            ],
            Self::ServerIsWebAddress | Self::ServerIsRancher => &[issue!(4446)],
            Self::ServerNotInCertificate => &[issue!(4700), issue!(1475)],
            Self::HarvesterForbidden => &[issue!(10298)],
            Self::HarvesterUnauthorized | Self::CredentialExpires => &[
                issue!(5827),
                "https://github.com/rancher/rancher/issues/44912",
            ],
            Self::HarvesterTls => &[issue!(4700), issue!(4446)],
            Self::HarvesterUnreachable => &[issue!(11374)],
            Self::CredentialExposed => &[issue!(1440)],
            Self::GuestAgentNotInstalled | Self::GuestAgentNotRunning => &[issue!(1235)],
            _ => &[],
        }
    }
}
