// SPDX-License-Identifier: Apache-2.0
//! Decides which kept facts a round reads again.
//!
//! What is kept, and when it is forgotten:
//!
//! - Our Node and the instances that may be ours are kept until they are read again. While a watch waits for their API to return,
//!   [`take_delivered`](Observer::take_delivered) has the last ones.
//! - Our own instance, and the search that found it, are forgotten with a new name, by [`forget`](Observer::forget), and when a list has
//!   several instances with our hardware.
//! - The labels of hosts are forgotten by a poll, and with the first read after [`forget`](Observer::forget). Those of the current host
//!   are also forgotten when our instance cannot be read, if its delivered state contradicts them, for another host, and with other
//!   settings; refusals, with [`Scope::AFRESH`]. See [`KeptLabels`](crate::observe::host_labels::KeptLabels).
//! - The VirtualMachine is read while our instance stops, until it is known, and forgotten afterwards.
//! - The unit of the guest agent is kept until it is read again.
//! - The metrics of the host are forgotten when Harvester answers.
//! - The labels of our pod and the facts of this machine are read in every round.

use bitflags::bitflags;

use super::state::Observer;
use crate::config::Settings;
use crate::facts::placement::Source;
use crate::facts::trigger::Scope;
use crate::facts::{Fact, UnavailableKind};

bitflags! {
    /// What a round reads again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Due: u8 {
        /// Our Node.
        const NODE = 1;
        /// Our VM: a GET request for the instance that was found, and a search if it does not exist.
        const VM = 1 << 1;
        /// With our VM, the other instances with our names or hardware.
        const OTHERS = 1 << 2;
        /// A search instead: our VM was not found yet, or others may have its names or hardware.
        const SEARCH = 1 << 3;
        /// The unit of the guest agent and its dependencies.
        const UNITS = 1 << 4;
        /// The metrics of the host, in parallel to the APIs.
        const METRICS = 1 << 5;
    }
}

impl Observer {
    /// Decides what to read in a round, with the current credentials. `doubted` may have changed since it was read. Forgets what a new
    /// name or a request of the administrator makes invalid.
    pub(super) fn due(&mut self, settings: &Settings, scope: Scope, doubted: Due) -> Due {
        if scope.contains(Scope::AFRESH) {
            self.host_labels.forget_refusals();
        }
        // A new name is reported immediately, whatever the APIs return. Duplicates of it are searched for after the debounce time, and of
        // one in a file at once.
        let is_renamed = scope.intersects(Scope::VM | Scope::AFRESH | Scope::FILES)
            && self.own.take_if(|own| own.names != self.names).is_some();
        let (facts, asks) = (&self.facts, scope.asks_apis());
        // Without a credential, the read fails without a request.
        let is_node_due = scope.contains(Scope::NODE)
            || facts.kubelet.known().is_none()
            || asks && is_due(&facts.node);
        let is_vm_due = scope.intersects(Scope::VM | Scope::SEARCH)
            || doubted.contains(Due::VM)
            || self.is_outdated
            || is_renamed
            || facts.harvester.known().is_none()
            || asks && is_due(&facts.candidates);
        let is_search = self.own.is_none() || scope.contains(Scope::SEARCH);
        let are_others_due = !is_search && scope.contains(Scope::NODE);
        let rows = [
            (Due::NODE, is_node_due),
            (Due::VM, is_vm_due),
            (Due::OTHERS, is_vm_due && are_others_due),
            (Due::SEARCH, is_vm_due && is_search),
            (Due::UNITS, scope.contains(Scope::UNITS)),
            (Due::METRICS, self.needs_metrics(settings, scope)),
        ];
        let due = rows.into_iter().filter(|(_, is_due)| *is_due);
        doubted | due.map(|(due, _)| due).collect()
    }

    /// Forgets the labels of hosts that are asked for again. Not before the reads: the round in place of an interrupted one needs them.
    pub(super) fn forget_labels(&mut self, scope: Scope, due: Due) {
        if scope.contains(Scope::HOST) {
            self.host_labels.forget_labels();
        }
        if due.contains(Due::VM) && self.facts.candidates.known().is_none() {
            self.host_labels.forget_current();
        }
    }

    /// Reports whether the host's metrics are read after the response of Harvester: a single run such as `whoami` has no later round
    /// to read them in.
    pub(super) fn needs_metrics_late(&self, settings: &Settings, scope: Scope) -> bool {
        scope.contains(Scope::AFRESH)
            && is_unasked(&self.facts.host_metrics)
            && self.needs_metrics(settings, scope)
    }

    /// Reports whether the host's metrics are read: no other source reports the host.
    fn needs_metrics(&self, settings: &Settings, scope: Scope) -> bool {
        let candidates = &self.facts.candidates;
        // Harvester is read in the same round and will probably answer.
        let is_reported = candidates.known().is_some()
            || is_unasked(candidates) && self.facts.harvester.known().is_some();
        settings.topology.sources.contains(&Source::HostsTable)
            && !is_reported
            && (scope.contains(Scope::VM) || is_unasked(&self.facts.host_metrics))
    }
}

/// Reports whether a round with API requests must read the fact: it is unknown, and no watch will deliver it.
fn is_due<T>(fact: &Fact<T>) -> bool {
    match fact {
        Fact::Known(_) => false,
        Fact::Absent => true,
        Fact::Failed(why) => !why.is_watched,
    }
}

/// Reports whether the fact was not read so far, or was not needed.
fn is_unasked<T>(fact: &Fact<T>) -> bool {
    let why = fact.why();
    why.is_some_and(|why| why.kind == UnavailableKind::NotAsked)
}

#[cfg(test)]
mod tests;
