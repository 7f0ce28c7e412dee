// SPDX-License-Identifier: Apache-2.0
//! The CPUs, memory, kernel modules and shutdown settings of this VM.

/// A VXLAN interface of Flannel or Calico, and the NIC that sends its packets. The MTUs are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The name of the interface.
    pub name: String,
    /// The MTU of the interface.
    pub mtu: u32,
    /// What the encapsulation adds to a packet, in bytes.
    pub overhead: u32,
    /// The name of the NIC.
    pub nic: String,
    /// The MTU of the NIC.
    pub nic_mtu: u32,
}

facts! {
    /// The state of this VM that only its own files show.
    SystemFacts {
        /// The number of CPUs that are online.
        cpus_online: u64, Node, "the online CPUs of this VM";
        /// The number of CPUs that the VM has.
        cpus_present: u64, Node, "the CPUs of this VM";
        /// The memory, in KiB.
        memory_kib: u64, Node, "the memory of this VM";
        /// The time in seconds for which systemd-logind lets programs delay a shutdown.
        inhibit_delay: u64, Node, "the settings of systemd-logind";
        /// Whether the running kernel has the module macvlan. Absent if its list of modules does not exist.
        macvlan: bool, Node, "the modules of the kernel";
        /// The interfaces of the pod network, where the kernel names the NIC below them.
        overlays: Vec<Overlay>, Node, "the MTUs of the pod network";
    }
}
