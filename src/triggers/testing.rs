// SPDX-License-Identifier: Apache-2.0
//! For tests only: the other end of a source.

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Sender;
use crate::agent::Trigger;
use crate::decide::schedule::Random;

/// A sender, and what it sends.
pub(super) fn sender() -> (Sender, mpsc::Receiver<(Trigger, Instant)>) {
    let (queue, reasons) = mpsc::channel(super::QUEUE);
    let dice = || Random::from_bits(0);
    (Sender { queue, dice }, reasons)
}
