// SPDX-License-Identifier: Apache-2.0
//! Checks whether a kernel message is the announcement of a virtio NIC.

use crate::wire::netlink::inventory::VIRTIO;
use crate::wire::netlink::message::{Message, NOTIFY_PEERS, messages};

/// Returns the name of the NIC if the kernel's message is the announcement of a virtio NIC; root may choose any name: escape it before it
/// is shown. The kernel sends one message in each datagram. `bus_of` returns the bus of a NIC by its name, for kernels whose messages
/// do not contain it (before 5.14).
pub fn judge(datagram: &[u8], bus_of: impl FnOnce(&str) -> Option<String>) -> Option<String> {
    let Some(Ok(Message::Link(link))) = messages(datagram).next() else {
        return None;
    };
    // A device on top of a NIC has a kind, and repeats the event of the NIC.
    if link.event != Some(NOTIFY_PEERS) || link.kind.is_some() {
        return None;
    }
    // Others announce themselves, too: a bond that changes its port, a team, a passed-through NIC.
    let bus = link.bus.or_else(|| bus_of(&link.name));
    (bus.as_deref() == Some(VIRTIO)).then_some(link.name)
}
