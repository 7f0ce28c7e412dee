// SPDX-License-Identifier: Apache-2.0
//! The unauthenticated data of the two servers: their certificates and clocks, without verification.

use super::Gap;
use super::credentials::CertificateFacts;
use crate::catalog::Group;
use crate::facts::observation::Api;
use crate::facts::{Fact, Unavailable};

/// Both servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    /// The Harvester API server.
    pub harvester: Fact<Shown>,
    /// The API server of the guest cluster, which may run on this machine and share its clock.
    pub guest: Fact<Shown>,
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
    /// Creates facts that are all unavailable for the same reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            harvester: Fact::Failed(why.clone()),
            guest: Fact::Failed(why.clone()),
        }
    }

    /// Returns the checks that could not be done.
    pub fn gaps(&self) -> Vec<Gap> {
        let what = "the server's certificate and clock";
        let gaps = [
            Gap::of(Group::HarvesterApi, what, &self.harvester),
            Gap::of(Group::Node, what, &self.guest),
        ];
        gaps.into_iter().flatten().collect()
    }

    /// Returns the servers that could be read.
    pub fn seen(&self) -> impl Iterator<Item = (Api, &Shown)> {
        let servers = [(Api::Harvester, &self.harvester), (Api::Guest, &self.guest)];
        servers
            .into_iter()
            .filter_map(|(api, shown)| Some((api, shown.known()?)))
    }
}
