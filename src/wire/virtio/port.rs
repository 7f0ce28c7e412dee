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
    /// The host does not provide a port of this name.
    #[error("the host does not provide the port `{0}`")]
    NotOffered(String),
    /// Another program has it open: a port has one reader.
    #[error("the port `{}` is in use by another program", .0.display())]
    Busy(PathBuf),
    /// The kernel denied access.
    #[error("not permitted to open the port `{}`", .0.display())]
    Denied(PathBuf),
    /// The port was removed while it was open.
    #[error("the host removed the port `{}`", .0.display())]
    Unplugged(PathBuf),
    /// Any other failure.
    #[error("failed to use the port `{path}`")]
    Io {
        /// The port.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl PortError {
    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EBUSY) => Self::Busy(path),
            Some(Errno::EACCES | Errno::EPERM) => Self::Denied(path),
            // A pseudo-terminal, which replaces a port in tests, returns EIO permanently.
            Some(Errno::ENODEV | Errno::EIO) => Self::Unplugged(path),
            _ => Self::Io { path, source },
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The number of bytes, at least one.
    Data(usize),
    /// No data yet; the host has the port open.
    Nothing,
    /// No data, and the host does not have the port open.
    HostAway,
}

/// A change of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There is data to read, or space to write.
    Ready,
    /// The host has closed the port. There may still be data to read.
    HostAway,
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    path: PathBuf,
    // Declared before the file: an epoll instance must not outlive the file that it watches.
    edges: EdgeTriggered,
    file: File,
}

impl Port {
    /// Opens the port with this name, without waiting.
    ///
    /// # Errors
    ///
    /// When the host provides none, another program has it open, or the kernel denies access.
    pub fn open(root: &Root, name: &str) -> Result<Self, PortError> {
        let path = find(root, name).ok_or_else(|| PortError::NotOffered(name.to_owned()))?;
        let file = root
            .open_device(&path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => PortError::NotOffered(name.to_owned()),
                _ => PortError::new(&path, source),
            })?;
        Self::new(path, file)
    }

    /// Creates a port from an open, non-blocking file.
    ///
    /// # Errors
    ///
    /// When the kernel cannot report its changes.
    pub fn new(path: PathBuf, file: File) -> Result<Self, PortError> {
        let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        match EdgeTriggered::of(&file, interest) {
            Ok(edges) => Ok(Self { path, edges, file }),
            Err(source) => Err(PortError::new(&path, source)),
        }
    }

    /// Returns the device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for a change. After each change, read until [`Read::Nothing`] or [`Read::HostAway`]: a change is reported once.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// When the port was removed.
    pub async fn changed(&self) -> Result<Change, PortError> {
        match self.edges.next().await {
            Ok(flags) if flags.contains(EpollFlags::EPOLLHUP) => Ok(Change::HostAway),
            Ok(_) => Ok(Change::Ready),
            Err(source) => Err(PortError::new(&self.path, source)),
        }
    }

    /// Reads the available data, at most [`READ_MAX`] bytes at a time.
    ///
    /// # Errors
    ///
    /// When the port was removed.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Read, PortError> {
        match io::Read::read(&mut &self.file, buffer) {
            Ok(0) => Ok(Read::HostAway),
            Ok(count) => Ok(Read::Data(count)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Read::Nothing),
                _ => Err(PortError::new(&self.path, error)),
            },
        }
    }

    /// Writes as much as there is space for; 0 while the host does not have the port open or does not read.
    ///
    /// # Errors
    ///
    /// When the port was removed.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, PortError> {
        match io::Write::write(&mut &self.file, bytes) {
            Ok(count) => Ok(count),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(PortError::new(&self.path, error)),
            },
        }
    }
}
