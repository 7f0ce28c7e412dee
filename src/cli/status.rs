// SPDX-License-Identifier: Apache-2.0
//! `status`: what the running agent last found out, read from its status file.

use super::{Answer, Exit, Output, Strictness};
use crate::lock;
use crate::report::status::Status;
use crate::report::status_file;
use crate::report::text::{self, Style};
use crate::root::Root;

/// The status, and whether an agent keeps it up to date.
pub fn run(root: &Root, output: Output, style: Style, strictness: Strictness) -> Answer {
    let running = lock::is_held(root);
    let value = match status_file::read(root) {
        Ok(value) => value,
        Err(error) => {
            let hint = match running {
                Some(holder) => format!("{holder} runs and has not looked yet"),
                None => "no agent runs here: systemctl status harvester-node-agent".to_owned(),
            };
            return Answer::complaint(
                format!("{}; {hint}\n", crate::escape::chain(&error)),
                Exit::TryAgain,
            );
        }
    };
    let status = match Status::from_json(&value) {
        Ok(status) => status,
        Err(error) => {
            let text = format!("the status file is of another version: {error}\n");
            return Answer::complaint(text, Exit::Failed);
        }
    };
    let shown = match output {
        Output::Json => format!("{value:#}\n"),
        Output::Text | Output::Short => text::status(&status, style),
    };
    let mut answer = Answer::new(shown, exit(&status));
    if running.is_none() {
        answer.complaint = format!(
            "no agent runs here now; this is what it found at {}: systemctl status harvester-node-agent\n",
            status.updated_at
        );
        answer.exit = Exit::TryAgain;
    }
    strictness.apply(answer, &status)
}

/// 1 when something is wrong, 0 otherwise.
pub fn exit(status: &Status) -> Exit {
    if status
        .findings
        .iter()
        .any(|finding| finding.severity == "error")
    {
        Exit::Failed
    } else {
        Exit::Ok
    }
}
