// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::decide::fixtures::{World, host};
use crate::facts::Unavailable;
use crate::facts::host_metrics::HostMetrics;

/// A settled machine: Harvester and the guest cluster answer, and the round requests nothing.
const SETTLED: Situation = Situation {
    scope: Scope::NONE,
    is_harvester_changed: false,
    is_guest_changed: false,
    own: Some(OwnState {
        is_renamed: false,
        is_elsewhere: false,
    }),
    is_vm_uncertain: false,
    is_node_uncertain: false,
    may_ask_host: true,
    are_reads_current: true,
};

const NOTHING: ReadPlan = ReadPlan {
    forgets_own: false,
    node: false,
    vm: None,
    units: false,
    host_metrics: false,
    forgets_hosts: false,
    forgets_reads: false,
};

const OWN: Option<VmReading> = Some(VmReading::Own { with_others: false });
const OWN_AND_OTHERS: Option<VmReading> = Some(VmReading::Own { with_others: true });
const SEARCH: Option<VmReading> = Some(VmReading::Search);

fn unasked<T>() -> Fact<T> {
    Fact::failed(UnavailableKind::NotAsked, "not read yet")
}

fn unreachable<T>() -> Fact<T> {
    Fact::failed(UnavailableKind::Unreachable, "timeout")
}

/// Returns a failed read that a watch will deliver.
fn watched<T>() -> Fact<T> {
    Fact::Failed(Unavailable {
        is_watched: true,
        ..Unavailable::new(UnavailableKind::Unreachable, "timeout")
    })
}

fn facts() -> Observation {
    World::new().observation
}

/// The difference from a settled machine, and the expected reads.
type Row = (
    &'static str,
    fn(&mut Situation, &mut Observation),
    fn(&mut ReadPlan),
);

const ROWS: &[Row] = &[
    // Scopes
    ("nothing is asked for", |_, _| {}, |_| {}),
    (
        "a poll",
        |s, _| s.scope = Scope::KNOWN,
        |r| {
            r.node = true;
            r.vm = OWN_AND_OTHERS;
            r.units = true;
            r.forgets_hosts = true;
            r.forgets_reads = true;
        },
    ),
    (
        "a migration hint",
        |s, _| s.scope = Scope::HINTED,
        |r| r.vm = OWN,
    ),
    ("files", |s, _| s.scope = Scope::FILES, |_| {}),
    ("units", |s, _| s.scope = Scope::UNITS, |r| r.units = true),
    (
        "a reload reads no API that answered",
        |s, _| s.scope = Scope::RELOAD,
        |r| r.units = true,
    ),
    (
        "a refused write",
        |s, _| s.scope = Scope::REFUSED,
        |r| r.node = true,
    ),
    (
        "a watch event that carries its object",
        |s, _| s.scope = Scope::DELIVERED,
        |_| {},
    ),
    (
        "duplicates are searched",
        |s, _| {
            s.scope = Scope::SEARCH;
        },
        |r| r.vm = SEARCH,
    ),
    // Watches
    (
        "an uncertain VM",
        |s, _| s.is_vm_uncertain = true,
        |r| r.vm = OWN,
    ),
    (
        "an uncertain Node",
        |s, _| s.is_node_uncertain = true,
        |r| r.node = true,
    ),
    // Unknown facts
    (
        "an unknown Node is left alone by a round that asks for nothing",
        |_, f| f.node = unreachable(),
        |_| {},
    ),
    (
        "an unknown Node is left alone by a round that asks only this machine",
        |s, f| {
            s.scope = Scope::UNITS;
            f.node = unreachable();
        },
        |r| r.units = true,
    ),
    (
        "an unknown Node is read by any other",
        |s, f| {
            s.scope = Scope::VM;
            f.node = unreachable();
        },
        |r| {
            r.node = true;
            r.vm = OWN;
        },
    ),
    (
        "a Node that is absent too",
        |s, f| {
            s.scope = Scope::DELIVERED;
            f.node = Fact::Absent;
        },
        |r| r.node = true,
    ),
    (
        "a Node that its watch delivers is not",
        |s, f| {
            s.scope = Scope::DELIVERED;
            f.node = watched();
        },
        |_| {},
    ),
    (
        "unknown VMs are read, and the host is asked",
        |s, f| {
            s.scope = Scope::DELIVERED;
            f.candidates = unreachable();
        },
        |r| {
            r.vm = OWN;
            r.host_metrics = true;
        },
    ),
    (
        "VMs that their watch delivers are not, and the host is asked",
        |s, f| {
            s.scope = Scope::DELIVERED;
            f.candidates = watched();
        },
        |r| r.host_metrics = true,
    ),
    (
        "a hint asks although a watch is being re-established",
        |s, f| {
            s.scope = Scope::HINTED;
            f.candidates = watched();
        },
        |r| {
            r.vm = OWN;
            r.host_metrics = true;
        },
    ),
    // Our own instance
    (
        "an instance that was not found is searched",
        |s, _| {
            s.scope = Scope::VM;
            s.own = None;
        },
        |r| r.vm = SEARCH,
    ),
    (
        "a new name waits for a round that reads the VM",
        |s, _| {
            s.own = Some(OwnState {
                is_renamed: true,
                is_elsewhere: false,
            });
        },
        |_| {},
    ),
    (
        "a new name is then searched",
        |s, _| {
            s.scope = Scope::VM;
            s.own = Some(OwnState {
                is_renamed: true,
                is_elsewhere: false,
            });
        },
        |r| {
            r.forgets_own = true;
            r.vm = SEARCH;
        },
    ),
    (
        "a name that a new configuration pins is searched",
        |s, _| {
            s.scope = Scope::RELOAD;
            s.own = Some(OwnState {
                is_renamed: true,
                is_elsewhere: false,
            });
        },
        |r| {
            r.forgets_own = true;
            r.vm = SEARCH;
            r.units = true;
        },
    ),
    (
        "an instance of another namespace is forgotten",
        |s, _| {
            s.own = Some(OwnState {
                is_renamed: false,
                is_elsewhere: true,
            });
        },
        |r| r.forgets_own = true,
    ),
    // Credentials
    (
        "a new Harvester credential reads all that was read with the old one",
        |s, _| {
            s.is_harvester_changed = true;
            s.own = Some(OwnState {
                is_renamed: false,
                is_elsewhere: true,
            });
        },
        |r| {
            r.forgets_own = true;
            r.vm = SEARCH;
            r.forgets_reads = true;
        },
    ),
    (
        "a new kubelet credential reads the Node",
        |s, _| s.is_guest_changed = true,
        |r| r.node = true,
    ),
    // The host's metrics
    (
        "Harvester is about to be asked, so the host is not",
        |s, f| {
            s.scope = Scope::ALL;
            f.candidates = unasked();
            f.node = unasked();
            s.own = None;
        },
        |r| {
            r.node = true;
            r.vm = SEARCH;
            r.units = true;
            r.forgets_hosts = true;
            r.forgets_reads = true;
        },
    ),
    (
        "without a Harvester credential the host is",
        |_, f| {
            f.harvester = unasked();
            f.candidates = unasked();
        },
        |r| r.host_metrics = true,
    ),
    (
        "what the host said is read again only with the VM",
        |_, f| {
            f.candidates = unreachable();
            f.host_metrics = Fact::Known(HostMetrics {
                host: host("hv-a"),
                time: None,
            });
        },
        |_| {},
    ),
    (
        "the host is not asked where the configuration does not say so",
        |s, f| {
            f.candidates = unreachable();
            s.may_ask_host = false;
        },
        |_| {},
    ),
    // Other cases
    (
        "other settings of the topology",
        |s, _| s.are_reads_current = false,
        |r| r.forgets_reads = true,
    ),
];

#[test]
fn each_situation_is_read_for_what_is_due_and_nothing_else() {
    for (name, change, expect) in ROWS {
        let (mut situation, mut facts, mut expected) = (SETTLED, facts(), NOTHING);
        change(&mut situation, &mut facts);
        expect(&mut expected);
        assert_eq!(decide(&situation, &facts), expected, "{name}");
    }
}

#[test]
fn credentials_are_read_where_they_may_be_the_remedy() {
    let none = [None; 2];
    let node = |kind| [None, Some(kind)];
    let rows = [
        (Scope::NONE, none, true, false),
        (Scope::NONE, none, false, true),
        (Scope::FILES, none, true, true),
        (Scope::REFUSED, none, true, true),
        (Scope::NONE, node(UnavailableKind::Credential), true, true),
        (Scope::NONE, node(UnavailableKind::Tls), true, true),
        (Scope::NONE, node(UnavailableKind::Forbidden), true, false),
        // A reload of the configuration.
        (Scope::RELOAD, none, true, false),
        (Scope::RELOAD, node(UnavailableKind::Forbidden), true, true),
        (
            Scope::RELOAD,
            node(UnavailableKind::Unreachable),
            true,
            false,
        ),
    ];
    for (scope, failures, has_any, expected) in rows {
        let reads = reads_credentials(scope, failures, has_any);
        assert_eq!(reads, expected, "{scope:?} {failures:?} {has_any}");
    }
}

#[test]
fn the_host_is_asked_late_only_by_the_first_round() {
    let is_asked = |scope, candidates, host_metrics| {
        let facts = Observation {
            candidates,
            host_metrics,
            ..facts()
        };
        reads_host_late(&Situation { scope, ..SETTLED }, &facts)
    };
    let known = facts().candidates;
    assert!(!is_asked(Scope::ALL, known, unasked()));
    assert!(is_asked(Scope::ALL, unreachable(), unasked()));
    assert!(!is_asked(Scope::ALL, unreachable(), unreachable()));
    assert!(!is_asked(Scope::KNOWN, unreachable(), unasked()));
}
