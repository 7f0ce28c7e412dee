// SPDX-License-Identifier: Apache-2.0
//! Reads the metrics of the host from the port of KubeVirt's downward metrics.

use time::UtcDateTime;

use crate::facts::Fact;
use crate::facts::host_metrics::HostMetrics;
use crate::sys::root::Root;
use crate::wire::virtio::downward_metrics::{PORT, TIMEOUTS, ask};
use crate::wire::virtio::port;

/// Reads the metrics. `wall` is the current time: an earlier response is rejected.
///
/// Takes up to 20 s if the host is slow, and 5 s if the port is not served: read it concurrently with the other sources.
pub async fn read(root: &Root, wall: UtcDateTime) -> Fact<HostMetrics> {
    ask(root, wall.unix_timestamp(), TIMEOUTS).await
}

/// Reports whether the host provides its metrics, and returns a description of the device.
pub fn probe(root: &Root) -> (bool, String) {
    match port::find(root, PORT) {
        Some(_) => (true, format!("offered as channel `{PORT}`")),
        None => (
            false,
            "not offered: the VM has no downwardMetrics device".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests;
