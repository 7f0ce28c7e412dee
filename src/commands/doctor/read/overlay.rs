// SPDX-License-Identifier: Apache-2.0
//! Reads the MTUs of the VXLAN interfaces of Flannel and Calico, and of the NICs below them.
//!
//! Interfaces of other kinds are left out: those of Cilium and Open vSwitch have an MTU that their packets do not reach, and the
//! kernel does not name the NIC below a WireGuard interface.

use std::path::Path;

use crate::commands::doctor::facts::system::Overlay;
use crate::facts::Fact;
use crate::sys::root::Root;

/// The sysfs directory of the interfaces.
const CLASS: &str = "/sys/class/net";

/// The maximum size of a file, in bytes. Every file has a few short lines.
const FILE_MAX: u64 = 4096;

/// The start of the name of the link to the interface below (Linux 5.5 and later for VXLAN).
const LOWER: &str = "lower_";

/// What VXLAN adds to a packet, in bytes: 8 and an Ethernet header of 14, a UDP header of 8, and an IPv4 header of 20.
const IPV4: u32 = 50;

/// The same with an IPv6 header of 40.
const IPV6: u32 = 70;

/// Reads all. Absent if there is no such interface.
pub(super) fn read(root: &Root) -> Fact<Vec<Overlay>> {
    let names = match root.list(CLASS) {
        Ok(names) => names,
        Err(error) => return error.into(),
    };
    let names = names.iter().filter_map(|name| name.to_str());
    let found: Vec<Overlay> = names.filter_map(|name| overlay(root, name)).collect();
    match found.is_empty() {
        true => Fact::Absent,
        false => Fact::Known(found),
    }
}

fn overlay(root: &Root, name: &str) -> Option<Overlay> {
    let overhead = overhead(name)?;
    let place = Path::new(CLASS).join(name);
    let kind = root.read_text(place.join("uevent"), FILE_MAX).ok()?;
    if !kind.lines().any(|line| line == "DEVTYPE=vxlan") {
        return None;
    }
    let links = root.list(&place).ok()?;
    let mut links = links.iter().filter_map(|link| link.to_str());
    let nic = links.find_map(|link| link.strip_prefix(LOWER))?;
    Some(Overlay {
        mtu: mtu(root, name)?,
        overhead,
        nic_mtu: mtu(root, nic)?,
        nic: nic.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns the overhead of an interface by its name, which the CNI plugin sets.
fn overhead(name: &str) -> Option<u32> {
    let is_numbered = |prefix| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number: &str| number.parse::<u32>().is_ok())
    };
    match name {
        "vxlan.calico" => Some(IPV4),
        "vxlan-v6.calico" => Some(IPV6),
        _ if is_numbered("flannel.") => Some(IPV4),
        _ if is_numbered("flannel-v6.") => Some(IPV6),
        _ => None,
    }
}

fn mtu(root: &Root, name: &str) -> Option<u32> {
    let path = Path::new(CLASS).join(name).join("mtu");
    root.read_text(path, FILE_MAX).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_vxlan_interfaces_whose_nic_is_known_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let add = |name: &str, kind: &str, mtu: &str, lower: Option<&str>| {
            let place = root.join(Path::new(CLASS).join(name));
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("mtu"), mtu).unwrap();
            std::fs::write(place.join("uevent"), format!("DEVTYPE={kind}\n")).unwrap();
            if let Some(lower) = lower {
                let link = place.join(format!("{LOWER}{lower}"));
                std::os::unix::fs::symlink(format!("../{lower}"), link).unwrap();
            }
        };
        assert_eq!(read(&root).known(), None);
        add("eth0", "none", "1400\n", None);
        for (name, kind, lower) in [
            ("flannel.1", "bridge", Some("eth0")),
            ("flannel.x", "vxlan", Some("eth0")),
            ("vxlan.calico", "vxlan", None),
            ("cilium_vxlan", "vxlan", Some("eth0")),
            ("flannel-wg", "wireguard", Some("eth0")),
        ] {
            add(name, kind, "1450\n", lower);
        }
        assert_eq!(read(&root), Fact::Absent);
        add("flannel.2", "vxlan", "1450\n", Some("eth0"));
        add("vxlan-v6.calico", "vxlan", "1330\n", Some("eth0"));
        let found = read(&root);
        let found: Vec<_> = found.known().unwrap().iter().collect();
        let of = |one: &Overlay| (one.name.clone(), one.mtu, one.overhead, one.nic_mtu);
        assert_eq!(of(found[0]), ("flannel.2".to_owned(), 1450, 50, 1400));
        assert_eq!(of(found[1]), ("vxlan-v6.calico".to_owned(), 1330, 70, 1400));
        assert_eq!(found.len(), 2);
    }
}
