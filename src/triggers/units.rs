// SPDX-License-Identifier: Apache-2.0
//! Changes of the guest agent's unit, from systemd's signals on the system bus.
//!
//! The bus delivers only signals that match our rules, by sender, object and name, so nothing else is a reason.

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::facts::guest_agent::{DEVICE_UNIT, UNITS};
use crate::sys::escape::chain;
use crate::wire::dbus::{Bus, BusError, DRIVER, MANAGER, PROPERTIES, SOCKET, Signals, unit_path};

/// The event source.
#[derive(Debug)]
pub(super) struct Units(pub(super) Bus);

impl Source for Units {
    fn about(&self) -> (&'static str, &'static str) {
        ("units", "the unit of qemu-guest-agent is only polled")
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        Box::pin(async move {
            let bus = self.0.with_own_connection();
            let mut signals = match subscribe(&bus).await {
                Ok(signals) => signals,
                Err(lost) => return lost,
            };
            out.active(format!("{} on the system bus", MANAGER.name));
            // For changes before the subscription.
            out.fire(Trigger::Units);
            let error = loop {
                let signal = tokio::select! {
                    signal = signals.next() => signal,
                    // A slow service may be the reason, on a bus that works.
                    () = bus.silence.notified() => match bus.text(DRIVER, "GetId", &[]).await {
                        Ok(_) => continue,
                        Err(error) => break error,
                    },
                };
                let Some(signal) = signal else {
                    break BusError::ended();
                };
                let header = signal.header();
                match header.member().map_or("", |member| member.as_str()) {
                    // systemd left the bus, as when it executes itself anew.
                    "NameOwnerChanged" => return absent(),
                    // `true` is the beginning of a reload; the changes are known at its end.
                    "Reloading" if signal.body().deserialize().unwrap_or(false) => {}
                    _ => out.fire(Trigger::Units),
                }
            };
            Lost::Failed(chain(&error))
        })
    }
}

fn absent() -> Lost {
    Lost::Failed(format!("{} is not on the system bus", MANAGER.name))
}

/// Sets the match rules, and subscribes to systemd, which sends no signals without subscribers. The connection must have no other
/// rules: they end with it.
async fn subscribe(bus: &Bus) -> Result<Signals, Lost> {
    let failed = |error: BusError| match error {
        // A machine without a bus is intended; nothing on it is broken.
        BusError::Absent(_) => Lost::Absent(chain(&error), Some(SOCKET.into())),
        error => Lost::Failed(chain(&error)),
    };
    // Created before the first rule, so that no signal is lost.
    let signals = bus.signals().await.map_err(failed)?;
    for rule in rules() {
        let added = bus.call(DRIVER, "AddMatch", &[&rule]).await;
        added.map_err(failed)?;
    }
    // Asking the bus starts no service, unlike a call to the service.
    match bus.text(DRIVER, "GetNameOwner", &[MANAGER.name]).await {
        Err(BusError::Refused { .. }) => return Err(absent()),
        owner => owner.map_err(failed)?,
    };
    let subscribed = bus.call(MANAGER, "Subscribe", &[]).await;
    subscribed.map(|_| signals).map_err(failed)
}

/// Returns the match rules, as narrow as the bus supports (D-Bus specification, "Match Rules").
fn rules() -> Vec<String> {
    let (driver, systemd) = (DRIVER.name, MANAGER.name);
    let manager = format!(
        "type='signal',sender='{systemd}',path='{}',interface='{}'",
        MANAGER.path, MANAGER.interface
    );
    let mut rules = vec![
        format!("{manager},member='UnitFilesChanged'"),
        format!("{manager},member='Reloading'"),
        format!(
            "type='signal',sender='{driver}',interface='{driver}',member='NameOwnerChanged',arg0='{systemd}'"
        ),
    ];
    for unit in UNITS.into_iter().chain([DEVICE_UNIT]) {
        let path = unit_path(unit);
        rules.extend([
            // The states of services and devices alike are properties of the unit.
            format!(
                "type='signal',sender='{systemd}',path='{path}',interface='{PROPERTIES}',member='PropertiesChanged',arg0='{systemd}.Unit'"
            ),
            format!("{manager},member='UnitNew',arg0='{unit}'"),
            format!("{manager},member='UnitRemoved',arg0='{unit}'"),
            format!("{manager},member='JobRemoved',arg2='{unit}'"),
        ]);
    }
    rules
}

#[cfg(test)]
mod tests;
