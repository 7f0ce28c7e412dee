// SPDX-License-Identifier: Apache-2.0
//! The table: which release does what it should not, since when it does not any more, and who says so.
//!
//! To add a line: a fault that someone reported, the releases that have it, and the page where it is written.

use crate::catalogue::Code;
use crate::facts::release::Rank;

/// A fault that some releases have.
#[derive(Debug, Clone, Copy)]
pub(super) struct VersionRow {
    /// Whose releases.
    pub part: Part,
    /// The first release that has it.
    pub from: Rank,
    /// The first one that has it no more; `None` where all have it.
    pub below: Option<Rank>,
    /// Where it matters.
    pub only: Only,
    /// How it is reported.
    pub code: Code,
    /// What happens.
    pub fault: &'static str,
    /// Where it is written.
    pub source: &'static str,
}

/// What has a version.
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

/// Where a fault matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Only {
    /// Everywhere.
    Always,
    /// With a cloud provider of this release or a newer one.
    WithCloudProviderSince(Rank),
    /// With a Harvester older than this release.
    WithHarvesterBefore(Rank),
    /// Where the Node does not have the name of its VM.
    WhereNamesDiffer,
    /// Where the namespace holds other VMs, or that is not known.
    WhereOthersAre,
    /// Where Calico or Canal makes the network of pods, or that is not known.
    WithCalico,
    /// Where the configuration of the distribution asks for Harvester's cloud provider.
    WithHarvesterCloudProvider,
}

impl Part {
    /// Its name in texts.
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

/// Before every release.
const FIRST: Rank = Rank::of(0, 0, 0);

/// Prerequisites of the cloud provider, and which release does what.
const CLOUD_PROVIDER_PAGE: &str = "https://docs.harvesterhci.io/latest/rancher/cloud-provider/";
/// Topology of the hosts for VMs of the node driver.
const NODE_DRIVER_PAGE: &str = "https://docs.harvesterhci.io/latest/rancher/node/rke2-cluster/";
const INHERIT_TOPOLOGY: &str = "https://github.com/harvester/harvester/issues/1418";
const RESYNC_TOPOLOGY: &str = "https://github.com/harvester/harvester/issues/3142";
const OTHER_CLUSTERS: &str = "https://github.com/harvester/harvester/issues/4459";
const OTHER_HOSTNAMES: &str = "https://github.com/harvester/harvester/issues/4396";
const GUEST_HOSTNAME: &str = "https://github.com/harvester/harvester/issues/4947";
const WRONG_VM: &str = "https://github.com/harvester/harvester/issues/6981";
const STUCK_VOLUME: &str = "https://github.com/harvester/harvester/issues/6849";

/// The project, whose first page tells of its end.
const RKE1_PAGE: &str = "https://github.com/rancher/rke";

/// What RKE2 before its first cloud provider with topology does.
const NO_TOPOLOGY: &str = "the bundled cloud provider sets neither region nor zone";
/// What a CSI driver without discovery by MAC address does.
const NAME_ONLY: &str = "it attaches volumes only to the VM with the name of the Node";
/// What a discovery by MAC address does that takes Calico's for one.
const TAKES_CALICO: &str = "it finds its VM by any MAC address, including ee:ee:ee:ee:ee:ee, which Calico uses on every \
    node: volumes are attached to another VM";

/// The table.
pub(super) const LINES: &[VersionRow] = &[
    VersionRow {
        part: Part::Harvester,
        from: FIRST,
        below: Some(Rank::of(1, 0, 3)),
        only: Only::Always,
        code: Code::HarvesterTooOld,
        fault: "it does not annotate the VM with region and zone of the host",
        source: NODE_DRIVER_PAGE,
    },
    VersionRow {
        part: Part::Harvester,
        from: FIRST,
        below: Some(Rank::of(1, 2, 0)),
        only: Only::WithCloudProviderSince(Rank::of(0, 2, 0)),
        code: Code::HarvesterTooOld,
        fault: "the cloud provider of this cluster needs a newer Harvester to follow a migration",
        source: CLOUD_PROVIDER_PAGE,
    },
    VersionRow {
        part: Part::Harvester,
        from: FIRST,
        below: Some(Rank::of(1, 3, 0)),
        only: Only::WithCloudProviderSince(Rank::of(0, 2, 1)),
        code: Code::HarvesterTooOld,
        fault: "its role for the cloud provider does not allow `guestosinfo`: a hostname that differs from the VM name is \
                not found, and each VM adds a \"forbidden\" error to the log",
        source: GUEST_HOSTNAME,
    },
    VersionRow {
        part: Part::CloudProvider,
        from: FIRST,
        below: Some(Rank::of(0, 1, 4)),
        only: Only::Always,
        code: Code::CloudProviderTooOld,
        fault: "it sets neither region nor zone",
        source: INHERIT_TOPOLOGY,
    },
    VersionRow {
        part: Part::CloudProvider,
        from: Rank::of(0, 1, 4),
        below: Some(Rank::of(0, 2, 0)),
        only: Only::Always,
        code: Code::CloudProviderTooOld,
        fault: "it sets region and zone only when the Node is created, not after a migration",
        source: RESYNC_TOPOLOGY,
    },
    VersionRow {
        part: Part::CloudProvider,
        from: FIRST,
        below: Some(Rank::of(0, 2, 1)),
        only: Only::WhereNamesDiffer,
        code: Code::CloudProviderTooOld,
        fault: "it looks up the VM by the Node name, which does not exist for this node",
        source: GUEST_HOSTNAME,
    },
    VersionRow {
        part: Part::CloudProvider,
        from: Rank::of(0, 2, 0),
        below: Some(Rank::of(0, 2, 2)),
        only: Only::WhereOthersAre,
        code: Code::CloudProviderTooOld,
        fault: "it fails on VMs in the namespace that are not Nodes of this cluster (`nodes \"VM\" not found`)",
        source: OTHER_CLUSTERS,
    },
    VersionRow {
        part: Part::CsiDriver,
        from: FIRST,
        below: Some(Rank::of(0, 1, 6)),
        only: Only::WhereNamesDiffer,
        code: Code::CsiDriverTooOld,
        fault: NAME_ONLY,
        source: OTHER_HOSTNAMES,
    },
    // A side branch, without what 0.1.6 and 0.1.7 have.
    VersionRow {
        part: Part::CsiDriver,
        from: Rank::of(0, 1, 8),
        below: Some(Rank::of(0, 2, 0)),
        only: Only::WhereNamesDiffer,
        code: Code::CsiDriverTooOld,
        fault: NAME_ONLY,
        source: OTHER_HOSTNAMES,
    },
    VersionRow {
        part: Part::CsiDriver,
        from: Rank::of(0, 2, 1),
        below: Some(Rank::of(0, 2, 2)),
        only: Only::WithHarvesterBefore(Rank::of(1, 4, 0)),
        code: Code::CsiDriverTooOld,
        fault: "with Harvester before v1.4.0 it waits indefinitely for a volume to become ready",
        source: STUCK_VOLUME,
    },
    VersionRow {
        part: Part::CsiDriver,
        from: Rank::of(0, 1, 6),
        below: Some(Rank::of(0, 1, 8)),
        only: Only::WithCalico,
        code: Code::CsiAttachesToWrongVm,
        fault: TAKES_CALICO,
        source: WRONG_VM,
    },
    VersionRow {
        part: Part::CsiDriver,
        from: Rank::of(0, 2, 0),
        below: Some(Rank::of(0, 2, 2)),
        only: Only::WithCalico,
        code: Code::CsiAttachesToWrongVm,
        fault: TAKES_CALICO,
        source: WRONG_VM,
    },
    VersionRow {
        part: Part::Rke2,
        from: FIRST,
        below: Some(Rank::of(1, 22, 12)),
        only: Only::WithHarvesterCloudProvider,
        code: Code::KubeletTooOld,
        fault: NO_TOPOLOGY,
        source: NODE_DRIVER_PAGE,
    },
    VersionRow {
        part: Part::Rke2,
        from: Rank::of(1, 23, 0),
        below: Some(Rank::of(1, 23, 9)),
        only: Only::WithHarvesterCloudProvider,
        code: Code::KubeletTooOld,
        fault: NO_TOPOLOGY,
        source: NODE_DRIVER_PAGE,
    },
    VersionRow {
        part: Part::Rke2,
        from: Rank::of(1, 24, 0),
        below: Some(Rank::of(1, 24, 3)),
        only: Only::WithHarvesterCloudProvider,
        code: Code::KubeletTooOld,
        fault: NO_TOPOLOGY,
        source: NODE_DRIVER_PAGE,
    },
    VersionRow {
        part: Part::Rke1,
        from: FIRST,
        below: None,
        only: Only::Always,
        code: Code::DistributionEol,
        fault: "end of life since 2025-07-31, not supported by Rancher 2.12",
        source: RKE1_PAGE,
    },
];
