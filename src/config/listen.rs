// SPDX-License-Identifier: Apache-2.0
//! The address of the metrics endpoint: on this machine only.

use std::net::SocketAddr;

use super::value::{ConfigValue, Wrong};

/// The first port that the service can bind: it has no capability, so the kernel forbids lower ports: capabilities(7),
/// `CAP_NET_BIND_SERVICE`.
const FIRST_PORT: u16 = 1024;

/// A loopback address and an unprivileged port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl Listen {
    /// Parses an address; rejects one that is reachable from another machine.
    pub(super) fn parse(value: &ConfigValue) -> Result<Self, Wrong> {
        let address: SocketAddr = value
            .text()?
            .parse()
            .map_err(|_| value.refuse("is not ADDRESS:PORT; hostnames are not resolved"))?;
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
            Ok(Self(address))
        }
    }
}
