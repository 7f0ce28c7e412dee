// SPDX-License-Identifier: Apache-2.0
//! `status`: what the running agent last found out, read from its status file.

use super::{Answer, Exit, Output, Strictness};
use crate::escape::json_text;
use crate::lock::{self, Instance, Presence};
use crate::report::relative::relative;
use crate::report::status::{AgentStatus, Status};
use crate::report::status_file;
use crate::report::text::{self, Show};
use crate::root::Root;

/// The status, and whether an agent keeps it up to date.
pub fn run(root: &Root, output: Output, show: Show, strictness: Strictness) -> Answer {
    let value = match status_file::read(root) {
        Ok(value) => value,
        Err(error) => {
            let error = crate::escape::chain(&error);
            let text = match presence(root, None) {
                Presence::Running(holder) => {
                    format!("no status yet: the agent ({holder}) is starting; {error}\n")
                }
                Presence::Absent => format!(
                    "agent is not running (no status file); start it: systemctl start harvester-node-agent; {error}\n"
                ),
                Presence::Unknown => format!(
                    "no status file, and only root can see whether the agent runs: systemctl status harvester-node-agent; {error}\n"
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
        Output::Json => json_text(&value),
        Output::Short => format!("{}\n", text::line(&status)),
        Output::Text => text::status(&status, show),
    };
    let mut answer = Answer::new(shown, exit(&status));
    let doubt = match presence(root, Some(&status.agent)) {
        Presence::Running(_) => None,
        Presence::Absent => Some("agent is not running"),
        Presence::Unknown => Some("only root can see whether the agent is running"),
    };
    if let Some(doubt) = doubt {
        answer.complaint = format!(
            "warning: {doubt}; showing last status from {} (see: systemctl status harvester-node-agent)\n",
            relative(show.now, &status.last_update_time)
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
