// SPDX-License-Identifier: Apache-2.0
//! The status as Prometheus metrics, in two pages: one that changes only with the state, and one that each reconcile changes.
//!
//! Every name begins with `harvester_node_agent_`. Durations and timestamps are in seconds. An unknown value is absent. A state is
//! a plain 0/1 gauge, and in addition one 0/1 series for each state (an OpenMetrics StateSet), so that the labels of a series do
//! not change with the state. No label name conflicts with the labels of a scrape target.

use time::UtcDateTime;

use super::counters::{BOUNDS, Counters};
use super::exposition::{Kind, MetricFamily};
use super::status::Status;
use crate::agent::RoundReport;
use crate::decide::conditions::kebab;
use crate::decide::guest_agent::GuestAgentHealth;
use crate::decide::identity::Identity;
use crate::decide::label_state;
use crate::decide::name_match::Verdict;
use crate::decide::schedule;
use crate::facts::observation::{Api, Observation};
use crate::facts::requests::Requests;

/// Returns the page with the state and the event counters.
pub fn state(status: &Status, report: &RoundReport<'_>, counters: &Counters) -> String {
    let mut text = String::new();
    let page = &mut text;
    state_gauges(page, status, report);
    scheduled_event(page, report);
    findings(page, status);
    event_counters(page, counters);
    expiries(page, report.observation);
    let (interval, _) = schedule::backstop(report.settings);
    MetricFamily::new(
        page,
        "harvester_node_agent_poll_interval_seconds",
        Kind::Gauge,
        "Interval between two reconciles without a trigger; one wait is at most twice as long.",
    )
    .sample(&[], interval.as_secs_f64());
    text
}

/// Returns the page that every reconcile changes.
pub fn request_counters(report: &RoundReport<'_>) -> String {
    let mut text = String::new();
    requests(&mut text, report.requests);
    reconciled(&mut text, report.now.wall);
    text
}

fn number(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

fn state_gauges(page: &mut String, status: &Status, report: &RoundReport<'_>) {
    MetricFamily::new(
        page,
        "harvester_node_agent_build_info",
        Kind::Gauge,
        "Version of the agent.",
    )
    .sample(&[("version", &status.agent.version)], 1.0);
    if let Some(vm) = &status.identity.vm {
        let labels = [
            ("vm_name", vm.name.as_str()),
            ("vm_namespace", vm.namespace.as_deref().unwrap_or_default()),
            (
                "node_name",
                status.labels.node.as_deref().unwrap_or_default(),
            ),
        ];
        MetricFamily::new(
            page,
            "harvester_node_agent_vm_info",
            Kind::Gauge,
            "Harvester VM and Node of this agent.",
        )
        .sample(&labels, 1.0);
    }
    if let Some(placement) = &status.placement {
        let labels = [
            ("host", placement.host.as_str()),
            ("region", placement.region.as_deref().unwrap_or_default()),
            ("zone", placement.zone.as_deref().unwrap_or_default()),
        ];
        MetricFamily::new(
            page,
            "harvester_node_agent_placement_info",
            Kind::Gauge,
            "Harvester host that runs the VM, with its region and zone.",
        )
        .sample(&labels, 1.0);
    }
    let (verdict, is_verified) = verified(report.identity);
    MetricFamily::new(
        page,
        "harvester_node_agent_identity_verified",
        Kind::Gauge,
        "Whether hostname and Node name match the Harvester VM; also 0 while the VM is unknown.",
    )
    .sample(&[], number(is_verified));
    states(
        page,
        "harvester_node_agent_identity_state",
        "How hostname and Node name compare with the VM: 1 for the current state, 0 for the others.",
        &Verdict::ALL.map(Verdict::name),
        &verdict,
    );
    // As in the condition HarvesterTopologySynced: the Node of a host without topology needs no labels.
    let sync = &report.plan.sync;
    MetricFamily::new(
        page,
        "harvester_node_agent_topology_synced",
        Kind::Gauge,
        "Whether the topology labels of the Node are in sync with the Harvester host.",
    )
    .sample(&[], number(sync.is_synced()));
    states(
        page,
        "harvester_node_agent_topology_state",
        "State of the topology labels: 1 for the current state, 0 for the others.",
        &label_state::REASONS.map(kebab),
        &kebab(sync.reason()),
    );
    let health = report.plan.guest_agent;
    let all = GuestAgentHealth::ALL.iter().map(|health| health.name());
    MetricFamily::new(
        page,
        "harvester_node_agent_qemu_guest_agent_ready",
        Kind::Gauge,
        "Whether qemu-guest-agent runs and serves the host; also 0 while its state is unknown.",
    )
    .sample(&[], number(health == GuestAgentHealth::Healthy));
    states(
        page,
        "harvester_node_agent_qemu_guest_agent_state",
        "State of qemu-guest-agent: 1 for the current state, 0 for the others.",
        &all.collect::<Vec<_>>(),
        &health.name(),
    );
}

fn scheduled_event(page: &mut String, report: &RoundReport<'_>) {
    let open = report.plan.memory.scheduled.open();
    let current = open.map_or("none", |event| event.state.as_str());
    states(
        page,
        "harvester_node_agent_scheduled_event_state",
        "State of the scheduled event that is not over: 1 for the current state, 0 for the others.",
        &["none", "planned", "in-progress"].map(str::to_owned),
        current,
    );
}

/// Adds one series for each state. A current state that is not listed is added as well, so that it is never missing.
fn states(
    page: &mut String,
    name: &'static str,
    help: &'static str,
    known: &[String],
    current: &str,
) {
    let mut family = MetricFamily::new(page, name, Kind::Gauge, help);
    for state in known {
        family.sample(&[("state", state)], number(state == current));
    }
    if known.iter().all(|state| state != current) {
        family.sample(&[("state", current)], 1.0);
    }
}

/// Returns the verdict, and whether the names are proven to be the VM's, as in the condition HarvesterIdentityVerified. Names that
/// match the name from the platform prove nothing while no VM, or more than one, is known.
fn verified(identity: &Identity) -> (String, bool) {
    let is_match = identity.verdict.is_match();
    match identity.vm_name() {
        None if is_match => ("vm-unknown".to_owned(), false),
        _ => (identity.verdict.name(), is_match),
    }
}

fn findings(page: &mut String, status: &Status) {
    let keys = status.findings.iter();
    let mut keys: Vec<(&str, &str)> = keys
        .map(|finding| (finding.code.as_str(), finding.severity.as_str()))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let mut family = MetricFamily::new(
        page,
        "harvester_node_agent_findings",
        Kind::Gauge,
        "Current findings by code; `harvester-node-agent explain CODE` describes one.",
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

fn event_counters(page: &mut String, counters: &Counters) {
    let mut migrations = MetricFamily::new(
        page,
        "harvester_node_agent_migrations_total",
        Kind::Counter,
        "Live migrations, by the trigger that detected them.",
    );
    for (trigger, count) in &counters.migrations {
        migrations.sample(&[("trigger", trigger)], *count as f64);
    }
    let mut hints = MetricFamily::new(
        page,
        "harvester_node_agent_migration_hints_total",
        Kind::Counter,
        "Migration hints from inside the guest, by trigger and by whether the Harvester API confirmed a migration.",
    );
    for ((trigger, outcome), count) in &counters.hints {
        hints.sample(&[("trigger", trigger), ("outcome", outcome)], *count as f64);
    }
    let mut scheduled = MetricFamily::new(
        page,
        "harvester_node_agent_scheduled_events_total",
        Kind::Counter,
        "Published states of scheduled events, by type of the event.",
    );
    for ((kind, state), count) in &counters.scheduled {
        let labels = [("type", kind.as_str()), ("state", state.as_str())];
        scheduled.sample(&labels, *count as f64);
    }
    let histograms = [
        (
            "harvester_node_agent_label_update_duration_seconds",
            "Time from the first hint of a live migration to the labels of the new host.",
            &counters.latency,
        ),
        (
            "harvester_node_agent_migration_interruption_seconds",
            "Time for which live migrations interrupted the guest, estimated from the first step of the wall clock after each.",
            &counters.interruption,
        ),
    ];
    for (name, help, histogram) in histograms {
        let mut family = MetricFamily::new(page, name, Kind::Histogram, help);
        for (bound, count) in BOUNDS.iter().zip(histogram.buckets) {
            family.sample_of("_bucket", &[("le", &bound.to_string())], count as f64);
        }
        family.sample_of("_bucket", &[("le", "+Inf")], histogram.count as f64);
        family.sample_of("_sum", &[], histogram.sum);
        family.sample_of("_count", &[], histogram.count as f64);
    }
}

fn expiries(page: &mut String, observation: &Observation) {
    let harvester = observation
        .harvester
        .known()
        .and_then(|known| known.expires);
    let kubelet = observation.kubelet.known().and_then(|known| known.expires);
    let mut family = MetricFamily::new(
        page,
        "harvester_node_agent_credential_expiry_timestamp_seconds",
        Kind::Gauge,
        "Expiration time of the credential (Unix timestamp); absent if it does not expire.",
    );
    for (name, expires) in [("harvester", harvester), ("kubelet", kubelet)] {
        if let Some(expires) = expires {
            family.sample(&[("credential", name)], expires as f64);
        }
    }
}

fn requests(page: &mut String, requests: &[Requests]) {
    let mut family = MetricFamily::new(
        page,
        "harvester_node_agent_api_requests_total",
        Kind::Counter,
        "Requests to the Harvester API and the guest cluster API, by result.",
    );
    for one in requests {
        let labels = [("api", one.api.as_str()), ("result", one.result)];
        family.sample(&labels, one.count as f64);
    }
    let mut family = MetricFamily::new(
        page,
        "harvester_node_agent_api_warnings_total",
        Kind::Counter,
        "Warning headers in responses of both APIs; the log level debug shows each text once.",
    );
    for api in [Api::Harvester, Api::Guest] {
        let of_api = requests.iter().filter(|one| one.api == api);
        let warnings: u64 = of_api.map(|one| one.warnings).sum();
        family.sample(&[("api", api.as_str())], warnings as f64);
    }
}

fn reconciled(page: &mut String, wall: UtcDateTime) {
    MetricFamily::new(
        page,
        "harvester_node_agent_last_reconcile_timestamp_seconds",
        Kind::Gauge,
        "Time of the last reconcile (Unix timestamp).",
    )
    .sample(&[], wall.unix_timestamp() as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::identity::{OfflineVm, OwnVm};
    use crate::facts::names::VmName;

    #[test]
    fn each_state_is_one_series_and_only_the_current_one_is_1() {
        let page = |current| {
            let mut text = String::new();
            let known = ["synced".to_owned(), "pending".to_owned()];
            states(&mut text, "hna_state", "State.", &known, current);
            text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let zero = "hna_state{state=\"synced\"} 0";
        assert_eq!(page("pending"), [zero, "hna_state{state=\"pending\"} 1"]);
        assert_eq!(
            page("new"),
            [
                zero,
                "hna_state{state=\"pending\"} 0",
                "hna_state{state=\"new\"} 1"
            ]
        );
    }

    #[test]
    fn names_are_verified_only_against_a_vm_that_is_known() {
        let name = VmName::parse("pool1-abcde").unwrap();
        for (verdict, is_known, expected) in [
            (Verdict::Match, true, ("names-match", true)),
            (
                Verdict::MatchExceptCaseOrDomain,
                true,
                ("names-match-except-case-or-domain", true),
            ),
            (Verdict::Match, false, ("vm-unknown", false)),
            (Verdict::Mismatch, false, ("mismatch", false)),
            (
                Verdict::PlatformHostname,
                true,
                ("platform-hostname", false),
            ),
            (Verdict::Unknown, false, ("vm-unknown", false)),
        ] {
            let vm = if is_known {
                OwnVm::ProvenOffline(OfflineVm {
                    name: name.clone(),
                    namespace: None,
                    instance_uid: None,
                })
            } else {
                OwnVm::NotFound(String::new())
            };
            let identity = Identity {
                vm,
                evidence: Vec::new(),
                names: Vec::new(),
                verdict,
                expected: None,
            };
            let (state, is_verified) = verified(&identity);
            assert_eq!((state.as_str(), is_verified), expected);
        }
    }
}
