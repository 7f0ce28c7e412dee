// SPDX-License-Identifier: Apache-2.0
//! Reads the state of the QEMU guest agent: its unit from systemd, the rest from files and the kernel.
//!
//! All operations are read-only. systemd is asked only for units in its memory, never with `LoadUnit`: systemd announces a unit
//! that it loads, unloads it if it is not referenced, and announces that too. Each announcement would cause another reconcile. The
//! agent's port is never opened: it has a single reader.

use std::path::{Path, PathBuf};

use zbus::wire::Variant;

use crate::facts::guest_agent::{
    CONFIGURATION, Channel, DEVICE_UNIT, Enablement, Family, GuestAgent, Load, PORT, RpcFilter,
    UNITS, Unit, UnitState, Variable, Variables, WITHOUT_SYSTEMD,
};
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::environment_file;
use crate::sys::escape::{chain, one_line};
use crate::sys::root::{ReadError, Root};
use crate::wire::dbus::{Bus, BusError, MANAGER, Peer, unit_path};
use crate::wire::virtio::port;

/// The paths of the program in the distributions.
pub(crate) const PROGRAMS: [&str; 2] = ["/usr/bin/qemu-ga", "/usr/sbin/qemu-ga"];

/// The `EnvironmentFile=` of the agent's units: of Debian and Ubuntu, of openSUSE's vendor, of all others. A later one takes
/// precedence.
const ENVIRONMENT: [&str; 3] = [
    "/etc/default/qemu-guest-agent",
    "/usr/etc/sysconfig/qemu-ga",
    "/etc/sysconfig/qemu-ga",
];

/// The paths of os-release(5); the first is usually a symbolic link to the second.
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// The directory where the kernel's driver shows the state of each port (`drivers/char/virtio_console.c`). Root reads it without
/// any capability, if debugfs is mounted.
const DEBUGFS: &str = "/sys/kernel/debug/virtio-ports";

/// The maximum size of a configuration file, which has a few lines.
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

/// Reads the complete state. A bus that does not respond costs one timeout; the facts from files are still returned.
pub async fn read(root: &Root, bus: &Bus) -> GuestAgent {
    let asked = unit(bus).await;
    let device = match &asked {
        Ok(_) => is_plugged(bus).await,
        Err(error) => Err(why(error)),
    };
    let arguments = match &asked {
        Ok(Some((_, Some(arguments)))) => arguments.iter().map(String::as_str).collect(),
        _ => WITHOUT_SYSTEMD.to_vec(),
    };
    GuestAgent {
        channel: channel(root, device),
        program: program(root),
        filter: filter(root, &arguments),
        family: family(root),
        is_requested: is_requested(root),
        unit: match asked {
            Ok(Some((unit, _))) => Fact::Known(unit),
            Ok(None) => Fact::Absent,
            Err(error) => Fact::Failed(why(&error)),
        },
    }
}

/// A unit, and the arguments of its command if it is in memory.
type FoundUnits = (Unit, Option<Vec<String>>);

/// Returns the first of the names that systemd knows; an active unit takes precedence.
async fn unit(bus: &Bus) -> Result<Option<FoundUnits>, BusError> {
    let mut first = None;
    for name in UNITS {
        match unit_named(bus, name).await? {
            Some(found) if found.0.state == UnitState::Active => return Ok(Some(found)),
            found => first = first.or(found),
        }
    }
    Ok(first)
}

async fn unit_named(bus: &Bus, name: &str) -> Result<Option<FoundUnits>, BusError> {
    let Some(path) = known(bus.text(MANAGER, "GetUnit", &[name]).await)? else {
        return Ok(unit_on_disk(bus, name).await?.map(|unit| (unit, None)));
    };
    let peer = |interface| Peer {
        name: MANAGER.name,
        path: &path,
        interface,
    };
    let word = async |interface, property| {
        let value = bus.property(peer(interface), property).await?;
        Ok::<_, BusError>(text(&value))
    };
    let load = match word(UNIT, "LoadState").await?.as_str() {
        "loaded" => Load::Loaded,
        "masked" => Load::Masked,
        "not-found" => return Ok(None),
        _ => Load::Broken,
    };
    let active = word(UNIT, "ActiveState").await?;
    let sub_state = word(UNIT, "SubState").await?;
    let file_state = word(UNIT, "UnitFileState").await?;
    let wanted_by = bus.property(peer(UNIT), "WantedBy").await?;
    let is_wanted = matches!(&wanted_by, Variant::Array(units) if !units.is_empty());
    // systemd before 235 has no restart counter.
    let restarts = match answered(bus.property(peer(SERVICE), "NRestarts").await)? {
        Some(Variant::U32(count)) => Some(count),
        _ => None,
    };
    let unit = Unit {
        name: name.to_owned(),
        load,
        state: UnitState::parse(&active, &sub_state),
        sub_state,
        enablement: Enablement::parse(&file_state, is_wanted),
        file_state,
        restarts,
        result: word(SERVICE, "Result").await?,
    };
    let command = bus.property(peer(SERVICE), "ExecStart").await?;
    Ok(Some((unit, Some(arguments(&command)))))
}

/// Returns a unit that is not in systemd's memory and so does not run: only its file is known.
async fn unit_on_disk(bus: &Bus, name: &str) -> Result<Option<Unit>, BusError> {
    let state = known(bus.text(MANAGER, "GetUnitFileState", &[name]).await)?;
    Ok(state.map(|state| Unit {
        name: name.to_owned(),
        load: match state.as_str() {
            "masked" | "masked-runtime" => Load::Masked,
            "bad" => Load::Broken,
            _ => Load::Loaded,
        },
        state: UnitState::Inactive,
        sub_state: "dead".to_owned(),
        enablement: Enablement::parse(&state, false),
        file_state: one_line(&state, WORD_MAX).into_owned(),
        restarts: None,
        result: "success".to_owned(),
    }))
}

/// Reports whether systemd has a unit for the device of the channel.
async fn is_plugged(bus: &Bus) -> Result<bool, Unavailable> {
    let state = async {
        if known(bus.text(MANAGER, "GetUnit", &[DEVICE_UNIT]).await)?.is_none() {
            return Ok(false);
        }
        let peer = Peer {
            name: MANAGER.name,
            path: &unit_path(DEVICE_UNIT),
            interface: UNIT,
        };
        let state = bus.property(peer, "ActiveState").await?;
        Ok::<_, BusError>(text(&state) == "active")
    };
    state.await.map_err(|error| why(&error))
}

/// Converts the error for a unit that does not exist to `None`.
fn known(answer: Result<String, BusError>) -> Result<Option<String>, BusError> {
    match answer {
        Err(error)
            if error
                .name()
                .is_some_and(|name| NO_SUCH_UNIT.contains(&name.as_str())) =>
        {
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

/// Converts a refusal to `None`: systemd does not have the property.
fn answered<T>(answer: Result<T, BusError>) -> Result<Option<T>, BusError> {
    match answer {
        Err(BusError::Refused { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns a keyword of systemd; empty if it is not a string.
fn text(value: &Variant<'_>) -> String {
    match value {
        Variant::Str(text) => one_line(text, WORD_MAX).into_owned(),
        _ => String::new(),
    }
}

/// Returns the arguments in `ExecStart`: an array of structures whose second field is an array of strings.
fn arguments(commands: &Variant<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let Variant::Array(commands) = commands else {
        return all;
    };
    for command in commands.inner() {
        if let Variant::Structure(fields) = command
            && let Some(Variant::Array(arguments)) = fields.fields().get(1)
        {
            all.extend(
                arguments
                    .inner()
                    .iter()
                    .filter_map(|argument| match argument {
                        Variant::Str(argument) => Some(argument.as_str().to_owned()),
                        _ => None,
                    }),
            );
        }
    }
    all
}

fn why(error: &BusError) -> Unavailable {
    let kind = match error {
        BusError::Absent(_) => UnavailableKind::Missing,
        BusError::Connect { .. } | BusError::Silent(_) | BusError::Ended => {
            UnavailableKind::Unreachable
        }
        BusError::Refused { .. } => UnavailableKind::Forbidden,
        BusError::Malformed(_) => UnavailableKind::Malformed,
    };
    Unavailable::new(kind, chain(error))
}

/// Reads the channel from the kernel, or from systemd's device unit if the kernel's files are not visible.
fn channel(root: &Root, device: Result<bool, Unavailable>) -> Fact<Channel> {
    let Some(port) = port::find(root, PORT) else {
        let unseen = || {
            Fact::failed(
                UnavailableKind::NotAsked,
                "the kernel does not show the port",
            )
        };
        return match device {
            Ok(true) => Fact::Known(Channel {
                guest: unseen(),
                host: unseen(),
            }),
            Ok(false) => Fact::Absent,
            Err(_) if root.exists("/sys/class") => Fact::Absent,
            Err(why) => Fact::Failed(why),
        };
    };
    // udev's link points to `../vport1p1`, which is the name in debugfs.
    let device = root.link_target(&port).unwrap_or(port);
    let file = Path::new(DEBUGFS).join(device.file_name().unwrap_or_default());
    match root.read_text(file, FILE_MAX) {
        Ok(text) => Fact::Known(Channel {
            guest: end(&text, "guest_connected"),
            host: end(&text, "host_connected"),
        }),
        Err(error) => Fact::Known(Channel {
            guest: unread(&error),
            host: unread(&error),
        }),
    }
}

/// Parses one line of the driver, such as `host_connected: 1`.
fn end(text: &str, key: &str) -> Fact<bool> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value.trim());
    match values.next() {
        Some("0") => Fact::Known(false),
        Some("1") => Fact::Known(true),
        _ => Fact::failed(
            UnavailableKind::Malformed,
            format!("the kernel does not report `{key}`"),
        ),
    }
}

fn unread<T>(error: &ReadError) -> Fact<T> {
    let kind = match error {
        ReadError::NotFound(_) => UnavailableKind::Missing,
        ReadError::Denied(_) => UnavailableKind::Forbidden,
        _ => UnavailableKind::Malformed,
    };
    Fact::failed(kind, chain(error))
}

fn program(root: &Root) -> Fact<PathBuf> {
    for path in PROGRAMS {
        match root.metadata(path) {
            Ok(_) => return Fact::Known(PathBuf::from(path)),
            Err(error) if error.is_absent() => {}
            Err(error) => return unread(&error),
        }
    }
    Fact::Absent
}

fn filter(root: &Root, arguments: &[&str]) -> RpcFilter {
    let mut filter = RpcFilter::default();
    if let Ok(text) = root.read_text(CONFIGURATION, FILE_MAX) {
        filter.add_configuration(&text);
    }
    let mut variables = Variables::new();
    for file in ENVIRONMENT {
        let set = environment_file::variables(&root.read_text(file, FILE_MAX).unwrap_or_default());
        variables.extend(
            set.into_iter()
                .map(|(name, value)| (name, Variable { value, file })),
        );
    }
    filter.add_arguments(arguments, &variables);
    filter
}

/// Reports whether cloud-init's user data of this VM names the package.
fn is_requested(root: &Root) -> bool {
    let text = root.read_text(USER_DATA, USER_DATA_MAX);
    text.is_ok_and(|text| text.contains("qemu-guest-agent"))
}

fn family(root: &Root) -> Family {
    let release = os_release(root);
    Family::of(value(&release, "ID"), value(&release, "ID_LIKE"))
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
