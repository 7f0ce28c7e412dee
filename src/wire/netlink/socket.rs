// SPDX-License-Identifier: Apache-2.0
//! Sockets of rtnetlink: one that receives events of links, and a short-lived one that reads one link.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::MSG_TRUNC;
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkBuffer};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use socket2::{SockFilter, SockRef};

use super::message::{HEADER, IFLA_IFNAME, LINK_HEADER, Link, Message, RTM_GETLINK, messages};

/// The port ID of the kernel. A message from any other port ID was sent by a process.
pub const KERNEL: u32 = 0;

/// Multicast group `RTNLGRP_LINK`, as a bit.
pub const LINKS: u32 = 1;

/// The size of the receive buffer: enough for announcements of a few dozen NICs at once; the kernel's own limit may be lower.
pub const RECEIVE_BUFFER: usize = 256 << 10;

/// The size of the buffer for a message: the kernel's have 1.5 kB, and less than a page.
pub const MESSAGE_MAX: usize = 8 << 10;

/// The timeout of a response. The kernel responds within the system call.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

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

/// Opens a non-blocking socket that receives the events of links that `filter` keeps, with a receive buffer of `receive_buffer` bytes in
/// the kernel. `EAFNOSUPPORT`: a sandbox does not permit the socket.
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

/// Returns the next message. `WouldBlock`: there is none, or none before the timeout of the socket. After any other error there will
/// never be one again.
pub fn receive(socket: &Socket, mut buffer: &mut [u8]) -> io::Result<Received> {
    loop {
        match socket.recv_from(&mut buffer, MSG_TRUNC) {
            Ok((length, sender)) => {
                let sender = sender.port_number();
                return Ok(Received::Datagram { length, sender });
            }
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOBUFS) => return Ok(Received::Overrun),
                Some(Errno::EINTR) => {}
                _ => return Err(error),
            },
        }
    }
}

/// Reads the link of our network namespace with this name. `ENODEV`: there is none.
pub fn read_link(name: &OsStr) -> io::Result<Link> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    SockRef::from(&socket).set_read_timeout(Some(ANSWER_TIMEOUT))?;
    socket.send_to(&request(name.as_bytes()), &SocketAddr::new(KERNEL, 0), 0)?;
    let mut buffer = vec![0; MESSAGE_MAX];
    let answer = match receive(&socket, &mut buffer)? {
        Received::Datagram {
            length,
            sender: KERNEL,
        } => messages(buffer.get(..length).unwrap_or_default()).next(),
        _ => None,
    };
    match answer {
        Some(Ok(Message::Link(link))) => Ok(link),
        Some(Ok(Message::Refused(errno))) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Returns an `RTM_GETLINK` for the link with this name.
fn request(name: &[u8]) -> Vec<u8> {
    let mut request = vec![0; HEADER + LINK_HEADER];
    request.extend((name.len() as u16 + 4).to_ne_bytes());
    request.extend(IFLA_IFNAME.to_ne_bytes());
    request.extend(name);
    request.resize(request.len().next_multiple_of(4), 0);
    let length = request.len() as u32;
    let mut request = NetlinkBuffer::new(request);
    request.set_length(length);
    request.set_message_type(RTM_GETLINK);
    request.set_flags(NLM_F_REQUEST);
    request.into_inner()
}
