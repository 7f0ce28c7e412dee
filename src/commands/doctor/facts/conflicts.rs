// SPDX-License-Identifier: Apache-2.0
//! Other writers and owners of our names, labels and addresses.

use super::instance::{InstanceFacts, Interface};
use crate::facts::vmi::Vmi;

facts! {
    /// The facts that may conflict with ours.
    Conflicts {
        /// Harvester's data about our VM. Absent if the VM is deleted.
        instance: InstanceFacts, HarvesterApi, "labels, conditions and addresses of the VM";
        /// All VMIs of our namespace, including our own.
        namespace: Vec<Vmi>, Identity, "the other VMs of the namespace";
        /// The addresses of this machine, without link-local ones.
        addresses: Vec<Interface>, Machine, "the addresses of this VM";
    }
}
