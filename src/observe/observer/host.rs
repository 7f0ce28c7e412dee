// SPDX-License-Identifier: Apache-2.0
//! Whether the host itself is asked which one it is.

use super::World;
use crate::config::Settings;
use crate::facts::placement::Source;
use crate::facts::trigger::Scope;
use crate::facts::{Seen, WhyKind};

/// The source, for people.
pub(super) const METRICS: &str = "the downward metrics of the host";

/// Whether a source was not asked so far, or was not needed.
pub(super) fn is_unasked<T>(seen: &Seen<T>) -> bool {
    seen.why().is_some_and(|why| why.kind == WhyKind::NotAsked)
}

impl World {
    /// Whether the host itself is to be asked: nobody else tells which one it is.
    pub(super) fn needs_host(&self, settings: &Settings, scope: Scope) -> bool {
        let allowed = settings.topology.sources.contains(&Source::HostsTable);
        let is_told = match &self.candidates {
            Seen::Known(_) => true,
            // Harvester is asked in this very look, and will most likely answer.
            Seen::Failed(why) => {
                why.kind == WhyKind::NotAsked && self.connections.harvester.link().is_ok()
            }
            Seen::Absent => false,
        };
        allowed && !is_told && (scope.vm || is_unasked(&self.host_metrics))
    }
}
