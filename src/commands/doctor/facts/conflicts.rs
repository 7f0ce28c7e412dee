// SPDX-License-Identifier: Apache-2.0
//! Who else has a hand in our names, labels and addresses?

use super::Gap;
use super::instance::{Instance, Interface};
use crate::catalogue::Group;
use crate::facts::vmi::Vmi;
use crate::facts::{Seen, Why};

/// What may contradict us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    /// What Harvester says of our VM. Absent where it is gone.
    pub instance: Seen<Instance>,
    /// All instances of our namespace, our own among them.
    pub namespace: Seen<Vec<Vmi>>,
    /// The hosts that may be listed.
    pub hosts: Seen<Vec<Host>>,
    /// The addresses of this machine, link-local ones left out.
    pub addresses: Seen<Vec<Interface>>,
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
    pub fn unseen(why: &Why) -> Self {
        Self {
            instance: Seen::Failed(why.clone()),
            namespace: Seen::Failed(why.clone()),
            hosts: Seen::Failed(why.clone()),
            addresses: Seen::Failed(why.clone()),
        }
    }

    /// What could not be looked at.
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
