// SPDX-License-Identifier: Apache-2.0
//! Compares the content of an image with the catalog of faults.

mod remedy;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use remedy::ImageTree;

use crate::commands::bake_check::facts::{Image, ImagePlace, ImageTextFile, Service};
use crate::commands::bake_check::rules::{Fault, FaultCode};
use crate::facts::distribution::{Form, Matter, Unshareable};
use crate::facts::guest_agent::Enablement;
use crate::facts::names::{effective_hostname, is_hostname_template};

/// Hostnames that are not unique to a machine, in addition to those of the distribution: of systemd and of installers.
const ANONYMOUS: [&str; 4] = ["", "localhost", "localhost.localdomain", "linux"];

/// The content of a machine-id file that systemd treats as uninitialized (machine-id(5), "First Boot Semantics").
const NO_MACHINE_ID: [&str; 2] = ["", "uninitialized"];

/// The maximum number of paths in one fault; there may be thousands.
const NAMED_MAX: usize = 8;

/// Returns all faults, in the order of the catalog. The fixes are shell commands for `tree`.
pub fn judge(image: &Image, tree: &ImageTree) -> Vec<Fault> {
    let fault = |code, seen: String, remedy| Fault { code, seen, remedy };
    let mut faults = installed(image, tree);
    for line in &image.configuration_faults {
        let remedy = tree.ourselves("config check");
        faults.push(fault(FaultCode::ConfigurationFaults, line.clone(), remedy));
    }
    for file in &image.machine_ids {
        if !NO_MACHINE_ID.contains(&file.text.as_str()) {
            let seen = format!("{} contains an ID", file.place);
            faults.push(fault(FaultCode::MachineId, seen, blank(file, tree)));
        }
    }
    if let Some(file) = &image.hostname
        && let Some(name) = effective_hostname(&file.text)
        && !is_unowned(name, &image.default_hostnames)
    {
        let seen = format!("{} says {name}", file.place);
        faults.push(fault(FaultCode::Hostname, seen, blank(file, tree)));
    }
    for pinned in &image.pinned {
        let seen = format!(
            "`{}` in {} line {}",
            pinned.key,
            pinned.path.display(),
            pinned.line
        );
        let remedy = tree.comment_out(&pinned.path, pinned.line);
        faults.push(fault(FaultCode::ConfigurationOfOneVm, seen, remedy));
    }
    for (place, setting) in &image.unshareable {
        let code = match setting.matter {
            Matter::Secret | Matter::SecretFile(_) => FaultCode::ClusterToken,
            Matter::NodeName => FaultCode::NodeNameBaked,
            Matter::Topology => FaultCode::TopologyLabelBaked,
        };
        let seen = format!("`{}` in {place}", setting.key);
        // If one setting requires the removal of its file, the commands for the other settings would not find the file.
        let is_removed = image
            .unshareable
            .iter()
            .any(|(other, setting)| other == place && setting.form == Form::Other);
        let remedy = match is_removed {
            true => tree.remove(&[&place.path]),
            false => take_out(setting, place, tree),
        };
        faults.push(fault(code, seen, remedy));
    }
    for code in FaultCode::ALL {
        let traces = image.traces.iter().filter(|trace| trace.code == *code);
        let places: Vec<&ImagePlace> = traces.map(|trace| &trace.place).collect();
        if !places.is_empty() {
            let paths: Vec<&Path> = places.iter().map(|place| place.path.as_path()).collect();
            faults.push(fault(*code, names(&places), tree.remove(&paths)));
        }
    }
    for unreadable in &image.unreadable {
        // A check as root only helps if access was denied; for other errors, the advice would repeat indefinitely.
        let remedy = match unreadable.is_denied {
            true => tree.check_as_root(),
            false => tree.correct_or_remove(&unreadable.path),
        };
        faults.push(fault(
            FaultCode::Unreadable,
            unreadable.line.clone(),
            remedy,
        ));
    }
    faults.sort_by_key(|fault| fault.code);
    faults
}

/// Returns the command that empties a file, or removes a link: the target may be used elsewhere.
fn blank(file: &ImageTextFile, tree: &ImageTree) -> String {
    // dbus-daemon rejects an empty ID, and dbus-uuidgen creates a missing one; systemd initializes an empty one.
    let is_of_dbus = file.place.path.ends_with("dbus/machine-id");
    match &file.place.leads_to {
        None if !is_of_dbus => tree.empty(&file.place.path),
        _ => tree.remove(&[&file.place.path]),
    }
}

/// Returns the command that removes a setting from its file, or the file if a part of the setting could remain.
fn take_out(setting: &Unshareable, place: &ImagePlace, tree: &ImageTree) -> String {
    let (file, key) = (place.target(), setting.key.as_str());
    match &setting.form {
        Form::YamlLine => tree.delete_yaml(file, key),
        Form::YamlItems { labels, is_all } => {
            tree.delete_items(file, labels, is_all.then_some(key))
        }
        Form::VariableLine => tree.delete_variable(file, key),
        Form::Flag { old, new } => tree.replace(file, old, new),
        Form::Other => tree.remove(&[&place.path]),
    }
}

/// Checks the programs that each machine needs.
fn installed(image: &Image, tree: &ImageTree) -> Vec<Fault> {
    let agent = service(
        &image.agent,
        [
            FaultCode::AgentMissing,
            FaultCode::AgentMasked,
            FaultCode::AgentNotEnabled,
        ],
        ["/usr/bin/harvester-node-agent", "harvester-node-agent"],
        tree.install_ourselves(image.family),
        tree,
    );
    let guest_agent = service(
        &image.guest_agent,
        [
            FaultCode::GuestAgentMissing,
            FaultCode::GuestAgentMasked,
            FaultCode::GuestAgentNotEnabled,
        ],
        ["/usr/bin/qemu-ga or /usr/sbin/qemu-ga", "qemu-guest-agent"],
        tree.install_guest_agent(image.family),
        tree,
    );
    agent.into_iter().chain(guest_agent).collect()
}

/// Returns the first problem of a service.
fn service(
    service: &Service,
    [missing, masked, not_enabled]: [FaultCode; 3],
    [program, name]: [&str; 2],
    install: String,
    tree: &ImageTree,
) -> Option<Fault> {
    let fault = |code, seen, remedy| Some(Fault { code, seen, remedy });
    if !service.has_program {
        return fault(missing, format!("{program} is missing"), install);
    }
    let Some(unit) = &service.unit else {
        return fault(missing, format!("the unit of {name} is missing"), install);
    };
    if unit.is_masked {
        let seen = format!("{} is masked", unit.name);
        return fault(masked, seen, tree.systemctl("unmask", &unit.name));
    }
    if unit.enablement == Enablement::Disabled {
        let seen = format!("{} is disabled", unit.name);
        return fault(not_enabled, seen, tree.systemctl("enable", &unit.name));
    }
    None
}

/// Reports whether a hostname is not unique to a machine, or a template that gives each machine another one.
fn is_unowned(name: &str, defaults: &[String]) -> bool {
    ANONYMOUS.contains(&name)
        || is_hostname_template(name)
        || defaults.iter().any(|default| default == name)
}

fn names(places: &[&ImagePlace]) -> String {
    let named: Vec<String> = places
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    let rest = match places.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &rest
}
