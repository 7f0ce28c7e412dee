// SPDX-License-Identifier: Apache-2.0
//! The findings that only an examination shows. One file for each topic, each with a function of the same [`Case`].
//!
//! Findings that the running agent reports too are in `decide/findings.rs`, not here.

pub mod addresses;
pub mod clock;
pub mod conflicts;
pub mod credentials;
pub mod image;
pub mod maintenance;
pub mod node;
pub mod permissions;
pub mod system;
#[cfg(test)]
pub(crate) mod testing;
pub mod versions;

use crate::catalog::Finding;
use crate::commands::doctor::facts::Examination;
use crate::config::Settings;
use crate::decide::identity::Identity;
use crate::decide::placement::Placement;
use crate::decide::{Now, rfc3339};
use crate::facts::distribution::Distribution;
use crate::facts::observation::Observation;

/// The input: an ordinary round and its examination.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The settings in force.
    pub settings: &'a Settings,
    /// The observation of the round.
    pub observation: &'a Observation,
    /// The identity derived from it.
    pub identity: &'a Identity,
    /// The placement, if known.
    pub placement: Option<&'a Placement>,
    /// The facts of the examination.
    pub examination: &'a Examination,
    /// The time.
    pub now: Now,
}

impl<'a> Case<'a> {
    /// Returns the names of our Node and our VM, if both are known.
    pub fn node_and_vm(&self) -> Option<(&'a str, &'a str)> {
        let node = &self.observation.kubelet.known()?.node_name;
        Some((node.as_str(), self.identity.vm_name()?.as_str()))
    }

    /// Reports whether our Node and our VM have different names.
    pub fn names_differ(&self) -> bool {
        self.node_and_vm().is_some_and(|(node, vm)| node != vm)
    }

    /// Reports whether the namespace has VMs other than ours, or this is unknown.
    pub fn may_have_neighbours(&self) -> bool {
        let all = self.examination.conflicts.namespace.known();
        all.is_none_or(|all| all.len() > 1)
    }

    /// Reports whether a distribution on this node is configured for Harvester's cloud provider.
    pub fn asks_for_cloud_provider(&self) -> bool {
        let mut distributions = self.observation.distributions.iter();
        distributions.any(Distribution::asks_for_harvester)
    }
}

/// Returns all findings of the examination, in the order of its parts. The caller removes consequences of other findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    [
        versions::findings(case),
        node::findings(case),
        conflicts::findings(case),
        maintenance::findings(case),
        addresses::findings(case),
        credentials::findings(case),
        clock::findings(case),
        system::findings(case),
        image::findings(case),
        permissions::findings(case),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Formats seconds since 1970 as a date.
fn date(seconds: i64) -> String {
    time::UtcDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| format!("Unix timestamp {seconds}"), rfc3339)
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
