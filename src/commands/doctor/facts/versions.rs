// SPDX-License-Identifier: Apache-2.0
//! Which versions meet here? As each side tells them; nothing is compared here.

use super::Gap;
use super::instance::InstanceFacts;
use crate::catalogue::Group;
use crate::facts::release::Release;
use crate::facts::{Fact, Unavailable};

/// The versions that the two APIs tell. A text that is no release, such as `master-head`, is a version that is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// Harvester: its setting `server-version`, such as `v1.6.1`. Absent on plain KubeVirt.
    pub harvester: Fact<Release>,
    /// KubeVirt: `gitVersion` of its subresource API, or the image that runs the VM, such as `v1.5.2`.
    pub kubevirt: Fact<Release>,
    /// Kubernetes of the hosts: `gitVersion` of `/version`, such as `v1.33.5+rke2r1`.
    pub host_kubernetes: Fact<Release>,
    /// The guest cluster's API server: `gitVersion` of `/version`.
    pub guest_kubernetes: Fact<Release>,
}

impl Versions {
    /// The same, with KubeVirt's version from the image that runs the VM where KubeVirt itself does not tell.
    pub fn or_of(self, instance: &Fact<InstanceFacts>) -> Self {
        let launcher = instance
            .known()
            .and_then(|instance| instance.launcher.known());
        match (&self.kubevirt, launcher) {
            (Fact::Known(_), _) | (_, None) => self,
            (_, Some(launcher)) => Self {
                kubevirt: Fact::Known(launcher.clone()),
                ..self
            },
        }
    }

    /// None of it, for one reason.
    pub fn unseen(why: &Unavailable) -> Self {
        let unseen = || Fact::Failed(why.clone());
        Self {
            harvester: unseen(),
            kubevirt: unseen(),
            host_kubernetes: unseen(),
            guest_kubernetes: unseen(),
        }
    }

    /// What could not be checked.
    pub fn gaps(&self) -> Vec<Gap> {
        let facts = [
            ("the version of Harvester", &self.harvester),
            ("the version of KubeVirt", &self.kubevirt),
            ("the Kubernetes version of the hosts", &self.host_kubernetes),
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
