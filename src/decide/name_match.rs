// SPDX-License-Identifier: Apache-2.0
//! Compares a name with the name of the VM, and describes the consequences of a difference.

use crate::catalog::{Code, Severity};
use crate::facts::distribution::Distribution;
use crate::facts::names::{NameKind, VmName, rancher_limit, short, without_node_id};
use crate::sys::named::named;

named! {
    /// The result of comparing a name with the VM's name, ordered by severity. In JSON it is its name.
    Verdict {
        /// The same name.
        Match = "names-match",
        /// The same name except for upper case, or a hostname with a domain where the configuration sets the node name.
        MatchExceptCaseOrDomain = "names-match-except-case-or-domain",
        /// A node name that is set in the configuration of the distribution.
        ConfiguredOverride = "configured-override",
        /// The name that the platform set: `spec.hostname`, or the name that KubeVirt truncates at a dot or at the maximum length.
        PlatformHostname = "platform-hostname",
        /// The VM's name, truncated by Rancher (`hostnameLengthLimit`).
        RancherTruncated = "rancher-truncated",
        /// The VM's name with the node ID of K3s or RKE2 (`with-node-id`).
        NodeIdSuffix = "node-id-suffix",
        /// Unknown, because the VM's name is not known.
        Unknown = "vm-unknown",
        /// Unknown, because several VMs match this machine.
        Ambiguous = "identity-ambiguous",
        /// Unknown, because no VM matches this machine.
        NotFound = "vm-not-found",
        /// The VM's name, or one that the platform derived from it, with a domain. The whole name becomes the Node name, and a VM is
        /// looked up by the whole Node name.
        Fqdn = "fqdn",
        /// A different name without a known reason.
        Differs = "differs",
        /// The hostname that KubeVirt sets for several VMs of the namespace, so that it identifies none of them.
        Shared = "hostname-of-several-vms",
        /// The name of another VM in the namespace.
        AnotherVm = "name-of-another-vm",
    }
}

/// The consequence of a name that the platform, Rancher or the configuration made of the VM's.
const DERIVED: &str = "The Harvester cloud provider looks up the VM by the Node name, and since 0.2.1 by the hostname from \
                       qemu-guest-agent, or finds none; the CSI driver before 0.1.6 cannot attach volumes";
const NOT_VERIFIED: &str = "the names are not verified";

impl Verdict {
    /// Returns the code of the finding, whether a Node may register, and the consequences.
    fn row(self) -> (Option<Code>, bool, &'static str) {
        let differs = Some(Code::HostnameDiffers);
        match self {
            Self::Match => (None, true, "none"),
            Self::MatchExceptCaseOrDomain => (
                None,
                true,
                "none for Kubernetes, which uses the lower-case or the configured name; scripts that compare names may differ",
            ),
            Self::ConfiguredOverride => (Some(Code::ConfiguredOverride), true, DERIVED),
            Self::PlatformHostname | Self::RancherTruncated | Self::NodeIdSuffix => {
                (differs, true, DERIVED)
            }
            Self::Unknown => (None, false, NOT_VERIFIED),
            Self::Ambiguous => (Some(Code::IdentityAmbiguous), false, NOT_VERIFIED),
            Self::NotFound => (Some(Code::VmNotFound), false, NOT_VERIFIED),
            Self::Fqdn | Self::Differs => (
                differs,
                false,
                "The Harvester cloud provider and CSI driver look up the VM by the whole Node name and find none: no providerID, \
                 no topology after a migration, the Node may be deleted when it becomes NotReady, and volumes of a stopped VM are \
                 not released",
            ),
            Self::Shared => (
                Some(Code::HostnameOfSeveralVms),
                false,
                "The second Node with this name replaces the first one in Kubernetes, and the Harvester cloud provider and CSI \
                 driver find no VM with it",
            ),
            Self::AnotherVm => (
                Some(Code::NameOfAnotherVm),
                false,
                "The Harvester cloud provider and CSI driver treat this Node as that VM. If this Node is not ready while that VM \
                 is stopped, the CSI driver taints this Node `out-of-service`, which deletes its pods, and removes the hot-plugged \
                 volumes of that VM",
            ),
        }
    }

    /// Returns the code of the finding; `None` if nothing is wrong, or the VM is not known.
    pub fn code(self) -> Option<Code> {
        self.row().0
    }

    /// Reports whether a Node may register with such a name: it matches the VM, or it was configured (by the platform, Rancher, or
    /// the distribution). A configured name does not change by waiting.
    pub fn may_register(self) -> bool {
        self.row().1
    }

    /// Returns the consequences of the difference.
    pub fn consequence(self) -> &'static str {
        self.row().2
    }

    /// Returns the reason of the condition `HarvesterIdentityVerified`: that of the finding, if there is one.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Match => "NamesMatch",
            Self::MatchExceptCaseOrDomain => "NamesMatchExceptCaseOrDomain",
            _ => self.code().map_or("VmUnknown", Code::reason),
        }
    }

    /// Returns the severity of the difference, as that of its finding.
    pub fn severity(self) -> Severity {
        let code = self.code();
        code.map_or(Severity::Notice, |code| code.entry().severity)
    }

    /// Reports whether the names match as far as the components of Harvester require.
    pub fn is_match(self) -> bool {
        matches!(self, Self::Match | Self::MatchExceptCaseOrDomain)
    }
}

/// A VM as far as names are concerned.
#[derive(Debug, Clone)]
pub struct VmNames<'a> {
    /// The name of the VM.
    pub vm: &'a VmName,
    /// The hostname that KubeVirt sets for it.
    pub hostname: String,
}

/// Compares a name with the VM's name as the components of Harvester do: they look up the VM by the whole Node name, and a kubelet
/// registers with the hostname in lower case, not shortened, unless a node name is configured. The first matching rule decides.
pub fn judge(
    kind: NameKind,
    name: &str,
    own: &VmNames<'_>,
    others: &[VmNames<'_>],
    distributions: &[Distribution],
) -> Verdict {
    let lower = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let vm = own.vm.as_str();
    if name == vm {
        return Verdict::Match;
    }
    if lower == vm {
        return Verdict::MatchExceptCaseOrDomain;
    }
    if others.iter().any(|other| other.vm.as_str() == lower) {
        return Verdict::AnotherVm;
    }
    let is_node_id = |base: &str| base == vm || base == own.hostname;
    if kind == NameKind::NodeName && without_node_id(&lower).is_some_and(is_node_id) {
        return Verdict::NodeIdSuffix;
    }
    if distributions.iter().any(|one| one.registers_as(&lower)) {
        return Verdict::ConfiguredOverride;
    }
    if lower == own.hostname {
        let is_shared = others.iter().any(|other| other.hostname == lower);
        return match is_shared {
            true => Verdict::Shared,
            false => Verdict::PlatformHostname,
        };
    }
    if rancher_limit(own.vm, &lower).is_some() {
        return Verdict::RancherTruncated;
    }
    let first = short(name);
    let has_domain = |base: &str| {
        let domain = lower.strip_prefix(base);
        domain.is_some_and(|domain| domain.starts_with('.'))
    };
    let is_named = distributions
        .iter()
        .any(|one| one.configured_node_name().is_some());
    match kind {
        NameKind::KernelHostname | NameKind::StaticHostname if is_named && has_domain(vm) => {
            Verdict::MatchExceptCaseOrDomain
        }
        _ if has_domain(vm) || has_domain(&own.hostname) => Verdict::Fqdn,
        _ if has_domain(&first) && rancher_limit(own.vm, &first).is_some() => Verdict::Fqdn,
        _ => Verdict::Differs,
    }
}

#[cfg(test)]
mod tests;
