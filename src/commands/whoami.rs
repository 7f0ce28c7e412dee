// SPDX-License-Identifier: Apache-2.0
//! `whoami`: prints which VM this machine is and which host runs it, with the evidence.

use super::{Answer, Exit, Output};
use crate::agent::Round;
use crate::report::status::Status;
use crate::report::text::{self, Show};
use crate::sys::escape::json_text;

/// Returns the result of one round that writes nothing: 0 if the VM and host are known and the names match, 75 if an API was
/// unreachable, 1 otherwise.
pub fn answer(round: &Round, status: &Status, output: Output, show: Show) -> Answer {
    let text = match output {
        Output::Json => json_text(&status.to_json()),
        Output::Short => format!("{}\n", text::line(status)),
        Output::Text => text::whoami(status, show),
    };
    let known = status.identity.vm.is_some() && status.placement.is_some();
    let exit = match () {
        () if round.is_unanswered() => Exit::TryAgain,
        () if known && round.identity.verdict.is_match() => Exit::Ok,
        () => Exit::Failed,
    };
    Answer::new(text, exit)
}
