// SPDX-License-Identifier: Apache-2.0
//! The two kinds of listening sockets.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::config::Listen;
use crate::root::Root;

/// Root and its group may ask; who else may is up to whoever gives the socket another group.
const SOCKET_MODE: u32 = 0o660;

/// Why nobody can ask.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    /// Another program listens there, or it may not be listened there.
    #[error("failed to listen on `{address}`")]
    Bind {
        /// The address or path.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something that is no socket stands at the path.
    #[error("`{0}` is there and is no socket")]
    NotASocket(PathBuf),
    /// The kernel gives no more connections.
    #[error("failed to take a connection")]
    Accept(#[source] io::Error),
}

/// A connection of either kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection.
pub(super) type Stream = Box<dyn Duplex>;

/// A socket that listens. Dropping it takes a socket file away.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens. A socket file that an earlier run left behind is replaced; one where somebody listens never.
    pub(super) fn bind(root: &Root, listen: &Listen) -> Result<Self, ListenError> {
        match listen {
            Listen::Tcp(address) => {
                let bound = std::net::TcpListener::bind(address).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    TcpListener::from_std(listener)
                });
                bound.map(Self::Tcp).map_err(|source| ListenError::Bind {
                    address: address.to_string(),
                    source,
                })
            }
            Listen::Unix(path) => {
                let place = root.join(path);
                remove_socket(&place, path)?;
                let bound = UnixListener::bind(&place).and_then(|listener| {
                    fs::set_permissions(&place, Permissions::from_mode(SOCKET_MODE))?;
                    Ok(listener)
                });
                match bound {
                    Ok(listener) => Ok(Self::Unix(listener, place)),
                    Err(source) => Err(ListenError::Bind {
                        address: path.display().to_string(),
                        source,
                    }),
                }
            }
        }
    }

    /// The next one who asks.
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
                // Whoever asked has gone: accept(2).
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(ListenError::Accept(error)),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, place) = self {
            let _ = fs::remove_file(place);
        }
    }
}

fn remove_socket(place: &Path, path: &Path) -> Result<(), ListenError> {
    match fs::symlink_metadata(place) {
        Ok(metadata) if metadata.file_type().is_socket() => {
            if is_held(place) {
                return Err(ListenError::Bind {
                    address: path.display().to_string(),
                    source: io::ErrorKind::AddrInUse.into(),
                });
            }
            // What cannot be removed is still in the way, and the kernel says so at once.
            let _ = fs::remove_file(place);
            Ok(())
        }
        Ok(_) => Err(ListenError::NotASocket(path.to_owned())),
        Err(_) => Ok(()),
    }
}

/// Whether somebody listens at a socket file. Does not wait: one whose queue is full is held too.
fn is_held(place: &Path) -> bool {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let connected = socket(AddressFamily::Unix, SockType::Stream, flags, None).and_then(|socket| {
        let address = UnixAddr::new(place)?;
        connect(socket.as_raw_fd(), &address)
    });
    connected != Err(Errno::ECONNREFUSED)
}
