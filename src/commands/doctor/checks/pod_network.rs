// SPDX-License-Identifier: Apache-2.0
//! Do packets of the pod network fit the NIC, and can the cloud provider create load balancers with DHCP?
//!
//! The MTUs are those of the VXLAN interfaces of Flannel and Calico. Interfaces of other kinds are left out: those of Cilium and Open
//! vSwitch have an MTU that their packets do not reach, and the kernel does not name the NIC below a WireGuard interface.

use std::path::Path;

use crate::catalog::{Code, CommandPlace, Finding, Group};
use crate::commands::doctor::case::{Case, Checked, finding};
use crate::commands::doctor::reads::Reads;
use crate::facts::Fact;
use crate::sys::escape::shell_word;
use crate::sys::root::Root;

/// The sysfs directory of the interfaces.
const CLASS: &str = "/sys/class/net";

/// The maximum size of a short file of the kernel, in bytes.
const FILE_MAX: u64 = 4096;

/// The maximum size of a list of modules, in bytes; that of a distribution's kernel has less than 1 MB.
const MODULES_MAX: u64 = 8 << 20;

/// The start of the name of the link to the interface below (Linux 5.5 and later for VXLAN).
const LOWER: &str = "lower_";

/// What VXLAN adds to a packet, in bytes: 8 and an Ethernet header of 14, a UDP header of 8, and an IPv4 header of 20.
const IPV4: u32 = 50;

/// The same with an IPv6 header of 40.
const IPV6: u32 = 70;

/// A VXLAN interface of Flannel or Calico, and the NIC that sends its packets. The MTUs are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Overlay {
    name: String,
    mtu: u32,
    /// What the encapsulation adds to a packet, in bytes.
    overhead: u32,
    nic: String,
    nic_mtu: u32,
}

/// Reads the interfaces and the modules of the kernel.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let overlays = overlays(reads.observer.root());
    let overlays = checked.need(Group::Node, "the MTUs of the pod network", &overlays);
    checked.findings.extend(overlays.and_then(|all| mtu(all)));
    let has_macvlan = has_macvlan(reads.observer.root());
    let has_macvlan = checked.need(Group::Node, "the modules of the kernel", &has_macvlan);
    let finding = has_macvlan.and_then(|has_macvlan| macvlan(&reads.case, *has_macvlan));
    checked.findings.extend(finding);
}

fn overlays(root: &Root) -> Fact<Vec<Overlay>> {
    Fact::from(root.list(CLASS)).map(|names| {
        let names = names.iter().filter_map(|name| name.to_str());
        let overlays = names.filter_map(|name| overlay(root, name));
        overlays.collect()
    })
}

fn overlay(root: &Root, name: &str) -> Option<Overlay> {
    let is_numbered = |prefix| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let overhead = match name {
        "vxlan.calico" => IPV4,
        "vxlan-v6.calico" => IPV6,
        _ if is_numbered("flannel.") => IPV4,
        _ if is_numbered("flannel-v6.") => IPV6,
        _ => return None,
    };
    let place = Path::new(CLASS).join(name);
    let kind = root.read_text(place.join("uevent"), FILE_MAX).ok()?;
    if !kind.lines().any(|line| line == "DEVTYPE=vxlan") {
        return None;
    }
    let links = root.list(&place).ok()?;
    let mut links = links.iter().filter_map(|link| link.to_str());
    let nic = links.find_map(|link| link.strip_prefix(LOWER))?;
    let mtu = |name: &str| -> Option<u32> {
        let path = Path::new(CLASS).join(name).join("mtu");
        root.read_text(path, FILE_MAX).ok()?.trim().parse().ok()
    };
    Some(Overlay {
        mtu: mtu(name)?,
        overhead,
        nic_mtu: mtu(nic)?,
        nic: nic.to_owned(),
        name: name.to_owned(),
    })
}

/// Reports whether the running kernel has macvlan as a module or built in. Absent if its list of modules does not exist.
fn has_macvlan(root: &Root) -> Fact<bool> {
    let release = match root.read_text("/proc/sys/kernel/osrelease", FILE_MAX) {
        Ok(release) => release,
        Err(error) => return error.into(),
    };
    let modules = Path::new("/lib/modules").join(release.trim());
    let mut found = Fact::Absent;
    for list in ["modules.dep", "modules.builtin"] {
        match root.read_text(modules.join(list), MODULES_MAX) {
            Ok(text) if text.contains("/macvlan.ko") => return Fact::Known(true),
            Ok(_) => found = Fact::Known(false),
            Err(error) if error.is_absent() => {}
            Err(error) => return error.into(),
        }
    }
    found
}

/// Returns a finding if packets of the pod network do not fit the NIC. The kernel refuses such an MTU, but does not reduce it after
/// that of the NIC.
fn mtu(overlays: &[Overlay]) -> Option<Finding> {
    let is_too_large = |one: &&Overlay| one.mtu.saturating_add(one.overhead) > one.nic_mtu;
    let too_large = overlays.iter().filter(is_too_large);
    let (mut texts, mut commands) = (Vec::new(), Vec::new());
    for one in too_large {
        let (name, nic) = (one.name.escape_debug(), one.nic.escape_debug());
        let fitting = one.nic_mtu.saturating_sub(one.overhead);
        texts.push(format!(
            "{name} has MTU {}, its NIC {nic} has {}: at most {fitting} fits",
            one.mtu, one.nic_mtu
        ));
        let name = shell_word(&one.name);
        commands.push(format!("ip link set dev {name} mtu {fitting}"));
    }
    let with = |finding: Finding, command| finding.and_command(CommandPlace::Vm, command);
    let finding = finding(Code::OverlayMtuTooLarge, &texts)?;
    Some(commands.into_iter().fold(finding, with))
}

/// Returns a finding if Harvester's cloud provider cannot create load balancers with DHCP.
fn macvlan(case: &Case<'_>, has_macvlan: bool) -> Option<Finding> {
    let is_missed = !has_macvlan && case.asks_for_cloud_provider();
    is_missed.then(|| Finding::new(Code::MacvlanMissing, "neither a module nor built in"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{tree, write as put};
    use crate::commands::doctor::testing::Bench;

    #[test]
    fn only_vxlan_interfaces_whose_nic_is_known_are_read() {
        let (_dir, root) = tree();
        let add = |name: &str, kind: &str, mtu: &str, lower: Option<&str>| {
            let place = Path::new(CLASS).join(name);
            put(&root, place.join("mtu"), mtu);
            put(&root, place.join("uevent"), &format!("DEVTYPE={kind}\n"));
            if let Some(lower) = lower {
                let link = root.join(place.join(format!("{LOWER}{lower}")));
                std::os::unix::fs::symlink(format!("../{lower}"), link).unwrap();
            }
        };
        assert_eq!(overlays(&root), Fact::Absent);
        add("eth0", "none", "1400\n", None);
        add("flannel.1", "bridge", "1450\n", Some("eth0"));
        add("flannel.x", "vxlan", "1450\n", Some("eth0"));
        add("vxlan.calico", "vxlan", "1450\n", None);
        add("cilium_vxlan", "vxlan", "1450\n", Some("eth0"));
        add("flannel-wg", "wireguard", "1450\n", Some("eth0"));
        assert_eq!(overlays(&root), Fact::Known(vec![]));
        add("flannel.2", "vxlan", "1450\n", Some("eth0"));
        add("vxlan-v6.calico", "vxlan", "1330\n", Some("eth0"));
        let overlay = |name: &str, mtu, overhead| Overlay {
            name: name.to_owned(),
            mtu,
            overhead,
            nic: "eth0".to_owned(),
            nic_mtu: 1400,
        };
        let (v4, v6) = (
            overlay("flannel.2", 1450, 50),
            overlay("vxlan-v6.calico", 1330, 70),
        );
        assert_eq!(overlays(&root), Fact::Known(vec![v4, v6]));
        assert_eq!(mtu(&[overlay("flannel.1", 1350, 50)]), None);
        let found = mtu(&[overlay("flannel.1", 1351, 50)]).unwrap();
        let text = "flannel.1 has MTU 1351, its NIC eth0 has 1400: at most 1350 fits";
        assert_eq!(found.seen, text);
    }

    #[test]
    fn macvlan_is_looked_for_in_the_modules_of_the_running_kernel() {
        let (_dir, root) = tree();
        put(&root, "/proc/sys/kernel/osrelease", "6.12.0-default\n");
        assert_eq!(has_macvlan(&root), Fact::Absent);
        for (module, is_macvlan) in [("dummy", false), ("macvlan", true)] {
            let text = format!("kernel/drivers/net/{module}.ko.xz:\n");
            put(&root, "/lib/modules/6.12.0-default/modules.dep", &text);
            assert_eq!(has_macvlan(&root), Fact::Known(is_macvlan));
        }
    }

    #[test]
    fn a_kernel_without_macvlan_matters_with_harvesters_cloud_provider() {
        let mut bench = Bench::new();
        let is_found = |bench: &Bench, has| bench.ask(|case| macvlan(case, has)).is_some();
        assert!(is_found(&bench, false) && !is_found(&bench, true));
        bench.world.observation.distributions.clear();
        assert!(!is_found(&bench, false));
    }
}
