// SPDX-License-Identifier: Apache-2.0
//! The texts as a whole are in `expected/`, one file each.

use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

use super::*;
use crate::access::testing::{tree, write};
use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::address::Address;
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::found::Found;
use crate::commands::doctor::service::Service;
use crate::commands::explain::tests::words;
use crate::decide::fixtures::World;
use crate::facts::{Unavailable, UnavailableKind};
use crate::report::compose::Context;
use crate::report::problem::Problem;
use crate::report::status::Status;
use crate::report::status_file::STATUS_FILE;
use crate::report::tests::round;
use crate::report::text::TermStyle;
use crate::sys::lock::{Holder, Presence};

const PLAIN: TermStyle = TermStyle::PLAIN;

const COLORED: TermStyle = TermStyle {
    color: true,
    unicode: true,
    width: 80,
};

fn text(diagnosis: &Diagnosis, style: TermStyle, verbose: bool) -> String {
    let show = Show {
        style,
        verbose,
        now: diagnosis.now,
    };
    super::text(diagnosis, show)
}

/// Holds that a text is the one in `expected/NAME.txt`.
fn is_expected(name: &str, text: &str) {
    let file = format!("src/commands/doctor/print/expected/{name}.txt");
    // The version is the only part that a release changes.
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    harvester_lab::expected::is_expected(&file, &text, str::to_owned);
}

fn diagnosis(found: &Found) -> Diagnosis {
    let now = UtcDateTime::parse("2026-11-21T10:00:00Z", &Rfc3339).unwrap();
    Diagnosis::new(found, now)
}

fn gap(group: Group, check: &'static str, kind: UnavailableKind, text: &str) -> Gap {
    Gap::new(group, check, &Unavailable::new(kind, text))
}

/// A node in order, whose agent has observed since two hours ago that the Node does not exist.
fn healthy() -> Found {
    let world = World::settled();
    let mut status = Status::new(&round(&world, &[]), &Context::default());
    status.last_update_time = "2026-11-21T09:00:00Z".to_owned();
    let kubelet = &mut status.credentials.kubelet;
    kubelet.expiration_time = Some("2026-12-21T10:00:00Z".to_owned());
    let mut published = status.clone();
    published.findings = vec![Problem {
        first_observed_time: Some("2026-11-21T08:00:00Z".to_owned()),
        ..Problem::of(Code::NodeMissing.entry())
    }];
    let (_dir, root) = tree();
    write(&root, STATUS_FILE, &published.to_json().to_string());
    let mut service = Service::read(&root);
    service.presence = Presence::Running(Holder { pid: Some(812) });
    let note = |group, text: &str| (group, text.to_owned());
    Found {
        service,
        checked: Checked {
            notes: vec![
                note(Group::HarvesterApi, "certificate expires in 311d"),
                note(
                    Group::Placement,
                    "at the next host maintenance, the VM migrates",
                ),
                note(Group::Versions, "Harvester v1.6.1"),
                note(Group::Versions, "kubelet v1.33.5+rke2r1"),
            ],
            ..Checked::default()
        },
        status: Some(status),
        ..Found::default()
    }
}

/// An error with a consequence, a warning, a notice, and checks that were skipped for two reasons.
fn unhealthy() -> Found {
    let (denied, why) = (
        UnavailableKind::Forbidden,
        "not allowed to read `/dmi`: EACCES",
    );
    let expires = |name: &str| {
        let seen = format!("/{name}: CA {name} expires at 2026-12-20T10:00:00Z, in 29 days");
        Finding::new(Code::CredentialExpires, seen)
    };
    let mut found = healthy();
    found.is_unanswered = true;
    found.checked.findings = vec![
        Finding::new(Code::ClockNotSynchronized, "NTPSynchronized is no"),
        Finding::new(Code::NodeMissing, "no Node `n` at https://api:6443"),
        Finding::new(Code::NoTopologySource, "no source"),
        Finding::new(Code::HarvesterTlsError, "\u{1b}[2Junknown issuer"),
        expires("a"),
        expires("b"),
    ];
    let not_asked = UnavailableKind::NotAsked;
    found.checked.gaps = vec![
        gap(Group::Identity, "the firmware UUID", denied, why),
        gap(Group::Identity, "the serial number", denied, why),
        Gap {
            due_to: Some(Code::NodeMissing),
            ..gap(Group::Node, "the Node", not_asked, "no kubeconfig")
        },
    ];
    found
}

/// A healthy node with this gap, whose only name is its hostname.
fn gapped(gap: Gap) -> Found {
    let mut found = healthy();
    found.status.as_mut().unwrap().identity.names.truncate(1);
    found.checked.gaps = vec![gap];
    found
}

#[test]
fn each_diagnosis_has_the_expected_text() {
    let mut unknown = Found::default();
    unknown.end_early("timed out after 20s while reading the firmware tables: a disk hangs");
    let (missing, why) = (UnavailableKind::Missing, "no system bus");
    let no_bus = gap(Group::Machine, "the clock", missing, why);
    for (name, found, style, verbose) in [
        ("healthy", healthy(), PLAIN, false),
        ("skipped", gapped(no_bus), PLAIN, false),
        ("unknown", unknown, PLAIN, false),
        ("problems", unhealthy(), PLAIN, false),
        ("verbose", unhealthy(), PLAIN, true),
        ("colored", unhealthy(), COLORED, false),
    ] {
        let text = text(&diagnosis(&found), style, verbose);
        is_expected(name, &text);
        assert!(!verbose || text.is_ascii(), "{text}");
        assert!(style.color || !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn no_line_but_a_command_is_wider_than_the_terminal() {
    let findings = Code::ALL.iter();
    let findings = findings.map(|code| Finding::new(*code, "taint ".repeat(40)));
    let unreachable = UnavailableKind::Unreachable;
    let mut found = gapped(gap(Group::Node, "the Node", unreachable, "timed out"));
    found.checked.findings = findings.collect();
    let diagnosis = diagnosis(&found);
    let commands = diagnosis.findings().flat_map(|problem| &problem.commands);
    let commands: Vec<&str> = commands.map(|command| &*command.text).collect();
    for width in [60, 80, 120] {
        let text = text(&diagnosis, TermStyle { width, ..PLAIN }, true);
        let wide = text.lines().filter(|line| line.chars().count() > width);
        let is_text = |line: &&str| line.trim().contains(' ') && !commands.contains(&line.trim());
        assert_eq!(wide.filter(is_text).collect::<Vec<_>>(), [""; 0], "{width}");
        let missing = commands.iter().filter(|command| !text.contains(**command));
        assert_eq!(missing.count(), 0, "{text}");
    }
}

#[test]
fn a_long_observation_is_cut_and_verbose_cuts_none() {
    let long = format!(
        "config.toml:2: unknown key; allowed: {}end",
        "key ".repeat(400)
    );
    let mut found = Found::default();
    found.checked.findings = vec![
        Finding::new(Code::ConfigInvalid, "config.toml:1: not valid TOML"),
        Finding::new(Code::ConfigInvalid, long.as_str()),
    ];
    let diagnosis = diagnosis(&found);
    let verbose = text(&diagnosis, PLAIN, true);
    assert!(words(&verbose).contains(&long), "{verbose}");
    assert!(verbose.contains(": 1 error."), "{verbose}");
    assert!(!words(&text(&diagnosis, PLAIN, false)).contains(&long));
}

#[test]
fn the_address_of_a_ui_or_a_rancher_is_not_that_of_an_api() {
    for (server, expected) in [
        ("https://192.0.2.1:6443/", true),
        ("https://[fd00::1]:6443", true),
        ("https://192.0.2.1", false),
        ("https://rancher.example/k8s/clusters/c-m-x", false),
        ("https://rancher.example:8443/k8s/clusters/c-m-x", false),
    ] {
        assert_eq!(
            Address::parse(server).unwrap().is_api(),
            expected,
            "{server}"
        );
    }
}

#[test]
fn a_server_that_a_finding_calls_wrong_is_not_copied() {
    let mut found = healthy();
    let expired = Finding::new(Code::HarvesterCredentialExpired, "expired");
    let is_copied = |found: &Found| {
        let mut commands = found.problem(&expired).commands.into_iter();
        let command = commands.find(|one| one.text.contains(" kubeconfig --server "));
        command
            .unwrap()
            .text
            .contains("--server https://192.0.2.1:6443 ")
    };
    assert!(is_copied(&found));
    for (group, expected) in [(Group::Node, true), (Group::HarvesterApi, false)] {
        let wrong = Finding::new(Code::ServerNotInCertificate, "other names");
        found.checked.findings = vec![wrong.about(group)];
        assert_eq!(is_copied(&found), expected, "{group:?}");
    }
}

#[test]
fn no_step_is_to_run_this_command() {
    for code in Code::ALL {
        let problem = Found::default().problem(&Finding::new(*code, "seen"));
        let said = serde_json::to_string(&problem).unwrap();
        assert!(!said.contains("harvester-node-agent doctor"), "{said}");
        assert!(!problem.fix.is_empty(), "{code}");
    }
}
