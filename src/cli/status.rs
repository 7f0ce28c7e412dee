// SPDX-License-Identifier: Apache-2.0
//! `status`: what the running agent last found out, read from its status file.

use super::{Answer, Exit, Output, Strictness};
use crate::lock;
use crate::report::relative::relative;
use crate::report::status::Status;
use crate::report::status_file;
use crate::report::text::{self, Show};
use crate::root::Root;

/// The status, and whether an agent keeps it up to date.
pub fn run(root: &Root, output: Output, show: Show, strictness: Strictness) -> Answer {
    let running = lock::is_held(root);
    let value = match status_file::read(root) {
        Ok(value) => value,
        Err(error) => {
            let error = crate::escape::chain(&error);
            let text = match running {
                Some(holder) => {
                    format!("no status yet: the agent ({holder}) is starting; {error}\n")
                }
                None => format!(
                    "agent is not running (no status file); start it: systemctl start harvester-node-agent; {error}\n"
                ),
            };
            return Answer::complaint(text, Exit::TryAgain);
        }
    };
    let status = match Status::from_json(&value) {
        Ok(status) => status,
        Err(error) => {
            let text = format!("the status file has an unsupported version: {error}\n");
            return Answer::complaint(text, Exit::Failed);
        }
    };
    let shown = match output {
        Output::Json => format!("{value:#}\n"),
        Output::Short => format!("{}\n", text::line(&status)),
        Output::Text => text::status(&status, show),
    };
    let mut answer = Answer::new(shown, exit(&status));
    if running.is_none() {
        answer.complaint = format!(
            "warning: agent is not running; showing last status from {} (see: systemctl status harvester-node-agent)\n",
            relative(show.now, &status.last_update_time)
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
