// SPDX-License-Identifier: Apache-2.0
//! A virtio-serial port for a guest's file tree, played by a pseudo-terminal: udev's link below `/dev/virtio-ports`, and the
//! host side with this process.
//!
//! Not as the real thing: a hang-up is for good (the guest reads 0 bytes, and a write says `EIO`), so a host side that comes
//! back is a new device under the old name, and a guest that opens it finds the host attached at once.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::pin::Pin;
use std::task::{Context, Poll};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

use crate::guest::GuestTree;

/// A port that the host offers. Reading and writing are the host's side of it.
#[derive(Debug)]
pub struct VirtioPort {
    guest: GuestTree,
    link: String,
    host: Option<HostSide>,
}

#[derive(Debug)]
struct HostSide {
    reader: pipe::Receiver,
    writer: pipe::Sender,
    /// Without a guest that has it open, a pseudo-terminal refuses its other side.
    _device: File,
}

impl HostSide {
    fn new() -> io::Result<(Self, String)> {
        let (host, device, path) = terminal()?;
        // To tokio it is both ends of a pipe.
        let side = Self {
            reader: pipe::Receiver::from_owned_fd_unchecked(host.try_clone()?)?,
            writer: pipe::Sender::from_owned_fd_unchecked(host)?,
            _device: device,
        };
        Ok((side, path))
    }
}

/// A raw terminal: the host's end, the guest's end, and the path of the latter. No other process that is started meanwhile gets a part of
/// it: a host side that is open elsewhere would never hang up.
pub(crate) fn terminal() -> io::Result<(OwnedFd, File, String)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let host = posix_openpt(flags)?;
    grantpt(&host)?;
    unlockpt(&host)?;
    let path = ptsname_r(&host)?;
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOCTTY.bits())
        .open(&path)?;
    let mut settings = tcgetattr(&device)?;
    cfmakeraw(&mut settings);
    tcsetattr(&device, SetArg::TCSANOW, &settings)?;
    Ok((host.into(), device, path))
}

impl VirtioPort {
    /// Offers a port of this name. Needs a tokio runtime.
    #[must_use]
    pub fn offer(guest: &GuestTree, name: &str) -> Self {
        let mut port = Self {
            guest: guest.clone(),
            link: format!("/dev/virtio-ports/{name}"),
            host: None,
        };
        port.come_back();
        port
    }

    /// The host side goes away.
    pub fn hang_up(&mut self) {
        self.host = None;
    }

    /// The host side comes back, in one step where it was not away.
    pub fn come_back(&mut self) {
        let (host, device) = HostSide::new().expect("the kernel has pseudo-terminals");
        self.guest.flip_link(&self.link, &device);
        self.host = Some(host);
    }

    /// The host takes the port away, and udev its link.
    pub fn withdraw(&mut self) {
        self.hang_up();
        self.guest.remove(&self.link);
    }

    fn host(&mut self) -> io::Result<&mut HostSide> {
        self.host
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for VirtioPort {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.host()?.reader).poll_read(context, buffer)
    }
}

impl AsyncWrite for VirtioPort {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.host()?.writer).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.host()?.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.host()?.writer).poll_shutdown(context)
    }
}
