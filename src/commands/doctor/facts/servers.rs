// SPDX-License-Identifier: Apache-2.0
//! The unauthenticated data of the two servers: their certificates and clocks, without verification.

use super::credentials::CertificateFacts;
use crate::facts::observation::Api;

facts! {
    /// Both servers.
    Servers {
        /// The Harvester API server.
        harvester: Shown, HarvesterApi, "the server's certificate and clock";
        /// The API server of the guest cluster, which may run on this machine and share its clock.
        guest: Shown, Node, "the server's certificate and clock";
    }
}

/// The unauthenticated data of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The certificate. `None` without TLS, or if it is invalid.
    pub certificate: Option<CertificateFacts>,
    /// The time in seconds by which its clock is ahead of ours. `None` if its response has no date.
    pub ahead: Option<i64>,
}

impl Servers {
    /// Returns the servers that could be read.
    pub fn seen(&self) -> impl Iterator<Item = (Api, &Shown)> {
        let servers = [(Api::Harvester, &self.harvester), (Api::Guest, &self.guest)];
        servers
            .into_iter()
            .filter_map(|(api, shown)| Some((api, shown.known()?)))
    }
}
