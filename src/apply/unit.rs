// SPDX-License-Identifier: Apache-2.0
//! Starts a unit of this machine, only if the configuration allows it.

use crate::decide::Refusal;
use crate::sys::escape::chain;
use crate::wire::dbus::{Bus, BusError, MANAGER};

/// Requests one start of `unit` from systemd. `replace` is the job mode of `systemctl start` as well: it replaces a queued stop.
///
/// # Errors
///
/// Returns a one-line message if there is no bus or systemd refuses. A later failure of the unit is observed in the next round.
pub async fn start(bus: &Bus, unit: &str) -> Result<(), Refusal> {
    match bus.call(MANAGER, "StartUnit", &[unit, "replace"]).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Refusal {
            passing: !matches!(error, BusError::Refused { .. }),
            ..Refusal::passing(format!("failed to start {unit}: {}", chain(&error)))
        }),
    }
}
