// SPDX-License-Identifier: Apache-2.0
//! Decides which cached reads a round refreshes.
//!
//! [`decide`] is called before any request, [`host_metrics_after`] after the answer of Harvester.

use crate::facts::trigger::Scope;
use crate::facts::{Fact, UnavailableKind};

/// What is known of a fact before a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It is known.
    Known,
    /// The API has no such object.
    Absent,
    /// It could not be read.
    Failed {
        /// Why.
        kind: UnavailableKind,
        /// Whether a watch that is being re-established delivers it.
        is_watched: bool,
    },
}

/// How an API can be reached, after the credentials were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whether there is a credential to ask with.
    pub is_usable: bool,
    /// Whether it is another one than before, or there was none, or there is none any more.
    pub is_changed: bool,
}

/// Our own instance, as an earlier search found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnState {
    /// Whether the names of this machine are others than those of the search.
    pub is_renamed: bool,
    /// Whether another credential or namespace was searched.
    pub is_elsewhere: bool,
}

/// What is known before a round reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// What the reasons of the round ask for.
    pub scope: Scope,
    /// Harvester's API.
    pub harvester: Access,
    /// The API of the guest cluster.
    pub guest: Access,
    /// Whether the namespace of the VM is known.
    pub has_namespace: bool,
    /// Whether the name of our Node is known.
    pub has_node_name: bool,
    /// The instances that may be ours.
    pub candidates: Held,
    /// Our Node.
    pub node: Held,
    /// The host's downward metrics.
    pub host_metrics: Held,
    /// Our own instance, where a search found it.
    pub own: Option<OwnState>,
    /// Whether the watch of the VM delivered something that cannot be used without a read.
    pub is_vm_uncertain: bool,
    /// The same for the Node.
    pub is_node_uncertain: bool,
    /// Whether systemd missed a reload.
    pub is_reload_missed: bool,
    /// Whether the configuration allows to ask the host itself which one it is.
    pub may_ask_host: bool,
    /// Whether the labels of the host were read for these settings.
    pub are_reads_current: bool,
}

/// What is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Whether our own instance is to be searched again.
    pub forgets_own: bool,
    /// Our Node.
    pub node: NodeReading,
    /// Our VM.
    pub vm: VmReading,
    /// Whether the unit of the guest agent is read.
    pub units: bool,
    /// Whether systemd is asked for the drop-in of the kubelet's unit.
    pub drop_in: bool,
    /// Whether the host is asked for its metrics, beside the APIs.
    pub host_metrics: bool,
    /// Whether the labels of all hosts are read again.
    pub forgets_hosts: bool,
    /// Whether the sources of region and zone are read again.
    pub forgets_reads: Forgets,
}

/// How our Node is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeReading {
    /// It is not.
    Keep,
    /// With GET.
    Get,
    /// It cannot be: its name is unknown.
    NoName,
    /// It cannot be: there is no credential.
    NoAccess,
}

/// How our VM is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmReading {
    /// It is not.
    Keep,
    /// With GET, as the instance that was found; searched if it is gone.
    Own {
        /// Whether those of our names or hardware are read too.
        with_others: bool,
    },
    /// By a search.
    Search,
    /// It cannot be: its namespace is unknown.
    NoNamespace,
    /// It cannot be: there is no credential.
    NoAccess,
}

/// When something is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgets {
    /// It is not.
    Never,
    /// If this round does not find out which VMs there are.
    IfVmUnknown,
    /// Now.
    Now,
}

/// What to do about the host's metrics once Harvester has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMetricsAfter {
    /// What was read stays.
    Keep,
    /// Harvester knows the host: they are not needed.
    NotNeeded,
    /// They are read now.
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
    /// Reports whether a round that asks for anything reads it: it is unknown, and no watch is about to deliver it.
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

    /// Reports whether it was not asked for so far, or was not needed.
    fn is_unasked(self) -> bool {
        self.is_kind(|kind| kind == UnavailableKind::NotAsked)
    }
}

/// Reports whether the files that lead to the two APIs are read. `held` is what is known through them.
pub fn reads_credentials(scope: Scope, held: [Held; 2], has_any: bool) -> bool {
    // A server that rejects the credential may know a newer one, whatever inotify has seen.
    let is_rejected = |held: &Held| {
        held.is_kind(|kind| matches!(kind, UnavailableKind::Credential | UnavailableKind::Tls))
    };
    scope.files
        || !has_any
        || held.iter().any(is_rejected)
        || scope.refused && may_need_credentials(held)
}

/// Reports whether another credential may be the remedy of what is unknown: it is then read immediately.
pub fn may_need_credentials(held: [Held; 2]) -> bool {
    let needs = |held: &Held| held.is_kind(|kind| kind != UnavailableKind::Unreachable);
    held.iter().any(needs)
}

/// Decides.
pub fn decide(known: &Situation) -> Reading {
    let scope = known.scope;
    // A new name is reported immediately, whatever the APIs do; who else has it is searched when it has been quiet.
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
    Reading {
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

/// Decides about the host's metrics; `known` is as it is after Harvester has answered.
pub fn host_metrics_after(known: &Situation) -> HostMetricsAfter {
    if known.candidates == Held::Known {
        HostMetricsAfter::NotNeeded
    } else if known.scope.refused && needs_host(known) && known.host_metrics.is_unasked() {
        // The first round has no other time to ask: `whoami` is one round.
        HostMetricsAfter::Read
    } else {
        HostMetricsAfter::Keep
    }
}

/// Reports whether the host itself is asked: no other source tells which one it is.
fn needs_host(known: &Situation) -> bool {
    let is_reported = match known.candidates {
        Held::Known => true,
        // Harvester is asked in this very round, and will most likely answer.
        Held::Failed { .. } => known.candidates.is_unasked() && known.harvester.is_usable,
        Held::Absent => false,
    };
    known.may_ask_host && !is_reported && (known.scope.vm || known.host_metrics.is_unasked())
}

#[cfg(test)]
mod tests;
