// SPDX-License-Identifier: Apache-2.0
//! What did the image bring that belongs to one machine? Of what `bake-check` looks for, only what tells something on a
//! machine that runs.

use super::Gap;
use crate::facts::{Seen, Why};
use crate::findings::Group;

/// What the image brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The machine-id of the image, where this machine still has it: machines of one image are then one to DHCP and to the
    /// journal. Absent where it was made on this machine.
    pub machine_id: Seen<String>,
}

impl Image {
    /// None of it, for one reason.
    pub fn unseen(why: &Why) -> Self {
        Self {
            machine_id: Seen::Failed(why.clone()),
        }
    }

    /// What could not be looked at.
    pub fn gaps(&self) -> Vec<Gap> {
        let gap = Gap::of(
            Group::Image,
            "whether the machine-id is the image's",
            &self.machine_id,
        );
        gap.into_iter().collect()
    }
}
