// SPDX-License-Identifier: Apache-2.0
//! Which message of the kernel tells that a virtio NIC announces itself again.

use crate::wire::netlink::inventory::VIRTIO;
use crate::wire::netlink::message::{Message, MessageError, NOTIFY_PEERS, messages};
use crate::wire::netlink::socket::KERNEL;

/// A virtio NIC announces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkAnnounce {
    /// Its name. Root may choose any: escape it before it is shown.
    pub nic: String,
}

/// Why a message is no reason to reconcile.
#[derive(Debug, thiserror::Error)]
pub enum RefusedAnnounce {
    /// A process sent it, not the kernel.
    #[error("from port ID {0}, not from the kernel")]
    Forged(u32),
    /// It breaks the rules of netlink.
    #[error("cannot be parsed")]
    Malformed(#[source] MessageError),
    /// It tells of something else.
    #[error("not an announcement")]
    Other,
    /// A device on top of a NIC repeats what the NIC says.
    #[error("from a device of kind {0:?}")]
    Copy(String),
    /// Something other than a virtio NIC announces itself: a bond that changes its port, a team, a NIC passed through.
    #[error("not from a virtio NIC")]
    NotVirtio,
}

/// Judges a datagram from the port id `sender`; the kernel puts one message into each. `bus_of` tells the bus of a NIC by its
/// name, for kernels whose messages do not (before 5.14).
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
