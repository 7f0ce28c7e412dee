// SPDX-License-Identifier: Apache-2.0
//! What did the image bring that belongs to one machine, and does it start the agent? Of what `bake-check` looks for, only
//! what tells something on a machine that runs.

use std::path::PathBuf;

use super::Gap;
use crate::catalogue::Group;
use crate::commands::bake_check::facts::UnitFile;
use crate::facts::guest_agent::Enablement;
use crate::facts::{Fact, Unavailable};

/// What the image brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// When cloud-init first ran on this machine, in seconds since 1970. Absent where it did not.
    pub began: Fact<i64>,
    /// What only one machine may have and that is here.
    pub belongings: Fact<Vec<Belonging>>,
    /// The unit of the agent itself. Absent where none is installed, as in a tree for tests.
    pub unit: Fact<UnitFile>,
}

/// A thing that only one machine may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belonging {
    /// Where.
    pub path: PathBuf,
    /// When it was written, in seconds since 1970.
    pub written: i64,
}

impl Image {
    /// None of it, for one reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            began: Fact::Failed(why.clone()),
            belongings: Fact::Failed(why.clone()),
            unit: Fact::Failed(why.clone()),
        }
    }

    /// What could not be checked.
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

    /// Whether the next boot starts the agent, where that is known.
    pub fn starts_agent(&self) -> Option<bool> {
        let unit = self.unit.known()?;
        Some(!unit.is_masked && unit.enablement != Enablement::Disabled)
    }
}
