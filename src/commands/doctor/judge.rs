// SPDX-License-Identifier: Apache-2.0
//! What is wrong that only an examination shows? One file for each question; each is a function of the same [`Case`].
//!
//! What the running agent finds too is found in `decide/findings.rs` and not here.

pub mod addresses;
pub mod clock;
pub mod conflicts;
pub mod credentials;
pub mod image;
pub mod node;
pub mod permissions;
#[cfg(test)]
pub(crate) mod testing;
pub mod versions;

use crate::catalogue::Finding;
use crate::commands::doctor::facts::Examination;
use crate::config::Settings;
use crate::decide::identity::Identity;
use crate::decide::placement::Placement;
use crate::decide::{Now, rfc3339};
use crate::facts::distribution::Distribution;
use crate::facts::observation::Observation;

/// All that is known: an ordinary round, and the examination beside it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The settings in force.
    pub settings: &'a Settings,
    /// What the round saw of who we are.
    pub observation: &'a Observation,
    /// The judgement of that.
    pub identity: &'a Identity,
    /// Where we are, where known.
    pub placement: Option<&'a Placement>,
    /// What the examination saw.
    pub examination: &'a Examination,
    /// The time.
    pub now: Now,
}

impl<'a> Case<'a> {
    /// The name of our Node and that of our VM, where both are known.
    pub fn node_and_vm(&self) -> Option<(&'a str, &'a str)> {
        let node = &self.observation.kubelet.known()?.node_name;
        Some((node.as_str(), self.identity.vm_name()?.as_str()))
    }

    /// Whether our Node does not have the name of our VM.
    pub fn names_differ(&self) -> bool {
        self.node_and_vm().is_some_and(|(node, vm)| node != vm)
    }

    /// Whether the namespace holds VMs beside ours, as far as is known.
    pub fn may_have_neighbours(&self) -> bool {
        let all = self.examination.conflicts.namespace.known();
        all.is_none_or(|all| all.len() > 1)
    }

    /// Whether a distribution here is asked to use Harvester's cloud provider.
    pub fn asks_for_cloud_provider(&self) -> bool {
        let mut distributions = self.observation.distributions.iter();
        distributions.any(Distribution::asks_for_harvester)
    }
}

/// All findings of the examination, in the order of its parts. What explains what is for the caller to sort out.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    [
        versions::findings(case),
        node::findings(case),
        conflicts::findings(case),
        addresses::findings(case),
        credentials::findings(case),
        clock::findings(case),
        image::findings(case),
        permissions::findings(case),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Seconds since 1970 as a date.
fn date(seconds: i64) -> String {
    time::UtcDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| format!("Unix timestamp {seconds}"), rfc3339)
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
