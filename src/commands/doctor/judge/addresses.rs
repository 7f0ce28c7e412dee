// SPDX-License-Identifier: Apache-2.0
//! Compares the addresses of the Node, of the VM in Harvester, and of this machine.

use core::net::IpAddr;

use super::Case;
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::instance::Interface;

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    let Some(node) = case.examination.node.internal_ips.known() else {
        return Vec::new();
    };
    if node.is_empty() {
        let text = format!("{}; {}", of_harvester(case), of_machine(case));
        return vec![Finding::new(Code::InternalIpMissing, text)];
    }
    let differing: Vec<String> = stale_on_node(case, node)
        .into_iter()
        .chain(stale_on_harvester(case))
        .collect();
    if differing.is_empty() {
        return Vec::new();
    }
    vec![Finding::new(Code::AddressDiffers, differing.join("; "))]
}

/// Returns the addresses of the Node that this machine does not have. If those of this machine are unknown, Harvester's from the
/// guest agent are used instead.
fn stale_on_node(case: &Case<'_>, node: &[IpAddr]) -> Option<String> {
    let machine = case.examination.conflicts.addresses.known();
    let instance = case.examination.conflicts.instance.known();
    let known: Vec<IpAddr> = match (machine, instance) {
        (Some(machine), _) => all(machine),
        (None, Some(instance)) => all(&instance.interfaces),
        (None, None) => return None,
    };
    let stale: Vec<IpAddr> = node
        .iter()
        .copied()
        .filter(|address| !known.contains(address))
        .collect();
    // The interfaces of the VM have no address until the guest agent reports them.
    if stale.is_empty() || known.is_empty() {
        return None;
    }
    let reported = if machine.is_some() {
        of_machine(case)
    } else {
        of_harvester(case)
    };
    Some(format!(
        "the Node has InternalIP {}, {reported}",
        join(&stale)
    ))
}

/// Returns the addresses in Harvester that this machine does not have.
fn stale_on_harvester(case: &Case<'_>) -> Option<String> {
    let machine = all(case.examination.conflicts.addresses.known()?);
    let instance = case.examination.conflicts.instance.known()?;
    // One correct address is sufficient: temporary and virtual ones change between two reports of the guest agent.
    let is_stale = |interface: &&Interface| {
        all([*interface])
            .iter()
            .all(|address| !machine.contains(address))
    };
    let stale = all(instance.interfaces.iter().filter(is_stale));
    if stale.is_empty() || machine.is_empty() {
        return None;
    }
    Some(format!(
        "Harvester has {}, {}",
        join(&stale),
        of_machine(case)
    ))
}

/// Returns all addresses except link-local ones, which no Node has.
fn all<'a>(interfaces: impl IntoIterator<Item = &'a Interface>) -> Vec<IpAddr> {
    let interfaces = interfaces.into_iter();
    let addresses = interfaces.flat_map(|interface| &interface.addresses);
    addresses
        .copied()
        .filter(|address| !is_link_local(address))
        .collect()
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn of_harvester(case: &Case<'_>) -> String {
    let instance = case.examination.conflicts.instance.known();
    match instance.map(|instance| all(&instance.interfaces)) {
        None => "the addresses in Harvester are unknown".to_owned(),
        Some(addresses) if addresses.is_empty() => {
            "Harvester has no address of the VM from qemu-guest-agent".to_owned()
        }
        Some(addresses) => format!("Harvester has {}", join(&addresses)),
    }
}

/// Returns the addresses of the NICs with a device; if they have none, as below a bond, those of all interfaces.
fn of_machine(case: &Case<'_>) -> String {
    let Some(interfaces) = case.examination.conflicts.addresses.known() else {
        return "the addresses of this VM are unknown".to_owned();
    };
    let nics = case.observation.machine.nics.known().map(Vec::as_slice);
    let is_nic = |interface: &&Interface| {
        nics.unwrap_or_default()
            .iter()
            .any(|nic| nic.name == interface.name)
    };
    let mut shown: Vec<&Interface> = interfaces.iter().filter(is_nic).collect();
    if shown.is_empty() {
        shown = interfaces.iter().collect();
    }
    let shown: Vec<String> = shown
        .iter()
        .map(|interface| {
            format!(
                "{} {}",
                interface.name.escape_debug(),
                join(&interface.addresses)
            )
        })
        .collect();
    if shown.is_empty() {
        return "this VM has no address".to_owned();
    }
    format!("this VM has {}", shown.join(", "))
}

fn join(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(" ")
}
