// SPDX-License-Identifier: Apache-2.0
//! Which versions meet here? As each side tells them; nothing is compared here.

use super::Gap;
use crate::facts::{Seen, Why};
use crate::findings::Group;

/// The versions, as text that their servers gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// Harvester: its setting `server-version`, such as `v1.6.1`. Absent on plain KubeVirt.
    pub harvester: Seen<String>,
    /// KubeVirt: `gitVersion` of its subresource API, such as `v1.5.2`.
    pub kubevirt: Seen<String>,
    /// Kubernetes of the hosts: `gitVersion` of `/version`, such as `v1.33.5+rke2r1`.
    pub host_kubernetes: Seen<String>,
    /// Our kubelet: `status.nodeInfo.kubeletVersion` of the Node.
    pub kubelet: Seen<String>,
    /// The guest cluster's API server: `gitVersion` of `/version`.
    pub guest_kubernetes: Seen<String>,
}

impl Versions {
    /// None of it, for one reason.
    pub fn unseen(why: &Why) -> Self {
        let unseen = || Seen::Failed(why.clone());
        Self {
            harvester: unseen(),
            kubevirt: unseen(),
            host_kubernetes: unseen(),
            kubelet: unseen(),
            guest_kubernetes: unseen(),
        }
    }

    /// What could not be looked at.
    pub fn gaps(&self) -> Vec<Gap> {
        let facts = [
            ("the version of Harvester", &self.harvester),
            ("the version of KubeVirt", &self.kubevirt),
            ("the Kubernetes version of the hosts", &self.host_kubernetes),
            ("the version of the kubelet", &self.kubelet),
            (
                "the Kubernetes version of this cluster",
                &self.guest_kubernetes,
            ),
        ];
        let gaps = facts.into_iter();
        gaps.filter_map(|(what, seen)| Gap::of(Group::Versions, what, seen))
            .collect()
    }
}
