// SPDX-License-Identifier: Apache-2.0
//! The states of what the agent does about the labels of its Node, and how one follows another. `labeling.rs` decides which it is.
//!
//! ```text
//!                   host changed, Harvester writes first
//!   Settled ---------------------------------------------> Settling
//!    |   ^                                                     |
//!    |   | accepted                   annotations written,     |
//!    |   |                            or the grace period ended|
//!    |   +-------------------------- Writing <-----------------+
//!    +------ labels differ ----------> |
//!    |                                 +-- rejected -----------> Rejected, until its retry is due
//!    |                                 +-- too many updates ---> Withheld, until one more is allowed
//!    |                                 +-- reverted 3 times ---> BackingOff, for about an hour
//!    +-- migration hint ---> WindowOpen, until the host changed, or did not within a minute
//! ```
//!
//! While the Node or the host is not known, it is `Undecided`: the labels stay as they are. A Node that may be that of another VM is
//! `NotOurs`. A window may be open in any state, and adds reads; it is a state while nothing else is done. All times are since the
//! start of the process.

use std::time::Duration;

use super::action::NodePatch;
use super::conflict::ConflictBackoff;
use super::labels::LabelPlan;

/// What the agent does about the labels of its Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// Nothing is decided, because the Node or the host is not known.
    Undecided,
    /// It writes nothing: the Node may belong to another VM.
    NotOurs,
    /// It waits for the annotations of Harvester, at most until this time.
    Settling(Duration),
    /// The Node needs no change.
    Settled,
    /// The Node needs no change for the host that is known, and the VM is read until the host changes or the window ends.
    WindowOpen,
    /// It sends this patch.
    Writing(NodePatch),
    /// It waits until this time, because there were too many updates of the Node.
    Withheld(Duration),
    /// It waits, because the API rejected the same patch.
    Rejected,
    /// It waits until this time, because another writer reverts the labels.
    BackingOff(Duration),
}

impl Doing {
    /// Reports whether it is decided that the Node needs no patch.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self, Self::NotOurs | Self::Settled | Self::WindowOpen)
    }
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
