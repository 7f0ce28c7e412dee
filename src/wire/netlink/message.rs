// SPDX-License-Identifier: Apache-2.0
//! The messages of rtnetlink that the agent reads. Numbers and layouts: `include/uapi/linux/rtnetlink.h`,
//! `include/uapi/linux/if_link.h`.

use rtnetlink::packet_core::{NLMSG_ERROR, NetlinkBuffer, NlasIterator};

use crate::facts::nic::Mac;

/// A link is new or has changed.
pub const RTM_NEWLINK: u16 = 16;
/// A request for a link.
pub const RTM_GETLINK: u16 = 18;

/// The size of `struct nlmsghdr`, in bytes.
pub const HEADER: usize = 16;
/// The size in bytes of `struct ifinfomsg`, which precedes the attributes of a link.
pub const LINK_HEADER: usize = 16;

/// The name, text.
pub const IFLA_IFNAME: u16 = 3;
/// The kind of software device, nested.
const IFLA_LINKINFO: u16 = 18;
/// In [`IFLA_LINKINFO`]: the kind, text such as `vlan`.
const IFLA_INFO_KIND: u16 = 1;
/// The event that the message reports, u32. Since Linux 4.13.
pub const IFLA_EVENT: u16 = 44;
/// The address that belongs to the hardware. Since Linux 5.6.
const IFLA_PERM_ADDRESS: u16 = 54;
/// The bus of the link's device, text such as `virtio`. Since Linux 5.14.
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;

/// `IFLA_EVENT_NOTIFY_PEERS`: the link announces its new location to its neighbors.
pub const NOTIFY_PEERS: u32 = 4;

/// The error for a message that violates the netlink format: a wrong length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// `RTM_NEWLINK`.
    Link(Link),
    /// An error of the kernel, with this errno; 0 is an acknowledgement.
    Refused(i32),
    /// Another type.
    Other(u16),
}

/// A network interface, as described in one message. Its text is untrusted: escape it before it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The name.
    pub name: String,
    /// The event that the message reports, if it has one.
    pub event: Option<u32>,
    /// The address that belongs to the hardware.
    pub address: Option<Mac>,
    /// The kind of software device; none for hardware.
    pub kind: Option<String>,
    /// The bus of its device; none for software devices, and for all before Linux 5.14.
    pub bus: Option<String>,
}

/// Returns the messages of one datagram. Ends after the first invalid message: the start of the next one is unknown.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Result<Message, Malformed>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let (message, rest) = match NetlinkBuffer::new_checked(datagram) {
            Ok(buffer) => {
                let next = (buffer.length() as usize).next_multiple_of(4);
                let message = parse(buffer.message_type(), buffer.payload());
                (message, datagram.get(next..).unwrap_or_default())
            }
            Err(_) => (Err(Malformed), [].as_slice()),
        };
        datagram = if message.is_ok() { rest } else { &[] };
        Some(message)
    })
}

fn parse(kind: u16, payload: &[u8]) -> Result<Message, Malformed> {
    Ok(match kind {
        RTM_NEWLINK => Message::Link(link(payload.get(LINK_HEADER..).ok_or(Malformed)?)?),
        NLMSG_ERROR => {
            let code = number(payload).ok_or(Malformed)?;
            Message::Refused(code.cast_signed().saturating_neg())
        }
        other => Message::Other(other),
    })
}

fn link(attributes: &[u8]) -> Result<Link, Malformed> {
    let mut link = Link::default();
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.map_err(|_| Malformed)?;
        let value = attribute.value();
        match attribute.kind() {
            IFLA_IFNAME => link.name = text(value),
            IFLA_EVENT => link.event = number(value),
            IFLA_PERM_ADDRESS => link.address = value.try_into().ok().and_then(Mac::new),
            IFLA_PARENT_DEV_BUS_NAME => link.bus = Some(text(value)),
            IFLA_LINKINFO => link.kind = kind(value)?,
            _ => {}
        }
    }
    Ok(link)
}

fn kind(info: &[u8]) -> Result<Option<String>, Malformed> {
    for attribute in NlasIterator::new(info) {
        let attribute = attribute.map_err(|_| Malformed)?;
        if attribute.kind() == IFLA_INFO_KIND {
            return Ok(Some(text(attribute.value())));
        }
    }
    Ok(None)
}

/// Returns the first four bytes as a number in native byte order.
fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Returns the bytes before the terminating zero.
fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
