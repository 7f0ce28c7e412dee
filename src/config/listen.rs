// SPDX-License-Identifier: Apache-2.0
//! The address of the metrics endpoint: on this machine only.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The first port that the service can bind: it has no capability, so the kernel forbids lower ports: capabilities(7),
/// `CAP_NET_BIND_SERVICE`.
const FIRST_PORT: u16 = 1024;

/// A loopback address and an unprivileged port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Listen(pub SocketAddr);

impl TryFrom<String> for Listen {
    type Error = &'static str;

    /// Parses an address; rejects one that is reachable from another machine.
    fn try_from(text: String) -> Result<Self, &'static str> {
        match text.parse::<SocketAddr>() {
            Err(_) => Err("is not ADDRESS:PORT; hostnames are not resolved"),
            Ok(address) if !address.ip().is_loopback() => Err(
                "is not a loopback address; to export metrics, use an authenticating proxy or the textfile collector of \
                 node-exporter",
            ),
            Ok(address) if address.port() < FIRST_PORT => {
                Err("has a port below 1024, which the service cannot bind")
            }
            Ok(address) => Ok(Self(address)),
        }
    }
}
