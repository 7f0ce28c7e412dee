// SPDX-License-Identifier: Apache-2.0

use super::*;

/// A settled machine: Harvester and the guest cluster answer, and the round requests nothing.
const SETTLED: Situation = Situation {
    scope: Scope::NONE,
    harvester: SAME,
    guest: SAME,
    has_namespace: true,
    has_node_name: true,
    candidates: Held::Known,
    node: Held::Known,
    host_metrics: UNASKED,
    own: Some(OwnState {
        is_renamed: false,
        is_elsewhere: false,
    }),
    is_vm_uncertain: false,
    is_node_uncertain: false,
    is_reload_missed: false,
    may_ask_host: true,
    are_reads_current: true,
};

const NOTHING: ReadPlan = ReadPlan {
    forgets_own: false,
    node: NodeReading::Keep,
    vm: VmReading::Keep,
    units: false,
    drop_in: false,
    host_metrics: false,
    forgets_hosts: false,
    forgets_reads: Forgets::Never,
};

const SAME: Access = Access {
    is_usable: true,
    is_changed: false,
};
const NEW: Access = Access {
    is_usable: true,
    is_changed: true,
};
const LOST: Access = Access {
    is_usable: false,
    is_changed: true,
};
const NONE: Access = Access {
    is_usable: false,
    is_changed: false,
};

const UNASKED: Held = failed(UnavailableKind::NotAsked);
const UNREACHABLE: Held = failed(UnavailableKind::Unreachable);
/// A failed read that a watch will deliver.
const WATCHED: Held = Held::Failed {
    kind: UnavailableKind::Unreachable,
    is_watched: true,
};

const OWN: VmReading = VmReading::Own { with_others: false };
const OWN_AND_OTHERS: VmReading = VmReading::Own { with_others: true };

const fn failed(kind: UnavailableKind) -> Held {
    Held::Failed {
        kind,
        is_watched: false,
    }
}

/// The difference from a settled machine, and the expected reads.
type Row = (&'static str, fn(&mut Situation), fn(&mut ReadPlan));

const ROWS: &[Row] = &[
    // Scopes
    ("nothing is asked for", |_| {}, |_| {}),
    (
        "a poll",
        |s| s.scope = Scope::KNOWN,
        |r| {
            r.node = NodeReading::Get;
            r.vm = OWN_AND_OTHERS;
            r.units = true;
            r.drop_in = true;
            r.forgets_hosts = true;
            r.forgets_reads = Forgets::Now;
        },
    ),
    (
        "a migration hint",
        |s| s.scope = Scope::HINTED,
        |r| {
            r.vm = OWN;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    ("files", |s| s.scope = Scope::FILES, |r| r.drop_in = true),
    ("units", |s| s.scope = Scope::UNITS, |r| r.units = true),
    (
        "a reload reads no API that answered",
        |s| s.scope = Scope::RELOAD,
        |r| r.units = true,
    ),
    (
        "a refused write",
        |s| s.scope = Scope::REFUSED,
        |r| {
            r.node = NodeReading::Get;
            r.drop_in = true;
        },
    ),
    (
        "a watch event that carries its object",
        |s| s.scope = Scope::DELIVERED,
        |_| {},
    ),
    (
        "duplicates are searched",
        |s| {
            s.scope = Scope {
                search: true,
                ..Scope::NONE
            }
        },
        |r| {
            r.vm = VmReading::Search;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    // Watches
    (
        "an uncertain VM",
        |s| s.is_vm_uncertain = true,
        |r| {
            r.vm = OWN;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    (
        "an uncertain Node",
        |s| s.is_node_uncertain = true,
        |r| r.node = NodeReading::Get,
    ),
    // Unknown facts
    (
        "an unknown Node is left alone by a round that asks for nothing",
        |s| s.node = UNREACHABLE,
        |_| {},
    ),
    (
        "an unknown Node is left alone by a round that asks only this machine",
        |s| {
            s.scope = Scope::UNITS;
            s.node = UNREACHABLE;
        },
        |r| r.units = true,
    ),
    (
        "an unknown Node is read by any other",
        |s| {
            s.scope = Scope::MOVED;
            s.node = UNREACHABLE;
        },
        |r| {
            r.node = NodeReading::Get;
            r.vm = VmReading::Own { with_others: false };
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    (
        "a Node that is absent too",
        |s| {
            s.scope = Scope::DELIVERED;
            s.node = Held::Absent;
        },
        |r| r.node = NodeReading::Get,
    ),
    (
        "a Node that its watch delivers is not",
        |s| {
            s.scope = Scope::DELIVERED;
            s.node = WATCHED;
        },
        |_| {},
    ),
    (
        "unknown VMs are read, and the host is asked",
        |s| {
            s.scope = Scope::DELIVERED;
            s.candidates = UNREACHABLE;
        },
        |r| {
            r.vm = OWN;
            r.host_metrics = true;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    (
        "VMs that their watch delivers are not, and the host is asked",
        |s| {
            s.scope = Scope::DELIVERED;
            s.candidates = WATCHED;
        },
        |r| r.host_metrics = true,
    ),
    (
        "a hint asks although a watch is being re-established",
        |s| {
            s.scope = Scope::HINTED;
            s.candidates = WATCHED;
        },
        |r| {
            r.vm = OWN;
            r.host_metrics = true;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    // Our own instance
    (
        "an instance that was not found is searched",
        |s| {
            s.scope = Scope::MOVED;
            s.own = None;
        },
        |r| {
            r.vm = VmReading::Search;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    (
        "a new name waits for a round that reads the VM",
        |s| {
            s.own = Some(OwnState {
                is_renamed: true,
                is_elsewhere: false,
            });
        },
        |_| {},
    ),
    (
        "a new name is then searched",
        |s| {
            s.scope = Scope::MOVED;
            s.own = Some(OwnState {
                is_renamed: true,
                is_elsewhere: false,
            });
        },
        |r| {
            r.forgets_own = true;
            r.vm = VmReading::Search;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    (
        "a name that a new configuration pins is searched",
        |s| {
            s.scope = Scope::RELOAD;
            s.own = Some(OwnState {
                is_renamed: true,
                is_elsewhere: false,
            });
        },
        |r| {
            r.forgets_own = true;
            r.vm = VmReading::Search;
            r.units = true;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    (
        "an instance of another namespace is forgotten",
        |s| {
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
        |s| {
            s.harvester = NEW;
            s.own = Some(OwnState {
                is_renamed: false,
                is_elsewhere: true,
            });
        },
        |r| {
            r.forgets_own = true;
            r.vm = VmReading::Search;
            r.forgets_reads = Forgets::Now;
        },
    ),
    (
        "a new kubelet credential reads the Node",
        |s| s.guest = NEW,
        |r| r.node = NodeReading::Get,
    ),
    (
        "a lost Harvester credential",
        |s| {
            s.harvester = LOST;
            s.own = Some(OwnState {
                is_renamed: false,
                is_elsewhere: true,
            });
        },
        |r| {
            r.forgets_own = true;
            r.vm = VmReading::NoAccess;
            r.forgets_reads = Forgets::Now;
        },
    ),
    (
        "a lost kubelet credential",
        |s| s.guest = LOST,
        |r| r.node = NodeReading::NoAccess,
    ),
    (
        "no credential, and nothing asked for",
        |s| {
            s.harvester = NONE;
            s.guest = NONE;
        },
        |r| {
            r.node = NodeReading::NoAccess;
            r.vm = VmReading::NoAccess;
        },
    ),
    (
        "no namespace",
        |s| {
            s.scope = Scope::MOVED;
            s.has_namespace = false;
            s.own = None;
        },
        |r| {
            r.vm = VmReading::NoNamespace;
            r.forgets_reads = Forgets::IfVmUnknown;
        },
    ),
    (
        "no name of the Node",
        |s| s.has_node_name = false,
        |r| r.node = NodeReading::NoName,
    ),
    // The host's metrics
    (
        "Harvester is about to be asked, so the host is not",
        |s| {
            s.scope = Scope::ALL;
            s.candidates = UNASKED;
            s.node = UNASKED;
            s.own = None;
        },
        |r| {
            r.node = NodeReading::Get;
            r.vm = VmReading::Search;
            r.units = true;
            r.drop_in = true;
            r.forgets_hosts = true;
            r.forgets_reads = Forgets::Now;
        },
    ),
    (
        "without a Harvester credential the host is",
        |s| {
            s.harvester = NONE;
            s.candidates = UNASKED;
        },
        |r| {
            r.vm = VmReading::NoAccess;
            r.host_metrics = true;
        },
    ),
    (
        "what the host said is read again only with the VM",
        |s| {
            s.candidates = UNREACHABLE;
            s.host_metrics = Held::Known;
        },
        |_| {},
    ),
    (
        "the host is not asked where the configuration does not say so",
        |s| {
            s.candidates = UNREACHABLE;
            s.may_ask_host = false;
        },
        |_| {},
    ),
    // Other cases
    (
        "a missed reload",
        |s| s.is_reload_missed = true,
        |r| r.drop_in = true,
    ),
    (
        "other settings of the topology",
        |s| s.are_reads_current = false,
        |r| {
            r.forgets_reads = Forgets::Now;
        },
    ),
];

#[test]
fn each_situation_is_read_for_what_is_due_and_nothing_else() {
    for (name, change, expect) in ROWS {
        let (mut situation, mut expected) = (SETTLED, NOTHING);
        change(&mut situation);
        expect(&mut expected);
        assert_eq!(decide(&situation), expected, "{name}");
    }
}

#[test]
fn credentials_are_read_where_they_may_be_the_remedy() {
    let none = [Held::Known; 2];
    let node = |kind| [Held::Known, failed(kind)];
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
    for (scope, held, has_any, expected) in rows {
        let reads = reads_credentials(scope, held, has_any);
        assert_eq!(reads, expected, "{scope:?} {held:?} {has_any}");
    }
}

#[test]
fn the_host_is_asked_late_only_by_the_first_round() {
    let after = |scope, candidates, host_metrics| {
        host_metrics_after(&Situation {
            scope,
            candidates,
            host_metrics,
            ..SETTLED
        })
    };
    for scope in [Scope::NONE, Scope::ALL] {
        let known = after(scope, Held::Known, UNASKED);
        assert_eq!(known, HostMetricsAfter::NotNeeded);
    }
    let first = after(Scope::ALL, UNREACHABLE, UNASKED);
    assert_eq!(first, HostMetricsAfter::Read);
    for (scope, host_metrics) in [(Scope::ALL, UNREACHABLE), (Scope::KNOWN, UNASKED)] {
        let later = after(scope, UNREACHABLE, host_metrics);
        assert_eq!(later, HostMetricsAfter::Keep);
    }
}
