// SPDX-License-Identifier: Apache-2.0
//! Sockets of rtnetlink: one that receives events of links, and a short-lived one that lists the links.

use std::io::{self, ErrorKind};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::MSG_TRUNC;
use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use socket2::{SockFilter, SockRef};

use super::message::{HEADER, LINK_HEADER, Link, Malformed, Message, RTM_GETLINK, messages};

/// The port ID of the kernel. A message from any other port ID was sent by a process.
pub const KERNEL: u32 = 0;

/// Multicast group `RTNLGRP_LINK`, as a bit.
pub const LINKS: u32 = 1;

/// The size of the receive buffer: enough for announcements of a few dozen NICs at once; the kernel's own limit may be lower.
pub const RECEIVE_BUFFER: usize = 256 << 10;

/// The largest part of a list that the kernel sends at once (`netlink_recvmsg`).
const PART_MAX: usize = 32 << 10;

/// The maximum number of parts of one list: more than a hundred thousand links.
const PARTS_MAX: usize = 10_000;

/// The number of times that an interrupted list is requested: CNI adds and removes links at any time.
const TRIES: u32 = 3;

/// The timeout of a list. The kernel responds within the system call; this is for a list that never ends.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// The attribute of a request that defines what the response contains, u32.
const IFLA_EXT_MASK: u16 = 29;
/// In [`IFLA_EXT_MASK`]: no statistics, which are half of a response.
const RTEXT_FILTER_SKIP_STATS: u32 = 8;

/// The result of a read from a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A datagram.
    Datagram {
        /// Its length in bytes; bytes beyond the end of the buffer are lost.
        length: usize,
        /// The port ID of the sender.
        sender: u32,
    },
    /// The receive buffer was full, and the kernel dropped messages.
    Overrun,
}

/// A source of messages: the kernel, or a test.
pub trait MessageSource {
    /// Returns the next message.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, or none before the timeout of the socket. After any other error there will never be one again.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received>;
}

/// Opens a non-blocking socket that receives the events of links that `filter` keeps, with a receive buffer of `receive_buffer` bytes in
/// the kernel.
///
/// # Errors
///
/// When the kernel does not provide a socket (`EAFNOSUPPORT` in a sandbox), or does not accept the filter.
pub fn subscribe(filter: &[SockFilter], receive_buffer: usize) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    let options = SockRef::from(&socket);
    // The filter is set before the subscription, otherwise events between the two would not be filtered.
    options
        .attach_filter(filter)
        .and_then(|()| options.set_recv_buffer_size(receive_buffer))
        .and_then(|()| socket.bind(&SocketAddr::new(0, LINKS)))
        .and_then(|()| socket.set_non_blocking(true))?;
    Ok(socket)
}

impl MessageSource for Socket {
    fn receive(&self, mut buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let error = match self.recv_from(&mut buffer, MSG_TRUNC) {
                Ok((length, sender)) => {
                    let sender = sender.port_number();
                    return Ok(Received::Datagram { length, sender });
                }
                Err(error) => error,
            };
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOBUFS) => return Ok(Received::Overrun),
                Some(Errno::EINTR) => {}
                _ => return Err(error),
            }
        }
    }
}

/// Lists all links of our network namespace.
///
/// # Errors
///
/// When there is no socket, or the response is late, invalid or interrupted each time.
pub fn list_links() -> io::Result<Vec<Link>> {
    let mut tries = 0;
    loop {
        let socket = Socket::new(NETLINK_ROUTE)?;
        SockRef::from(&socket).set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.send_to(&request(), &SocketAddr::new(KERNEL, 0), 0)?;
        tries += 1;
        match collect(&socket) {
            Err(error) if error.kind() == ErrorKind::Interrupted && tries < TRIES => {}
            listed => return listed,
        }
    }
}

/// Returns the links of a list, up to its end. `Interrupted`: links changed while the list was written, so that one may be missing.
pub(super) fn collect(source: &impl MessageSource) -> io::Result<Vec<Link>> {
    let mut buffer = vec![0; PART_MAX];
    let mut links = Vec::new();
    for _ in 0..PARTS_MAX {
        let part = match source.receive(&mut buffer)? {
            Received::Datagram { sender, .. } if sender != KERNEL => continue,
            Received::Datagram { length, .. } => buffer.get(..length),
            Received::Overrun => None,
        };
        for message in messages(part.ok_or(ErrorKind::UnexpectedEof)?) {
            match message.map_err(|Malformed| ErrorKind::InvalidData)? {
                Message::Link(link) => links.push(link),
                Message::Done => return Ok(links),
                Message::Interrupted => return Err(ErrorKind::Interrupted.into()),
                Message::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Message::Other(_) => {}
            }
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}

/// Returns an `RTM_GETLINK` for all links, without statistics.
fn request() -> Vec<u8> {
    let attribute = 8_u16;
    let length = HEADER + LINK_HEADER + usize::from(attribute);
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(RTM_GETLINK.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // Sequence number, port ID, and a link header that selects no link.
    request.resize(HEADER + LINK_HEADER, 0);
    request.extend(attribute.to_ne_bytes());
    request.extend(IFLA_EXT_MASK.to_ne_bytes());
    request.extend(RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    request
}
