// SPDX-License-Identifier: Apache-2.0
//! Who else has a hand in our names, labels and addresses?

use core::net::IpAddr;

use super::Gap;
use crate::facts::machine::Mac;
use crate::facts::{Seen, Why};
use crate::findings::Group;

/// What may contradict us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    /// The taint of a Node that no cloud provider has taken on. Absent where it has none.
    pub uninitialized: Seen<Uninitialized>,
    /// `status.addresses` of the Node with type `InternalIP`.
    pub node_addresses: Seen<Vec<IpAddr>>,
    /// `status.interfaces` of the VM's instance: what Harvester believes.
    pub vm_interfaces: Seen<Vec<Interface>>,
    /// What the kernel has, of the NICs with a device behind them.
    pub guest_interfaces: Seen<Vec<Interface>>,
    /// The zone of each host that may be read. Absent where no host has one.
    pub host_zones: Seen<Vec<String>>,
}

/// `node.cloudprovider.kubernetes.io/uninitialized`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uninitialized {
    /// When the Node was created, in seconds since 1970: a kubelet sets the taint as it registers.
    pub since: Option<i64>,
}

/// A NIC and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name in this machine, where known.
    pub name: Option<String>,
    /// Its hardware address.
    pub mac: Option<Mac>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Conflicts {
    /// None of it, for one reason.
    pub fn unseen(why: &Why) -> Self {
        Self {
            uninitialized: Seen::Failed(why.clone()),
            node_addresses: Seen::Failed(why.clone()),
            vm_interfaces: Seen::Failed(why.clone()),
            guest_interfaces: Seen::Failed(why.clone()),
            host_zones: Seen::Failed(why.clone()),
        }
    }

    /// What could not be looked at.
    pub fn gaps(&self) -> Vec<Gap> {
        let node = Group::Node;
        let gaps = [
            Gap::of(node, "the taints of the Node", &self.uninitialized),
            Gap::of(node, "the addresses of the Node", &self.node_addresses),
            Gap::of(
                node,
                "the addresses that Harvester knows",
                &self.vm_interfaces,
            ),
            Gap::of(
                Group::Machine,
                "the addresses of this machine",
                &self.guest_interfaces,
            ),
            Gap::of(
                Group::Placement,
                "the zones of the other hosts",
                &self.host_zones,
            ),
        ];
        gaps.into_iter().flatten().collect()
    }
}
