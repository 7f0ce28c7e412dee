// SPDX-License-Identifier: Apache-2.0
//! Decides which cached facts a round reads again.
//!
//! [`decide`] is called before any request, [`reads_host_late`] after the response of Harvester.

use crate::facts::observation::Observation;
use crate::facts::trigger::Scope;
use crate::facts::{Fact, UnavailableKind};

/// What a round knows before it reads, besides the facts of earlier rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    /// The scope that the reasons of the round request.
    pub(super) scope: Scope,
    /// Whether the Harvester credential was added, changed or removed.
    pub(super) is_harvester_changed: bool,
    /// Whether the kubelet's was.
    pub(super) is_guest_changed: bool,
    /// Our own instance, if a search found it.
    pub(super) own: Option<OwnState>,
    /// Whether the watch of the VM delivered an event that requires a read.
    pub(super) is_vm_uncertain: bool,
    /// Whether the watch of the Node did.
    pub(super) is_node_uncertain: bool,
    /// Whether the configuration allows reading the host name from the host itself.
    pub(super) may_ask_host: bool,
    /// Whether the labels of the host were read for these settings.
    pub(super) are_reads_current: bool,
}

/// The state of our own instance from an earlier search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnState {
    /// Whether the names of this machine changed after the search.
    pub(super) is_renamed: bool,
    /// Whether the search used another credential or namespace.
    pub(super) is_elsewhere: bool,
}

/// What a round reads, as far as there are credentials, and what it forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadPlan {
    /// Whether our own instance is searched for again.
    pub(super) forgets_own: bool,
    /// Whether our Node is read.
    pub(super) node: bool,
    /// The read of our VM, if any.
    pub(super) vm: Option<VmReading>,
    /// Whether the unit of the guest agent is read.
    pub(super) units: bool,
    /// Whether the metrics of the host are read, in parallel to the APIs.
    pub(super) host_metrics: bool,
    /// Whether the cached labels of all hosts are dropped.
    pub(super) forgets_hosts: bool,
    /// Whether the cached sources of region and zone are dropped.
    pub(super) forgets_reads: bool,
}

/// The read of our VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VmReading {
    /// A GET request for the instance that was found, and a search if it does not exist.
    Own {
        /// Whether instances with our names or hardware are read too.
        with_others: bool,
    },
    /// A search.
    Search,
}

/// Reports whether the credential files of the two APIs must be read. `failures` are those of the facts that are read with them.
pub(super) fn reads_credentials(
    scope: Scope,
    failures: [Option<UnavailableKind>; 2],
    has_any: bool,
) -> bool {
    // If the server rejects the credential, the file may contain a newer one, even without an inotify event.
    let mut kinds = failures.into_iter().flatten();
    scope.contains(Scope::FILES)
        || !has_any
        || kinds.any(|kind| matches!(kind, UnavailableKind::Credential | UnavailableKind::Tls))
        || scope.contains(Scope::AFRESH) && may_need_credentials(failures)
}

/// Reports whether another credential may fix the failed reads. It is then read immediately.
pub(super) fn may_need_credentials(failures: [Option<UnavailableKind>; 2]) -> bool {
    let mut kinds = failures.into_iter().flatten();
    kinds.any(|kind| kind != UnavailableKind::Unreachable)
}

/// Decides what to read in a round. `facts` are those of earlier rounds, with the current credentials.
pub(super) fn decide(situation: &Situation, facts: &Observation) -> ReadPlan {
    let (scope, own) = (situation.scope, situation.own);
    // A new name is reported immediately, whatever the APIs return. Duplicates of it are searched for after the debounce time.
    let is_renamed =
        scope.intersects(Scope::VM | Scope::AFRESH) && own.is_some_and(|own| own.is_renamed);
    let forgets_own = own.is_some_and(|own| is_renamed || own.is_elsewhere);
    let asks = scope.asks_apis();
    let is_vm_stale = scope.intersects(Scope::VM | Scope::SEARCH)
        || situation.is_vm_uncertain
        || is_renamed
        || situation.is_harvester_changed
        || asks && is_due(&facts.candidates);
    let vm = match own {
        Some(_) if !forgets_own && !scope.contains(Scope::SEARCH) => VmReading::Own {
            with_others: scope.contains(Scope::NODE),
        },
        _ => VmReading::Search,
    };
    ReadPlan {
        forgets_own,
        node: scope.contains(Scope::NODE)
            || situation.is_node_uncertain
            || situation.is_guest_changed
            || asks && is_due(&facts.node),
        vm: is_vm_stale.then_some(vm),
        units: scope.contains(Scope::UNITS),
        host_metrics: needs_host(situation, facts),
        forgets_hosts: scope.contains(Scope::HOST),
        forgets_reads: scope.contains(Scope::HOST)
            || situation.is_harvester_changed
            || !situation.are_reads_current,
    }
}

/// Reports whether the host's metrics are read after the response of Harvester: a single run such as `whoami` has no later round to
/// read them in.
pub(super) fn reads_host_late(situation: &Situation, facts: &Observation) -> bool {
    situation.scope.contains(Scope::AFRESH)
        && needs_host(situation, facts)
        && is_unasked(&facts.host_metrics)
}

/// Reports whether the host's metrics are read: no other source reports the host.
fn needs_host(situation: &Situation, facts: &Observation) -> bool {
    let is_reported = match &facts.candidates {
        Fact::Known(_) => true,
        // Harvester is read in the same round and will probably answer.
        Fact::Failed(_) => is_unasked(&facts.candidates) && facts.harvester.known().is_some(),
        Fact::Absent => false,
    };
    situation.may_ask_host
        && !is_reported
        && (situation.scope.contains(Scope::VM) || is_unasked(&facts.host_metrics))
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
