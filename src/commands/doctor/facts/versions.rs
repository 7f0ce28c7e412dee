// SPDX-License-Identifier: Apache-2.0
//! The versions of the components, as each one reports them. They are compared in `judge`.

use super::instance::InstanceFacts;
use crate::facts::Fact;
use crate::facts::release::Release;

facts! {
    /// The versions from the two APIs. A string that is not a release, such as `master-head`, is an unknown version.
    Versions {
        /// The release of Harvester: its setting `server-version`, such as `v1.6.1`. Absent on KubeVirt without Harvester.
        harvester: Release, Versions, "the version of Harvester";
        /// The release of KubeVirt: `gitVersion` of its subresource API, or the image that runs the VM, such as `v1.5.2`.
        kubevirt: Release, Versions, "the version of KubeVirt";
        /// The Kubernetes release of the hosts: `gitVersion` of `/version`, such as `v1.33.5+rke2r1`.
        host_kubernetes: Release, Versions, "the Kubernetes version of the hosts";
        /// The release of the API server of the guest cluster: `gitVersion` of `/version`.
        guest_kubernetes: Release, Versions, "the Kubernetes version of this cluster";
    }
}

impl Versions {
    /// Sets the version of KubeVirt from the image that runs the VM, if its API does not have it.
    pub fn or_of(mut self, instance: &Fact<InstanceFacts>) -> Self {
        let launcher = instance.known().map(|instance| &instance.launcher);
        if let (None, Some(launcher @ Fact::Known(_))) = (self.kubevirt.known(), launcher) {
            self.kubevirt = launcher.clone();
        }
        self
    }
}
