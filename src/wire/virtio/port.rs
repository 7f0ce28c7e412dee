// SPDX-License-Identifier: Apache-2.0
//! One virtio-serial port (`drivers/char/virtio_console.c`).
//!
//! The kernel's driver differs from a socket: a second `open` fails with `EBUSY`; a read returns at most 4096 bytes, and
//! 0 while nothing on the host has the port open, after which the same descriptor works again when something does; a
//! hot-unplugged port returns `ENODEV`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use crate::sys::epoll::EdgeTriggered;
use crate::sys::root::Root;

/// The directory of udev's links to ports by name (systemd's `50-udev-default.rules`).
pub const BY_NAME: &str = "/dev/virtio-ports";

/// The directory in which the kernel reports the name of each port, before udev creates the link.
const CLASS: &str = "/sys/class/virtio-ports";

/// The maximum number of bytes that the kernel's driver returns from one read.
pub const READ_MAX: usize = 4096;

/// The maximum length of a name, in bytes.
const NAME_MAX: u64 = 256;

/// The reason why a port cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The host does not provide a port of this name, or removed it.
    #[error("the host does not provide the port")]
    Absent,
    /// Another program has it open: a port has one reader.
    #[error("the port is in use by another program")]
    Busy,
    /// Any other failure.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for PortError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            // A pseudo-terminal, which replaces a port in tests, returns EIO permanently.
            Some(Errno::ENOENT | Errno::ENODEV | Errno::EIO) => Self::Absent,
            Some(Errno::EBUSY) => Self::Busy,
            _ => Self::Io(error),
        }
    }
}

/// Returns the device of the port with this name, if the host provides one.
pub fn find(root: &Root, name: &str) -> Option<PathBuf> {
    let linked = Path::new(BY_NAME).join(name);
    if root.link_target(&linked).is_some() || root.exists(&linked) {
        return Some(linked);
    }
    // The link is created shortly after the device, and not at all without udev.
    let ports = root.list(CLASS).ok()?;
    let named = |port: &std::ffi::OsString| {
        let file = Path::new(CLASS).join(port).join("name");
        root.read_text(file, NAME_MAX)
            .is_ok_and(|text| text.trim_end() == name)
    };
    let port = ports.into_iter().find(named)?;
    Some(Path::new("/dev").join(port))
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// The data, at least one byte.
    Data(Vec<u8>),
    /// No data yet; the host has the port open.
    Nothing,
    /// No data, and the host does not have the port open.
    HostAway,
}

/// An open port. Each use fails once it was removed.
#[derive(Debug)]
pub struct Port(EdgeTriggered<File>);

impl Port {
    /// Opens the port with this name, without waiting.
    pub fn open(root: &Root, name: &str) -> Result<Self, PortError> {
        let path = find(root, name).ok_or(PortError::Absent)?;
        Ok(Self::new(root.open_device(path)?)?)
    }

    /// Creates a port from an open, non-blocking file.
    pub fn new(file: File) -> io::Result<Self> {
        EdgeTriggered::of(file, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT).map(Self)
    }

    /// Waits for a change, and reports whether the host has closed the port, in which there may still be data. After each change,
    /// read until [`Read::Nothing`] or [`Read::HostAway`]: a change is reported once. Cancel-safe.
    pub async fn changed(&self) -> Result<bool, PortError> {
        let flags = self.0.next().await?;
        // A pseudo-terminal, which replaces a port in tests, never works again.
        if flags.contains(EpollFlags::EPOLLERR) {
            return Err(PortError::Absent);
        }
        Ok(flags.contains(EpollFlags::EPOLLHUP))
    }

    /// Reads the available data, at most [`READ_MAX`] bytes at a time.
    pub fn read(&self) -> Result<Read, PortError> {
        let mut buffer = vec![0; READ_MAX];
        match io::Read::read(&mut &self.0.file, &mut buffer) {
            Ok(0) => Ok(Read::HostAway),
            Ok(count) => {
                buffer.truncate(count);
                Ok(Read::Data(buffer))
            }
            Err(error) if is_passing(&error) => Ok(Read::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes as much as there is space for; 0 while the host does not have the port open or does not read.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, PortError> {
        match io::Write::write(&mut &self.0.file, bytes) {
            Err(error) if is_passing(&error) => Ok(0),
            written => Ok(written?),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}
