// SPDX-License-Identifier: Apache-2.0
//! Compares a name with the name of the VM, and describes the consequences of a difference.

use serde::{Deserialize, Serialize};

use super::conditions::kebab;
use super::identity::NameKind;
use crate::facts::distribution::Distribution;
use crate::facts::names::{VmName, kubevirt_hostname, rancher_limit, short, without_node_id};

/// The result of comparing a name with the VM's name, ordered by severity. In JSON it is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same name.
    #[serde(rename = "names-match")]
    Match,
    /// The same name except for upper case or a domain.
    #[serde(rename = "names-match-except-case-or-domain")]
    MatchExceptCaseOrDomain,
    /// The name that the platform set: `spec.hostname`, or the name that KubeVirt truncates at a dot or at the maximum length.
    PlatformHostname,
    /// The VM's name, truncated by Rancher (`hostnameLengthLimit`).
    RancherTruncated,
    /// The VM's name with the node ID of K3s or RKE2 (`with-node-id`).
    NodeIdSuffix,
    /// A node name that is set in the configuration of the distribution.
    ConfiguredOverride,
    /// Unknown, because the VM's name is not known.
    #[serde(rename = "vm-unknown")]
    Unknown,
    /// A different name without a known reason.
    Mismatch,
    /// The name of another VM in the namespace.
    #[serde(rename = "name-of-another-vm")]
    AnotherVm,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 9] = [
        Self::Match,
        Self::MatchExceptCaseOrDomain,
        Self::PlatformHostname,
        Self::RancherTruncated,
        Self::NodeIdSuffix,
        Self::ConfiguredOverride,
        Self::Unknown,
        Self::Mismatch,
        Self::AnotherVm,
    ];

    /// Returns the name used in reports: the reason in kebab-case.
    pub fn name(self) -> String {
        kebab(self.reason())
    }

    /// Reports whether a Node may register with such a name: it matches the VM, or it was configured (by the platform, Rancher, or
    /// the distribution). A configured name does not change by waiting.
    pub fn may_register(self) -> bool {
        match self {
            Self::Match
            | Self::MatchExceptCaseOrDomain
            | Self::PlatformHostname
            | Self::RancherTruncated
            | Self::NodeIdSuffix
            | Self::ConfiguredOverride => true,
            Self::Unknown | Self::Mismatch | Self::AnotherVm => false,
        }
    }

    /// Returns the reason of the condition `HarvesterIdentityVerified`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Match => "NamesMatch",
            Self::MatchExceptCaseOrDomain => "NamesMatchExceptCaseOrDomain",
            Self::PlatformHostname => "PlatformHostname",
            Self::RancherTruncated => "RancherTruncated",
            Self::NodeIdSuffix => "NodeIDSuffix",
            Self::ConfiguredOverride => "ConfiguredOverride",
            Self::Unknown => "VMUnknown",
            Self::Mismatch => "Mismatch",
            Self::AnotherVm => "NameOfAnotherVM",
        }
    }

    /// Returns the consequences of the difference.
    pub fn consequence(self) -> &'static str {
        match self {
            Self::Match => "none",
            Self::MatchExceptCaseOrDomain => {
                "none for Kubernetes, which uses the lower-case name; scripts that compare names may differ"
            }
            Self::PlatformHostname
            | Self::RancherTruncated
            | Self::NodeIdSuffix
            | Self::ConfiguredOverride => {
                "The Harvester cloud provider looks up a VM by the Node name and does not follow migrations of this \
                 one; the CSI driver before 0.1.6 cannot attach volumes"
            }
            Self::Unknown => "the names are not verified",
            Self::Mismatch => {
                "The Harvester cloud provider finds no VM with the Node name: no providerID, no topology after a migration, \
                 and the Node may be deleted when it becomes NotReady; the CSI driver before 0.1.6 cannot attach volumes"
            }
            Self::AnotherVm => {
                "The Harvester CSI driver and cloud provider treat this Node as a different VM: volumes may be attached to \
                 that VM, and its topology is shown here"
            }
        }
    }

    /// Reports whether the names match as far as the components of Harvester require.
    pub fn is_match(self) -> bool {
        matches!(self, Self::Match | Self::MatchExceptCaseOrDomain)
    }
}

/// Compares a name with the VM's name. The first matching rule decides.
pub fn judge(
    kind: NameKind,
    name: &str,
    vm: &VmName,
    vmi_hostname: Option<&str>,
    others: &[&VmName],
    distributions: &[Distribution],
) -> Verdict {
    let lower = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let first = short(name);
    if name == vm.as_str() {
        return Verdict::Match;
    }
    if lower == vm.as_str() || first == vm.as_str() {
        return Verdict::MatchExceptCaseOrDomain;
    }
    if others
        .iter()
        .any(|other| other.as_str() == lower || other.as_str() == first)
    {
        return Verdict::AnotherVm;
    }
    let platform = vmi_hostname.map_or_else(|| kubevirt_hostname(vm), short);
    if first == platform {
        return Verdict::PlatformHostname;
    }
    if rancher_limit(vm, &first).is_some() {
        return Verdict::RancherTruncated;
    }
    let configured =
        |distribution: &Distribution| distribution.configured_node_name() == Some(name);
    match kind {
        NameKind::NodeName
            if without_node_id(&lower)
                .is_some_and(|base| base == vm.as_str() || short(base) == platform) =>
        {
            Verdict::NodeIdSuffix
        }
        NameKind::NodeName if distributions.iter().any(configured) => Verdict::ConfiguredOverride,
        NameKind::NodeName | NameKind::KernelHostname | NameKind::StaticHostname => {
            Verdict::Mismatch
        }
    }
}
