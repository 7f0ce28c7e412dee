// SPDX-License-Identifier: Apache-2.0
//! `status`: what the running agent last found out, read from its status file.

use super::{Answer, Exit, Output, Strictness};
use crate::lock::{self, Instance, Presence};
use crate::report::status::{AgentStatus, Status};
use crate::report::status_file;
use crate::report::text::{self, Style};
use crate::root::Root;

/// The status, and whether an agent keeps it up to date.
pub fn run(root: &Root, output: Output, style: Style, strictness: Strictness) -> Answer {
    let value = match status_file::read(root) {
        Ok(value) => value,
        Err(error) => {
            let hint = match presence(root, None) {
                Presence::Running(holder) => format!("{holder} runs and has not looked yet"),
                Presence::Absent => {
                    "no agent runs here: systemctl status harvester-node-agent".to_owned()
                }
                Presence::Unknown => {
                    "whether an agent runs here, only root can see: systemctl status harvester-node-agent"
                        .to_owned()
                }
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
    let doubt = match presence(root, Some(&status.agent)) {
        Presence::Running(_) => None,
        Presence::Absent => Some("no agent runs here now"),
        Presence::Unknown => Some("whether an agent runs here now, only root can see"),
    };
    if let Some(doubt) = doubt {
        answer.complaint = format!(
            "{doubt}; this is what it found at {}: systemctl status harvester-node-agent\n",
            status.updated_at
        );
        answer.exit = Exit::TryAgain;
    }
    strictness.apply(answer, &status)
}

/// Reports whether an agent runs, with the help of what the last one published of itself.
pub(super) fn presence(root: &Root, published: Option<&AgentStatus>) -> Presence {
    let instance = published.and_then(|agent| {
        Some(Instance {
            pid: agent.pid,
            start_ticks: agent.start_ticks?,
            boot_id: agent.boot_id.clone()?,
        })
    });
    lock::presence(root, instance.as_ref())
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
