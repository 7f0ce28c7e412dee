// SPDX-License-Identifier: Apache-2.0
//! Reads the NICs of this machine.

use std::collections::BTreeSet;

use crate::facts::Fact;
use crate::facts::nic::{Mac, Nic};
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

/// Returns the permanent hardware addresses: those that can identify the machine.
pub fn addresses(nics: &Fact<Vec<Nic>>) -> Fact<BTreeSet<Mac>> {
    match nics {
        Fact::Known(nics) => {
            let mut addresses = BTreeSet::new();
            addresses.extend(nics.iter().filter_map(|nic| nic.address));
            if addresses.is_empty() {
                Fact::Absent
            } else {
                Fact::Known(addresses)
            }
        }
        Fact::Absent => Fact::Absent,
        Fact::Failed(why) => Fact::Failed(why.clone()),
    }
}
