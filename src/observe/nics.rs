// SPDX-License-Identifier: Apache-2.0
//! Reads the NICs of this machine.

use std::collections::BTreeSet;

use super::machine::failed;
use crate::facts::Seen;
use crate::facts::machine::Mac;
use crate::facts::nic::Nic;
use crate::sys::root::Root;
use crate::wire::netlink::inventory::read_nics;

/// The NICs with a device behind them.
pub fn read(root: &Root) -> Seen<Vec<Nic>> {
    match read_nics(root) {
        Ok(nics) if nics.is_empty() => Seen::Absent,
        Ok(nics) => Seen::Known(nics),
        Err(error) => failed(&error),
    }
}

/// The addresses that belong to their hardware: those that can identify the machine.
pub fn addresses(nics: &Seen<Vec<Nic>>) -> Seen<BTreeSet<Mac>> {
    match nics {
        Seen::Known(nics) => {
            let addresses: BTreeSet<Mac> = nics.iter().filter_map(|nic| nic.address).collect();
            if addresses.is_empty() {
                Seen::Absent
            } else {
                Seen::Known(addresses)
            }
        }
        Seen::Absent => Seen::Absent,
        Seen::Failed(why) => Seen::Failed(why.clone()),
    }
}
