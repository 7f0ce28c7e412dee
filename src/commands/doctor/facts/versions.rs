// SPDX-License-Identifier: Apache-2.0
//! The versions of the components, as each one reports them. They are compared in `judge`.

use super::Gap;
use super::instance::InstanceFacts;
use crate::catalog::Group;
use crate::facts::release::Release;
use crate::facts::{Fact, Unavailable};

/// The versions from the two APIs. A string that is not a release, such as `master-head`, is an unknown version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// The release of Harvester: its setting `server-version`, such as `v1.6.1`. Absent on KubeVirt without Harvester.
    pub harvester: Fact<Release>,
    /// The release of KubeVirt: `gitVersion` of its subresource API, or the image that runs the VM, such as `v1.5.2`.
    pub kubevirt: Fact<Release>,
    /// The Kubernetes release of the hosts: `gitVersion` of `/version`, such as `v1.33.5+rke2r1`.
    pub host_kubernetes: Fact<Release>,
    /// The release of the API server of the guest cluster: `gitVersion` of `/version`.
    pub guest_kubernetes: Fact<Release>,
}

impl Versions {
    /// Returns the versions, with that of KubeVirt from the image that runs the VM if its API does not have it.
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

    /// Creates facts that are all unavailable for the same reason.
    pub fn unseen(why: &Unavailable) -> Self {
        let unseen = || Fact::Failed(why.clone());
        Self {
            harvester: unseen(),
            kubevirt: unseen(),
            host_kubernetes: unseen(),
            guest_kubernetes: unseen(),
        }
    }

    /// Returns the checks that could not be done.
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
