// SPDX-License-Identifier: Apache-2.0
//! Test helpers: the receiving end of event sources.

use super::{Inbox, Listener, Sender};
use crate::decide::schedule::Random;

/// Creates a sender and the inbox that receives its reasons.
pub(super) fn sender() -> (Sender, Inbox) {
    Inbox::new(|| Random::from_bits(0))
}

impl Inbox {
    /// Returns the next reason that is already queued.
    pub(super) fn try_recv(
        &mut self,
    ) -> Result<(crate::agent::Trigger, tokio::time::Instant), tokio::sync::mpsc::error::TryRecvError>
    {
        let (trigger, at) = self.queue.try_recv()?;
        self.taken(trigger);
        Ok((trigger, at))
    }
}

impl Listener {
    /// Returns the sender for simulated sources.
    pub(crate) fn sender(&self) -> Sender {
        self.sender.clone()
    }
}
