// SPDX-License-Identifier: Apache-2.0
//! Without a kubelet kubeconfig: is the service that makes one still starting?

use zbus::wire::Variant;

use crate::catalog::{Code, Finding};
use crate::commands::doctor::case::{Checked, date};
use crate::commands::doctor::reader::Reader;
use crate::wire::dbus::{Bus, Peer, unit_path};

/// The units that start the kubelet.
const UNITS: [&str; 5] = [
    "rke2-server.service",
    "rke2-agent.service",
    "k3s.service",
    "k3s-agent.service",
    "kubelet.service",
];

/// Reads the units, if the kubelet has no credential. Where systemd does not respond, the finding lacks only this observation.
pub(super) async fn check(reader: &Reader<'_>, checked: &mut Checked) {
    if reader.case.observation.kubelet.known().is_some() {
        return;
    }
    for unit in UNITS {
        let starting = starting_since(reader.observer.bus(), unit).await;
        checked
            .findings
            .extend(starting.map(|since| judge(unit, since)));
    }
}

/// Returns when systemd began to start a unit, as a Unix timestamp; `None` unless it is still starting.
async fn starting_since(bus: &Bus, unit: &str) -> Option<i64> {
    let path = unit_path(unit);
    let peer = Peer {
        name: "org.freedesktop.systemd1",
        path: &path,
        interface: "org.freedesktop.systemd1.Unit",
    };
    match bus.property(peer, "ActiveState").await.ok()? {
        Variant::Str(state) if state.as_str() == "activating" => {}
        _ => return None,
    }
    match bus.property(peer, "InactiveExitTimestamp").await.ok()? {
        Variant::U64(microseconds) => i64::try_from(microseconds / 1_000_000).ok(),
        _ => None,
    }
}

fn judge(unit: &str, since: i64) -> Finding {
    let seen = format!("{unit} has been starting since {}", date(since));
    Finding::new(Code::KubeletCredentialMissing, seen)
}
