// SPDX-License-Identifier: Apache-2.0
//! The two kinds of listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::config::Listen;
use crate::sys::atomic_file::{self, WriteError};
use crate::sys::root::Root;

/// The mode of the socket: root and its group may connect. An administrator may change the group to allow others.
const SOCKET_MODE: Mode = Mode::from_bits_truncate(0o660);

/// The reason why the socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    /// Another program uses the address, or listening there is not permitted.
    #[error("failed to listen on `{address}`")]
    Bind {
        /// The address or path.
        address: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The sandbox of the unit denies it (`SocketBindDeny=`).
    #[error("failed to listen on `{0}`: the unit does not allow it")]
    Forbidden(SocketAddr),
    /// The directory of the socket cannot be used, or other users can write to it.
    #[error("failed to create the socket")]
    Directory(#[source] WriteError),
    /// The path exists and is not a socket.
    #[error("`{0}` exists and is not a socket")]
    NotASocket(PathBuf),
    /// The kernel accepts no more connections.
    #[error("failed to accept a connection")]
    Accept(#[source] io::Error),
}

/// A connection of either kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection.
pub(super) type Stream = Box<dyn Duplex>;

/// A listening socket. Dropping it removes the socket file.
#[derive(Debug)]
pub(super) enum MetricsListener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketPlace),
}

/// The name of a socket in an open directory that only root can write to: no other user can place a link at that name, and a later
/// change of the path above it cannot redirect a write.
#[derive(Debug)]
pub(super) struct SocketPlace {
    directory: OwnedFd,
    name: String,
    path: PathBuf,
}

impl MetricsListener {
    /// Starts to listen. A socket file of an earlier run is replaced; one that is in use never is.
    pub(super) fn bind(root: &Root, listen: &Listen) -> Result<Self, ListenError> {
        match listen {
            Listen::Tcp(address) => {
                let bound = std::net::TcpListener::bind(address).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    TcpListener::from_std(listener)
                });
                bound.map(Self::Tcp).map_err(|source| {
                    // A port below 1024 without the capability gives EACCES.
                    if source.raw_os_error() == Some(Errno::EPERM as i32) {
                        return ListenError::Forbidden(*address);
                    }
                    ListenError::Bind {
                        address: address.to_string(),
                        source,
                    }
                })
            }
            Listen::Unix(path) => {
                let place = SocketPlace::open(root, path)?;
                place.clear()?;
                let listener = UnixListener::bind(place.reach());
                let listener = listener.map_err(|source| place.failed(source))?;
                // The file is now removed on drop.
                let listening = Self::Unix(listener, place);
                if let Self::Unix(_, place) = &listening {
                    let allowed = place.allow();
                    allowed.map_err(|errno| place.failed(errno.into()))?;
                }
                Ok(listening)
            }
        }
    }

    /// Accepts the next connection.
    pub(super) async fn accept(&self) -> Result<Stream, ListenError> {
        loop {
            let accepted: io::Result<Stream> = match self {
                Self::Tcp(listener) => listener
                    .accept()
                    .await
                    .map(|(stream, _)| Box::new(stream) as Stream),
                Self::Unix(listener, _) => listener
                    .accept()
                    .await
                    .map(|(stream, _)| Box::new(stream) as Stream),
            };
            match accepted {
                Ok(stream) => return Ok(stream),
                // The client has disconnected: accept(2).
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(ListenError::Accept(error)),
            }
        }
    }
}

impl Drop for MetricsListener {
    fn drop(&mut self) {
        if let Self::Unix(_, place) = self {
            place.remove();
        }
    }
}

impl SocketPlace {
    fn open(root: &Root, path: &Path) -> Result<Self, ListenError> {
        let (directory, name) =
            atomic_file::open_private_parent(root, path).map_err(ListenError::Directory)?;
        Ok(Self {
            directory,
            name,
            path: path.to_owned(),
        })
    }

    /// Returns a path to the name through the open directory, because there is no `bindat(2)`.
    fn reach(&self) -> PathBuf {
        let descriptor = self.directory.as_raw_fd();
        Path::new("/proc/self/fd")
            .join(descriptor.to_string())
            .join(&self.name)
    }

    /// Removes the socket of an earlier run.
    fn clear(&self) -> Result<(), ListenError> {
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        match fstatat(&self.directory, self.name.as_str(), flags) {
            Ok(found) if is_socket(found.st_mode) => {
                if self.is_held() {
                    return Err(self.failed(io::ErrorKind::AddrInUse.into()));
                }
                // If it cannot be removed, the following bind fails immediately.
                self.remove();
                Ok(())
            }
            Ok(_) => Err(ListenError::NotASocket(self.path.clone())),
            Err(_) => Ok(()),
        }
    }

    /// Reports whether another process listens there. Does not wait: a socket with a full queue is in use, too.
    fn is_held(&self) -> bool {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let connected =
            socket(AddressFamily::Unix, SockType::Stream, flags, None).and_then(|socket| {
                let address = UnixAddr::new(&self.reach())?;
                connect(socket.as_raw_fd(), &address)
            });
        connected != Err(Errno::ECONNREFUSED)
    }

    /// Sets the mode of the socket itself: chmod(2) of the name would follow a link.
    fn allow(&self) -> nix::Result<()> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let made = openat(&self.directory, self.name.as_str(), flags, Mode::empty())?;
        if !is_socket(fstat(&made)?.st_mode) {
            return Err(Errno::EEXIST);
        }
        let path = Path::new("/proc/self/fd").join(made.as_raw_fd().to_string());
        fchmodat(AT_FDCWD, &path, SOCKET_MODE, FchmodatFlags::FollowSymlink)
    }

    fn remove(&self) {
        let _ = unlinkat(
            &self.directory,
            self.name.as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }

    fn failed(&self, source: io::Error) -> ListenError {
        ListenError::Bind {
            address: self.path.display().to_string(),
            source,
        }
    }
}

fn is_socket(mode: u32) -> bool {
    SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) == SFlag::S_IFSOCK
}
