// SPDX-License-Identifier: Apache-2.0
//! The clock: with a wrong clock, a valid certificate looks expired. The clocks of the servers are in `servers`.

use super::Gap;
use crate::catalog::Group;
use crate::facts::{Fact, Unavailable};

/// The clock of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockFacts {
    /// Whether the kernel clock is synchronized (`adjtimex(2)`, `STA_UNSYNC` not set).
    pub synchronized: Fact<bool>,
}

impl ClockFacts {
    /// Creates facts that are all unavailable for the same reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            synchronized: Fact::Failed(why.clone()),
        }
    }

    /// Returns the checks that could not be done.
    pub fn gaps(&self) -> Vec<Gap> {
        let gap = Gap::of(
            Group::Machine,
            "clock synchronization (NTP)",
            &self.synchronized,
        );
        gap.into_iter().collect()
    }
}
