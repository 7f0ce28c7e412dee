// SPDX-License-Identifier: Apache-2.0
//! What the agent does about the labels of its Node.
//!
//! ```text
//!                   host changed, Harvester writes first
//!   Nothing ---------------------------------------------> Settling
//!    |   ^                                                     |
//!    |   | accepted                   annotations written,     |
//!    |   |                            or the grace period ended|
//!    |   +-------------------------- Writing <-----------------+
//!    +------ labels differ ----------> |
//!                                      +-- refused ------------> Writing, when its retry is due
//!                                      +-- too many updates ---> Withheld, until one more is allowed
//!                                      +-- reverted 3 times ---> StandingDown, for an hour
//! ```
//!
//! While the Node or the host is not known, it is `Undecided`: the labels stay as they are.

use std::time::Duration;

use super::action::NodePatch;
use super::conflict::ConflictBackoff;
use super::labels::LabelPlan;

/// What the agent does about the labels of its Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// Nothing is decided, because the Node or the host is not known.
    Undecided,
    /// It waits for the annotations of Harvester, for this long.
    Settling(Duration),
    /// It writes nothing: the Node needs no change, or may belong to another VM.
    Nothing,
    /// It sends this patch, unless the API refused it and its retry is not due.
    Writing(NodePatch),
    /// It waits for this long, because there were too many updates of the Node.
    Withheld(Duration),
    /// It waits, because another writer reverts the labels.
    StandingDown(ConflictBackoff),
}

/// What a round wants of the labels of the Node, and what the agent does about it.
#[derive(Debug)]
pub struct Labeling {
    /// The changes and the skipped labels.
    pub labels: LabelPlan,
    /// What it does.
    pub doing: Doing,
    /// The writer that reverts our labels, also while another attempt is made: one that reverts each attempt is one conflict, and is
    /// reported as one.
    pub conflict: Option<ConflictBackoff>,
}

impl Labeling {
    /// Reports whether labels that differ are left alone.
    pub fn is_left_alone(&self) -> bool {
        matches!(self.doing, Doing::Withheld(_) | Doing::StandingDown(_))
    }
}
