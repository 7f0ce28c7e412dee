// SPDX-License-Identifier: Apache-2.0
//! Reads the metrics of the host from KubeVirt's downward metrics: from the port, or else from the disk.

use time::UtcDateTime;

use crate::facts::host_metrics::{HostMetrics, MetricsError};
use crate::facts::{Fact, UnavailableKind};
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::virtio::downward_metrics::{self, AskError, ReadTimeouts, ask};
use crate::wire::virtio::port::{self, PortError};
use crate::wire::virtio::vhostmd_disk::{self, DiskError};

/// The maximum age in seconds. virt-handler writes the disk every five seconds; an older one predates a migration, or is a copy.
const DISK_AGE_MAX: u64 = 60;

/// Reads the metrics. `wall` is the current time: an earlier response is rejected.
///
/// Takes up to 20 s if the host is slow, and 5 s if the port is not served: read it concurrently with the other sources.
pub async fn read(root: &Root, wall: UtcDateTime) -> Fact<HostMetrics> {
    read_within(root, wall, ReadTimeouts::default()).await
}

async fn read_within(root: &Root, wall: UtcDateTime, timeouts: ReadTimeouts) -> Fact<HostMetrics> {
    let asked = match ask(root, wall.unix_timestamp(), timeouts).await {
        Ok(metrics) => return Fact::Known(metrics),
        Err(AskError::NotOffered) => Fact::Absent,
        Err(error) => Fact::failed(ask_kind(&error), chain(&error)),
    };
    match (vhostmd_disk::read(root).await, asked) {
        (Ok(Some(metrics)), asked) => match age(&metrics, wall) {
            Some(age) if age.unsigned_abs() > DISK_AGE_MAX => {
                let text = format!(
                    "the metrics on the disk are {age} s old, or the clocks of host and guest differ"
                );
                if asked == Fact::Absent {
                    Fact::failed(UnavailableKind::Unreachable, text)
                } else {
                    asked
                }
            }
            _ => Fact::Known(metrics),
        },
        (Err(error), Fact::Absent) => Fact::failed(disk_kind(&error), chain(&error)),
        // A VM has one of the two devices: the error of the existing port is reported.
        (_, asked) => asked,
    }
}

/// Returns the age in seconds, if the host reports a time.
fn age(metrics: &HostMetrics, wall: UtcDateTime) -> Option<i64> {
    Some(wall.unix_timestamp().saturating_sub(metrics.time?))
}

/// Reports whether the host provides its metrics, and returns a description of the device.
pub fn probe(root: &Root) -> (bool, String) {
    if port::find(root, downward_metrics::PORT).is_some() {
        let port = downward_metrics::PORT;
        return (true, format!("offered as channel `{port}`"));
    }
    match vhostmd_disk::find(root) {
        Some(disk) => (true, format!("offered as disk `{}`", disk.display())),
        None => (
            false,
            "not offered: the VM has no downwardMetrics device".to_owned(),
        ),
    }
}

fn ask_kind(error: &AskError) -> UnavailableKind {
    match error {
        AskError::Port(PortError::Denied(_)) => UnavailableKind::Forbidden,
        AskError::NotOffered
        | AskError::Busy
        | AskError::Port(_)
        | AskError::NotServed(_)
        | AskError::NoAnswer(_)
        | AskError::HungUp
        | AskError::Stale { .. } => UnavailableKind::Unreachable,
        AskError::TooLarge | AskError::Refused => UnavailableKind::Refused,
        AskError::NotText => UnavailableKind::Malformed,
        AskError::Document(error) => document_kind(error),
    }
}

fn disk_kind(error: &DiskError) -> UnavailableKind {
    match error {
        DiskError::Denied(_) => UnavailableKind::Forbidden,
        DiskError::Io { .. } | DiskError::Busy(_) | DiskError::Stalled => {
            UnavailableKind::Unreachable
        }
        DiskError::TooLarge { .. } | DiskError::Several(_) => UnavailableKind::Refused,
        DiskError::Checksum(_) | DiskError::Truncated(_) | DiskError::NotText(_) => {
            UnavailableKind::Malformed
        }
        DiskError::Document { source, .. } => document_kind(source),
    }
}

fn document_kind(error: &MetricsError) -> UnavailableKind {
    match error {
        error if error.is_passing() => UnavailableKind::Unreachable,
        MetricsError::Dtd | MetricsError::TooMany | MetricsError::NotMetrics(_) => {
            UnavailableKind::Refused
        }
        _ => UnavailableKind::Malformed,
    }
}

#[cfg(test)]
mod tests;
