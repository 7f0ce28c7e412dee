// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use harvester_lab::expected::cases_are_expected;

use super::*;
use crate::agent::source_board::SourceBoard;
use crate::catalog::Api;
use crate::decide::fixtures::{World, host, now};
use crate::facts::Unavailable;
use crate::facts::host_metrics::HostMetrics;
use crate::facts::names::VmName;
use crate::facts::observation::{Candidates, Coverage};
use crate::observe::harvester::{List, Names, OwnInstance};
use crate::observe::host_labels::KeptLabels;
use crate::sys::root::Root;
use crate::wire::dbus::Bus;

/// Creates the observer of a settled machine: Harvester and the guest cluster answer, and our instance was found.
fn settled() -> Observer {
    let root = Root::new("/nonexistent");
    let bus = Bus::new(&root, None);
    let mut observer = Observer::new(root, bus, SourceBoard::default(), None);
    let mut world = World::new();
    observer.own = Some(OwnInstance {
        vmi: world.vmi().clone(),
        others: Candidates {
            vmis: Vec::new(),
            coverage: Coverage::Listed,
        },
        names: Names::default(),
    });
    observer.facts = world.observation;
    observer
        .host_labels
        .start(&host("hv-a"), &Settings::default());
    observer
}

fn rename(observer: &mut Observer) {
    let (mut settings, facts) = (Settings::default(), &observer.facts);
    settings.harvester.vm = Some(VmName::parse("another").unwrap());
    observer.names = Names::new(&settings, None, facts);
}

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

const NOTHING: Due = Due::empty();
const SEARCH: Due = Due::VM.union(Due::SEARCH);

/// Makes a difference from a settled machine.
fn change(observer: &mut Observer, difference: &str) {
    fn fact<T>(state: &str) -> Fact<T> {
        match state {
            "unasked" => unasked(),
            "unreachable" => unreachable(),
            "watched" => watched(),
            _ => Fact::Absent,
        }
    }
    let facts = &mut observer.facts;
    match difference.split_once('=').unwrap() {
        ("node", state) => facts.node = fact(state),
        ("kubelet", state) => facts.kubelet = fact(state),
        ("candidates", state) => facts.candidates = fact(state),
        ("harvester", state) => facts.harvester = fact(state),
        ("own", _) => observer.own = None,
        (name, _) => {
            assert_eq!(name, "metrics");
            let (host, time) = (host("hv-a"), None);
            facts.host_metrics = Fact::Known(HostMetrics { host, time });
        }
    }
}

/// The file has what a round requests, and the differences from a settled machine. Below is what is read.
#[test]
fn each_round_reads_what_is_due_and_nothing_else() {
    let settings = Settings::default();
    cases_are_expected("src/observe/observer/due/cases.txt", |case| {
        let mut words = case.split(' ');
        let scope = match words.next().unwrap() {
            "NONE" => Scope::NONE,
            "KNOWN" => Scope::KNOWN,
            "HINTED" => Scope::HINTED,
            "RELOAD" => Scope::RELOAD,
            "REFUSED" => Scope::REFUSED,
            "ALL" => Scope::ALL,
            name => Scope::from_name(name).unwrap(),
        };
        let mut observer = settled();
        words.for_each(|word| change(&mut observer, word));
        let is_found = observer.own.is_some();
        let due = observer.due(&settings, scope, NOTHING);
        assert_eq!(observer.own.is_some(), is_found, "{case}");
        let are_kept = |observer: &Observer| observer.host_labels != KeptLabels::default();
        assert!(are_kept(&observer), "{case}");
        observer.forget_labels(scope, due);
        let is_lost = due.contains(Due::VM) && observer.facts.candidates.known().is_none();
        let is_kept = !is_lost && !scope.contains(Scope::HOST);
        assert_eq!(are_kept(&observer), is_kept, "{case}");
        let names: Vec<&str> = due.iter_names().map(|(name, _)| name).collect();
        names.join(" ")
    });
}

#[test]
fn what_is_doubted_is_read_by_any_round() {
    for scope in [Scope::NONE, Scope::UNITS, Scope::DELIVERED, Scope::HINTED] {
        let settings = Settings::default();
        let due = settled().due(&settings, scope, NOTHING);
        for doubted in [Due::VM, Due::NODE] {
            let read = settled().due(&settings, scope, doubted);
            assert_eq!(read, due | doubted, "{scope:?}");
        }
        // The credential changed.
        let mut observer = settled();
        observer.own = None;
        assert!(observer.due(&settings, scope, Due::VM).contains(SEARCH));
    }
}

#[test]
fn an_instance_that_was_found_by_other_names_is_forgotten_by_the_next_read_of_the_vm() {
    for (scope, expected) in [
        (Scope::NONE, NOTHING),
        (Scope::UNITS, Due::UNITS),
        (Scope::DELIVERED, NOTHING),
        (Scope::VM, SEARCH),
        // That of a distribution may name another VM.
        (Scope::FILES, SEARCH),
        // A new configuration may name the VM.
        (Scope::RELOAD, SEARCH.union(Due::UNITS)),
    ] {
        let mut observer = settled();
        rename(&mut observer);
        let due = observer.due(&Settings::default(), scope, NOTHING);
        assert_eq!(due, expected, "{scope:?}");
        let is_forgotten = expected.contains(Due::VM);
        assert_eq!(observer.own.is_none(), is_forgotten, "{scope:?}");
    }
}

#[test]
fn what_a_previous_credential_read_does_not_come_back_if_a_new_name_interrupts_the_reads() {
    let settings = Settings::default();
    let mut observer = settled();
    let vmi = World::new().vmi().clone();
    observer.forget(Api::Harvester);
    // The round about the new name reads nothing in time, and has the facts of before.
    observer.keep_found(&vmi);
    assert_eq!(observer.own.map(|own| own.vmi), None);
    observer.own = None;
    assert!(observer.host_labels != KeptLabels::default());
    for scope in [Scope::NONE, Scope::KNOWN] {
        assert!(observer.due(&settings, scope, NOTHING).contains(SEARCH));
    }
    let found = observer.facts.candidates.clone();
    let now = now(Duration::from_secs(100));
    observer.searched(found, List::Unsent, None, now);
    assert!(observer.host_labels == KeptLabels::default());
    observer.keep_found(&vmi);
    assert_eq!(observer.own.map(|own| own.vmi), Some(vmi));
}

#[test]
fn the_host_is_not_asked_where_the_configuration_does_not_say_so() {
    let mut settings = Settings::default();
    settings
        .topology
        .sources
        .retain(|source| *source != Source::HostsTable);
    let mut observer = settled();
    observer.facts.candidates = unreachable();
    assert_eq!(observer.due(&settings, Scope::NONE, NOTHING), NOTHING);
    assert!(!observer.needs_metrics_late(&settings, Scope::ALL));
}

#[test]
fn the_host_is_asked_late_only_by_the_first_round() {
    let is_asked = |scope, candidates, host_metrics| {
        let mut observer = settled();
        observer.facts.candidates = candidates;
        observer.facts.host_metrics = host_metrics;
        observer.needs_metrics_late(&Settings::default(), scope)
    };
    let known = settled().facts.candidates;
    assert!(!is_asked(Scope::ALL, known, unasked()));
    assert!(is_asked(Scope::ALL, unreachable(), unasked()));
    assert!(!is_asked(Scope::ALL, unreachable(), unreachable()));
    assert!(!is_asked(Scope::KNOWN, unreachable(), unasked()));
}
