// SPDX-License-Identifier: Apache-2.0
//! Whether the host itself is asked which one it is.

use super::Observer;
use crate::config::Settings;
use crate::facts::placement::Source;
use crate::facts::trigger::Scope;
use crate::facts::{Fact, UnavailableKind};

/// The source, for people.
pub(super) const METRICS: &str = "the downward metrics of the host";

/// Whether a source was not asked so far, or was not needed.
pub(super) fn is_unasked<T>(seen: &Fact<T>) -> bool {
    seen.why()
        .is_some_and(|why| why.kind == UnavailableKind::NotAsked)
}

impl Observer {
    /// Whether the host itself is to be asked: nobody else tells which one it is.
    pub(super) fn needs_host(&self, settings: &Settings, scope: Scope) -> bool {
        let allowed = settings.topology.sources.contains(&Source::HostsTable);
        let is_told = match &self.candidates {
            Fact::Known(_) => true,
            // Harvester is asked in this very look, and will most likely answer.
            Fact::Failed(why) => {
                why.kind == UnavailableKind::NotAsked && self.connections.harvester.link().is_ok()
            }
            Fact::Absent => false,
        };
        allowed && !is_told && (scope.vm || is_unasked(&self.host_metrics))
    }
}
