// SPDX-License-Identifier: Apache-2.0
//! Reads what may contradict us: taint and addresses of the Node, interfaces of the VM's instance and of this machine, zones of
//! the hosts.

use super::Given;
use crate::facts::examination::conflicts::Conflicts;
use crate::facts::{Why, WhyKind};

/// Reads them.
pub(super) async fn read(_: &Given<'_>) -> Conflicts {
    Conflicts::unseen(&Why::new(
        WhyKind::NotAsked,
        "this version does not look at it",
    ))
}
