// SPDX-License-Identifier: Apache-2.0
//! The NICs of this machine: from the kernel itself, and in a tree or a sandbox without netlink from sysfs.

use std::path::Path;

use super::message::Link;
use super::socket::list_links;
use crate::facts::machine::Mac;
use crate::facts::nic::{Announce, Nic};
use crate::sys::root::{ReadError, Root};

/// Where sysfs shows each link.
const CLASS: &str = "/sys/class/net";

/// Every file that is read here is one short line.
const LINE_MAX: u64 = 4096;

/// `addr_assign_type` of an address that belongs to the hardware (`NET_ADDR_PERM`, `include/uapi/linux/netdevice.h`).
const ADDRESS_PERMANENT: &str = "0";

/// The bus of virtio devices, whatever carries it: PCI, MMIO or a channel.
pub const VIRTIO: &str = "virtio";

/// The NICs with a device behind them, in the kernel's order. CNI devices (veth, `cali*`, `flannel.*`, bridges) have none,
/// nor have a VLAN, a bond or a macvlan on top of a NIC.
///
/// # Errors
///
/// When neither netlink nor sysfs tells.
pub fn read_nics(root: &Root) -> Result<Vec<Nic>, ReadError> {
    let links = match root.is_live().then(list_links) {
        Some(Ok(links)) => links,
        _ => root.list(CLASS)?.iter().map(named).collect(),
    };
    Ok(links
        .into_iter()
        .filter_map(|link| nic(root, link))
        .collect())
}

fn named(name: &std::ffi::OsString) -> Link {
    Link {
        name: name.to_string_lossy().into_owned(),
        ..Link::default()
    }
}

/// What the link is, completed with what only sysfs tells.
fn nic(root: &Root, link: Link) -> Option<Nic> {
    if link.kind.is_some() {
        return None;
    }
    let place = Path::new(CLASS).join(&link.name);
    let line = |file: &str| root.read_text(place.join(file), LINE_MAX).ok();
    if link.bus.is_none() && !root.exists(place.join("device")) {
        return None;
    }
    let is_virtio = link.bus.or_else(|| bus_of(root, &link.name)).as_deref() == Some(VIRTIO);
    let announce = match line("device/features") {
        _ if !is_virtio => Announce::NotVirtio,
        Some(features) => Announce::of_features(&features),
        None => Announce::Unknown,
    };
    // Kernels before 5.6 tell it there only.
    let address = link.address.or_else(|| {
        let assigned = line("addr_assign_type");
        let is_permanent = assigned.is_none_or(|kind| kind.trim() == ADDRESS_PERMANENT);
        line("address")
            .filter(|_| is_permanent)
            .as_deref()
            .and_then(Mac::parse)
    });
    Some(Nic {
        address,
        driver: last_name(root, &place.join("device/driver")),
        announce,
        name: link.name,
    })
}

/// The bus of the device behind a link, as sysfs tells it: for kernels whose messages do not, before 5.14.
pub fn bus_of(root: &Root, name: &str) -> Option<String> {
    // A name is one component of a path, and nothing else.
    let name = Path::new(name).file_name().filter(|last| *last == name)?;
    last_name(root, &Path::new(CLASS).join(name).join("device/subsystem"))
}

fn last_name(root: &Root, link: &Path) -> Option<String> {
    let target = root.link_target(link)?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}
