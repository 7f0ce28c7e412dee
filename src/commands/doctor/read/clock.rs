// SPDX-License-Identifier: Apache-2.0
//! Reads the clock synchronization state from systemd-timedated, which asks the kernel, regardless of the NTP client
//! (org.freedesktop.timedate1(5), `NTPSynchronized`).

use zbus::wire::Variant;

use super::{Given, briefly};
use crate::commands::doctor::facts::clock::ClockFacts;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::escape::chain;
use crate::wire::dbus::{BusError, Peer};

/// The D-Bus service of systemd-timedated.
const TIMEDATE: Peer<'_> = Peer {
    name: "org.freedesktop.timedate1",
    path: "/org/freedesktop/timedate1",
    interface: "org.freedesktop.timedate1",
};

/// Reads the synchronization state.
pub(super) async fn read(given: &Given<'_>) -> ClockFacts {
    let ask = async {
        match given.bus.property(TIMEDATE, "NTPSynchronized").await {
            Ok(Variant::Bool(synchronized)) => Fact::Known(synchronized),
            Ok(_) => Fact::failed(
                UnavailableKind::Malformed,
                "NTPSynchronized is not a boolean",
            ),
            Err(error) => Fact::failed(kind(&error), chain(&error)),
        }
    };
    ClockFacts {
        synchronized: briefly(ask).await,
    }
}

fn kind(error: &BusError) -> UnavailableKind {
    match error {
        BusError::Absent(_) => UnavailableKind::Missing,
        BusError::Malformed(_) => UnavailableKind::Malformed,
        _ => UnavailableKind::Unreachable,
    }
}
