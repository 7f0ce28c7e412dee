// SPDX-License-Identifier: Apache-2.0
//! Reads the state of the QEMU guest agent: its unit from systemd, its channel from the kernel.
//!
//! All operations are read-only. systemd is asked only for units in its memory, never with `LoadUnit`: systemd announces a unit
//! that it loads, unloads it if it is not referenced, and announces that too. Each announcement would cause another reconcile. The
//! agent's port is never opened: it has a single reader.

use std::collections::HashMap;

use zbus::Message;
use zbus::wire::Variant;

use crate::facts::guest_agent::{Enablement, Family, GuestAgent, PORT, UNITS, Unit, UnitState};
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::environment_file;
use crate::sys::escape::{chain, one_line};
use crate::sys::root::Root;
use crate::wire::dbus::{Bus, BusError, MANAGER, PROPERTIES, Peer};
use crate::wire::virtio::port;

/// The paths of the program in the distributions.
pub(crate) const PROGRAMS: [&str; 2] = ["/usr/bin/qemu-ga", "/usr/sbin/qemu-ga"];

/// The paths of os-release(5); the first is usually a symbolic link to the second.
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// The maximum size of os-release, which has a few lines.
const FILE_MAX: u64 = 64 << 10;

/// The maximum length of a systemd keyword that is shown; usual ones are shorter.
const WORD_MAX: usize = 64;

const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";

/// The user data of this VM, as cloud-init received it.
const USER_DATA: &str = "/var/lib/cloud/instance/user-data.txt";

/// The maximum size of the user data; KubeVirt's limit for a Secret is 1 MiB.
const USER_DATA_MAX: u64 = 1 << 20;

/// The errors for a unit that does not exist: not in memory, or without a file.
const NO_SUCH_UNIT: [&str; 2] = [
    "org.freedesktop.systemd1.NoSuchUnit",
    "org.freedesktop.DBus.Error.FileNotFound",
];

/// Reads the complete state. A bus that does not respond costs one timeout.
pub async fn read(root: &Root, bus: &Bus) -> GuestAgent {
    let release = os_release(root);
    let user_data = root.read_text(USER_DATA, USER_DATA_MAX);
    GuestAgent {
        unit: match unit(bus).await {
            Ok(unit) => unit.into(),
            Err(error) => Fact::Failed(why(&error)),
        },
        has_channel: port::find(root, PORT).is_some(),
        family: Family::of(value(&release, "ID"), value(&release, "ID_LIKE")),
        is_requested: user_data.is_ok_and(|text| text.contains("qemu-guest-agent")),
    }
}

/// Returns the first of the names that systemd knows; an active unit takes precedence.
async fn unit(bus: &Bus) -> Result<Option<Unit>, BusError> {
    let mut first = None;
    for name in UNITS {
        match unit_named(bus, name).await? {
            Some(found) if found.state == UnitState::Active => return Ok(Some(found)),
            found => first = first.or(found),
        }
    }
    Ok(first)
}

async fn unit_named(bus: &Bus, name: &str) -> Result<Option<Unit>, BusError> {
    let Some(path) = known(bus.text(MANAGER, "GetUnit", &[name]).await)? else {
        // It is not in systemd's memory and so does not run: only its file is known.
        let file_state = file_state(bus, name).await?;
        return Ok(file_state.map(|state| shown(name, ("inactive", "dead"), &state, false)));
    };
    let peer = |interface| Peer {
        name: MANAGER.name,
        path: &path,
        interface,
    };
    let answer = bus.call(peer(PROPERTIES), "GetAll", &[UNIT]).await?;
    let Some(unit) = loaded(name, &answer)? else {
        return Ok(None);
    };
    // systemd before 235 has no restart counter.
    let restarts = match bus.property(peer(SERVICE), "NRestarts").await {
        Err(BusError::Refused { .. } | BusError::Malformed(_)) => None,
        answer => Some(answer?),
    };
    Ok(Some(Unit { restarts, ..unit }))
}

/// Returns `UnitFileState` of a unit, according to its file; `None` if it has none.
///
/// # Errors
///
/// Returns an error if systemd does not respond.
pub async fn file_state(bus: &Bus, name: &str) -> Result<Option<String>, BusError> {
    known(bus.text(MANAGER, "GetUnitFileState", &[name]).await)
}

/// Parses the properties of a unit; `None` if systemd only knows its name.
fn loaded(name: &str, answer: &Message) -> Result<Option<Unit>, BusError> {
    let body = answer.body();
    let malformed = |_| BusError::Malformed("GetAll".to_owned());
    let all: HashMap<&str, Variant<'_>> = body.deserialize().map_err(malformed)?;
    let word = |name: &str| match all.get(name) {
        Some(Variant::Str(text)) => text.as_str(),
        _ => "",
    };
    if word("LoadState") == "not-found" {
        return Ok(None);
    }
    let state = (word("ActiveState"), word("SubState"));
    let wanted_by = all.get("WantedBy");
    let is_wanted = matches!(wanted_by, Some(Variant::Array(units)) if !units.is_empty());
    // A unit that systemd cannot load is never started.
    Ok(Some(match word("LoadState") {
        "loaded" => shown(name, state, word("UnitFileState"), is_wanted),
        other => shown(name, state, other, false),
    }))
}

/// Creates a unit from its `ActiveState` and `SubState`, and its `UnitFileState`.
fn shown(name: &str, (active, sub): (&str, &str), file_state: &str, is_wanted: bool) -> Unit {
    let word = |text| one_line(text, WORD_MAX);
    Unit {
        name: name.to_owned(),
        state: UnitState::parse(active, sub),
        enablement: Enablement::parse(file_state, is_wanted),
        shown: format!("{}, {}", word(sub), word(file_state)),
        restarts: None,
    }
}

/// Converts the error for a unit that does not exist to `None`.
fn known(answer: Result<String, BusError>) -> Result<Option<String>, BusError> {
    let name = answer.as_ref().err().and_then(BusError::name);
    match name.is_some_and(|name| NO_SUCH_UNIT.contains(&name.as_str())) {
        true => Ok(None),
        false => answer.map(Some),
    }
}

/// Converts an error of the bus.
pub fn why(error: &BusError) -> Unavailable {
    let kind = match error {
        BusError::Absent(_) => UnavailableKind::Missing,
        BusError::Unreachable(_) => UnavailableKind::Unreachable,
        BusError::Refused { .. } => UnavailableKind::Forbidden,
        BusError::Malformed(_) => UnavailableKind::Malformed,
    };
    Unavailable::new(kind, chain(error))
}

/// Returns the assignments of os-release(5); none if there is no such file.
pub(crate) fn os_release(root: &Root) -> Vec<(String, String)> {
    let read = |path: &&str| root.read_text(path, FILE_MAX).ok();
    environment_file::variables(&OS_RELEASE.iter().find_map(read).unwrap_or_default())
}

/// Returns the value of a variable; empty if it is not set.
pub(crate) fn value<'a>(variables: &'a [(String, String)], key: &str) -> &'a str {
    let found = variables.iter().find(|(name, _)| name == key);
    found.map_or("", |(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
