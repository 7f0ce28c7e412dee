// SPDX-License-Identifier: Apache-2.0
//! The status for people: `status`, `whoami`, the result of `once`, and the line that `systemctl status` shows.

use std::fmt::Write;

use super::status::{CredentialStatus, FindingStatus, GuestAgentStatus, SignalStatus, Status};
use crate::decide::verdict::Verdict;
use crate::escape::one_line;

/// The longest text shown in one row, in characters.
const SHOWN_MAX: usize = 1000;

/// Whether words may be coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Never an escape sequence.
    Plain,
    /// Severities in colour, for a terminal.
    Colour,
}

/// Everything, as `status` prints it.
pub fn status(status: &Status, style: Style) -> String {
    let mut text = who_and_where(status);
    let node = status.labels.node.as_deref().unwrap_or("unknown");
    row(
        &mut text,
        "labels",
        &format!("{} on Node {node}", status.labels.state),
    );
    for (key, value) in &status.labels.owned {
        row(&mut text, "", &format!("{key}={value}"));
    }
    if let Some(migration) = &status.last_migration {
        let latency = match (migration.latency_ms, &migration.trigger) {
            (Some(latency), Some(trigger)) => {
                format!(", labels {latency} ms after trigger {trigger}")
            }
            _ => String::new(),
        };
        row(
            &mut text,
            "migrated",
            &format!(
                "{} -> {} at {}{latency}",
                migration.from, migration.to, migration.at
            ),
        );
    }
    if let Some(resync) = &status.last_resync {
        row(
            &mut text,
            "resync",
            &format!(
                "{} at {}: sign {}, {} ms, {} reads",
                resync.outcome, resync.at, resync.trigger, resync.took_ms, resync.reads
            ),
        );
    }
    guest_agent(&mut text, &status.guest_agent);
    signals(&mut text, &status.signals);
    row(
        &mut text,
        "checked",
        &format!("{} (trigger {})", status.updated_at, status.trigger),
    );
    text + &findings(&status.findings, style)
}

/// Who and where, with all the evidence, as `whoami` prints it.
pub fn whoami(status: &Status, style: Style) -> String {
    let mut text = who_and_where(status);
    for item in &status.identity.evidence {
        let word = if item.agrees { "agrees" } else { "differs" };
        row(
            &mut text,
            "evidence",
            &format!("{} {word}: {}", item.kind, item.detail),
        );
    }
    for source in status
        .placement
        .iter()
        .flat_map(|placement| &placement.sources)
    {
        row(
            &mut text,
            "source",
            &format!("{} {}: {}", source.source, source.outcome, source.detail),
        );
    }
    credential(&mut text, "harvester", &status.credentials.harvester);
    for permission in &status.permissions {
        row(
            &mut text,
            "may",
            &format!(
                "{}: {} ({})",
                permission.request, permission.allowed, permission.purpose
            ),
        );
    }
    credential(&mut text, "kubelet", &status.credentials.kubelet);
    guest_agent(&mut text, &status.guest_agent);
    signals(&mut text, &status.signals);
    text + &findings(&status.findings, style)
}

/// One line for `STATUS=`.
pub fn line(status: &Status) -> String {
    let vm = status
        .identity
        .vm
        .as_ref()
        .map_or("unknown", |vm| vm.name.as_str());
    let worst = status.findings.first();
    let placement = status
        .placement
        .as_ref()
        .map_or_else(String::new, |placement| {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            format!(
                " host={} region={} zone={}",
                placement.host,
                text(&placement.region),
                text(&placement.zone)
            )
        });
    let migrated = status
        .last_migration
        .as_ref()
        .map_or_else(String::new, |migration| {
            format!(" migrated={}", migration.at)
        });
    let finding = worst.map_or_else(String::new, |finding| {
        format!(" {}={}", finding.severity, finding.code)
    });
    let identity = &status.identity.verdict;
    let labels = &status.labels.state;
    let agent = &status.guest_agent.health;
    format!(
        "vm={vm} identity={identity}{placement} labels={labels} guest-agent={agent}{migrated}{finding}"
    )
}

fn who_and_where(status: &Status) -> String {
    let mut text = String::new();
    let identity = &status.identity;
    let proof: Vec<&str> = identity
        .evidence
        .iter()
        .filter(|item| item.agrees)
        .map(|item| item.kind.as_str())
        .collect();
    let vm = match &identity.vm {
        Some(vm) => {
            let namespace = vm
                .namespace
                .as_deref()
                .map(|namespace| format!("{namespace}/"))
                .unwrap_or_default();
            format!("{namespace}{} (proof: {})", vm.name, proof.join(", "))
        }
        None => "unknown".to_owned(),
    };
    row(&mut text, "vm", &vm);
    if let Some(reason) = &identity.reason {
        row(&mut text, "", reason);
    }
    for name in &identity.names {
        row(
            &mut text,
            &name.kind,
            &format!("{} ({})", name.name, name.verdict),
        );
    }
    if identity.names.iter().any(|name| !is_match(&name.verdict)) {
        row(&mut text, "consequence", &identity.consequence);
    }
    match &status.placement {
        Some(placement) => {
            row(&mut text, "host", &placement.host);
            row(&mut text, "named by", &placement.host_told_by);
            row(
                &mut text,
                "region",
                placement.region.as_deref().unwrap_or("unknown"),
            );
            row(
                &mut text,
                "zone",
                placement.zone.as_deref().unwrap_or("unknown"),
            );
            row(
                &mut text,
                "told by",
                placement.source.as_deref().unwrap_or("no source"),
            );
        }
        None => row(&mut text, "host", "unknown"),
    }
    text
}

fn is_match(verdict: &str) -> bool {
    Verdict::parse(verdict).is_some_and(Verdict::is_match)
}

fn guest_agent(text: &mut String, agent: &GuestAgentStatus) {
    let unit = match (&agent.unit, &agent.state, &agent.problem) {
        (Some(unit), Some(state), _) => format!(" ({unit}: {state})"),
        (_, _, Some(problem)) => format!(" ({problem})"),
        _ => String::new(),
    };
    row(text, "guest agent", &format!("{}{unit}", agent.health));
}

/// What wakes the agent here, and what does not and why.
fn signals(text: &mut String, signals: &[SignalStatus]) {
    for signal in signals {
        let state = if signal.live { "live" } else { "not live" };
        row(
            text,
            "signal",
            &format!("{}: {state}, {}", signal.name, signal.detail),
        );
    }
}

fn credential(text: &mut String, name: &str, credential: &CredentialStatus) {
    let line = match (&credential.kubeconfig, &credential.problem) {
        (Some(kubeconfig), _) => {
            let part = |what: &str, value: &Option<String>| {
                value.as_ref().map(|value| format!(", {what} {value}"))
            };
            let parts = [
                part("server", &credential.server),
                part("user", &credential.user),
                part("namespace", &credential.namespace),
                part("ends", &credential.expires),
            ];
            format!(
                "{kubeconfig}{}",
                parts.into_iter().flatten().collect::<String>()
            )
        }
        (None, Some(problem)) => problem.clone(),
        (None, None) => "none".to_owned(),
    };
    row(text, name, &line);
}

/// The findings, each with what was seen, why it matters and what to type.
pub fn findings(findings: &[FindingStatus], style: Style) -> String {
    let mut text = String::new();
    for finding in findings {
        let severity = match (style, finding.severity.as_str()) {
            (Style::Colour, "error") => "\u{1b}[1;31merror\u{1b}[0m".to_owned(),
            (Style::Colour, "warning") => "\u{1b}[33mwarning\u{1b}[0m".to_owned(),
            (_, severity) => severity.to_owned(),
        };
        let _ = writeln!(
            text,
            "\n{severity}: {} [{}] since {}",
            finding.title, finding.code, finding.since
        );
        for (name, value) in [
            ("seen", &finding.seen),
            ("impact", &finding.impact),
            ("fix", &finding.fix.join(" ")),
        ] {
            let _ = writeln!(text, "  {name:5}{}", one_line(value, SHOWN_MAX));
        }
    }
    text
}

/// One row. What it shows may be foreign: it stays on its line and has no power over the terminal.
fn row(text: &mut String, name: &str, value: &str) {
    let name = name.replace('-', " ");
    let _ = writeln!(text, "{name:<17}{}", one_line(value, SHOWN_MAX));
}
