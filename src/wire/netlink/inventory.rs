// SPDX-License-Identifier: Apache-2.0
//! Reads the NICs of this system from sysfs, and from netlink, where that is permitted, what sysfs does not have: the address of the
//! hardware of a NIC whose address was changed.

use std::ffi::OsStr;
use std::path::Path;

use nix::errno::Errno;

use super::message::Link;
use super::socket::read_link;
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

/// Returns the NICs that have a device, sorted by name. CNI devices (veth, `cali*`, `flannel.*`, bridges) have none, and neither do
/// VLANs, bonds and macvlans on top of a NIC.
pub fn read_nics(root: &Root) -> Result<Vec<Nic>, ReadError> {
    let names = root.list(CLASS)?.into_iter();
    Ok(names.filter_map(|name| nic(root, &name)).collect())
}

fn nic(root: &Root, name: &OsStr) -> Option<Nic> {
    let place = Path::new(CLASS).join(name);
    if !root.exists(place.join("device")) {
        return None;
    }
    let link = match root.is_live().then(|| read_link(name)) {
        Some(Ok(link)) if link.kind.is_some() => return None,
        Some(Ok(link)) => link,
        // sysfs may belong to another network namespace.
        Some(Err(error)) if error.raw_os_error() == Some(Errno::ENODEV as i32) => return None,
        _ => Link::default(),
    };
    let line = |file: &str| root.read_text(place.join(file), LINE_MAX).ok();
    let bus = last_name(root, &place.join("device/subsystem"));
    let is_virtio = bus.as_deref() == Some(VIRTIO);
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
        name: name.to_string_lossy().into_owned(),
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
