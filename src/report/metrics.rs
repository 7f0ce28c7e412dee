// SPDX-License-Identifier: Apache-2.0
//! The status as numbers. No time stamps, so that an unchanged state is an unchanged file.

use super::status::Status;
use super::textfile::{Kind, Metric};

/// The metrics of a status.
pub fn of(status: &Status, migrations: u64) -> Vec<Metric> {
    let gauge = |name, help, labels: Vec<(&'static str, String)>, holds: bool| {
        let value = if holds { 1.0 } else { 0.0 };
        Metric {
            name,
            help,
            kind: Kind::Gauge,
            labels,
            value,
        }
    };
    let verdict = &status.identity.verdict;
    let state = &status.labels.state;
    let mut metrics = vec![
        gauge(
            "harvester_node_agent_info",
            "Version of the agent.",
            vec![("version", status.agent.version.clone())],
            true,
        ),
        gauge(
            "harvester_node_agent_identity_verified",
            "Whether the names of this machine are its VM's.",
            vec![("verdict", verdict.clone())],
            verdict.starts_with("match"),
        ),
        gauge(
            "harvester_node_agent_topology_synced",
            "Whether the topology labels are those of the Harvester host.",
            vec![("state", state.clone())],
            state == "synced",
        ),
        Metric {
            name: "harvester_node_agent_migrations_total",
            help: "Migrations whose labels were written since the agent started.",
            kind: Kind::Counter,
            labels: Vec::new(),
            value: migrations as f64,
        },
    ];
    if let Some(placement) = &status.placement {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let labels = vec![
            ("host", placement.host.clone()),
            ("region", text(&placement.region)),
            ("zone", text(&placement.zone)),
        ];
        metrics.push(gauge(
            "harvester_node_agent_placement",
            "The Harvester host that runs this machine.",
            labels,
            true,
        ));
    }
    for finding in &status.findings {
        let labels = vec![
            ("code", finding.code.clone()),
            ("severity", finding.severity.clone()),
        ];
        metrics.push(gauge(
            "harvester_node_agent_finding",
            "Complaints that hold now.",
            labels,
            true,
        ));
    }
    metrics
}
