// SPDX-License-Identifier: Apache-2.0
//! Reads the NICs of this machine.

use crate::facts::Fact;
use crate::facts::nic::Nic;
use crate::sys::root::Root;
use crate::wire::netlink::inventory::read_nics;

/// Reads the NICs that have a device.
pub fn read(root: &Root) -> Fact<Vec<Nic>> {
    match read_nics(root) {
        Ok(nics) if nics.is_empty() => Fact::Absent,
        Ok(nics) => Fact::Known(nics),
        Err(error) => error.into(),
    }
}
