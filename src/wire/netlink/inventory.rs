// SPDX-License-Identifier: Apache-2.0
//! Reads the NICs of this system: from netlink, or, in a tree or a sandbox without netlink, from sysfs.

use std::path::Path;

use super::message::Link;
use super::socket::list_links;
use crate::facts::nic::{Announce, Mac, Nic};
use crate::sys::root::{ReadError, Root};

/// The sysfs directory of the links.
const CLASS: &str = "/sys/class/net";

/// The maximum size of a file, in bytes. Every file that is read here has one short line.
const LINE_MAX: u64 = 4096;

/// The `addr_assign_type` of an address that belongs to the hardware (`NET_ADDR_PERM`, `include/uapi/linux/netdevice.h`).
const ADDRESS_PERMANENT: &str = "0";

/// The bus of virtio devices, whatever their transport: PCI, MMIO or channel I/O.
pub const VIRTIO: &str = "virtio";

/// Returns the NICs that have a device, in the kernel's order. CNI devices (veth, `cali*`, `flannel.*`, bridges) have none,
/// and neither do VLANs, bonds and macvlans on top of a NIC.
///
/// # Errors
///
/// When neither netlink nor sysfs lists them.
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

/// Converts a link to a NIC, with the properties that only sysfs has.
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
    // Kernels before 5.6 report it only there.
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

/// Returns the bus of the device of a link from sysfs: for kernels before 5.14, whose messages do not include it.
pub fn bus_of(root: &Root, name: &str) -> Option<String> {
    // A name must be a single component of a path.
    let name = Path::new(name).file_name().filter(|last| *last == name)?;
    last_name(root, &Path::new(CLASS).join(name).join("device/subsystem"))
}

fn last_name(root: &Root, link: &Path) -> Option<String> {
    let target = root.link_target(link)?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}
