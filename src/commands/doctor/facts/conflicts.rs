// SPDX-License-Identifier: Apache-2.0
//! Other writers and owners of our names, labels and addresses.

use super::Gap;
use super::instance::{InstanceFacts, Interface};
use crate::catalog::Group;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable};

/// The facts that may conflict with ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    /// Harvester's data about our VM. Absent if the VM is deleted.
    pub instance: Fact<InstanceFacts>,
    /// All VMIs of our namespace, including our own.
    pub namespace: Fact<Vec<Vmi>>,
    /// The hosts that the credential can list.
    pub hosts: Fact<Vec<Host>>,
    /// The addresses of this machine, without link-local ones.
    pub addresses: Fact<Vec<Interface>>,
}

/// A Harvester host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name.
    pub name: String,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
}

impl Conflicts {
    /// Creates facts that are all unavailable for the same reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            instance: Fact::Failed(why.clone()),
            namespace: Fact::Failed(why.clone()),
            hosts: Fact::Failed(why.clone()),
            addresses: Fact::Failed(why.clone()),
        }
    }

    /// Returns the checks that could not be done.
    pub fn gaps(&self) -> Vec<Gap> {
        let harvester = Group::HarvesterApi;
        let gaps = [
            Gap::of(
                harvester,
                "labels, conditions and addresses of the VM",
                &self.instance,
            ),
            Gap::of(
                Group::Identity,
                "the other VMs of the namespace",
                &self.namespace,
            ),
            Gap::of(
                Group::Placement,
                "the zones of the other hosts",
                &self.hosts,
            )
            .map(Gap::optional),
            Gap::of(Group::Machine, "the addresses of this VM", &self.addresses),
        ];
        gaps.into_iter().flatten().collect()
    }
}
