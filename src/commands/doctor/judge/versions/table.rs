// SPDX-License-Identifier: Apache-2.0
//! The table of known faults: the affected releases, the release with the fix, and the source.
//!
//! To add a row: a reported fault, the releases that have it, and the page that documents it.

use crate::catalog::Code;
use crate::facts::release::Rank;

/// A fault in some releases.
#[derive(Debug, Clone, Copy)]
pub(super) struct VersionRow {
    /// The component.
    pub part: Part,
    /// The first affected release.
    pub from: Rank,
    /// The first release without the fault; `None` if all later ones have it.
    pub below: Option<Rank>,
    /// The condition under which the fault matters.
    pub only: Only,
    /// The code of the finding.
    pub code: Code,
    /// The effect.
    pub fault: &'static str,
    /// The page that documents it.
    pub source: &'static str,
}

/// A component with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Harvester.
    Harvester,
    /// Harvester's cloud provider in the guest cluster.
    CloudProvider,
    /// Harvester's CSI driver in the guest cluster.
    CsiDriver,
    /// The RKE2 of this Node.
    Rke2,
    /// The RKE1 of this Node.
    Rke1,
}

/// The condition under which a fault matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Only {
    /// Always.
    Always,
    /// With a cloud provider of this release or a newer one.
    WithCloudProviderSince(Rank),
    /// With a Harvester older than this release.
    WithHarvesterBefore(Rank),
    /// The Node and its VM have different names.
    WhereNamesDiffer,
    /// The namespace has other VMs, or this is unknown.
    WhereOthersAre,
    /// Calico or Canal is the CNI plugin, or this is unknown.
    WithCalico,
    /// The distribution is configured for Harvester's cloud provider.
    WithHarvesterCloudProvider,
}

impl Part {
    /// Returns the display name.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Harvester => "Harvester",
            Self::CloudProvider => "Harvester cloud provider",
            Self::CsiDriver => "Harvester CSI driver",
            Self::Rke2 => "RKE2",
            Self::Rke1 => "RKE1 with Kubernetes",
        }
    }
}

/// A rank below every release.
const FIRST: Rank = Rank::of(0, 0, 0);

/// The prerequisites of the cloud provider, and the features of its releases.
const CLOUD_PROVIDER_PAGE: &str = "https://docs.harvesterhci.io/latest/rancher/cloud-provider/";
/// The topology of the hosts for VMs of the node driver.
const NODE_DRIVER_PAGE: &str = "https://docs.harvesterhci.io/latest/rancher/node/rke2-cluster/";
const INHERIT_TOPOLOGY: &str = "https://github.com/harvester/harvester/issues/1418";
const RESYNC_TOPOLOGY: &str = "https://github.com/harvester/harvester/issues/3142";
const OTHER_CLUSTERS: &str = "https://github.com/harvester/harvester/issues/4459";
const OTHER_HOSTNAMES: &str = "https://github.com/harvester/harvester/issues/4396";
const GUEST_HOSTNAME: &str = "https://github.com/harvester/harvester/issues/4947";
const WRONG_VM: &str = "https://github.com/harvester/harvester/issues/6981";
const MASS_MIGRATION: &str = "https://github.com/harvester/harvester/issues/10349";
const STUCK_VOLUME: &str = "https://github.com/harvester/harvester/issues/6849";

/// The project, whose first page announces its end of life.
const RKE1_PAGE: &str = "https://github.com/rancher/rke";

/// The fault of RKE2 before the first bundled cloud provider with topology.
const NO_TOPOLOGY: &str = "the bundled cloud provider sets neither region nor zone";
/// The fault of a CSI driver without discovery by MAC address.
const NAME_ONLY: &str = "it attaches volumes only to the VM with the name of the Node";
/// The fault of a discovery by MAC address that does not exclude Calico's.
const TAKES_CALICO: &str = "it finds its VM by any MAC address, including ee:ee:ee:ee:ee:ee, which Calico uses on every \
    node: volumes are attached to another VM";

/// Defines the rows: the component, the first affected release, the release with the fix, the condition, and the code, effect and
/// source of the finding.
macro_rules! rows {
    ($($part:ident, $from:expr, $below:expr, $only:ident$(($release:expr))? => $code:ident, $fault:expr, $source:ident;)*) => {
        &[$(VersionRow {
            part: Part::$part,
            from: $from,
            below: $below,
            only: Only::$only$(($release))?,
            code: Code::$code,
            fault: $fault,
            source: $source,
        },)*]
    };
}

const fn v(major: u32, minor: u32, patch: u32) -> Rank {
    Rank::of(major, minor, patch)
}

/// The table.
pub(super) const LINES: &[VersionRow] = rows! {
    Harvester, FIRST, Some(v(1, 0, 3)), Always => HarvesterTooOld,
        "it does not annotate the VM with region and zone of the host", NODE_DRIVER_PAGE;
    Harvester, FIRST, Some(v(1, 2, 0)), WithCloudProviderSince(v(0, 2, 0)) => HarvesterTooOld,
        "the cloud provider of this cluster needs a newer Harvester to follow a migration", CLOUD_PROVIDER_PAGE;
    Harvester, FIRST, Some(v(1, 3, 0)), WithCloudProviderSince(v(0, 2, 1)) => HarvesterTooOld,
        "its role for the cloud provider does not allow `guestosinfo`: a hostname that differs from the VM name is \
                not found, and each VM adds a \"forbidden\" error to the log", GUEST_HOSTNAME;
    Harvester, v(1, 7, 0), Some(v(1, 7, 2)), Always => HarvesterTooOld,
        "it live-migrates all VMs at the same time after an upgrade", MASS_MIGRATION;
    CloudProvider, FIRST, Some(v(0, 1, 4)), Always => CloudProviderTooOld,
        "it sets neither region nor zone", INHERIT_TOPOLOGY;
    CloudProvider, v(0, 1, 4), Some(v(0, 2, 0)), Always => CloudProviderTooOld,
        "it sets region and zone only when the Node is created, not after a migration", RESYNC_TOPOLOGY;
    CloudProvider, FIRST, Some(v(0, 2, 1)), WhereNamesDiffer => CloudProviderTooOld,
        "it looks up the VM by the Node name, which does not exist for this node", GUEST_HOSTNAME;
    CloudProvider, v(0, 2, 0), Some(v(0, 2, 2)), WhereOthersAre => CloudProviderTooOld,
        "it fails on VMs in the namespace that are not Nodes of this cluster (`nodes \"VM\" not found`)", OTHER_CLUSTERS;
    CsiDriver, FIRST, Some(v(0, 1, 6)), WhereNamesDiffer => CsiDriverTooOld,
        NAME_ONLY, OTHER_HOSTNAMES;
    // A side branch, without the changes of 0.1.6 and 0.1.7.
    CsiDriver, v(0, 1, 8), Some(v(0, 2, 0)), WhereNamesDiffer => CsiDriverTooOld,
        NAME_ONLY, OTHER_HOSTNAMES;
    CsiDriver, v(0, 2, 1), Some(v(0, 2, 2)), WithHarvesterBefore(v(1, 4, 0)) => CsiDriverTooOld,
        "with Harvester before v1.4.0 it waits indefinitely for a volume to become ready", STUCK_VOLUME;
    CsiDriver, v(0, 1, 6), Some(v(0, 1, 8)), WithCalico => CsiAttachesToWrongVm,
        TAKES_CALICO, WRONG_VM;
    CsiDriver, v(0, 2, 0), Some(v(0, 2, 2)), WithCalico => CsiAttachesToWrongVm,
        TAKES_CALICO, WRONG_VM;
    Rke2, FIRST, Some(v(1, 22, 12)), WithHarvesterCloudProvider => KubeletTooOld,
        NO_TOPOLOGY, NODE_DRIVER_PAGE;
    Rke2, v(1, 23, 0), Some(v(1, 23, 9)), WithHarvesterCloudProvider => KubeletTooOld,
        NO_TOPOLOGY, NODE_DRIVER_PAGE;
    Rke2, v(1, 24, 0), Some(v(1, 24, 3)), WithHarvesterCloudProvider => KubeletTooOld,
        NO_TOPOLOGY, NODE_DRIVER_PAGE;
    Rke1, FIRST, None, Always => DistributionEol,
        "end of life since 2025-07-31, not supported by Rancher 2.12", RKE1_PAGE;
};
