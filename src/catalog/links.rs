// SPDX-License-Identifier: Apache-2.0
//! Links to documentation: the page about the group of a finding, and issue reports about it.

use super::{Code, Group};

const CLOUD_PROVIDER: &str = "https://docs.harvesterhci.io/latest/rancher/cloud-provider/";
const CSI_DRIVER: &str = "https://docs.harvesterhci.io/latest/rancher/csi-driver/";
const NODE_DRIVER: &str = "https://docs.harvesterhci.io/latest/rancher/node/node-driver/";
const NODE_AUTHORIZATION: &str = "https://kubernetes.io/docs/reference/access-authn-authz/node/";
const NODE_LABELS: &str = "https://kubernetes.io/docs/reference/labels-annotations-taints/";
const GUEST_AGENT: &str = "https://kubevirt.io/user-guide/user_workloads/guest_agent_information/";
const LIVE_MIGRATION: &str = "https://docs.harvesterhci.io/latest/vm/live-migration/";
const KUBELET_CERTIFICATES: &str =
    "https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/kubeadm-certs/";
const RKE1_ENDED: &str = "https://github.com/rancher/rke";
const SKEW: &str = "https://kubernetes.io/releases/version-skew-policy/";
const TIMEDATECTL: &str =
    "https://www.freedesktop.org/software/systemd/man/latest/timedatectl.html";
const CHRONY: &str = "https://chrony-project.org/documentation.html";
const SYSTEMCTL: &str = "https://www.freedesktop.org/software/systemd/man/latest/systemctl.html";
const SANDBOX: &str = "https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html";
const CPU_MANAGER: &str =
    "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/";
const NODE_SHUTDOWN: &str =
    "https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/";
const IMAGES: &str = "https://systemd.io/BUILDING_IMAGES/";
const TEXTFILE: &str = "https://github.com/prometheus/node_exporter#textfile-collector";
const TOML: &str = "https://toml.io/en/v1.0.0";
const RKE2_CONFIGURATION: &str = "https://docs.rke2.io/install/configuration";

/// Returns the URL of an issue.
macro_rules! issue {
    ($repository:literal, $number:literal) => {
        concat!("https://github.com/", $repository, "/issues/", $number)
    };
}

/// Returns the URL of a Harvester issue.
macro_rules! harvester {
    ($number:literal) => {
        issue!("harvester/harvester", $number)
    };
}

/// Returns the URL of a Rancher issue.
macro_rules! rancher {
    ($number:literal) => {
        issue!("rancher/rancher", $number)
    };
}

const KUBEVIRT_225: &str = issue!("kubevirt/cloud-provider-kubevirt", 225);

impl Group {
    /// Returns the page that documents the correct setup.
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
    /// Returns the links: first the page about the code or its group, then issue reports.
    pub fn links(self) -> Vec<&'static str> {
        let page = self.page().unwrap_or_else(|| self.entry().group.link());
        [page]
            .into_iter()
            .chain(self.reports().iter().copied())
            .collect()
    }

    /// Returns the page about the code, if that of its group does not cover it.
    fn page(self) -> Option<&'static str> {
        match self {
            Self::ClockSkew | Self::ClockDrift | Self::ClockNotSynchronized => Some(TIMEDATECTL),
            Self::MetricsUnavailable => Some(TEXTFILE),
            Self::ConfigInvalid | Self::ConfigReloadFailed => Some(TOML),
            Self::DistributionFileBroken => Some(RKE2_CONFIGURATION),
            Self::AgentNotRunning | Self::AgentNotEnabled => Some(SYSTEMCTL),
            Self::SignalUnavailable => Some(SANDBOX),
            Self::CapacityStale => Some(CPU_MANAGER),
            Self::StopGraceTooShort => Some(NODE_SHUTDOWN),
            Self::IdentityFromImage | Self::StateDiscarded => Some(IMAGES),
            _ => None,
        }
    }

    /// Returns issue reports about the code.
    fn reports(self) -> &'static [&'static str] {
        match self {
            Self::HostnameDiffers => &[
                CSI_DRIVER,
                harvester!(4291),
                harvester!(4947),
                harvester!(11682),
                rancher!(40901),
                rancher!(41581),
            ],
            Self::NodeMayBeDeleted => &[harvester!(11682), harvester!(11683)],
            Self::HostnameOfSeveralVms => &[rancher!(34997)],
            Self::NameOfAnotherVm => &[CSI_DRIVER, harvester!(6981), harvester!(9798)],
            Self::IdentityAmbiguous => &[
                CSI_DRIVER,
                harvester!(4893),
                harvester!(6981),
                harvester!(9788),
                harvester!(9798),
            ],
            Self::NoTopologySource => &[
                harvester!(1417),
                harvester!(10399),
                issue!("kubevirt/kubevirt", 8063),
                issue!("kubevirt/cloud-provider-kubevirt", 89),
            ],
            Self::AnnotationsStale => &[harvester!(3142)],
            Self::HostWithoutTopology => &[harvester!(6546)],
            Self::LabelConflict | Self::PinnedByConfig => &[KUBEVIRT_225],
            Self::TopologyLabelOverwritten => &[
                KUBEVIRT_225,
                issue!("kubernetes/cloud-provider-openstack", 1801),
                issue!("kubernetes/cloud-provider-openstack", 2579),
                issue!("sergelogvinov/proxmox-cloud-controller-manager", 110),
                issue!("sergelogvinov/proxmox-cloud-controller-manager", 265),
            ],
            Self::HarvesterCredentialMissing => {
                &[harvester!(6286), harvester!(9503), harvester!(10225)]
            }
            Self::CredentialIsDirectory
            | Self::CredentialIsEmpty
            | Self::CredentialNotAtNamedPath => &[
                harvester!(2042),
                harvester!(3162),
                harvester!(4077),
                harvester!(4568),
                harvester!(6286),
                harvester!(6821),
                rancher!(34969),
                rancher!(47501),
            ],
            Self::RancherTokenInUse => &[harvester!(5669), harvester!(5868), harvester!(5874)],
            Self::RancherTokenRejected => &[
                harvester!(5827),
                rancher!(44912),
                rancher!(47491),
                rancher!(47492),
                rancher!(49685),
            ],
            Self::ServerIsHarvesterUi | Self::ServerIsRancher => &[harvester!(4446)],
            Self::ServerNotInCertificate => &[harvester!(1475), harvester!(4700)],
            Self::CsiDriverForbidden => &[CSI_DRIVER, harvester!(10298)],
            Self::ComponentRestarting => &[CLOUD_PROVIDER, harvester!(9502), harvester!(10298)],
            Self::HarvesterUnauthorized
            | Self::CredentialExpires
            | Self::HarvesterCredentialExpired => &[harvester!(5827), rancher!(44912)],
            Self::KubeletCredentialExpired => &[KUBELET_CERTIFICATES],
            Self::HarvesterTlsError => &[harvester!(4446), harvester!(4700)],
            Self::HarvesterUnreachable => &[
                harvester!(11338),
                harvester!(11374),
                harvester!(11440),
                harvester!(11634),
            ],
            Self::WatchUnavailable | Self::WatchInterrupted => &[
                issue!("rancher-sandbox/cluster-api-provider-harvester", 40),
                issue!("rancher-sandbox/cluster-api-provider-harvester", 55),
                issue!("rancher-sandbox/cluster-api-provider-harvester", 237),
            ],
            Self::CredentialExposed => &[harvester!(1440)],
            Self::GuestAgentNotInstalled => &[harvester!(1235), harvester!(8915), harvester!(9198)],
            Self::GuestAgentNotRunning => &[harvester!(1235), harvester!(9198)],
            Self::GuestAgentNotConnected => &[harvester!(7018), harvester!(8915), harvester!(9198)],
            Self::HardwareShared => &[
                CSI_DRIVER,
                harvester!(4893),
                harvester!(6981),
                harvester!(9788),
                harvester!(9798),
            ],
            Self::VmLabelsMissing => &[harvester!(4089), harvester!(10399), harvester!(10906)],
            Self::NotLiveMigratable => &[
                LIVE_MIGRATION,
                harvester!(5756),
                harvester!(8950),
                harvester!(10462),
            ],
            Self::NotKubevirt => &[harvester!(6305)],
            Self::NodeUninitialized => &[CLOUD_PROVIDER, harvester!(4947), harvester!(10188)],
            Self::KubevirtCloudProvider => &[KUBEVIRT_225],
            Self::AddressDiffers => &[harvester!(10381)],
            Self::InternalIpMissing => &[CLOUD_PROVIDER, harvester!(10079)],
            Self::HarvesterTooOld => &[CLOUD_PROVIDER, harvester!(3142), harvester!(4947)],
            Self::CloudProviderTooOld => &[
                CLOUD_PROVIDER,
                harvester!(1417),
                harvester!(1418),
                harvester!(3142),
                harvester!(4432),
                harvester!(4459),
                harvester!(4947),
            ],
            Self::CsiDriverTooOld => &[harvester!(4396), harvester!(6849)],
            Self::CsiAttachesToWrongVm => &[harvester!(6981)],
            Self::ClockSkew | Self::ClockNotSynchronized => &[CHRONY],
            Self::KubeletTooOld => &[NODE_DRIVER],
            Self::KubeletVersionSkew => &[SKEW],
            Self::DistributionEol => &[RKE1_ENDED],
            _ => &[],
        }
    }
}
