// SPDX-License-Identifier: Apache-2.0
//! Where metrics may be asked for: on this machine only.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::value::{Value, Wrong};

/// What a path of a unix socket begins with.
const UNIX: &str = "unix:";

/// `sockaddr_un` holds 108 bytes, the last of them zero: unix(7).
const SOCKET_PATH_MAX: usize = 107;

/// The service has no capability at all, so that the kernel refuses it the ports below: capabilities(7),
/// `CAP_NET_BIND_SERVICE`.
const FIRST_PORT: u16 = 1024;

/// An address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address, and a port that anybody may listen on.
    Tcp(SocketAddr),
    /// The absolute path of a unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Reads an address; whatever could be reached from another machine is refused.
    pub(super) fn parse(value: &Value) -> Result<Self, Wrong> {
        let text = value.text()?;
        if let Some(path) = text.strip_prefix(UNIX) {
            return match Value::Text(path.to_owned()).path() {
                Ok(path) if path.as_os_str().len() > SOCKET_PATH_MAX => {
                    Err(value.refuse(format_args!(
                        "is longer than a path of a socket may be, {SOCKET_PATH_MAX} bytes"
                    )))
                }
                Ok(path) => Ok(Self::Unix(path)),
                Err(_) => Err(value.refuse("has no absolute path of a file after `unix:`")),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            value.refuse("is neither ADDRESS:PORT nor `unix:` with a path; names are not looked up")
        })?;
        if !address.ip().is_loopback() {
            Err(value.refuse(
                "is no loopback address: the metrics name hosts and VMs and are told to nobody outside this machine; let \
                 a proxy that asks who is there, or node-exporter's textfile collector, carry them further",
            ))
        } else if address.port() < FIRST_PORT {
            Err(value.refuse(format_args!(
                "has a port below {FIRST_PORT}, which the service may not listen on"
            )))
        } else {
            Ok(Self::Tcp(address))
        }
    }
}
