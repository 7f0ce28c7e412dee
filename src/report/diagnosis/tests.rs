// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use super::text::Symbols;
use serde_json::json;

use super::*;
use crate::decide::diagnosis::Rights;
use crate::facts::Why;
use crate::facts::examination::Need;
use crate::findings::{Code, Group};
use crate::report::text::Style;

const PLAIN: Dress = Dress {
    style: Style::Plain,
    symbols: Symbols::Ascii,
    columns: None,
};

fn service() -> Service {
    Service {
        holder: Some("process 812".to_owned()),
        is_unknown: false,
        updated_at: Some("2026-11-21T09:00:00Z".to_owned()),
        findings: Vec::new(),
        since: BTreeMap::from([("node-missing".to_owned(), "2026-11-21T08:00:00Z".to_owned())]),
    }
}

fn shown<T>(findings: &[Finding], gaps: &[Gap], show: impl FnOnce(&View<'_>) -> T) -> T {
    let diagnosis = Diagnosis::new(findings, gaps);
    show(&View {
        diagnosis: &diagnosis,
        outcome: diagnosis.outcome(false),
        at: "2026-11-21T10:00:00Z",
        service: &service(),
        status: None,
        examination: None,
    })
}

fn gap(group: Group, what: &'static str, kind: WhyKind, text: &str) -> Gap {
    Gap {
        group,
        what,
        why: Why::new(kind, text),
        need: Need::Usual,
    }
}

#[test]
fn a_group_without_a_finding_takes_one_line() {
    let text = shown(&[], &[], |view| text(view, PLAIN, Rights::All));
    assert!(
        text.lines()
            .skip(1)
            .take(9)
            .all(|line| line.starts_with("unseen ")),
        "{text}"
    );
    assert_eq!(text.lines().count(), Group::ALL.len() + 2);
    let version = env!("CARGO_PKG_VERSION");
    let first = format!(
        "ok      agent                 harvester-node-agent {version} runs as process 812; last change 2026-11-21T09:00:00Z"
    );
    assert_eq!(text.lines().next(), Some(first.as_str()));
    assert!(
        text.ends_with("\n\n0 errors, 0 warnings, 0 notices\n"),
        "{text}"
    );
}

#[test]
fn a_finding_shows_what_was_seen_why_it_matters_and_lines_to_paste() {
    let finding = Finding::new(Code::NodeMissing, "no Node `n` at https://api:6443");
    let text = shown(&[finding], &[], |view| text(view, PLAIN, Rights::All));
    let entry = Code::NodeMissing.entry();
    for line in [
        "warning Node                  not looked at".to_owned(),
        format!("    warning {} [node-missing]", entry.title),
        "      seen  no Node `n` at https://api:6443".to_owned(),
        format!("      impact{}", entry.impact),
        format!("      fix   {}", entry.fix.join(" ")),
        "          kubectl get nodes".to_owned(),
        "      since 2026-11-21T08:00:00Z".to_owned(),
        "      more  harvester-node-agent explain node-missing".to_owned(),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
}

#[test]
fn signs_and_colours_are_only_where_they_were_asked_for() {
    let finding = [Finding::new(Code::NodeMissing, "\u{1b}[2Jno Node")];
    let dressed = |style, symbols| {
        shown(&finding, &[], |view| {
            text(
                view,
                Dress {
                    style,
                    symbols,
                    columns: None,
                },
                Rights::All,
            )
        })
    };
    let plain = dressed(Style::Plain, Symbols::Ascii);
    assert!(plain.is_ascii() && !plain.contains('\u{1b}'), "{plain}");
    let colour = dressed(Style::Colour, Symbols::Unicode);
    assert!(colour.contains("\u{1b}[33m▲\u{1b}[0m Node"), "{colour}");
    assert!(!colour.contains("\u{1b}[2J"), "{colour}");
}

#[test]
fn gaps_of_one_reason_are_one_line_and_name_what_explains_them() {
    let gaps = [
        gap(
            Group::Identity,
            "the firmware UUID",
            WhyKind::Forbidden,
            "not allowed to read `/dmi`",
        ),
        gap(
            Group::Identity,
            "the serial number",
            WhyKind::Forbidden,
            "not allowed to read `/dmi`",
        ),
        gap(
            Group::HarvesterApi,
            "the VM",
            WhyKind::NotAsked,
            "no kubeconfig",
        ),
        gap(
            Group::KubeletCredential,
            "its kubeconfig",
            WhyKind::Forbidden,
            "not allowed",
        ),
        gap(Group::Node, "the Node", WhyKind::NotAsked, "not allowed"),
    ];
    let cause = Finding::new(Code::HarvesterCredentialMissing, "no kubeconfig");
    let text = shown(&[cause], &gaps, |view| text(view, PLAIN, Rights::Few));
    for line in [
        "      not seen: the firmware UUID, the serial number: not allowed to read `/dmi` (run as root)",
        "      not seen: the VM: because of harvester-credential-missing",
        "      not seen: the Node: for want of its kubeconfig",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
}

#[test]
fn a_ticket_has_fifteen_lines_at_most_however_much_is_wrong() {
    let findings: Vec<Finding> = Code::ALL
        .iter()
        .map(|code| Finding::new(*code, "x".repeat(2000)))
        .collect();
    let text = shown(&findings, &[], short);
    assert!(text.lines().count() <= 15, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() < 250),
        "{text}"
    );
    assert!(
        text.contains(" more: harvester-node-agent doctor\n"),
        "{text}"
    );
    assert!(
        text.lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("error ")),
        "{text}"
    );
}

#[test]
fn a_ticket_says_what_was_not_seen_and_why() {
    let hung = |group| {
        gap(
            group,
            "all of it",
            WhyKind::Unreachable,
            "given up after 15 s",
        )
    };
    let gaps: Vec<Gap> = Group::ALL.iter().copied().map(hung).collect();
    let text = shown(&[], &gaps, short);
    assert!(
        text.ends_with("\nnot seen: all of it: given up after 15 s\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2);
    let many: Vec<Finding> = Code::ALL
        .iter()
        .map(|code| Finding::new(*code, "seen"))
        .collect();
    let text = shown(&many, &gaps, short);
    assert!(text.contains("\nnot seen: all of it: "), "{text}");
    assert!(text.lines().count() <= 15, "{text}");
}

#[test]
fn people_get_lines_that_end_and_commands_stay_whole() {
    let finding = [Finding::new(Code::NodeUninitialized, "taint ".repeat(40))];
    let narrow = Dress {
        columns: Some(40),
        ..PLAIN
    };
    let text = shown(&finding, &[], |view| text(view, narrow, Rights::All));
    let of_finding = text
        .lines()
        .skip_while(|line| !line.starts_with("      seen"));
    let prose: Vec<&str> = of_finding.take_while(|line| !line.ends_with(':')).collect();
    assert!(prose.len() > 10, "{text}");
    let is_long = |line: &&&str| line.chars().count() > 40 && line.trim().contains(' ');
    assert_eq!(
        prose.iter().filter(is_long).collect::<Vec<_>>(),
        Vec::<&&str>::new()
    );
    for command in Code::NodeUninitialized.entry().commands {
        assert!(text.contains(&*command.text), "{text}");
    }
}

#[test]
fn a_consequence_is_told_beside_its_cause_and_its_group_is_not_well() {
    let cause = Finding::new(Code::HarvesterUnreachable, "timeout");
    let consequence = Finding::new(Code::NoTopologySource, "no source");
    let (text, document) = shown(&[consequence, cause], &[], |view| {
        (text(view, PLAIN, Rights::All), document(view, 0))
    });
    assert!(
        text.contains("\n      found too: no-topology-source, because of harvester-unreachable\n"),
        "{text}"
    );
    let groups = document["groups"].as_array().unwrap();
    let placement = groups
        .iter()
        .find(|group| group["group"] == "placement")
        .unwrap();
    assert_eq!(placement["silenced"][0]["by"], "harvester-unreachable");
    assert_eq!(
        (&placement["state"], &document["counts"]["errors"]),
        (&json!("unseen"), &json!(0))
    );
}

#[test]
fn what_is_not_missed_spoils_nothing() {
    let gap = gap(
        Group::Machine,
        "the zones",
        WhyKind::Forbidden,
        "not allowed",
    )
    .optional();
    let text = shown(&[], &[gap], |view| text(view, PLAIN, Rights::All));
    assert!(text.starts_with("ok "), "{text}");
    assert!(
        text.ends_with("\n0 errors, 0 warnings, 0 notices\n"),
        "{text}"
    );
}

#[test]
fn nothing_is_said_of_the_image_that_its_findings_deny() {
    for (findings, says) in [
        (
            vec![Finding::new(Code::IdentityFromImage, "/etc/machine-id")],
            "not as it should be",
        ),
        (vec![], "not all of it was looked at"),
    ] {
        let summary = shown(&findings, &[], |view| view.image().to_owned());
        assert_eq!(summary, says);
    }
}
