// SPDX-License-Identifier: Apache-2.0
//! journald's socket.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;

use crate::report::sink::JOURNAL_SOCKET;

/// A way to journald. It outlives journald, whose socket is systemd's, and finds a new socket when that is replaced.
#[derive(Debug)]
pub(super) struct Connection {
    socket: UnixDatagram,
    nonblocking: bool,
}

impl Connection {
    /// One that waits for a journal that is slow.
    pub(super) fn open() -> io::Result<Self> {
        Self::connect(false)
    }

    /// One that never waits: then sending fails with [`ErrorKind::WouldBlock`].
    pub(super) fn open_nonblocking() -> io::Result<Self> {
        Self::connect(true)
    }

    fn connect(nonblocking: bool) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(nonblocking)?;
        socket.connect(JOURNAL_SOCKET)?;
        Ok(Self {
            socket,
            nonblocking,
        })
    }

    /// Sends one record.
    pub(super) fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error),
            // Nobody holds the other end any more.
            Err(_) => {
                *self = Self::connect(self.nonblocking)?;
                self.socket.send(datagram).map(drop)
            }
        }
    }
}
