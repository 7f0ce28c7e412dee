// SPDX-License-Identifier: Apache-2.0
//! Test helpers: the receiving end of event sources.

use super::source::{Output, Source};
use super::{Inbox, Listener, Sender};
use crate::agent::source_board::{SourceBoard, SourceState};
use crate::decide::schedule::Random;

/// Creates a sender and the inbox that receives its reasons.
pub(super) fn sender() -> (Sender, Inbox) {
    Inbox::new(|| Random::from_bits(0))
}

/// Creates the output of a source, with a new board, and the inbox that receives its reasons.
pub(super) fn output(source: &dyn Source) -> (Output, Inbox) {
    let (sender, inbox) = sender();
    (Output::new(source, sender, SourceBoard::default()), inbox)
}

/// Returns the state of a source that does not listen.
pub(super) async fn probed(source: &mut dyn Source) -> SourceState {
    let (out, _reasons) = output(source);
    source.probe(&out).await
}

impl Listener {
    /// Returns the sender for simulated sources.
    pub(crate) fn sender(&self) -> Sender {
        self.sender.clone()
    }
}
