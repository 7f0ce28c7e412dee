// SPDX-License-Identifier: Apache-2.0
//! For tests only: the other end of a source.

use super::{Inbox, Listener, Sender};
use crate::decide::schedule::Random;

/// A sender, and what it sends.
pub(super) fn sender() -> (Sender, Inbox) {
    Inbox::new(|| Random::from_bits(0))
}

impl Inbox {
    /// The next reason that was given already.
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
    /// Where a simulated source puts its reasons.
    pub(crate) fn sender(&self) -> Sender {
        self.sender.clone()
    }
}
