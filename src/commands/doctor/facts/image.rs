// SPDX-License-Identifier: Apache-2.0
//! Data from the image that must be unique to one machine, and whether the agent starts at boot. Only those checks of `bake-check`
//! that are useful on a running machine.

use std::path::PathBuf;

use super::Gap;
use crate::catalog::Group;
use crate::commands::bake_check::facts::UnitFile;
use crate::facts::guest_agent::Enablement;
use crate::facts::{Fact, Unavailable};

/// The data that the image may have brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The time of the first run of cloud-init on this machine, in seconds since 1970. Absent if it did not run.
    pub began: Fact<i64>,
    /// The files that must be unique to one machine.
    pub belongings: Fact<Vec<Belonging>>,
    /// The unit of the agent. Absent if it is not installed, as in a test tree.
    pub unit: Fact<UnitFile>,
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
    /// Creates facts that are all unavailable for the same reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            began: Fact::Failed(why.clone()),
            belongings: Fact::Failed(why.clone()),
            unit: Fact::Failed(why.clone()),
        }
    }

    /// Returns the checks that could not be done.
    pub fn gaps(&self) -> Vec<Gap> {
        let group = Group::Image;
        let gaps = [
            Gap::of(group, "the first boot of this VM", &self.began),
            Gap::of(
                group,
                "machine-specific state from the image",
                &self.belongings,
            ),
            Gap::of(group, "the unit of the agent", &self.unit),
        ];
        gaps.into_iter().flatten().collect()
    }

    /// Reports whether the agent starts at the next boot, if known.
    pub fn starts_agent(&self) -> Option<bool> {
        let unit = self.unit.known()?;
        Some(!unit.is_masked && unit.enablement != Enablement::Disabled)
    }
}
