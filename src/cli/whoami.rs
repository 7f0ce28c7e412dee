// SPDX-License-Identifier: Apache-2.0
//! `whoami`: which VM this machine is and which host runs it, with the evidence.

use super::{Answer, Exit, Output};
use crate::report::status::Status;
use crate::report::text::{self, Style};

/// The answer of one look that writes nothing. 0 when VM and host are known and the names match, 1 otherwise.
pub fn answer(status: &Status, output: Output, style: Style) -> Answer {
    let text = match output {
        Output::Json => format!("{:#}\n", serde_json::to_value(status).unwrap_or_default()),
        Output::Text => text::whoami(status, style),
    };
    let known = status.identity.vm.is_some() && status.placement.is_some();
    let matches = status.identity.verdict.starts_with("match");
    Answer::new(
        text,
        if known && matches {
            Exit::Ok
        } else {
            Exit::Failed
        },
    )
}
