// SPDX-License-Identifier: Apache-2.0
//! The status as text: `status`, `whoami`, and the line that `systemctl status` shows.

use time::UtcDateTime;

use super::problem::Problem;
use super::relative::{expiry, relative, seconds_until};
use super::status::{CredentialStatus, IdentityStatus, PermissionStatus, PlacementStatus, Status};
use super::text::{Mark, Show, Text, counts, unique};
use crate::agent::state::Seconds;
use crate::catalog::Severity;
use crate::decide::Migration;
use crate::decide::name_match::Verdict;
use crate::facts::names::ServiceAccount;

/// Returns the runtime status, as `status` prints it.
/// `doubt` is set unless an agent is known to be running.
pub fn status(status: &Status, show: Show, doubt: Option<&str>) -> String {
    let mut out = Text::new(show);
    let ago = |time: &str| relative(show.now, time);
    let worst = status.findings.iter().map(|problem| problem.severity).max();
    let worst = worst.max(doubt.map(|_| Severity::Warning));
    let node = status.labels.node.as_deref().unwrap_or("this node");
    let doubt = doubt.map(|doubt| {
        let last = ago(&status.last_update_time);
        format!("{doubt}; showing last status from {last}: ")
    });
    let (doubt, state) = (doubt.unwrap_or_default(), &status.labels.state);
    // A word such as `synced` behind the symbol of an error would contradict it.
    let counts = counted(status.findings.iter());
    let counts = match counts.as_str() {
        "" => counts,
        counts => format!("{counts}; labels "),
    };
    let host = match &status.placement {
        Some(placement) => {
            let (region, zone) = placement.topology("-");
            format!(" on {} ({region}/{zone})", placement.host)
        }
        None => ", host unknown".to_owned(),
    };
    let mark = worst.map_or(Mark::Ok, Mark::Found);
    out.headline(mark, &format!("{node}: {doubt}{counts}{state}{host}"));
    out.row("VM", &vm(&status.identity));
    let labels = status.labels.owned.iter();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !labels.is_empty() {
        out.row("Labels", &labels.join(" "));
    }
    if let Some(last) = &status.last_migration {
        let latency = match (last.duration_seconds, &last.trigger) {
            (Some(latency), Some(trigger)) => {
                let latency = seconds(latency);
                format!(", labels updated after {latency} (trigger {trigger})")
            }
            _ => String::new(),
        };
        let Migration { from, to, at } = &last.migration;
        let (arrow, ago) = (show.style.arrow(), ago(at));
        out.row("Migration", &format!("{from} {arrow} {to} {ago}{latency}"));
    }
    if let Some(last) = &status.last_migration_hint {
        let took = seconds(last.duration_seconds);
        let (outcome, trigger, ago) = (&last.outcome, &last.trigger, ago(&last.time));
        let text = format!(
            "{outcome} {ago} (trigger {trigger}, {took}, {} reads)",
            last.reads
        );
        out.row("Last hint", &text);
    }
    let text = format!(
        "{}, pid {}, started {}, last change {} (trigger {})",
        status.agent.version,
        status.agent.pid,
        ago(&status.agent.start_time),
        ago(&status.last_update_time),
        status.trigger
    );
    out.row("Agent", &text);
    out.row("QEMU agent", &guest_agent(status));
    if show.verbose {
        event_sources(&mut out, status);
    }
    problems(&mut out, &status.findings, "");
    out.finish()
}

/// Returns VM and host with their sources, as `whoami` prints them with this option `config`; in verbose mode with all the evidence.
pub fn whoami(status: &Status, show: Show, config: &str) -> String {
    let mut out = Text::new(show);
    out.row("VM", &vm(&status.identity));
    match &status.placement {
        Some(placement) => {
            let source = &placement.host_source;
            out.row("Host", &format!("{}   (source: {source})", placement.host));
            let (region, zone) = placement.topology("unknown");
            let source = placement.topology_source.as_deref().unwrap_or("none");
            let topology = format!("region {region}, zone {zone}   (source: {source})");
            out.row("Topology", &topology);
        }
        None => out.row("Host", "unknown"),
    }
    names(&mut out, &status.identity);
    let credentials = [
        ("Harvester", &status.credentials.harvester),
        ("kubelet", &status.credentials.kubelet),
    ];
    let short = credentials.map(|(name, one)| {
        let (mark, text) = credential(one, show.now);
        (mark, format!("{name}: {text}"))
    });
    out.marks("Kubeconfigs", &short);
    if !status.permissions.is_empty() {
        out.marks("Permissions", &permissions(&status.permissions, show));
    }
    if show.verbose {
        evidence(&mut out, &status.identity, status.placement.as_ref());
        for (name, credential) in credentials {
            out.row("Kubeconfig", &format!("{name}: {}", whole(credential)));
        }
        let mut above = status.identity.message.as_ref();
        for permission in &status.permissions {
            let error = permission.error.as_ref();
            let allowed = match (permission.allowed, error) {
                (Some(true), _) => "allowed",
                (Some(false), _) => "denied",
                (None, Some(_)) if above == error => "unknown, as above",
                (None, Some(error)) => error.as_str(),
                (None, None) => "unknown",
            };
            above = error.or(above);
            let text = format!("{}: {allowed} ({})", permission.request, permission.purpose);
            out.row("Permission", &text);
        }
        out.row("QEMU agent", &guest_agent(status));
        event_sources(&mut out, status);
    }
    problems(&mut out, &status.findings, config);
    out.finish()
}

/// Returns one line for `STATUS=`.
pub fn line(status: &Status) -> String {
    let vm = status.identity.vm.as_ref();
    let mut line = format!(
        "vm={} identity={}",
        vm.map_or("unknown", |vm| vm.name.as_str()),
        status.identity.state
    );
    if let Some(placement) = &status.placement {
        let (host, (region, zone)) = (&placement.host, placement.topology("-"));
        line.push_str(&format!(" host={host} region={region} zone={zone}"));
    }
    let (labels, agent) = (&status.labels.state, &status.qemu_guest_agent.state);
    line.push_str(&format!(" labels={labels} qemu-guest-agent={agent}"));
    if let Some(last) = &status.last_migration {
        line.push_str(&format!(" migrated={}", last.migration.at));
    }
    if let Some(worst) = status.findings.first() {
        line.push_str(&format!(" {}={}", worst.severity.as_str(), worst.code));
    }
    line
}

/// Counts problems, those with the same code as one.
pub fn counted<'a>(problems: impl Iterator<Item = &'a Problem>) -> String {
    let codes = unique(problems.map(|problem| (problem.code, problem.severity)));
    counts(codes.into_iter().map(|(_, severity)| severity))
}

/// Appends the number of errors and warnings, and the command that explains them; in verbose mode also each of them.
fn problems(out: &mut Text, problems: &[Problem], config: &str) {
    let counts = counted(problems.iter());
    let text = match counts.as_str() {
        "" => "none".to_owned(),
        counts => format!("{counts}: run `harvester-node-agent {config}doctor`, which checks more"),
    };
    out.row("Problems", &text);
    if out.show.verbose {
        for problem in problems {
            out.row("Problem", &problem.line());
        }
    }
}

fn vm(identity: &IdentityStatus) -> String {
    let reason = identity.message.as_deref();
    let Some(vm) = &identity.vm else {
        return format!("unknown: {}", reason.unwrap_or("no VM matches"));
    };
    let evidence = identity.evidence.iter().filter(|item| item.agrees);
    let evidence: Vec<&str> = evidence.map(|item| item.kind.as_str()).collect();
    let note = reason
        .map(|reason| format!("; {reason}"))
        .unwrap_or_default();
    let (name, evidence) = (vm.full_name(), evidence.join(", "));
    format!("{name}   (matched by {evidence}{note})")
}

fn names(out: &mut Text, identity: &IdentityStatus) {
    let is_wrong = |verdict: Verdict| !verdict.is_match() && verdict != Verdict::Unknown;
    let names = identity.names.iter().map(|judged| {
        let (kind, name) = (judged.kind.as_str(), &judged.name);
        match judged.verdict {
            verdict if verdict.is_match() => (Mark::Ok, kind.to_owned()),
            Verdict::Unknown => (Mark::Skipped, format!("{kind} {name}")),
            verdict => {
                let text = format!("{kind} {name} ({})", verdict.as_str());
                (Mark::Found(verdict.severity()), text)
            }
        }
    });
    let names: Vec<(Mark, String)> = names.collect();
    if names.iter().all(|(mark, _)| *mark == Mark::Skipped) {
        let names: Vec<String> = names.into_iter().map(|(_, text)| text).collect();
        let text = format!("{} (not compared: the VM is unknown)", names.join(", "));
        out.row("Names", &text);
    } else {
        out.marks("Names", &names);
    }
    let mut verdicts = identity.names.iter().map(|judged| judged.verdict);
    if out.show.verbose && verdicts.any(is_wrong) {
        out.row("Impact", &identity.impact);
    }
}

/// Describes a credential: its user and when it expires, as far as they are known, and the code of its first error.
pub fn credential(credential: &CredentialStatus, now: UtcDateTime) -> (Mark, String) {
    let user = credential.user.as_deref().unwrap_or("user unknown");
    let user = match ServiceAccount::of_user(user) {
        Some(account) => format!("{}/{}", account.namespace, account.name),
        None => user.to_owned(),
    };
    let expires = credential.expiration_time.as_deref();
    let lifetime = match (expires, &credential.user) {
        (Some(time), _) => expiry(now, time),
        (None, Some(_)) => "does not expire".to_owned(),
        (None, None) => "expiration unknown".to_owned(),
    };
    let text = match (&credential.kubeconfig, credential.finding) {
        (None, _) => "none in use".to_owned(),
        // "does not expire" would read as if it worked.
        (Some(_), Some(_)) if expires.is_none() => user,
        (Some(_), _) => format!("{user}, {lifetime}"),
    };
    let left = expires.and_then(|time| seconds_until(now, time));
    let is_over = left.is_some_and(|left| left <= 0);
    match credential.finding {
        Some(code) => (Mark::Found(Severity::Error), format!("{text} ({code})")),
        None if is_over || credential.kubeconfig.is_none() => (Mark::Found(Severity::Error), text),
        None => (Mark::Ok, text),
    }
}

fn whole(credential: &CredentialStatus) -> String {
    let Some(kubeconfig) = &credential.kubeconfig else {
        return credential.error.as_deref().unwrap_or("none").to_owned();
    };
    let parts = [
        ("server", &credential.server),
        ("user", &credential.user),
        ("namespace", &credential.namespace),
        ("expires", &credential.expiration_time),
    ];
    let parts = parts.into_iter().filter_map(|(what, value)| {
        let value = value.as_ref()?;
        Some(format!(", {what} {value}"))
    });
    format!("{kubeconfig}{}", parts.collect::<String>())
}

fn permissions(all: &[PermissionStatus], show: Show) -> Vec<(Mark, String)> {
    let hint = if show.verbose { "" } else { " (-v to list)" };
    let parts = [
        (Some(true), Mark::Ok, "allowed", ""),
        (Some(false), Mark::Found(Severity::Notice), "denied", hint),
        (None, Mark::Skipped, "unknown", hint),
    ];
    let parts = parts.into_iter().map(|(answer, mark, word, hint)| {
        let count = all.iter().filter(|one| one.allowed == answer).count();
        (count, mark, format!("{count} {word}{hint}"))
    });
    let parts = parts.filter(|(count, ..)| *count > 0);
    parts.map(|(_, mark, text)| (mark, text)).collect()
}

fn evidence(out: &mut Text, identity: &IdentityStatus, placement: Option<&PlacementStatus>) {
    for item in &identity.evidence {
        let word = if item.agrees { "matches" } else { "differs" };
        let text = format!("{} {word}: {}", item.kind.as_str(), item.detail);
        out.row("Evidence", &text);
    }
    for tried in placement
        .into_iter()
        .flat_map(|placement| &placement.sources)
    {
        let outcome = tried.outcome.as_str();
        let text = format!("{} {outcome}: {}", tried.source, tried.detail);
        out.row("Source", &text);
    }
}

fn guest_agent(status: &Status) -> String {
    let agent = &status.qemu_guest_agent;
    let unit = match (&agent.unit, &agent.unit_state, &agent.error) {
        (Some(unit), Some(state), _) => format!(" ({unit}: {state})"),
        (_, _, Some(error)) => format!(" (its unit was not read: {error})"),
        _ => String::new(),
    };
    format!("{}{unit}", agent.state)
}

/// Appends the event sources, and the reason if one is inactive.
fn event_sources(out: &mut Text, status: &Status) {
    for source in &status.event_sources {
        let state = if source.active { "active" } else { "inactive" };
        let text = format!("{} {state}: {}", source.name, source.detail);
        out.row("Event source", &text);
    }
}

fn seconds(seconds: Seconds) -> String {
    format!("{:.1}s", f64::from(seconds))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::agent::state::LastMigration;
    use crate::catalog::Code;
    use crate::decide::fixtures::{World, now};
    use crate::facts::{Fact, UnavailableKind};
    use crate::report::compose::Context;
    use crate::report::status::{AgentStatus, EventSourceStatus, MigrationHintStatus};
    use crate::report::tests::round;
    use crate::report::text::TermStyle;

    const TIME: &str = "2026-11-18T08:00:00Z";

    /// What each command prints of a status.
    fn views(status: &Status, doubt: Option<&str>) -> String {
        let views = [false, true].map(|verbose| {
            let now = now(Duration::ZERO).wall + Duration::from_secs(600);
            let style = TermStyle::PLAIN;
            let show = Show {
                style,
                verbose,
                now,
            };
            let (runtime, own) = (super::status(status, show, doubt), whoami(status, show, ""));
            format!("status, verbose {verbose}:\n{runtime}\nwhoami, verbose {verbose}:\n{own}\n")
        });
        format!("{}STATUS={}\n", views.concat(), line(status))
    }

    /// A permission that is known, or why it is not.
    fn permission(allowed: Result<bool, &str>) -> PermissionStatus {
        PermissionStatus {
            request: "get nodes in the cluster".to_owned(),
            allowed: allowed.ok(),
            error: allowed.err().map(str::to_owned),
            purpose: "source host-node".to_owned(),
        }
    }

    #[test]
    fn each_command_prints_the_expected_text_of_a_status() {
        let world = World::settled();
        let mut status = Status::new(&round(&world, &[]), &Context::default());
        let [from, to, at] = ["hv-b", "hv-a", TIME].map(str::to_owned);
        status.last_migration = Some(LastMigration {
            duration_seconds: Some(Seconds::of(Duration::from_millis(1250))),
            trigger: Some("link".to_owned()),
            ..Migration { from, to, at }.into()
        });
        status.last_migration_hint = Some(MigrationHintStatus {
            trigger: "port".to_owned(),
            outcome: "unconfirmed".to_owned(),
            time: TIME.to_owned(),
            duration_seconds: Seconds::of(Duration::from_secs(60)),
            reads: 11,
        });
        let permissions = [Ok(true), Ok(false), Err("timed out")];
        status.permissions = permissions.map(permission).into();
        status.event_sources = vec![EventSourceStatus {
            name: "hostname".to_owned(),
            active: false,
            detail: "no system bus".to_owned(),
        }];
        status.agent = AgentStatus {
            version: "1".to_owned(),
            pid: 7,
            start_time: TIME.to_owned(),
            ..AgentStatus::default()
        };
        let mut text = format!("In order.\n\n{}\n", views(&status, None));
        let harvester = &mut status.credentials.harvester;
        harvester.expiration_time = Some(TIME.to_owned());
        harvester.finding = Some(Code::HarvesterCredentialExpired);
        status.credentials.kubelet.finding = Some(Code::GuestApiUnauthorized);
        let doubtful = views(&status, Some("agent may not be running"));
        text += &format!("Expired and rejected credentials, in doubt.\n\n{doubtful}\n");
        let mut world = World::new();
        world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "HTTP 503");
        world.observation.kubelet = Fact::failed(UnavailableKind::Missing, "no kubeconfig");
        world.observation.machine.product_uuid = Fact::Absent;
        let mut status = Status::new(&round(&world, &[]), &Context::default());
        let agent = &mut status.qemu_guest_agent;
        (agent.unit, agent.error) = (None, Some("no system bus".to_owned()));
        let errors = ["HTTP 503", "timed out", "timed out"];
        status.permissions = errors.map(|error| permission(Err(error))).into();
        text += &format!("Neither VM nor Node.\n\n{}", views(&status, None));
        let file = "src/report/show.txt";
        harvester_lab::expected::is_expected(file, &text, str::to_owned);
    }
}
