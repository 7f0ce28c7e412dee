// SPDX-License-Identifier: Apache-2.0
//! The status as Prometheus metrics, in two pages: one that changes only with the state, and one that each reconcile changes.
//!
//! Every name begins with `harvester_node_agent_`. Durations and timestamps are in seconds. An unknown value is absent. A state is
//! a plain 0/1 gauge, and in addition one 0/1 series for each state (an OpenMetrics StateSet), so that the labels of a series do
//! not change with the state. No label name conflicts with the labels of a scrape target.

use std::collections::{BTreeMap, BTreeSet};

use super::counters::Counters;
use super::exposition::Page;
use super::status::Status;
use crate::agent::RoundReport;
use crate::catalog::kebab;
use crate::decide::guest_agent::GuestAgentHealth;
use crate::decide::identity::Identity;
use crate::decide::label_state::{self, LabelState};
use crate::decide::name_match::Verdict;
use crate::facts::requests::Requests;

/// Returns the page with the state and the event counters.
pub fn state(status: &Status, report: &RoundReport<'_>, counters: &Counters) -> String {
    let mut page = Page::default();
    objects(&mut page, status);
    conditions(&mut page, report);
    findings(&mut page, status);
    event_counters(&mut page, counters);
    let harvester = report.observation.harvester.known();
    let kubelet = report.observation.kubelet.known();
    let expiries = [
        ("harvester", harvester.and_then(|known| known.expires)),
        ("kubelet", kubelet.and_then(|known| known.expires)),
    ];
    let expiries = expiries.into_iter();
    let expiries = expiries.filter_map(|(name, expires)| Some(([("credential", name)], expires?)));
    page.family(
        "harvester_node_agent_credential_expiry_timestamp_seconds",
        "Expiration time of the credential (Unix timestamp); absent if it does not expire.",
        expiries,
    );
    page.gauge(
        "harvester_node_agent_poll_interval_seconds",
        "Interval between two reconciles without a trigger; one wait is at most twice as long.",
        &[],
        report.settings.timing.poll.as_secs_f64(),
    );
    page.text
}

/// Returns the page that every reconcile changes.
pub fn request_counters(report: &RoundReport<'_>) -> String {
    let mut page = Page::default();
    requests(&mut page, report.requests);
    page.gauge(
        "harvester_node_agent_last_reconcile_timestamp_seconds",
        "Time of the last reconcile (Unix timestamp).",
        &[],
        report.now.wall.unix_timestamp(),
    );
    page.text
}

fn objects(page: &mut Page, status: &Status) {
    let version = [("version", status.agent.version.as_str())];
    page.gauge(
        "harvester_node_agent_build_info",
        "Version of the agent.",
        &version,
        1,
    );
    if let Some(vm) = &status.identity.vm {
        let labels = [
            ("vm_name", vm.name.as_str()),
            ("vm_namespace", vm.namespace.as_deref().unwrap_or_default()),
            (
                "node_name",
                status.labels.node.as_deref().unwrap_or_default(),
            ),
        ];
        page.gauge(
            "harvester_node_agent_vm_info",
            "Harvester VM and Node of this agent.",
            &labels,
            1,
        );
    }
    if let Some(placement) = &status.placement {
        let labels = [
            ("host", placement.host.as_str()),
            ("region", placement.region.as_deref().unwrap_or_default()),
            ("zone", placement.zone.as_deref().unwrap_or_default()),
        ];
        let help = "Harvester host that runs the VM, with its region and zone.";
        page.gauge("harvester_node_agent_placement_info", help, &labels, 1);
    }
}

fn conditions(page: &mut Page, report: &RoundReport<'_>) {
    let (verdict, is_verified) = verified(report.identity);
    let verdicts = Verdict::ALL.iter().map(|verdict| verdict_state(*verdict));
    let verdicts: BTreeSet<String> = verdicts.collect();
    page.gauge(
        "harvester_node_agent_identity_verified",
        "Whether hostname and Node name match the Harvester VM; also 0 while the VM is unknown.",
        &[],
        u8::from(is_verified),
    );
    states(
        page,
        "harvester_node_agent_identity_state",
        "How hostname and Node name compare with the VM: 1 for the current state, 0 for the others.",
        &Vec::from_iter(verdicts),
        &verdict,
    );
    // As in the condition HarvesterTopologySynced: the Node of a host without topology needs no labels.
    let sync = &report.plan.sync;
    page.gauge(
        "harvester_node_agent_topology_synced",
        "Whether the topology labels of the Node are in sync with the Harvester host.",
        &[],
        u8::from(sync.is_synced()),
    );
    states(
        page,
        "harvester_node_agent_topology_state",
        "State of the topology labels: 1 for the current state, 0 for the others.",
        &label_state::all()
            .iter()
            .map(LabelState::name)
            .collect::<Vec<_>>(),
        &sync.name(),
    );
    let health = report.plan.guest_agent;
    let all = GuestAgentHealth::ALL.iter().map(|health| health.name());
    page.gauge(
        "harvester_node_agent_qemu_guest_agent_ready",
        "Whether qemu-guest-agent runs and serves the host; also 0 while its state is unknown.",
        &[],
        u8::from(health == GuestAgentHealth::Healthy),
    );
    states(
        page,
        "harvester_node_agent_qemu_guest_agent_state",
        "State of qemu-guest-agent: 1 for the current state, 0 for the others.",
        &Vec::from_iter(BTreeSet::from_iter(all)),
        &health.name(),
    );
    let open = report.plan.memory.scheduled.open();
    states(
        page,
        "harvester_node_agent_scheduled_event_state",
        "State of the scheduled event that is not over: 1 for the current state, 0 for the others.",
        &["none", "planned", "in-progress"].map(str::to_owned),
        open.map_or("none", |event| event.state.as_str()),
    );
}

/// Adds one series for each state. A current state that is not listed is added as well, so that it is never missing.
fn states(page: &mut Page, name: &str, help: &str, known: &[String], current: &str) {
    let is_known = known.iter().any(|state| state == current);
    let unknown = (!is_known).then_some(current);
    let states = known.iter().map(String::as_str).chain(unknown);
    let samples = states.map(|state| ([("state", state)], u8::from(state == current)));
    page.family(name, help, samples);
}

/// Returns the verdict, and whether the names are proven to be the VM's, as in the condition HarvesterIdentityVerified. Names that
/// match the name from the platform prove nothing while no VM, or more than one, is known.
fn verified(identity: &Identity) -> (String, bool) {
    let is_match = identity.verdict.is_match();
    match identity.vm_name() {
        None if is_match => ("vm-unknown".to_owned(), false),
        _ => (verdict_state(identity.verdict), is_match),
    }
}

/// Returns the state of a verdict: the code of its finding, if there is one.
fn verdict_state(verdict: Verdict) -> String {
    kebab(verdict.reason())
}

fn findings(page: &mut Page, status: &Status) {
    let mut counts = BTreeMap::new();
    for finding in &status.findings {
        let key = [
            ("code", finding.code.as_str()),
            ("severity", finding.severity.as_str()),
        ];
        *counts.entry(key).or_insert(0_u32) += 1;
    }
    page.family(
        "harvester_node_agent_findings",
        "Current findings by code; `harvester-node-agent explain CODE` describes one.",
        counts,
    );
}

fn event_counters(page: &mut Page, counters: &Counters) {
    page.family(
        "harvester_node_agent_migrations_total",
        "Live migrations, by the trigger that detected them.",
        counters
            .migrations
            .iter()
            .map(|(trigger, count)| ([("trigger", *trigger)], count)),
    );
    page.family(
        "harvester_node_agent_migration_hints_total",
        "Migration hints from inside the guest, by trigger and by whether the Harvester API confirmed a migration.",
        counters.hints.iter().map(|((trigger, outcome), count)| {
            ([("trigger", *trigger), ("outcome", *outcome)], count)
        }),
    );
    page.family(
        "harvester_node_agent_scheduled_events_total",
        "Published states of scheduled events, by type of the event.",
        counters.scheduled.iter().map(|((kind, state), count)| {
            ([("type", kind.as_str()), ("state", state.as_str())], count)
        }),
    );
    page.histogram(
        "harvester_node_agent_label_update_duration_seconds",
        "Time from the first hint of a live migration to the labels of the new host.",
        &counters.latency,
    );
    page.histogram(
        "harvester_node_agent_migration_interruption_seconds",
        "Time for which live migrations interrupted the guest, estimated from the first step of the wall clock after each.",
        &counters.interruption,
    );
}

fn requests(page: &mut Page, requests: &[Requests]) {
    let results = requests.iter().map(|one| {
        let labels = [("api", one.api.as_str()), ("result", one.result)];
        (labels, one.count)
    });
    page.family(
        "harvester_node_agent_api_requests_total",
        "Requests to the Harvester API and the guest cluster API, by result.",
        results,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::identity::{OfflineVm, OwnVm};
    use crate::facts::names::VmName;

    #[test]
    fn each_state_is_one_series_and_only_the_current_one_is_1() {
        let page = |current| {
            let mut page = Page::default();
            let known = ["synced".to_owned(), "pending".to_owned()];
            states(&mut page, "hna_state", "State.", &known, current);
            page.text
                .lines()
                .skip(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
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
            (Verdict::Differs, false, ("hostname-differs", false)),
            (Verdict::PlatformHostname, true, ("hostname-differs", false)),
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
