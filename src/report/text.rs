// SPDX-License-Identifier: Apache-2.0
//! The status as text: `status`, `whoami`, and the line that `systemctl status` shows.

use std::fmt::Write;

use time::UtcDateTime;

use super::layout::Mark;
use super::relative::{expiry, relative, seconds_until};
pub use super::rows::Show;
use super::rows::{Rows, SHOWN_MAX};
use super::status::{CredentialStatus, EventSourceStatus, FindingStatus, IdentityStatus, Status};
use crate::catalog::Severity;
use crate::decide::name_match::Verdict;
use crate::sys::escape::one_line;

/// Returns the runtime status, as `status` prints it.
/// `doubt` is set unless an agent is known to be running.
pub fn status(status: &Status, show: Show, doubt: Option<&str>) -> String {
    let mut rows = Rows::new(show);
    let node = status.labels.node.as_deref().unwrap_or("this node");
    let severity = worst(status).max(doubt.map(|_| Severity::Warning));
    let mark = severity.map_or(Mark::Ok, Mark::Found);
    let host = match &status.placement {
        Some(placement) => format!(
            " on {} ({}/{})",
            placement.host,
            placement.region.as_deref().unwrap_or("-"),
            placement.zone.as_deref().unwrap_or("-")
        ),
        None => ", host unknown".to_owned(),
    };
    let doubt = doubt.map(|doubt| {
        let ago = relative(show.now, &status.last_update_time);
        format!("{doubt}; showing last status from {ago}: ")
    });
    let doubt = doubt.unwrap_or_default();
    let state = &status.labels.state;
    rows.headline(mark, &format!("{node}: {doubt}{state}{host}"));
    rows.row("VM", &vm(&status.identity));
    let labels: Vec<String> = status
        .labels
        .owned
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !labels.is_empty() {
        rows.row("Labels", &labels.join(" "));
    }
    if let Some(last) = &status.last_migration {
        let latency = match (last.latency_ms, &last.trigger) {
            (Some(latency), Some(trigger)) => format!(
                ", labels updated after {} (trigger {trigger})",
                seconds(latency)
            ),
            _ => String::new(),
        };
        let (from, to) = (&last.from, &last.to);
        let (arrow, ago) = (show.style.arrow(), relative(show.now, &last.time));
        rows.row("Migration", &format!("{from} {arrow} {to} {ago}{latency}"));
    }
    if let Some(last) = &status.last_migration_hint {
        let ago = relative(show.now, &last.time);
        let took = last.took_ms.map(seconds).unwrap_or_default();
        let text = format!(
            "{} {ago} (trigger {}, {took}, {} reads)",
            last.outcome, last.trigger, last.reads
        );
        rows.row("Last hint", &text);
    }
    let agent = &status.agent;
    let text = format!(
        "{}, pid {}, started {}, last change {} (trigger {})",
        agent.version,
        agent.pid,
        relative(show.now, &agent.start_time),
        relative(show.now, &status.last_update_time),
        status.trigger
    );
    rows.row("Agent", &text);
    rows.row("QEMU agent", &guest_agent(status));
    if show.verbose {
        event_sources(&mut rows, &status.event_sources);
    }
    rows.row("Problems", &problems(&status.findings));
    if show.verbose {
        findings(&mut rows, &status.findings);
    }
    rows.text
}

/// Returns VM and host with their sources, as `whoami` prints them; in verbose mode with all the evidence.
pub fn whoami(status: &Status, show: Show) -> String {
    let mut rows = Rows::new(show);
    rows.row("VM", &vm(&status.identity));
    match &status.placement {
        Some(placement) => {
            let source = &placement.host_source;
            rows.row("Host", &format!("{}   (source: {source})", placement.host));
            let topology = format!(
                "region {}, zone {}   (source: {})",
                placement.region.as_deref().unwrap_or("unknown"),
                placement.zone.as_deref().unwrap_or("unknown"),
                placement.topology_source.as_deref().unwrap_or("none")
            );
            rows.row("Topology", &topology);
        }
        None => rows.row("Host", "unknown"),
    }
    names(&mut rows, &status.identity);
    let credentials = [
        ("Harvester", &status.credentials.harvester),
        ("kubelet", &status.credentials.kubelet),
    ];
    let short = credentials.map(|(name, credential)| kubeconfig(name, credential, show.now));
    rows.marks("Kubeconfigs", &short);
    if !status.permissions.is_empty() {
        rows.marks("Permissions", &permissions(status, show.verbose));
    }
    rows.row("Problems", &problems(&status.findings));
    if show.verbose {
        details(&mut rows, status);
        for (name, credential) in credentials {
            rows.row("Kubeconfig", &format!("{name}: {}", whole(credential)));
        }
        for permission in &status.permissions {
            let allowed = match (permission.allowed, &permission.error) {
                (Some(true), _) => "allowed",
                (Some(false), _) => "denied",
                (None, Some(error)) => error.as_str(),
                (None, None) => "unknown",
            };
            let text = format!("{}: {allowed} ({})", permission.request, permission.purpose);
            rows.row("Permission", &text);
        }
        rows.row("QEMU agent", &guest_agent(status));
        event_sources(&mut rows, &status.event_sources);
        findings(&mut rows, &status.findings);
    }
    rows.text
}

/// Returns one line for `STATUS=`.
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
            format!(" migrated={}", migration.time)
        });
    let finding = worst.map_or_else(String::new, |finding| {
        format!(" {}={}", finding.severity.as_str(), finding.code)
    });
    let identity = status.identity.state.name();
    let labels = &status.labels.state;
    let agent = &status.qemu_guest_agent.state;
    format!(
        "vm={vm} identity={identity}{placement} labels={labels} qemu-guest-agent={agent}{migrated}{finding}"
    )
}

/// Returns each finding of at least this severity as one line.
pub fn problem_lines(findings: &[FindingStatus], least: Severity) -> String {
    let mut text = String::new();
    let is_severe = |finding: &&FindingStatus| finding.severity >= least;
    for finding in findings.iter().filter(is_severe) {
        let _ = writeln!(
            text,
            "{}: {}: {} [{}]",
            finding.severity.as_str(),
            finding.title,
            one_line(&finding.observed, SHOWN_MAX),
            finding.code
        );
    }
    text
}

/// Returns the number of errors and warnings, and the command that explains them.
fn problems(findings: &[FindingStatus]) -> String {
    let counts = [
        (Severity::Error, "error"),
        (Severity::Warning, "warning"),
        (Severity::Notice, "notice"),
    ];
    let counts = counts.map(|(severity, word)| {
        let same = findings
            .iter()
            .filter(|finding| finding.severity == severity);
        (same.count(), word)
    });
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, word)| many(count, word)).collect();
    if counts.is_empty() {
        "none".to_owned()
    } else {
        format!("{}: run `harvester-node-agent doctor`", counts.join(", "))
    }
}

/// Returns `1 error` or `2 errors`.
pub fn many(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

fn worst(status: &Status) -> Option<Severity> {
    status.findings.iter().map(|finding| finding.severity).max()
}

fn vm(identity: &IdentityStatus) -> String {
    let reason = identity.message.as_deref();
    let Some(vm) = &identity.vm else {
        return format!("unknown: {}", reason.unwrap_or("no VM matches"));
    };
    let namespace = vm
        .namespace
        .as_deref()
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    let evidence = identity.evidence.iter().filter(|item| item.matches);
    let evidence: Vec<&str> = evidence.map(|item| item.kind.as_str()).collect();
    let note = match reason {
        Some(reason) => format!("; {reason}"),
        None => String::new(),
    };
    format!(
        "{namespace}{}   (matched by {}{note})",
        vm.name,
        evidence.join(", ")
    )
}

fn names(rows: &mut Rows, identity: &IdentityStatus) {
    let is_wrong = |verdict: Verdict| !verdict.is_match() && verdict != Verdict::Unknown;
    let names = identity.names.iter().map(|name| {
        let kind = name.kind.as_str();
        match () {
            () if name.state.is_match() => (Mark::Ok, kind.to_owned()),
            () if is_wrong(name.state) => {
                let text = format!("{kind} {} ({})", name.name, name.state.name());
                (Mark::Found(name.state.severity()), text)
            }
            () => (Mark::Skipped, format!("{kind} {}", name.name)),
        }
    });
    let names: Vec<(Mark, String)> = names.collect();
    if names.iter().all(|(mark, _)| *mark == Mark::Skipped) {
        let names: Vec<String> = names.into_iter().map(|(_, text)| text).collect();
        let text = format!("{} (not compared: the VM is unknown)", names.join(", "));
        rows.row("Names", &text);
    } else {
        rows.marks("Names", &names);
    }
    if rows.show.verbose && identity.names.iter().any(|name| is_wrong(name.state)) {
        rows.row("Impact", &identity.impact);
    }
}

/// Returns a short description of a credential, and its state.
fn kubeconfig(name: &str, credential: &CredentialStatus, now: UtcDateTime) -> (Mark, String) {
    let bad = Mark::Found(Severity::Error);
    if let Some(code) = &credential.finding {
        return (bad, format!("{name} ({code})"));
    }
    if credential.kubeconfig.is_none() {
        return (bad, format!("{name}, not usable"));
    }
    let expires = credential.expiration_time.as_deref();
    let left = expires.and_then(|time| seconds_until(now, time));
    let mark = match left {
        Some(..=0) => bad,
        _ => Mark::Ok,
    };
    (mark, format!("{name}, {}", lifetime(credential, now)))
}

/// Returns the expiration of a credential, as far as it is known.
pub fn lifetime(credential: &CredentialStatus, now: UtcDateTime) -> String {
    match (&credential.expiration_time, &credential.user) {
        (Some(time), _) => expiry(now, time),
        (None, Some(_)) => "does not expire".to_owned(),
        (None, None) => "expiration unknown".to_owned(),
    }
}

fn whole(credential: &CredentialStatus) -> String {
    match (&credential.kubeconfig, &credential.error) {
        (Some(kubeconfig), _) => {
            let part = |what: &str, value: &Option<String>| {
                value.as_ref().map(|value| format!(", {what} {value}"))
            };
            let parts = [
                part("server", &credential.server),
                part("user", &credential.user),
                part("namespace", &credential.namespace),
                part("expires", &credential.expiration_time),
            ];
            format!(
                "{kubeconfig}{}",
                parts.into_iter().flatten().collect::<String>()
            )
        }
        (None, Some(error)) => error.clone(),
        (None, None) => "none".to_owned(),
    }
}

fn permissions(status: &Status, is_listed: bool) -> Vec<(Mark, String)> {
    let all = &status.permissions;
    let count = |answer: bool| all.iter().filter(|one| one.allowed == Some(answer)).count();
    let (allowed, denied) = (count(true), count(false));
    let unknown = all.len().saturating_sub(allowed + denied);
    let parts = [
        (allowed, Mark::Ok, "allowed"),
        (denied, Mark::Skipped, "denied"),
        (unknown, Mark::Skipped, "unknown"),
    ];
    let hint = if is_listed { "" } else { " (-v to list)" };
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
    parts
        .map(|(count, mark, word)| {
            let hint = if mark == Mark::Ok { "" } else { hint };
            (mark, format!("{count} {word}{hint}"))
        })
        .collect()
}

fn details(rows: &mut Rows, status: &Status) {
    for item in &status.identity.evidence {
        let word = if item.matches { "matches" } else { "differs" };
        rows.row(
            "Evidence",
            &format!("{} {word}: {}", item.kind, item.detail),
        );
    }
    let sources = status.placement.iter();
    for source in sources.flat_map(|placement| &placement.sources) {
        let text = format!("{} {}: {}", source.name, source.outcome, source.detail);
        rows.row("Source", &text);
    }
}

fn guest_agent(status: &Status) -> String {
    let agent = &status.qemu_guest_agent;
    let unit = match (&agent.unit, &agent.unit_state, &agent.error) {
        (Some(unit), Some(state), _) => format!(" ({unit}: {state})"),
        (_, _, Some(error)) => format!(" ({error})"),
        _ => String::new(),
    };
    format!("{}{unit}", agent.state)
}

/// Appends the event sources, and the reason if one is inactive.
fn event_sources(rows: &mut Rows, sources: &[EventSourceStatus]) {
    for source in sources {
        let state = if source.active { "active" } else { "inactive" };
        let text = format!("{} {state}: {}", source.name, source.detail);
        rows.row("Event source", &text);
    }
}

fn findings(rows: &mut Rows, findings: &[FindingStatus]) {
    for finding in findings {
        let text = format!(
            "{}: {}: {} [{}]",
            finding.severity.as_str(),
            finding.title,
            finding.observed,
            finding.code
        );
        rows.row("Problem", &text);
    }
}

fn seconds(milliseconds: u64) -> String {
    format!("{:.1}s", milliseconds as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::layout::TermStyle;
    use serde_json::json;

    #[test]
    fn names_without_a_vm_to_compare_with_are_said_to_be_not_compared() {
        let name =
            |kind: &str| json!({"type": kind, "name": "n", "state": Verdict::Unknown.name()});
        let identity = json!({
            "state": "vm-unknown", "impact": "", "evidence": [],
            "names": [name("hostname"), name("static-hostname")],
        });
        let identity: IdentityStatus = serde_json::from_value(identity).unwrap();
        let mut rows = Rows::new(Show {
            style: TermStyle::PLAIN,
            verbose: false,
            now: UtcDateTime::UNIX_EPOCH,
        });
        names(&mut rows, &identity);
        assert_eq!(
            rows.text,
            "Names        hostname n, static hostname n (not compared: the VM is unknown)\n"
        );
    }
}
