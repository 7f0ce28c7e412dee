// SPDX-License-Identifier: Apache-2.0
//! Can the clock be believed? A wrong clock looks like an ended certificate. What the servers say the time is stands in
//! `servers`.

use super::Gap;
use crate::catalogue::Group;
use crate::facts::{Fact, Unavailable};

/// The clock of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockFacts {
    /// Whether the kernel was informed that the time is kept in step (`adjtimex(2)`, `STA_UNSYNC` not set).
    pub synchronized: Fact<bool>,
}

impl ClockFacts {
    /// None of it, for one reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            synchronized: Fact::Failed(why.clone()),
        }
    }

    /// What could not be checked.
    pub fn gaps(&self) -> Vec<Gap> {
        let gap = Gap::of(
            Group::Machine,
            "clock synchronization (NTP)",
            &self.synchronized,
        );
        gap.into_iter().collect()
    }
}
