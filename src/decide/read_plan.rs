// SPDX-License-Identifier: Apache-2.0
//! Decides which cached reads a round refreshes.
//!
//! [`decide`] is called before any request, [`host_metrics_after`] after the response of Harvester.

use crate::facts::trigger::Scope;
use crate::facts::{Fact, UnavailableKind};

/// The state of a cached fact before a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The fact is known.
    Known,
    /// The object does not exist.
    Absent,
    /// The read failed.
    Failed {
        /// The kind of failure.
        kind: UnavailableKind,
        /// Whether a watch that is being re-established will deliver the fact.
        is_watched: bool,
    },
}

/// The access to an API, after the credentials were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whether there is a usable credential.
    pub is_usable: bool,
    /// Whether the credential was added, changed or removed.
    pub is_changed: bool,
}

/// The state of our own instance from an earlier search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnState {
    /// Whether the names of this machine changed after the search.
    pub is_renamed: bool,
    /// Whether the search used another credential or namespace.
    pub is_elsewhere: bool,
}

/// The cached state before a round reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// The scope that the reasons of the round request.
    pub scope: Scope,
    /// The access to the API of Harvester.
    pub harvester: Access,
    /// The access to the API of the guest cluster.
    pub guest: Access,
    /// Whether the namespace of the VM is known.
    pub has_namespace: bool,
    /// Whether the name of our Node is known.
    pub has_node_name: bool,
    /// The instances that may be this VM.
    pub candidates: Held,
    /// Our Node.
    pub node: Held,
    /// The host's downward metrics.
    pub host_metrics: Held,
    /// Our own instance, if a search found it.
    pub own: Option<OwnState>,
    /// Whether the watch of the VM delivered an event that requires a read.
    pub is_vm_uncertain: bool,
    /// Whether the watch of the Node delivered an event that requires a read.
    pub is_node_uncertain: bool,
    /// Whether systemd missed a reload.
    pub is_reload_missed: bool,
    /// Whether the configuration allows reading the host name from the host itself.
    pub may_ask_host: bool,
    /// Whether the labels of the host were read for these settings.
    pub are_reads_current: bool,
}

/// The reads of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlan {
    /// Whether our own instance is searched for again.
    pub forgets_own: bool,
    /// The read of our Node.
    pub node: NodeReading,
    /// The read of our VM.
    pub vm: VmReading,
    /// Whether the unit of the guest agent is read.
    pub units: bool,
    /// Whether the drop-in of the kubelet's unit is read from systemd.
    pub drop_in: bool,
    /// Whether the metrics of the host are read, in parallel to the APIs.
    pub host_metrics: bool,
    /// Whether the cached labels of all hosts are dropped.
    pub forgets_hosts: bool,
    /// When the cached sources of region and zone are dropped.
    pub forgets_reads: Forgets,
}

/// The read of our Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeReading {
    /// No read.
    Keep,
    /// A GET request.
    Get,
    /// No read, because the name is unknown.
    NoName,
    /// No read, because there is no credential.
    NoAccess,
}

/// The read of our VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmReading {
    /// No read.
    Keep,
    /// A GET request for the instance that was found, and a search if it does not exist.
    Own {
        /// Whether instances with our names or hardware are read too.
        with_others: bool,
    },
    /// A search.
    Search,
    /// No read, because the namespace is unknown.
    NoNamespace,
    /// No read, because there is no credential.
    NoAccess,
}

/// The time when a cached read is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgets {
    /// Never.
    Never,
    /// After the reads of this round, if they do not find out which VMs exist.
    IfVmUnknown,
    /// Immediately.
    Now,
}

/// The read of the host's metrics after the response of Harvester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMetricsAfter {
    /// The previous read stays.
    Keep,
    /// Harvester reports the host, so the metrics are not needed.
    NotNeeded,
    /// The metrics are read now.
    Read,
}

impl<T> From<&Fact<T>> for Held {
    fn from(fact: &Fact<T>) -> Self {
        match fact {
            Fact::Known(_) => Self::Known,
            Fact::Absent => Self::Absent,
            Fact::Failed(why) => Self::Failed {
                kind: why.kind,
                is_watched: why.is_watched,
            },
        }
    }
}

impl Held {
    /// Reports whether a round with API requests must read the fact: it is unknown, and no watch will deliver it.
    fn is_due(self) -> bool {
        match self {
            Self::Known => false,
            Self::Absent => true,
            Self::Failed { is_watched, .. } => !is_watched,
        }
    }

    fn is_kind(self, is_one: impl Fn(UnavailableKind) -> bool) -> bool {
        matches!(self, Self::Failed { kind, .. } if is_one(kind))
    }

    /// Reports whether the fact was not read so far, or was not needed.
    fn is_unasked(self) -> bool {
        self.is_kind(|kind| kind == UnavailableKind::NotAsked)
    }
}

/// Reports whether the credential files of the two APIs must be read. `held` is the state of the facts that are read with them.
pub fn reads_credentials(scope: Scope, held: [Held; 2], has_any: bool) -> bool {
    // If the server rejects the credential, the file may contain a newer one, even without an inotify event.
    let is_rejected = |held: &Held| {
        held.is_kind(|kind| matches!(kind, UnavailableKind::Credential | UnavailableKind::Tls))
    };
    scope.files
        || !has_any
        || held.iter().any(is_rejected)
        || scope.refused && may_need_credentials(held)
}

/// Reports whether another credential may fix the failed reads. It is then read immediately.
pub fn may_need_credentials(held: [Held; 2]) -> bool {
    let needs = |held: &Held| held.is_kind(|kind| kind != UnavailableKind::Unreachable);
    held.iter().any(needs)
}

/// Decides what to read in a round.
pub fn decide(known: &Situation) -> ReadPlan {
    let scope = known.scope;
    // A new name is reported immediately, whatever the APIs return. Duplicates of it are searched for after the debounce time.
    let is_renamed = (scope.vm || scope.refused) && known.own.is_some_and(|own| own.is_renamed);
    let forgets_own = known.own.is_some_and(|own| is_renamed || own.is_elsewhere);
    let asks = scope.asks_apis();
    let is_node_stale = scope.node
        || known.is_node_uncertain
        || known.guest.is_changed
        || asks && known.node.is_due();
    let is_vm_stale = scope.vm
        || scope.search
        || known.is_vm_uncertain
        || is_renamed
        || known.harvester.is_changed
        || asks && known.candidates.is_due();
    let node = match (known.guest.is_usable, known.has_node_name) {
        (false, _) => NodeReading::NoAccess,
        (true, false) => NodeReading::NoName,
        (true, true) if is_node_stale => NodeReading::Get,
        (true, true) => NodeReading::Keep,
    };
    let has_own = known.own.is_some() && !forgets_own;
    let vm = match (known.harvester.is_usable, known.has_namespace) {
        (false, _) => VmReading::NoAccess,
        (true, false) => VmReading::NoNamespace,
        (true, true) if !is_vm_stale => VmReading::Keep,
        (true, true) if has_own && !scope.search => VmReading::Own {
            with_others: scope.node,
        },
        (true, true) => VmReading::Search,
    };
    let forgets_reads = if scope.host || known.harvester.is_changed || !known.are_reads_current {
        Forgets::Now
    } else if is_vm_stale {
        Forgets::IfVmUnknown
    } else {
        Forgets::Never
    };
    ReadPlan {
        forgets_own,
        node,
        vm,
        units: scope.units,
        drop_in: scope.files || known.is_reload_missed,
        host_metrics: needs_host(known),
        forgets_hosts: scope.host,
        forgets_reads,
    }
}

/// Decides whether to read the host's metrics. `known` is the state after the response of Harvester.
pub fn host_metrics_after(known: &Situation) -> HostMetricsAfter {
    if known.candidates == Held::Known {
        HostMetricsAfter::NotNeeded
    } else if known.scope.refused && needs_host(known) && known.host_metrics.is_unasked() {
        // A single run such as `whoami` has no later round to read them in.
        HostMetricsAfter::Read
    } else {
        HostMetricsAfter::Keep
    }
}

/// Reports whether the host's metrics are read: no other source reports the host.
fn needs_host(known: &Situation) -> bool {
    let is_reported = match known.candidates {
        Held::Known => true,
        // Harvester is read in the same round and will probably answer.
        Held::Failed { .. } => known.candidates.is_unasked() && known.harvester.is_usable,
        Held::Absent => false,
    };
    known.may_ask_host && !is_reported && (known.scope.vm || known.host_metrics.is_unasked())
}

#[cfg(test)]
mod tests;
