// SPDX-License-Identifier: Apache-2.0
//! The address of the metrics endpoint: on this machine only.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::value::{ConfigValue, Wrong};

/// The prefix of the path of a Unix socket.
const UNIX: &str = "unix:";

/// The size of `sockaddr_un` without the terminating null byte: unix(7).
const SOCKET_PATH_MAX: usize = 107;

/// The first port that the service can bind: it has no capability, so the kernel forbids lower ports: capabilities(7),
/// `CAP_NET_BIND_SERVICE`.
const FIRST_PORT: u16 = 1024;

/// An address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address and an unprivileged port.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Parses an address; rejects one that is reachable from another machine.
    pub(super) fn parse(value: &ConfigValue) -> Result<Self, Wrong> {
        let text = value.text()?;
        if let Some(path) = text.strip_prefix(UNIX) {
            return match ConfigValue::Text(path.to_owned()).path() {
                Ok(path) if path.as_os_str().len() > SOCKET_PATH_MAX => Err(value.refuse(
                    format_args!("is too long for a socket path: at most {SOCKET_PATH_MAX} bytes"),
                )),
                Ok(path) => Ok(Self::Unix(path)),
                Err(_) => Err(value.refuse("has no absolute path after `unix:`")),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            value.refuse(
                "is neither ADDRESS:PORT nor `unix:` with a path; hostnames are not resolved",
            )
        })?;
        if !address.ip().is_loopback() {
            Err(value.refuse(
                "is not a loopback address; to export metrics, use an authenticating proxy or the textfile collector of \
                 node-exporter",
            ))
        } else if address.port() < FIRST_PORT {
            Err(value.refuse(format_args!(
                "has a port below {FIRST_PORT}, which the service cannot bind"
            )))
        } else {
            Ok(Self::Tcp(address))
        }
    }
}
