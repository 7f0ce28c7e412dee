// SPDX-License-Identifier: Apache-2.0
//! Data from the image that must be unique to one machine, and whether the agent starts at boot. Only those checks of `bake-check`
//! that are useful on a running machine.

use std::path::PathBuf;

use crate::commands::bake_check::unit::UnitFile;
use crate::facts::guest_agent::Enablement;

facts! {
    /// The data that the image may have brought.
    Image {
        /// The time of the first run of cloud-init on this machine, in seconds since 1970. Absent if it did not run.
        began: i64, Image, "the first boot of this VM";
        /// The files that must be unique to one machine.
        belongings: Vec<Belonging>, Image, "machine-specific state from the image";
        /// The unit of the agent. Absent if it is not installed, as in a test tree.
        unit: UnitFile, Image, "the unit of the agent";
    }
}

/// A file that must be unique to one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belonging {
    /// The path.
    pub path: PathBuf,
    /// The modification time, in seconds since 1970.
    pub written: i64,
}

impl Image {
    /// Reports whether the agent starts at the next boot, if known.
    pub fn starts_agent(&self) -> Option<bool> {
        let unit = self.unit.known()?;
        Some(!unit.is_masked && unit.enablement != Enablement::Disabled)
    }
}
