// SPDX-License-Identifier: Apache-2.0
//! Who else has a hand in our names, labels and addresses?

use super::Gap;
use super::instance::{InstanceFacts, Interface};
use crate::catalogue::Group;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable};

/// What may contradict us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    /// What Harvester says of our VM. Absent where it is gone.
    pub instance: Fact<InstanceFacts>,
    /// All instances of our namespace, our own among them.
    pub namespace: Fact<Vec<Vmi>>,
    /// The hosts that may be listed.
    pub hosts: Fact<Vec<Host>>,
    /// The addresses of this machine, link-local ones left out.
    pub addresses: Fact<Vec<Interface>>,
}

/// A host of Harvester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
}

impl Conflicts {
    /// None of it, for one reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            instance: Fact::Failed(why.clone()),
            namespace: Fact::Failed(why.clone()),
            hosts: Fact::Failed(why.clone()),
            addresses: Fact::Failed(why.clone()),
        }
    }

    /// What could not be checked.
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
