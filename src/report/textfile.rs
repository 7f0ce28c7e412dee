// SPDX-License-Identifier: Apache-2.0
//! Metrics for Prometheus, as a file that node-exporter's textfile collector reads.

use std::fmt::Write;
use std::path::Path;

use super::status::Status;
use crate::durable::{Lasting, WriteError, write};
use crate::root::Root;

/// Writes the metrics when they changed.
pub fn publish(
    root: &Root,
    path: &Path,
    status: &Status,
    migrations: u64,
) -> Result<(), WriteError> {
    let place = root.join(path);
    let (Some(directory), Some(name)) = (
        place.parent(),
        place.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err(WriteError::Planted(place));
    };
    write(
        directory,
        name,
        render(status, migrations).as_bytes(),
        0o644,
        Lasting::Volatile,
    )
}

/// The metrics of a status. No time stamps, so that an unchanged state is an unchanged file.
pub fn render(status: &Status, migrations: u64) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, labels: &[(&str, &str)], value: u64| {
        if !text.contains(&format!("# TYPE harvester_node_agent_{name} ")) {
            let _ = writeln!(text, "# HELP harvester_node_agent_{name} {help}");
            let _ = writeln!(text, "# TYPE harvester_node_agent_{name} {kind}");
        }
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(text, "harvester_node_agent_{name}{labels} {value}");
    };
    metric(
        "info",
        "gauge",
        "Version of the agent.",
        &[("version", &status.agent.version)],
        1,
    );
    let verdict = [("verdict", status.identity.verdict.as_str())];
    metric(
        "identity_verified",
        "gauge",
        "Whether the names of this machine are its VM's.",
        &verdict,
        u64::from(status.identity.verdict.starts_with("match")),
    );
    let state = [("state", status.labels.state.as_str())];
    metric(
        "topology_synced",
        "gauge",
        "Whether the topology labels are those of the Harvester host.",
        &state,
        u64::from(status.labels.state == "synced"),
    );
    if let Some(placement) = &status.placement {
        let part = |value: &Option<String>| value.clone().unwrap_or_default();
        let (region, zone) = (part(&placement.region), part(&placement.zone));
        let labels = [
            ("host", placement.host.as_str()),
            ("region", &region),
            ("zone", &zone),
        ];
        metric(
            "placement",
            "gauge",
            "The Harvester host that runs this machine.",
            &labels,
            1,
        );
    }
    metric(
        "migrations_total",
        "counter",
        "Migrations seen since the agent started.",
        &[],
        migrations,
    );
    for finding in &status.findings {
        let labels = [
            ("code", finding.code.as_str()),
            ("severity", finding.severity.as_str()),
        ];
        metric("finding", "gauge", "Complaints that hold now.", &labels, 1);
    }
    text
}

/// As the text format wants label values (prometheus.io, exposition formats).
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
