// SPDX-License-Identifier: Apache-2.0
//! Reads clock synchronization (NTP), from systemd-timedated: it asks the kernel, whoever keeps it
//! (org.freedesktop.timedate1(5), `NTPSynchronized`).

use zbus::wire::Variant;

use super::{Given, briefly};
use crate::commands::doctor::facts::clock::Clock;
use crate::facts::{Seen, WhyKind};
use crate::sys::escape::chain;
use crate::wire::dbus::{BusError, Peer};

/// systemd-timedated.
const TIMEDATE: Peer<'_> = Peer {
    name: "org.freedesktop.timedate1",
    path: "/org/freedesktop/timedate1",
    interface: "org.freedesktop.timedate1",
};

/// Reads it.
pub(super) async fn read(given: &Given<'_>) -> Clock {
    let ask = async {
        match given.bus.property(TIMEDATE, "NTPSynchronized").await {
            Ok(Variant::Bool(synchronized)) => Seen::Known(synchronized),
            Ok(_) => Seen::failed(WhyKind::Malformed, "NTPSynchronized is not a boolean"),
            Err(error) => Seen::failed(kind(&error), chain(&error)),
        }
    };
    Clock {
        synchronized: briefly(ask).await,
    }
}

fn kind(error: &BusError) -> WhyKind {
    match error {
        BusError::Absent(_) => WhyKind::Missing,
        BusError::Malformed(_) => WhyKind::Malformed,
        _ => WhyKind::Unreachable,
    }
}
