// SPDX-License-Identifier: Apache-2.0
//! One virtio-serial port (`drivers/char/virtio_console.c`).
//!
//! What the kernel does, which is not what a socket does: a second opener gets `EBUSY`; a read gives at most 4096 bytes, and
//! 0 while no one on the host holds the other end, after which the same descriptor works again when someone does; a
//! hot-unplugged port gives `ENODEV`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use crate::sys::epoll::EdgeTriggered;
use crate::sys::root::Root;

/// Where udev links ports by name (systemd's `50-udev-default.rules`).
pub const BY_NAME: &str = "/dev/virtio-ports";

/// Where the kernel tells the name of each port, before udev made the link.
const CLASS: &str = "/sys/class/virtio-ports";

/// The most that the kernel's driver gives to one read.
pub const READ_MAX: usize = 4096;

/// A name is short; more is not one.
const NAME_MAX: u64 = 256;

/// Why a port cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The host does not offer a port of this name.
    #[error("the host does not provide the port `{0}`")]
    NotOffered(String),
    /// Another program holds it: a port has one reader.
    #[error("the port `{}` is in use by another program", .0.display())]
    Busy(PathBuf),
    /// The kernel refused access.
    #[error("not permitted to open the port `{}`", .0.display())]
    Denied(PathBuf),
    /// The port was taken away while it was open.
    #[error("the host removed the port `{}`", .0.display())]
    Unplugged(PathBuf),
    /// Any other failure.
    #[error("failed to use the port `{path}`")]
    Io {
        /// The port.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl PortError {
    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EBUSY) => Self::Busy(path),
            Some(Errno::EACCES | Errno::EPERM) => Self::Denied(path),
            // A pseudo-terminal, which plays a port in tests, gives EIO for good.
            Some(Errno::ENODEV | Errno::EIO) => Self::Unplugged(path),
            _ => Self::Io { path, source },
        }
    }
}

/// The device of the port with this name, where the host offers one.
pub fn find(root: &Root, name: &str) -> Option<PathBuf> {
    let linked = Path::new(BY_NAME).join(name);
    if root.link_target(&linked).is_some() || root.exists(&linked) {
        return Some(linked);
    }
    // The link comes a moment after the device, and not at all without udev.
    let ports = root.list(CLASS).ok()?;
    let named = |port: &std::ffi::OsString| {
        let file = Path::new(CLASS).join(port).join("name");
        root.read_text(file, NAME_MAX)
            .is_ok_and(|text| text.trim_end() == name)
    };
    let port = ports.into_iter().find(named)?;
    Some(Path::new("/dev").join(port))
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, at least one.
    Data(usize),
    /// Nothing now; the host side is there.
    Nothing,
    /// Nothing, and no one holds the other end.
    HostAway,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There is something to read, or room to write again.
    Ready,
    /// No one holds the other end any more. There may still be something to read.
    HostAway,
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    path: PathBuf,
    // Before the file: an epoll instance must not outlive what it follows.
    edges: EdgeTriggered,
    file: File,
}

impl Port {
    /// Opens the port with this name, without waiting for anything.
    ///
    /// # Errors
    ///
    /// When the host offers none, someone else holds it, or the kernel refuses.
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

    /// A port on a descriptor that is open already and does not block.
    ///
    /// # Errors
    ///
    /// When the kernel cannot tell of its changes.
    pub fn new(path: PathBuf, file: File) -> Result<Self, PortError> {
        let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        match EdgeTriggered::of(&file, interest) {
            Ok(edges) => Ok(Self { path, edges, file }),
            Err(source) => Err(PortError::new(&path, source)),
        }
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for a change. Read until there is [`Read::Nothing`] or [`Read::HostAway`] after each: a change is reported once.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// When the port is gone.
    pub async fn changed(&self) -> Result<Change, PortError> {
        match self.edges.next().await {
            Ok(flags) if flags.contains(EpollFlags::EPOLLHUP) => Ok(Change::HostAway),
            Ok(_) => Ok(Change::Ready),
            Err(source) => Err(PortError::new(&self.path, source)),
        }
    }

    /// Reads what is there, at most [`READ_MAX`] bytes at a time.
    ///
    /// # Errors
    ///
    /// When the port is gone.
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

    /// Writes as much as there is room for; 0 while no one holds the other end or it does not read.
    ///
    /// # Errors
    ///
    /// When the port is gone.
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
