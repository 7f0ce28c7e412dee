// SPDX-License-Identifier: Apache-2.0
//! Can the clock be believed? A wrong clock looks like an ended certificate.

use super::Gap;
use crate::facts::{Seen, Why};
use crate::findings::Group;

/// The clock of this machine, and what others say the time is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// Whether the kernel was told that the time is kept in step (`adjtimex(2)`, `STA_UNSYNC` not set).
    pub synchronized: Seen<bool>,
    /// Seconds by which a server's clock is ahead of ours, from the `Date` of an answer.
    pub server_ahead: Seen<i64>,
}

impl Clock {
    /// None of it, for one reason.
    pub fn unseen(why: &Why) -> Self {
        Self {
            synchronized: Seen::Failed(why.clone()),
            server_ahead: Seen::Failed(why.clone()),
        }
    }

    /// What could not be looked at.
    pub fn gaps(&self) -> Vec<Gap> {
        let gaps = [
            Gap::of(
                Group::Machine,
                "whether the clock is synchronized",
                &self.synchronized,
            ),
            Gap::of(
                Group::Machine,
                "the clocks of the servers",
                &self.server_ahead,
            ),
        ];
        gaps.into_iter().flatten().collect()
    }
}
