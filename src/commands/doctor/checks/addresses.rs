// SPDX-License-Identifier: Apache-2.0
//! Do the Node, the VM in Harvester and this machine have the same addresses?

use core::net::IpAddr;

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::case::{Case, Checked, finding};
use crate::commands::doctor::objects::{Instance, Interface, NodeObject};
use crate::commands::doctor::reads::Reads;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::root::Root;
use crate::wire::netlink::addresses::list_addresses;

/// The addresses according to each; `None` if unknown.
#[derive(Debug, Clone, Default)]
struct Addresses {
    /// Those of the Node with type `InternalIP`.
    node: Option<Vec<IpAddr>>,
    /// Those in Harvester from the guest agent.
    harvester: Option<Vec<Interface>>,
    /// Those of this machine.
    machine: Option<Vec<Interface>>,
}

/// Compares the addresses of all three.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let machine = addresses(reads.observer.root());
    let machine = checked.need(Group::Machine, "the addresses of this VM", &machine);
    let addresses = Addresses {
        node: reads.node.known().map(NodeObject::internal_ips),
        harvester: reads.instance.known().map(Instance::interfaces),
        machine: machine.cloned(),
    };
    checked.findings.extend(judge(&reads.case, &addresses));
}

/// Reads the addresses from the running kernel; a file tree has none.
fn addresses(root: &Root) -> Fact<Vec<Interface>> {
    if !root.is_live() {
        return Fact::failed(UnavailableKind::NotAsked, "a file tree has no addresses");
    }
    let interface = |(name, addresses)| Interface { name, addresses };
    match list_addresses() {
        Ok(interfaces) => Fact::Known(interfaces.into_iter().map(interface).collect()),
        Err(error) => {
            let text = format!("failed to list the addresses of this node: {error}");
            Fact::failed(UnavailableKind::Forbidden, text)
        }
    }
}

fn judge(case: &Case<'_>, addresses: &Addresses) -> Option<Finding> {
    let node = addresses.node.as_ref()?;
    if node.is_empty() {
        let text = format!(
            "{}; {}",
            of_harvester(addresses),
            of_machine(case, addresses)
        );
        return Some(Finding::new(Code::InternalIpMissing, text));
    }
    let differing = [
        stale_on_node(case, addresses, node),
        stale_on_harvester(case, addresses),
    ];
    let differing: Vec<String> = differing.into_iter().flatten().collect();
    finding(Code::AddressDiffers, &differing)
}

/// Returns the addresses of the Node that this machine does not have. If those of this machine are unknown, Harvester's from the
/// guest agent are used instead.
fn stale_on_node(case: &Case<'_>, addresses: &Addresses, node: &[IpAddr]) -> Option<String> {
    let (known, reported) = match (&addresses.machine, &addresses.harvester) {
        (Some(machine), _) => (all(machine), of_machine(case, addresses)),
        (None, Some(interfaces)) => (all(interfaces), of_harvester(addresses)),
        (None, None) => return None,
    };
    let stale = node.iter().filter(|address| !known.contains(address));
    let stale: Vec<IpAddr> = stale.copied().collect();
    // The interfaces of the VM have no address until the guest agent reports them.
    if stale.is_empty() || known.is_empty() {
        return None;
    }
    let stale = join(&stale);
    Some(format!("the Node has InternalIP {stale}, {reported}"))
}

/// Returns the addresses in Harvester that this machine does not have.
fn stale_on_harvester(case: &Case<'_>, addresses: &Addresses) -> Option<String> {
    let machine = all(addresses.machine.as_ref()?);
    // One correct address is sufficient: temporary and virtual ones change between two reports of the guest agent.
    let is_stale = |interface: &&Interface| {
        let mut own = all([*interface]).into_iter();
        own.all(|address| !machine.contains(&address))
    };
    let stale = all(addresses.harvester.iter().flatten().filter(is_stale));
    if stale.is_empty() || machine.is_empty() {
        return None;
    }
    let (stale, machine) = (join(&stale), of_machine(case, addresses));
    Some(format!("Harvester has {stale}, {machine}"))
}

/// Returns all addresses except link-local ones, which no Node has.
fn all<'a>(interfaces: impl IntoIterator<Item = &'a Interface>) -> Vec<IpAddr> {
    let interfaces = interfaces.into_iter();
    let addresses = interfaces.flat_map(|interface| &interface.addresses);
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let kept = addresses.filter(|address| !is_link_local(address));
    kept.copied().collect()
}

fn of_harvester(addresses: &Addresses) -> String {
    match addresses.harvester.as_ref().map(all) {
        None => "the addresses in Harvester are unknown".to_owned(),
        Some(addresses) if addresses.is_empty() => {
            "Harvester has no address of the VM from qemu-guest-agent".to_owned()
        }
        Some(addresses) => format!("Harvester has {}", join(&addresses)),
    }
}

/// Returns the addresses of the NICs with a device; if they have none, as below a bond, those of all interfaces.
fn of_machine(case: &Case<'_>, addresses: &Addresses) -> String {
    let Some(interfaces) = &addresses.machine else {
        return "the addresses of this VM are unknown".to_owned();
    };
    let nics = case.observation.machine.nics.known();
    let is_nic = |interface: &&Interface| {
        let mut nics = nics.into_iter().flatten();
        nics.any(|nic| nic.name == interface.name)
    };
    let mut shown: Vec<&Interface> = interfaces.iter().filter(is_nic).collect();
    if shown.is_empty() {
        shown = interfaces.iter().collect();
    }
    let texts = shown.iter().map(|interface| {
        let name = interface.name.escape_debug();
        format!("{name} {}", join(&interface.addresses))
    });
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() {
        return "this VM has no address".to_owned();
    }
    format!("this VM has {}", texts.join(", "))
}

fn join(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::testing::Bench;

    /// Returns interfaces, each its name and addresses, unless the line is `unknown`.
    fn interfaces(line: &str) -> Option<Vec<Interface>> {
        let interface = |text: &str| {
            let (name, addresses) = text.split_once(' ').unwrap_or((text, ""));
            let addresses = addresses.split_whitespace();
            Interface {
                name: name.to_owned(),
                addresses: addresses.map(|text| text.parse().unwrap()).collect(),
            }
        };
        (line != "unknown").then(|| line.split(", ").map(interface).collect())
    }

    /// The file has the addresses of the Node, of the VM in Harvester and of this machine, and what is found.
    #[test]
    fn addresses_that_differ_are_found_unless_they_may_be_temporary() {
        let file = "src/commands/doctor/checks/addresses.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let lines: Vec<_> = case.lines().map(interfaces).collect();
            let [node, harvester, machine] = <[_; 3]>::try_from(lines).unwrap();
            let node = node.map(|all| all.into_iter().flat_map(|one| one.addresses).collect());
            let addresses = Addresses {
                node,
                harvester,
                machine,
            };
            let judge = |case: &Case<'_>| Vec::from_iter(judge(case, &addresses));
            Bench::new().texts(judge).join("\n")
        });
    }
}
