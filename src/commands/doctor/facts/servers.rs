// SPDX-License-Identifier: Apache-2.0
//! What do the two servers show to anyone? Their certificates and their clocks, of which nothing is verified.

use super::Gap;
use super::credentials::CertificateFacts;
use crate::catalogue::Group;
use crate::facts::observation::Api;
use crate::facts::{Fact, Unavailable};

/// Both servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    /// Harvester's.
    pub harvester: Fact<Shown>,
    /// The guest cluster's, which may run on this very machine and by its clock.
    pub guest: Fact<Shown>,
}

/// What one of them shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its certificate. None without TLS, or where it is no certificate.
    pub certificate: Option<CertificateFacts>,
    /// Seconds by which its clock is ahead of ours. None where its answer has no date.
    pub ahead: Option<i64>,
}

impl Servers {
    /// None of it, for one reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            harvester: Fact::Failed(why.clone()),
            guest: Fact::Failed(why.clone()),
        }
    }

    /// What could not be checked.
    pub fn gaps(&self) -> Vec<Gap> {
        let what = "the server's certificate and clock";
        let gaps = [
            Gap::of(Group::HarvesterApi, what, &self.harvester),
            Gap::of(Group::Node, what, &self.guest),
        ];
        gaps.into_iter().flatten().collect()
    }

    /// Those that were seen.
    pub fn seen(&self) -> impl Iterator<Item = (Api, &Shown)> {
        let servers = [(Api::Harvester, &self.harvester), (Api::Guest, &self.guest)];
        servers
            .into_iter()
            .filter_map(|(api, shown)| Some((api, shown.known()?)))
    }
}
