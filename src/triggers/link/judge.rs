// SPDX-License-Identifier: Apache-2.0
//! Checks whether a kernel message is the announcement of a virtio NIC.

use crate::wire::netlink::inventory::VIRTIO;
use crate::wire::netlink::message::{Message, MessageError, NOTIFY_PEERS, messages};
use crate::wire::netlink::socket::KERNEL;

/// The announcement of a virtio NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkAnnounce {
    /// The name of the NIC. Root may choose any name: escape it before it is shown.
    pub nic: String,
}

/// The reason why a message is not a reason to reconcile.
#[derive(Debug, thiserror::Error)]
pub enum RefusedAnnounce {
    /// A process sent it, not the kernel.
    #[error("from port ID {0}, not from the kernel")]
    Forged(u32),
    /// It is not a valid netlink message.
    #[error("cannot be parsed")]
    Malformed(#[source] MessageError),
    /// It reports another event.
    #[error("not an announcement")]
    Other,
    /// A device on top of a NIC repeats the event of the NIC.
    #[error("from a device of kind {0:?}")]
    Copy(String),
    /// A device other than a virtio NIC announces itself: a bond that changes its port, a team, a passed-through NIC.
    #[error("not from a virtio NIC")]
    NotVirtio,
}

/// Checks a datagram from the port ID `sender`; the kernel sends one message in each. `bus_of` returns the bus of a NIC by its
/// name, for kernels whose messages do not contain it (before 5.14).
pub fn judge(
    datagram: &[u8],
    sender: u32,
    bus_of: impl FnOnce(&str) -> Option<String>,
) -> Result<LinkAnnounce, RefusedAnnounce> {
    if sender != KERNEL {
        return Err(RefusedAnnounce::Forged(sender));
    }
    let link = match messages(datagram).next() {
        Some(Ok(Message::Link(link))) if link.event == Some(NOTIFY_PEERS) => link,
        Some(Err(error)) => return Err(RefusedAnnounce::Malformed(error)),
        _ => return Err(RefusedAnnounce::Other),
    };
    if let Some(kind) = link.kind {
        return Err(RefusedAnnounce::Copy(kind));
    }
    if link.bus.or_else(|| bus_of(&link.name)).as_deref() != Some(VIRTIO) {
        return Err(RefusedAnnounce::NotVirtio);
    }
    Ok(LinkAnnounce { nic: link.name })
}
