// SPDX-License-Identifier: Apache-2.0
//! Starts a unit of this machine, only where the configuration allows it.

use crate::decide::Refusal;
use crate::sys::escape::chain;
use crate::wire::dbus::{Bus, BusError, MANAGER};

/// Asks systemd to start `unit`, once. `replace` is what `systemctl start` says as well: a queued stop gives way.
///
/// # Errors
///
/// In one line, when there is no bus or systemd refuses. That the unit then fails is for the next round.
pub async fn start(bus: &Bus, unit: &str) -> Result<(), Refusal> {
    match bus.call(MANAGER, "StartUnit", &[unit, "replace"]).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Refusal {
            text: format!("failed to start {unit}: {}", chain(&error)),
            passing: !matches!(error, BusError::Refused { .. }),
            retry_after: None,
        }),
    }
}
