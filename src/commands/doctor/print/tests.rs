// SPDX-License-Identifier: Apache-2.0
//! The texts as a whole are in `expected/`, one file each.

use serde_json::json;
use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

use super::*;
use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::found::Found;
use crate::commands::doctor::service::Service;
use crate::facts::{Unavailable, UnavailableKind};
use crate::report::text::{Charset, TermStyle};

const PLAIN: TermStyle = TermStyle::PLAIN;

const COLORED: TermStyle = TermStyle {
    color: true,
    charset: Charset::Unicode,
    width: 80,
};

fn text(diagnosis: &Diagnosis, style: TermStyle, verbose: bool) -> String {
    let now = diagnosis.now;
    super::text(
        diagnosis,
        Show {
            style,
            verbose,
            now,
        },
    )
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
    let status = json!({
        "apiVersion": crate::report::status::API_VERSION, "kind": "Status",
        "lastUpdateTime": "2026-11-21T09:00:00Z", "trigger": "timer",
        "agent": {"version": "1", "pid": 7, "startTime": "2026-11-21T08:00:00Z"},
        "identity": {
            "state": "names-match", "impact": "", "evidence": [],
            "vm": {"name": "pool1-abcde", "namespace": "default"},
            "names": [{"type": "hostname", "name": "pool1-abcde", "state": "names-match"}],
        },
        "placement": {"host": "hv-a", "hostSource": "x", "region": "eu-1", "zone": "rack-a", "sources": []},
        "labels": {"node": "pool1-abcde", "state": "synced", "owned": {}, "skippedLabels": []},
        "credentials": {
            "harvester": {
                "kubeconfig": "/etc/kubernetes/cloud-config", "server": "https://192.0.2.1:6443",
                "user": "system:serviceaccount:default:gc8",
            },
            "kubelet": {
                "kubeconfig": "/var/lib/kubelet/kubeconfig", "user": "system:node:pool1-abcde",
                "expirationTime": "2026-12-21T10:00:00Z",
            },
        },
        "qemuGuestAgent": {"state": "healthy", "unit": "qemu-guest-agent.service"},
        "eventSources": [], "findings": [],
    });
    let finding = json!([{
        "code": "node-missing", "severity": "warning", "group": "node", "title": "", "observed": "none", "impact": "", "fix": [],
        "firstObservedTime": "2026-11-21T08:00:00Z",
    }]);
    let dir = tempfile::tempdir().unwrap();
    let mut published = status.clone();
    published["findings"] = finding;
    let file = dir.path().join("run/harvester-node-agent/status.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, published.to_string()).unwrap();
    let mut service = Service::read(&crate::sys::root::Root::new(dir.path()));
    service.presence =
        crate::sys::lock::Presence::Running(crate::sys::lock::Holder { pid: Some(812) });
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
        status: Some(serde_json::from_value(status).unwrap()),
        ..Found::default()
    }
}

/// An error with a consequence, a warning, a notice, and checks that were skipped for two reasons.
fn unhealthy() -> Found {
    let not_allowed = "not allowed to read `/dmi`: EACCES";
    let mut found = healthy();
    found.is_unanswered = true;
    found.checked.findings = vec![
        Finding::new(Code::ClockNotSynchronized, "NTPSynchronized is no"),
        Finding::new(Code::NodeMissing, "no Node `n` at https://api:6443"),
        Finding::new(Code::NoTopologySource, "no source"),
        Finding::new(Code::HarvesterTlsError, "\u{1b}[2Junknown issuer"),
        Finding::new(
            Code::CredentialExpires,
            "/a: CA a expires at 2026-12-20T10:00:00Z, in 29 days",
        ),
        Finding::new(
            Code::CredentialExpires,
            "/b: CA b expires at 2026-12-20T10:00:00Z, in 29 days",
        ),
    ];
    found.checked.gaps = vec![
        gap(
            Group::Identity,
            "the firmware UUID",
            UnavailableKind::Forbidden,
            not_allowed,
        ),
        gap(
            Group::Identity,
            "the serial number",
            UnavailableKind::Forbidden,
            not_allowed,
        ),
        gap(
            Group::Node,
            "the Node",
            UnavailableKind::NotAsked,
            "no kubeconfig",
        ),
    ];
    found
}

#[test]
fn without_a_problem_the_verdict_comes_first_and_each_group_takes_one_line() {
    is_expected("healthy", &text(&diagnosis(&healthy()), PLAIN, false));
}

#[test]
fn without_a_round_nothing_is_called_ok() {
    let mut unknown = Found::default();
    unknown.end_early("timed out after 20s while reading the firmware tables: a disk hangs");
    is_expected("unknown", &text(&diagnosis(&unknown), PLAIN, false));
}

#[test]
fn problems_are_sorted_by_severity_and_a_notice_takes_one_line() {
    is_expected("problems", &text(&diagnosis(&unhealthy()), PLAIN, false));
}

#[test]
fn verbose_has_the_notices_all_groups_and_all_skipped_checks() {
    is_expected("verbose", &text(&diagnosis(&unhealthy()), PLAIN, true));
}

#[test]
fn symbols_and_colors_are_used_only_where_they_are_allowed() {
    is_expected("colored", &text(&diagnosis(&unhealthy()), COLORED, false));
    let plain = text(&diagnosis(&unhealthy()), PLAIN, true);
    assert!(plain.is_ascii() && !plain.contains('\u{1b}'), "{plain}");
}

#[test]
fn only_checks_are_counted_as_checks() {
    let mut found = healthy();
    found.checked.gaps = vec![gap(
        Group::Machine,
        "the clock",
        UnavailableKind::Missing,
        "no system bus",
    )];
    let text = text(&diagnosis(&found), PLAIN, false);
    assert!(
        text.contains("  1 check skipped: no system bus; -v"),
        "{text}"
    );
    let last = "No problem found, 1 check skipped.";
    assert_eq!(text.lines().last(), Some(last), "{text}");
}

/// Returns the words of a text without its line breaks.
fn words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn no_line_but_a_command_is_wider_than_the_terminal() {
    let findings = Code::ALL.iter();
    let findings = findings.map(|code| Finding::new(*code, "taint ".repeat(40)));
    let mut found = healthy();
    found.checked.findings = findings.collect();
    found.checked.gaps = vec![gap(
        Group::Node,
        "the Node",
        UnavailableKind::Unreachable,
        "timed out",
    )];
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
fn no_step_is_to_run_this_command() {
    for code in Code::ALL {
        let problem = Found::default().problem(&Finding::new(*code, "seen"));
        let said = serde_json::to_string(&problem).unwrap();
        assert!(!said.contains("harvester-node-agent doctor"), "{said}");
        assert!(!problem.fix.is_empty(), "{code}");
    }
}
