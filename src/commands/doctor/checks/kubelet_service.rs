// SPDX-License-Identifier: Apache-2.0
//! Without a kubelet kubeconfig: is the service that makes one still starting?

use crate::catalog::{Code, Finding};
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::reads::{Reads, briefly};
use crate::facts::Fact;
use crate::facts::clock::date;
use crate::wire::dbus::{Bus, Peer, unit_path};

/// The units that start the kubelet.
const UNITS: [&str; 5] = [
    "rke2-server.service",
    "rke2-agent.service",
    "k3s.service",
    "k3s-agent.service",
    "kubelet.service",
];

/// A unit, and since when it has been starting, as a Unix timestamp.
type Starting = (&'static str, i64);

/// Judges the units. Where systemd does not respond, the finding lacks only this observation.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let starting = briefly(starting(reads)).await;
    let starting = starting.known().into_iter().flatten();
    checked.findings.extend(starting.map(judge));
}

/// Reads the units. Absent if the kubelet has a credential.
async fn starting(reads: &Reads<'_>) -> Fact<Vec<Starting>> {
    if reads.case.observation.kubelet.known().is_some() {
        return Fact::Absent;
    }
    let mut starting = Vec::new();
    for unit in UNITS {
        let since = starting_since(reads.observer.bus(), unit).await;
        starting.extend(since.map(|since| (unit, since)));
    }
    Fact::Known(starting)
}

/// Returns when systemd began to start a unit, as a Unix timestamp; `None` unless it is still starting.
async fn starting_since(bus: &Bus, unit: &str) -> Option<i64> {
    let path = unit_path(unit);
    let peer = Peer {
        name: "org.freedesktop.systemd1",
        path: &path,
        interface: "org.freedesktop.systemd1.Unit",
    };
    let state: String = bus.property(peer, "ActiveState").await.ok()?;
    if state != "activating" {
        return None;
    }
    let microseconds: u64 = bus.property(peer, "InactiveExitTimestamp").await.ok()?;
    i64::try_from(microseconds / 1_000_000).ok()
}

fn judge((unit, since): &Starting) -> Finding {
    let seen = format!("{unit} has been starting since {}", date(*since));
    Finding::new(Code::KubeletCredentialMissing, seen)
}
