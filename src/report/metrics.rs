// SPDX-License-Identifier: Apache-2.0
//! The status as Prometheus metrics, in two pages: one that changes only with the state, and one that each reconcile changes.
//!
//! Every name begins with `harvester_node_agent_`, which [`Page`] adds. Durations and timestamps are in seconds. An unknown value is
//! absent. A state is a plain 0/1 gauge, and in addition one 0/1 series for each state (an OpenMetrics StateSet), so that the labels
//! of a series do not change with the state. No label name conflicts with the labels of a scrape target.

use std::collections::{BTreeMap, BTreeSet};

use super::counters::Counters;
use super::exposition::Page;
use super::status::Status;
use crate::agent::Round;
use crate::catalog::kebab;
use crate::config::Timing;
use crate::decide::guest_agent::GuestAgentHealth;
use crate::decide::label_state::{self, LabelState};
use crate::decide::name_match::Verdict;

/// Returns the page with the state and the event counters.
pub fn state(status: &Status, round: &Round, timing: &Timing, counters: &Counters) -> String {
    let mut page = Page::default();
    objects(&mut page, status);
    conditions(&mut page, round);
    findings(&mut page, status);
    counters.write(&mut page);
    let harvester = round.observation.harvester.known();
    let kubelet = round.observation.kubelet.known();
    let expiries = [
        ("harvester", harvester.and_then(|known| known.expires)),
        ("kubelet", kubelet.and_then(|known| known.expires)),
    ];
    let expiries = expiries.into_iter();
    let expiries = expiries.filter_map(|(name, expires)| Some(([("credential", name)], expires?)));
    let help = "Expiration time of the credential (Unix timestamp); absent if it does not expire.";
    page.family("credential_expiry_timestamp_seconds", help, expiries);
    let poll = timing.poll.as_secs_f64();
    let help =
        "Interval between two reconciles without a trigger; a wait is at most twice as long.";
    page.gauge("poll_interval_seconds", help, &[], poll);
    page.text
}

/// Returns the page that every reconcile changes.
pub fn request_counters(round: &Round) -> String {
    let mut page = Page::default();
    let requests = round.requests.iter().map(|one| {
        let labels = [("api", one.api.as_str()), ("result", one.result)];
        (labels, one.count)
    });
    let help = "Requests to the Harvester API and the guest cluster API, by result.";
    page.family("api_requests_total", help, requests);
    let time = round.now.wall.unix_timestamp();
    let help = "Time of the last reconcile (Unix timestamp).";
    page.gauge("last_reconcile_timestamp_seconds", help, &[], time);
    page.text
}

fn objects(page: &mut Page, status: &Status) {
    let version = [("version", status.agent.version.as_str())];
    page.gauge("build_info", "Version of the agent.", &version, 1);
    if let Some(vm) = &status.identity.vm {
        let node = status.labels.node.as_deref();
        let labels = [
            ("vm_name", vm.name.as_str()),
            ("vm_namespace", vm.namespace.as_deref().unwrap_or_default()),
            ("node_name", node.unwrap_or_default()),
        ];
        let help = "Harvester VM and Node of this agent.";
        page.gauge("vm_info", help, &labels, 1);
    }
    if let Some(placement) = &status.placement {
        let (host, (region, zone)) = (placement.host.as_str(), placement.topology(""));
        let labels = [("host", host), ("region", region), ("zone", zone)];
        let help = "Harvester host that runs the VM, with its region and zone.";
        page.gauge("placement_info", help, &labels, 1);
    }
}

fn conditions(page: &mut Page, round: &Round) {
    let identity = &round.plan.identity;
    let (names, is_verified) = (kebab(identity.reason), identity.status == "True");
    let all = Verdict::ALL.iter().map(|verdict| kebab(verdict.reason()));
    let help = "Whether hostname and Node name match the Harvester VM or are configured; also 0 while the VM is unknown.";
    page.gauge("identity_verified", help, &[], u8::from(is_verified));
    let compared = "How hostname and Node name compare with the VM";
    states(page, "identity_state", compared, all, &names);
    // As in the condition HarvesterTopologySynced: the Node of a host without topology needs no labels.
    let (sync, is_synced) = (round.plan.sync.name(), round.plan.sync.is_synced());
    let all = label_state::all();
    let all = all.iter().map(LabelState::name);
    let help = "Whether the topology labels of the Node are in sync with the Harvester host.";
    page.gauge("topology_synced", help, &[], u8::from(is_synced));
    let labels = "State of the topology labels";
    states(page, "topology_state", labels, all, &sync);
    let health = round.plan.guest_agent;
    let is_ready = health == GuestAgentHealth::Healthy;
    let all = GuestAgentHealth::ALL.iter().map(|health| health.name());
    let help =
        "Whether qemu-guest-agent runs and serves the host; also 0 while its state is unknown.";
    page.gauge("qemu_guest_agent_ready", help, &[], u8::from(is_ready));
    let agent = "State of qemu-guest-agent";
    states(page, "qemu_guest_agent_state", agent, all, &health.name());
    let open = round.plan.memory.scheduled.open();
    let open = open.map_or("none", |event| event.state.as_str());
    let all = ["none", "planned", "in-progress"].map(str::to_owned);
    let event = "State of the scheduled event that is not over";
    states(page, "scheduled_event_state", event, all, open);
}

/// Adds one series for each state. A current state that is not listed is added as well, so that it is never missing.
fn states(
    page: &mut Page,
    name: &str,
    what: &str,
    known: impl IntoIterator<Item = String>,
    current: &str,
) {
    let mut states = BTreeSet::from_iter(known);
    states.insert(current.to_owned());
    let states = states.iter().map(String::as_str);
    let samples = states.map(|state| ([("state", state)], u8::from(state == current)));
    let help = format!("{what}: 1 for the current state, 0 for the others.");
    page.family(name, &help, samples);
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
    let help = "Current findings by code; `harvester-node-agent explain CODE` describes one.";
    page.family("findings", help, counts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_one_series_and_only_the_current_one_is_1() {
        let page = |current| {
            let mut page = Page::default();
            let known = ["synced", "pending", "pending"].map(str::to_owned);
            states(&mut page, "topology_state", "State", known, current);
            page.text.replace("harvester_node_agent_topology_state", "")
        };
        let head = "# HELP  State: 1 for the current state, 0 for the others.\n# TYPE  gauge\n";
        let series = "{state=\"pending\"} 1\n{state=\"synced\"} 0\n";
        assert_eq!(page("pending"), format!("{head}{series}"));
        let series = series.replace('1', "0");
        let new = format!("{head}{{state=\"new\"}} 1\n{series}");
        assert_eq!(page("new"), new);
    }
}
