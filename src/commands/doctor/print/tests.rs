// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use serde_json::json;
use time::format_description::well_known::Rfc3339;

use super::*;
use crate::catalog::{Code, Expiry, Group};
use crate::commands::doctor::diagnosis::Privileges;
use crate::facts::{Prerequisite, Unavailable};
use crate::report::layout::{Charset, TermStyle};

const PLAIN: TermStyle = TermStyle::PLAIN;

/// Returns the diagnosis for a terminal without known capabilities.
fn plain(view: &View<'_>) -> String {
    text(view, PLAIN, false, Privileges::All)
}

/// Returns the words of a text without its line breaks.
fn words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn service() -> Service {
    Service {
        holder: Some("process 812".to_owned()),
        is_unknown: false,
        lacks_namespaces: false,
        updated_at: Some("2026-11-21T09:00:00Z".to_owned()),
        findings: Vec::new(),
        since: BTreeMap::from([(Code::NodeMissing, "2026-11-21T08:00:00Z".to_owned())]),
    }
}

fn shown<T>(findings: &[Finding], gaps: &[Gap], show: impl FnOnce(&View<'_>) -> T) -> T {
    let diagnosis = Diagnosis::new(findings, gaps);
    show(&View {
        diagnosis: &diagnosis,
        outcome: diagnosis.outcome(false),
        at: "2026-11-21T10:00:00Z",
        now: UtcDateTime::parse("2026-11-21T10:00:00Z", &Rfc3339).unwrap(),
        service: &service(),
        status: None,
        examination: None,
    })
}

fn gap(group: Group, what: &'static str, kind: UnavailableKind, text: &str) -> Gap {
    Gap::new(group, what, Unavailable::new(kind, text))
}

/// Returns a gap because the kubeconfig for an API could not be read.
fn without_kubeconfig(api: Api, what: &'static str, kind: UnavailableKind, text: &str) -> Gap {
    let group = match api {
        Api::Harvester => Group::HarvesterApi,
        Api::Guest => Group::Node,
    };
    let why = Unavailable::new(kind, text).due_to(Prerequisite::Kubeconfig(api));
    Gap::new(group, what, why)
}

/// Returns the finding that the Harvester kubeconfig is missing.
fn no_kubeconfig(text: &str) -> Finding {
    let finding = Finding::new(Code::HarvesterCredentialMissing, text);
    finding.of_failed(Prerequisite::Kubeconfig(Api::Harvester))
}

/// Returns the status of a round that found nothing out.
fn status() -> Status {
    serde_json::from_value(json!({
        "apiVersion": crate::report::status::API_VERSION, "kind": "Status",
        "lastUpdateTime": "2026-11-21T10:00:00Z", "trigger": "timer",
        "agent": {"version": "1", "pid": 7, "startTime": "2026-11-21T10:00:00Z"},
        "identity": {"state": "vm-unknown", "impact": "", "names": [], "evidence": []},
        "labels": {"state": "pending", "owned": {}, "skippedLabels": []},
        "credentials": {"harvester": {}, "kubelet": {}},
        "eventSources": [], "findings": [],
    }))
    .unwrap()
}

#[test]
fn without_a_problem_the_verdict_comes_first_and_each_group_takes_one_line() {
    let text = shown(&[], &[], plain);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "ok   this node: healthy");
    let version = env!("CARGO_PKG_VERSION");
    let agent =
        format!("  ok   agent                {version}, active (process 812), last change 1h ago");
    assert_eq!(lines[2], agent);
    let skipped = lines[3..12].iter();
    assert!(
        skipped.clone().all(|line| line.starts_with("  skip ")),
        "{text}"
    );
    assert_eq!(lines.len(), Group::ALL.len() + 4);
    let last = "No problem found, 1 of 10 groups checked.";
    assert_eq!(lines.last(), Some(&last), "without a round");
    let whole = shown(&[], &[], |view| {
        let status = status();
        let status = Some(&status);
        plain(&View { status, ..*view })
    });
    let last = "No problem found, all 10 groups checked.";
    assert_eq!(whole.lines().last(), Some(last), "{whole}");
    assert!(!whole.contains("  skip "), "{whole}");
}

#[test]
fn only_checks_are_counted_as_checks() {
    let gaps = [gap(
        Group::Machine,
        "the clock",
        UnavailableKind::Missing,
        "no system bus",
    )];
    let text = shown(&[], &gaps, |view| {
        let status = status();
        let status = Some(&status);
        plain(&View { status, ..*view })
    });
    assert!(text.contains("  1 check skipped: no system bus;"), "{text}");
    let last = "No problem found, 1 check skipped.";
    assert_eq!(text.lines().last(), Some(last), "{text}");
}

#[test]
fn a_problem_shows_what_was_observed_its_impact_and_commands_with_their_place() {
    let finding = Finding::new(Code::NodeMissing, "no Node `n` at https://api:6443");
    let text = shown(&[finding], &[], plain);
    let entry = Code::NodeMissing.entry();
    assert!(
        text.starts_with("warn this node: 1 warning. Node does not exist in the guest cluster\n"),
        "{text}"
    );
    for line in [
        "  Observed  no Node `n` at https://api:6443 (first observed 2h ago)",
        "  Fix       1. Check under which name the kubelet has registered.",
        "            # as guest cluster administrator",
        "            kubectl get nodes",
        "            # on this node, as root",
        "Details: harvester-node-agent explain node-missing",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
    let title = text.lines().find(|line| line.starts_with("WARN"));
    let title = title.unwrap_or_default();
    assert!(
        title.ends_with(" [node-missing]") && title.len() == 80,
        "{title}"
    );
    assert!(words(&text).contains(entry.impact), "{text}");
}

/// Returns the only problem in a diagnosis: its title, and the lines below.
fn block(text: &str) -> (String, Vec<&str>) {
    let is_title = |line: &&str| {
        ["ERROR ", "WARN ", "NOTE "]
            .iter()
            .any(|word| line.starts_with(word))
    };
    let mut lines = text.lines().skip_while(|line| !is_title(line));
    let lines: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let end = lines.iter().position(|line| line.starts_with("  Observed"));
    let (title, rest) = lines.split_at(end.unwrap_or(lines.len()));
    (words(&title.join(" ")), rest.to_vec())
}

#[test]
fn every_finding_says_what_is_wrong_where_since_when_and_what_to_type_where() {
    // Those of `bake-check` have commands for what it found.
    let is_of_node = |code: &&Code| !code.as_str().starts_with("image-");
    for code in Code::ALL.iter().filter(is_of_node) {
        let mut service = service();
        let since = "2026-11-21T08:00:00Z".to_owned();
        service.since = BTreeMap::from([(*code, since)]);
        let diagnosis = Diagnosis::new(&[Finding::new(*code, "this on that")], &[]);
        let text = shown(&[], &[], |view| {
            let view = View {
                diagnosis: &diagnosis,
                service: &service,
                ..*view
            };
            super::text(&view, PLAIN, true, Privileges::All)
        });
        let (title, lines) = block(&text);
        let entry = code.entry();
        assert!(
            title.ends_with(&format!(" {} [{code}]", entry.title)),
            "{title}"
        );
        // Each row begins with its name; its other lines have a deeper indentation.
        let names = lines.iter().filter_map(|line| {
            let name = line.strip_prefix("  ")?;
            let is_name = name.starts_with(|first: char| first.is_ascii_uppercase());
            is_name.then(|| name.split(' ').next().unwrap_or_default())
        });
        let names: Vec<&str> = names.collect();
        assert_eq!(names, ["Observed", "Impact", "Fix"], "{text}");
        assert_eq!(
            lines[0], "  Observed  this on that (first observed 2h ago)",
            "{text}"
        );
        let below = words(&lines[1..].join(" "));
        assert!(below.contains(entry.impact), "{text}");
        for step in entry.fix {
            assert!(below.contains(step), "{text}");
        }
        // A place, and below it a command for that place.
        let places = lines.iter().zip(&lines[1..]);
        let places: Vec<_> = places
            .filter(|(line, _)| line.starts_with("            # "))
            .collect();
        assert!(!places.is_empty(), "no command for {code}: {text}");
        for (place, command) in places {
            let command = command.trim_start();
            let is_typed = entry
                .commands
                .iter()
                .any(|known| command == known.text && place.ends_with(known.place.title()));
            assert!(is_typed, "{place}: {command}\n{text}");
        }
    }
}

#[test]
fn findings_of_one_code_are_one_problem_and_what_expires_is_a_table() {
    let expiry = |days: i64, what: &str, origin: &str| {
        let at = 1_795_255_200 + days * 86_400;
        let finding = Finding::new(Code::CredentialExpires, format!("{what} in {origin}"));
        finding.with_expiry(Expiry {
            at,
            what: what.to_owned(),
            origin: origin.to_owned(),
            renew: "restart of rke2-server",
        })
    };
    let findings = [
        expiry(29, "CA `a`", "/etc/x/kubelet.kubeconfig"),
        expiry(-1, "server certificate `b`", "https://192.0.2.1:6443"),
        Finding::new(Code::CredentialExposed, "/a has mode 0644"),
        Finding::new(Code::CredentialExposed, "/b has mode 0644"),
    ];
    let text = shown(&findings, &[], plain);
    assert_eq!(text.matches("[credential-expires]").count(), 1, "{text}");
    assert_eq!(text.matches("[credential-exposed]").count(), 1, "{text}");
    for line in [
        "  EXPIRES  CERTIFICATE OR TOKEN    SEEN IN                 RENEW WITH",
        "  29d      CA `a`                  kubelet.kubeconfig      restart of",
        "  1d ago   server certificate `b`  https://192.0.2.1:6443  restart of",
        "  Observed  /a has mode 0644",
        "            /b has mode 0644",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
    let impact = Code::CredentialExpires.entry().impact;
    assert_eq!(words(&text).matches(impact).count(), 1, "{text}");
}

#[test]
fn problems_are_sorted_by_severity_and_a_notice_takes_one_line() {
    let findings = [
        Finding::new(Code::ClockNotSynchronized, "NTPSynchronized=no"),
        Finding::new(Code::CredentialExposed, "/a has mode 0644"),
        Finding::new(Code::NodeUninitialized, "taint"),
    ];
    let text = shown(&findings, &[], plain);
    let at = |code: &str| text.find(code).unwrap();
    assert!(at("[node-uninitialized]") < at("[credential-exposed]"));
    assert!(at("[credential-exposed]") < at("[clock-not-synchronized]"));
    assert!(!text.contains("NTPSynchronized=no"), "{text}");
    assert!(
        text.starts_with("fail this node: 1 error, 1 warning, 1 notice. "),
        "{text}"
    );
    let verbose = shown(&findings, &[], |view| {
        super::text(view, PLAIN, true, Privileges::All)
    });
    assert!(verbose.contains("NTPSynchronized=no"), "{verbose}");
}

#[test]
fn symbols_and_colors_are_used_only_where_they_are_allowed() {
    let finding = [Finding::new(Code::NodeMissing, "\u{1b}[2Jno Node")];
    let ascii = shown(&finding, &[], plain);
    assert!(ascii.is_ascii() && !ascii.contains('\u{1b}'), "{ascii}");
    let style = TermStyle {
        color: true,
        charset: Charset::Unicode,
        width: 80,
    };
    let color = shown(&finding, &[], |view| {
        super::text(view, style, false, Privileges::All)
    });
    assert!(color.contains("\u{1b}[33m▲\u{1b}[0m Node"), "{color}");
    assert!(!color.contains("\u{1b}[2J"), "{color}");
}

#[test]
fn skipped_checks_are_one_line_and_verbose_lists_them_with_their_reasons() {
    let gaps = [
        gap(
            Group::Identity,
            "the firmware UUID",
            UnavailableKind::Forbidden,
            "not allowed to read `/dmi`",
        ),
        gap(
            Group::Identity,
            "the serial number",
            UnavailableKind::Forbidden,
            "not allowed to read `/dmi`",
        ),
        without_kubeconfig(
            Api::Harvester,
            "the VM",
            UnavailableKind::NotAsked,
            "no kubeconfig",
        ),
        without_kubeconfig(
            Api::Guest,
            "its kubeconfig",
            UnavailableKind::Forbidden,
            "not allowed",
        ),
        without_kubeconfig(
            Api::Guest,
            "the Node",
            UnavailableKind::NotAsked,
            "not allowed",
        ),
    ];
    // The text of the cause is not that of the gap: the type relates them.
    let cause = no_kubeconfig("no kubeconfig at /etc");
    let unprivileged = |is_verbose| {
        shown(std::slice::from_ref(&cause), &gaps, |view| {
            super::text(view, PLAIN, is_verbose, Privileges::Unprivileged)
        })
    };
    let line = "5 checks skipped: run as root (4); -v lists them.";
    let text = unprivileged(false);
    assert!(words(&text).contains(line), "{text}");
    assert!(!text.contains("the firmware UUID"), "{text}");
    let verbose = words(&unprivileged(true));
    for line in [
        "the firmware UUID, the serial number: not allowed to read `/dmi` (run as root)",
        "the VM: due to harvester-credential-missing",
        "the Node: depends on its kubeconfig",
    ] {
        assert!(verbose.contains(line), "{line}\n{verbose}");
    }
}

#[test]
fn no_line_but_a_command_is_wider_than_the_terminal() {
    let findings: Vec<Finding> = Code::ALL
        .iter()
        .map(|code| Finding::new(*code, "taint ".repeat(40)))
        .collect();
    let gaps = [gap(
        Group::Node,
        "the Node",
        UnavailableKind::Unreachable,
        "timed out",
    )];
    for width in [60, 80, 120] {
        let style = TermStyle { width, ..PLAIN };
        let text = shown(&findings, &gaps, |view| {
            super::text(view, style, true, Privileges::All)
        });
        let shown = Code::ALL.iter();
        let commands: Vec<&str> = shown
            .filter(|code| text.contains(&format!("[{code}]")))
            .flat_map(|code| code.entry().commands)
            .map(|command| &*command.text)
            .collect();
        let wide = text.lines().filter(|line| line.chars().count() > width);
        let is_command = |line: &&str| commands.contains(&line.trim());
        let is_whole = |line: &&str| !line.trim().contains(' ');
        let wide: Vec<&str> = wide
            .filter(|line| !is_command(line) && !is_whole(line))
            .collect();
        assert_eq!(wide, Vec::<&str>::new(), "{width}");
        let missing = commands.iter().filter(|command| !text.contains(**command));
        assert_eq!(missing.count(), 0, "{text}");
    }
}

#[test]
fn a_consequence_is_shown_with_its_cause_and_its_group_is_not_ok() {
    let cause = Finding::new(Code::HarvesterUnreachable, "timeout");
    let consequence = Finding::new(Code::NoTopologySource, "no source");
    let (text, document) = shown(&[consequence, cause], &[], |view| {
        (plain(view), document(view, 0))
    });
    assert!(
        text.contains("\n  Also      no-topology-source\n"),
        "{text}"
    );
    let groups = document["groups"].as_array().unwrap();
    let placement = groups
        .iter()
        .find(|group| group["group"] == "placement")
        .unwrap();
    assert_eq!(
        placement["suppressed"][0]["suppressedBy"],
        "harvester-unreachable"
    );
    assert_eq!(
        (&placement["state"], &document["counts"]["errors"]),
        (&json!("skipped"), &json!(0))
    );
}

#[test]
fn a_command_has_the_address_of_the_api_only_where_it_is_one() {
    for (server, expected) in [
        ("https://192.0.2.1:6443", true),
        ("https://192.0.2.1:6443/", true),
        ("https://[fd00::1]:6443", true),
        ("https://192.0.2.1", false),
        ("https://rancher.example/k8s/clusters/c-m-x", false),
        ("https://rancher.example:8443/k8s/clusters/c-m-x", false),
    ] {
        let address = Address::parse(server).unwrap();
        assert_eq!(address.is_api(), expected, "{server}");
    }
}

#[test]
fn the_summary_of_the_image_agrees_with_its_findings() {
    for (findings, says) in [
        (
            vec![Finding::new(Code::IdentityFromImage, "/etc/machine-id")],
            "has problems",
        ),
        (vec![], "not everything was checked"),
    ] {
        let summary = shown(&findings, &[], |view| view.image().to_owned());
        assert_eq!(summary, says);
    }
}

#[test]
fn each_problem_of_the_configuration_has_a_line_and_verbose_cuts_none() {
    let long = format!(
        "config.toml:2: unknown key; allowed: {}",
        "key ".repeat(400)
    );
    let findings = [
        Finding::new(Code::ConfigInvalid, "config.toml:1: not valid TOML"),
        Finding::new(Code::ConfigInvalid, long.trim_end()),
    ];
    let style = TermStyle {
        width: 120,
        ..PLAIN
    };
    let text = shown(&findings, &[], |view| {
        super::text(view, style, true, Privileges::All)
    });
    for line in [
        "  Observed  config.toml:1: not valid TOML",
        "            config.toml:2: unknown key; allowed: key key",
    ] {
        assert!(text.lines().any(|shown| shown.starts_with(line)), "{text}");
    }
    assert!(words(&text).contains(long.trim_end()), "{text}");
    assert!(text.contains(": 1 error."), "{text}");
}

#[test]
fn a_check_is_skipped_due_to_the_finding_that_is_shown() {
    let findings = [
        Finding::new(Code::ConfigInvalid, "config.toml:1: not valid TOML"),
        no_kubeconfig("no kubeconfig at /etc"),
    ];
    let gaps = [
        gap(
            Group::Node,
            "its addresses",
            UnavailableKind::NotAsked,
            "a file tree has no addresses",
        ),
        without_kubeconfig(
            Api::Harvester,
            "the VM",
            UnavailableKind::NotAsked,
            "no kubeconfig",
        ),
    ];
    let text = |findings: &[Finding], is_verbose| {
        words(&shown(findings, &gaps, |view| {
            super::text(view, PLAIN, is_verbose, Privileges::All)
        }))
    };
    let summary = text(&findings, false);
    assert!(
        summary.contains("2 checks skipped: due to config-invalid (1); -v lists them."),
        "{summary}"
    );
    let list = text(&findings, true);
    assert!(list.contains("the VM: due to config-invalid"), "{list}");
    let others = text(&[], false);
    assert!(
        others.contains("2 checks skipped: no kubeconfig (1); -v lists them."),
        "{others}"
    );
}
