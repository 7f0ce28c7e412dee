// SPDX-License-Identifier: Apache-2.0
//! The status as numbers for Prometheus, in two pages: one that stays while the state stays, and one that each look changes.
//!
//! Every name begins with `harvester_node_agent_`. Spans and points of time are in seconds. A number that is not known is not
//! there. Label values are the words of `status`; no family has more samples than the agent has codes, triggers or results.

use time::UtcDateTime;

use super::counters::{BOUNDS, Counters};
use super::exposition::{Family, Kind};
use super::status::{IdentityStatus, Status};
use crate::agent::Report;
use crate::config::Settings;
use crate::decide::schedule;
use crate::decide::verdict::Verdict;
use crate::facts::requests::Requests;
use crate::facts::who::Who;
use crate::few::Few;

/// The page of what holds and of what happened.
pub fn state(status: &Status, who: &Who, settings: &Settings, counters: &Counters) -> String {
    let mut text = String::new();
    let page = &mut text;
    standing(page, status);
    findings(page, status);
    happened(page, counters);
    expiries(page, who);
    let (interval, _) = schedule::backstop(settings);
    Family::new(
        page,
        "harvester_node_agent_look_interval_seconds",
        Kind::Gauge,
        "Everything is read again this often even if nothing called for it; the wait may be twice as long.",
    )
    .sample(&[], interval.as_secs_f64());
    text
}

/// The page of what every look changes.
pub fn activity(report: &Report<'_>) -> String {
    let mut text = String::new();
    requests(&mut text, report.requests);
    looked(&mut text, report.now.wall);
    text
}

fn number(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

fn standing(page: &mut String, status: &Status) {
    Family::new(
        page,
        "harvester_node_agent_build_info",
        Kind::Gauge,
        "Version of the agent.",
    )
    .sample(&[("version", &status.agent.version)], 1.0);
    if let Some(vm) = &status.identity.vm {
        let labels = [
            ("vm", vm.name.as_str()),
            ("namespace", vm.namespace.as_deref().unwrap_or_default()),
            ("node", status.labels.node.as_deref().unwrap_or_default()),
        ];
        Family::new(
            page,
            "harvester_node_agent_vm_info",
            Kind::Gauge,
            "The Harvester VM that this machine is, and its Node.",
        )
        .sample(&labels, 1.0);
    }
    if let Some(placement) = &status.placement {
        let labels = [
            ("host", placement.host.as_str()),
            ("region", placement.region.as_deref().unwrap_or_default()),
            ("zone", placement.zone.as_deref().unwrap_or_default()),
        ];
        Family::new(
            page,
            "harvester_node_agent_placement_info",
            Kind::Gauge,
            "The Harvester host that runs this machine, and where it stands.",
        )
        .sample(&labels, 1.0);
    }
    let (verdict, is_verified) = verified(&status.identity);
    Family::new(
        page,
        "harvester_node_agent_identity_verified",
        Kind::Gauge,
        "Whether the names of this machine are its VM's; 0 with the verdict vm-unknown while that cannot be told.",
    )
    .sample(&[("verdict", verdict)], number(is_verified));
    // As the condition HarvesterTopologySynced has it: of a host without topology the Node needs none.
    let state = &status.labels.state;
    let is_synced = matches!(state.as_str(), "synced" | "host-without-topology");
    Family::new(
        page,
        "harvester_node_agent_topology_synced",
        Kind::Gauge,
        "Whether the topology labels of the Node are those of the Harvester host.",
    )
    .sample(&[("state", state)], number(is_synced));
    let health = &status.guest_agent.health;
    Family::new(
        page,
        "harvester_node_agent_guest_agent_healthy",
        Kind::Gauge,
        "Whether qemu-guest-agent does its work for the host; 0 with the state state-unknown while that cannot be told.",
    )
    .sample(&[("state", health)], number(health == "healthy"));
}

/// The verdict, and whether the names are proven to be the VM's: as the condition HarvesterIdentityVerified has it. Names that
/// agree with what the platform once said prove nothing while no VM, or more than one, is known.
fn verified(identity: &IdentityStatus) -> (&str, bool) {
    match (identity.verdict.as_str(), &identity.vm) {
        (verdict, None) if is_match(verdict) => ("vm-unknown", false),
        (verdict, _) => (verdict, is_match(verdict)),
    }
}

fn is_match(verdict: &str) -> bool {
    Verdict::parse(verdict).is_some_and(Verdict::is_match)
}

fn findings(page: &mut String, status: &Status) {
    let keys = status.findings.iter();
    let keys = keys
        .map(|finding| (finding.code.as_str(), finding.severity.as_str()))
        .into_set();
    let mut family = Family::new(
        page,
        "harvester_node_agent_findings",
        Kind::Gauge,
        "Complaints that hold now, by code; `harvester-node-agent explain CODE` tells more.",
    );
    for (code, severity) in keys {
        let same = status
            .findings
            .iter()
            .filter(|finding| finding.code == code);
        family.sample(
            &[("code", code), ("severity", severity)],
            same.count() as f64,
        );
    }
}

fn happened(page: &mut String, counters: &Counters) {
    let mut migrations = Family::new(
        page,
        "harvester_node_agent_migrations_total",
        Kind::Counter,
        "Live migrations (confirmed), and signs of one that came to nothing, by what told of them first.",
    );
    for ((trigger, outcome), count) in &counters.migrations {
        migrations.sample(&[("trigger", trigger), ("outcome", outcome)], *count as f64);
    }
    let mut latency = Family::new(
        page,
        "harvester_node_agent_label_latency_seconds",
        Kind::Histogram,
        "Time from the first sign of a live migration to the labels of the new host.",
    );
    let histogram = &counters.latency;
    for (bound, count) in BOUNDS.iter().zip(histogram.buckets) {
        latency.sample_of("_bucket", &[("le", &bound.to_string())], count as f64);
    }
    latency.sample_of("_bucket", &[("le", "+Inf")], histogram.count as f64);
    latency.sample_of("_sum", &[], histogram.sum);
    latency.sample_of("_count", &[], histogram.count as f64);
}

fn expiries(page: &mut String, who: &Who) {
    let harvester = who.harvester.known().and_then(|known| known.expires);
    let kubelet = who.kubelet.known().and_then(|known| known.expires);
    let mut family = Family::new(
        page,
        "harvester_node_agent_credential_expiry_timestamp_seconds",
        Kind::Gauge,
        "When a credential ends, in seconds since 1970; not there for one without an end.",
    );
    for (name, expires) in [("harvester", harvester), ("kubelet", kubelet)] {
        if let Some(expires) = expires {
            family.sample(&[("credential", name)], expires as f64);
        }
    }
}

fn requests(page: &mut String, requests: &[Requests]) {
    let mut family = Family::new(
        page,
        "harvester_node_agent_api_requests_total",
        Kind::Counter,
        "Requests to the two Kubernetes APIs, by what became of them.",
    );
    for Requests { api, result, count } in requests {
        family.sample(&[("api", api.as_str()), ("result", result)], *count as f64);
    }
}

fn looked(page: &mut String, wall: UtcDateTime) {
    Family::new(
        page,
        "harvester_node_agent_last_look_timestamp_seconds",
        Kind::Gauge,
        "When the agent looked last, in seconds since 1970.",
    )
    .sample(&[], wall.unix_timestamp() as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status::VmStatus;

    #[test]
    fn names_are_verified_only_against_a_vm_that_is_known() {
        let vm = VmStatus {
            name: "pool1-abcde".to_owned(),
            namespace: None,
            uid: None,
            instance_uid: None,
        };
        for (verdict, vm, expected) in [
            ("names-match", Some(&vm), ("names-match", true)),
            (
                "match-modulo-case-or-domain",
                Some(&vm),
                ("match-modulo-case-or-domain", true),
            ),
            ("names-match", None, ("vm-unknown", false)),
            ("mismatch", None, ("mismatch", false)),
            ("platform-hostname", Some(&vm), ("platform-hostname", false)),
            ("vm-unknown", None, ("vm-unknown", false)),
        ] {
            let identity = IdentityStatus {
                verdict: verdict.to_owned(),
                consequence: String::new(),
                vm: vm.cloned(),
                expected: None,
                reason: None,
                names: Vec::new(),
                evidence: Vec::new(),
            };
            assert_eq!(verified(&identity), expected, "{verdict} {vm:?}");
        }
    }
}
