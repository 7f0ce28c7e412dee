// SPDX-License-Identifier: Apache-2.0
//! The sources of region and zone of a host, other than the VirtualMachineInstance.

use std::collections::BTreeMap;
use std::fmt;

use super::fact::{Fact, UnavailableKind};
use super::names::HostName;
use super::topology::{REGION, ZONE};
use crate::sys::named::named;

/// The labels of a host according to a source.
pub type HostLabels = BTreeMap<String, String>;

named! {
    /// A source of a host's region and zone. The order is the precedence.
    Source {
        /// The labels of the host's Node in the Harvester cluster. It is exact, and the only source with all labels.
        HostNode = "host-node",
        /// The annotations that Harvester writes on VirtualMachineInstances created by Rancher's node driver.
        VmiAnnotations = "vmi-annotations",
        /// The labels that Kubernetes 1.35 and later copies from the host to the virt-launcher pod when it is bound.
        LauncherPod = "launcher-pod",
        /// A ConfigMap that an administrator maintains in `harvester-public`.
        ConfigMap = "configmap",
        /// The `[hosts]` table of our own configuration. Together with the host name from KubeVirt's downward metrics, it needs no
        /// credential for Harvester.
        HostsTable = "hosts-table",
        /// The labels of the virt-launcher pod, from files that the host shares with this VM. It needs neither a network nor a
        /// credential.
        PodInfo = "pod-info",
    }
}

impl Source {
    /// Reports whether it is a copy of the host's labels, which Harvester or Kubernetes makes for the VM and does not update.
    pub fn is_copy(self) -> bool {
        matches!(
            self,
            Self::VmiAnnotations | Self::LauncherPod | Self::PodInfo
        )
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The reads of all sources for one host. A source that was not needed is [`UnavailableKind::NotAsked`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementReads {
    /// The host.
    pub host: HostName,
    /// The labels of the host's Node.
    pub host_node: Fact<HostLabels>,
    /// The labels of the virt-launcher pod on the host.
    pub launcher_pod: Fact<HostLabels>,
    /// The host's entry in the ConfigMap.
    pub configmap: Fact<HostLabels>,
}

impl PlacementReads {
    /// Creates reads of which none was sent yet.
    pub fn none(host: HostName) -> Self {
        Self::all(host, || Fact::failed(UnavailableKind::NotAsked, "not read"))
    }

    /// Creates reads that all failed for one reason.
    pub fn failed(host: HostName, text: &str) -> Self {
        Self::all(host, || Fact::failed(UnavailableKind::Unreachable, text))
    }

    fn all(host: HostName, answer: impl Fn() -> Fact<HostLabels>) -> Self {
        Self {
            host,
            host_node: answer(),
            launcher_pod: answer(),
            configmap: answer(),
        }
    }
}

/// Reports whether labels contain a region or a zone.
pub fn reports_topology(labels: &HostLabels) -> bool {
    [REGION, ZONE]
        .iter()
        .any(|key| labels.get(*key).is_some_and(|value| !value.is_empty()))
}
