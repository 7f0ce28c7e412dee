// SPDX-License-Identifier: Apache-2.0
//! The sources of region and zone of a host, other than the VirtualMachineInstance.

use std::collections::BTreeMap;
use std::fmt;

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

    /// Reports whether it has all labels of the host.
    pub fn has_all(self) -> bool {
        matches!(self, Self::HostNode | Self::ConfigMap)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
