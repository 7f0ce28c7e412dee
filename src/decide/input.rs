// SPDX-License-Identifier: Apache-2.0
//! The inputs of a decision: what was observed, why, and the time.

use std::time::Duration;

use time::UtcDateTime;

use super::identity::Identity;
use super::placement::{HostSource, Placement, locate};
use super::schedule::Random;
use crate::config::Settings;
use crate::facts::Unavailable;
use crate::facts::observation::Observation;
use crate::facts::trigger::Reasons;

/// The time of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// The time since the start of the process, from a monotonic clock.
    pub uptime: Duration,
    /// The wall clock, used only for texts and expiration.
    pub wall: UtcDateTime,
    /// A new random number.
    pub random: Random,
}

/// The inputs of a decision: one observation and its evaluation, the configuration, and the time.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The configuration.
    pub settings: &'a Settings,
    /// The time.
    pub now: Now,
    /// The reasons and the scope of this round.
    pub reasons: Reasons,
    /// The observed facts.
    pub observation: &'a Observation,
    /// The identity that follows from them.
    pub identity: &'a Identity,
    /// The host of the VM and its topology.
    pub placement: Option<&'a Placement>,
    /// Whether the daemon decides: temporary failures change no condition, and Harvester gets time to write its annotations.
    pub is_daemon: bool,
}

impl<'a> Scene<'a> {
    /// Reports whether the host is known only from the files of the pod.
    pub fn is_by_pod(self) -> bool {
        let located = locate(self.identity, self.observation);
        located.is_some_and(|located| matches!(located.host_source, HostSource::PodInfo))
    }

    /// Returns the failed reads that may succeed soon.
    pub fn trouble(self) -> Vec<&'a Unavailable> {
        let reads = [
            self.observation.candidates.why(),
            self.observation.node.why(),
            self.observation.host_metrics.why(),
            self.observation.pod_info.why(),
        ];
        let of_host = self
            .placement
            .filter(|placement| placement.known.is_none() || placement.extra.is_none());
        let of_host = of_host.and_then(|placement| placement.trouble.as_ref());
        reads
            .into_iter()
            .flatten()
            .chain(of_host)
            .filter(|why| why.kind.is_passing())
            .collect()
    }
}
