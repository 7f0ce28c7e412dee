// SPDX-License-Identifier: Apache-2.0
//! The running agent, according to its lock and its status file.

use super::case::Gap;
use crate::catalog::{Code, Finding, Flag, Group};
use crate::commands::status::{has_published, last};
use crate::facts::{Unavailable, UnavailableKind};
use crate::report::problem::Problem;
use crate::report::status::Status;
use crate::report::status_file::StatusError;
use crate::sys::escape::chain;
use crate::sys::lock::Presence;
use crate::sys::root::Root;

/// The drop-in of both packages for kernels without user namespaces.
const NO_NAMESPACE: &str = "/usr/share/harvester-node-agent/systemd/no-user-namespace.conf";

/// What is so if no agent holds the lock, and the configuration is invalid.
pub(super) const IDLE: &str = "idle or not running: its configuration is invalid";

/// What is so if no agent holds the lock.
const STOPPED: &str = "no agent process is running";

/// The next step if the configuration is invalid.
const CORRECT: &str = "Correct the lines that the journal has. An agent that is idle then starts its work automatically; if the unit is inactive, start it: `systemctl start harvester-node-agent`.";

/// The running agent.
#[derive(Debug, Clone, Default)]
pub(super) struct Service {
    /// Its process, if it runs.
    pub(super) presence: Presence,
    /// Whether its configuration is invalid: then it may be idle, and holds no lock.
    pub(super) is_invalid: bool,
    /// Whether the kernel allows no user namespaces, which the units need (`PrivateUsers=`).
    lacks_namespaces: bool,
    /// The time of the last status change, RFC 3339; the status is written on changes only.
    pub(super) updated_at: Option<String>,
    /// The problems in its status.
    problems: Vec<Problem>,
    /// The finding if the status of an agent that runs cannot be used.
    unusable: Option<Finding>,
}

impl Service {
    /// Reads lock, status and the limit of user namespaces, which some hardening guides set to 0.
    pub(super) fn read(root: &Root) -> Self {
        let (status, presence) = last(root);
        let limit = root.read_text("/proc/sys/user/max_user_namespaces", 64);
        Self {
            presence,
            is_invalid: false,
            lacks_namespaces: limit.is_ok_and(|limit| limit.trim() == "0"),
            updated_at: status.as_ref().map(|one| one.last_update_time.clone()),
            problems: status.map(|status| status.findings).unwrap_or_default(),
            unusable: unusable(root),
        }
    }

    /// Reports whether it runs, if known: the kernel may hide its process, or it has just started.
    pub(super) fn is_running(&self) -> Option<bool> {
        match self.presence {
            Presence::Running(_) => Some(true),
            Presence::Absent => Some(false),
            Presence::Unknown => None,
        }
    }

    /// Returns a gap if it is unknown whether it runs.
    pub(super) fn gap(&self) -> Option<Gap> {
        let text = "the kernel hides its process, or it has just started";
        let why = Unavailable::new(UnavailableKind::Forbidden, text);
        let gap = Gap::new(Group::Machine, "whether the agent is running", &why);
        self.is_running().is_none().then_some(gap)
    }

    /// Returns a finding if no agent keeps the labels up to date, or its status cannot be used.
    pub(super) fn finding(&self) -> Option<Finding> {
        if self.is_running() != Some(false) {
            return self.unusable.clone();
        }
        let what = if self.is_invalid { IDLE } else { STOPPED };
        let seen = match (&self.updated_at, &self.unusable) {
            (Some(at), _) => format!("{what}; last status from {at}"),
            (None, Some(unusable)) => format!("{what}; {}", unusable.seen),
            (None, None) => format!("{what}, and no status of one can be read"),
        };
        if !self.lacks_namespaces {
            let finding = Finding::new(Code::AgentNotRunning, seen);
            if !self.is_invalid {
                return Some(finding);
            }
            let lines = "journalctl -u harvester-node-agent -n 20".to_owned();
            return Some(finding.with_remedy(CORRECT).with_commands(vec![lines]));
        }
        let seen = format!(
            "{seen}; `user.max_user_namespaces` is 0, so the units fail with status 217/USER unless they have a drop-in"
        );
        let dir = "/etc/systemd/system/harvester-node-agent";
        let commands = ["", "-gate"].map(|unit| {
            format!(
                "install -D -m 0644 {NO_NAMESPACE} {dir}{unit}.service.d/no-user-namespace.conf"
            )
        });
        let restart =
            "systemctl daemon-reload && systemctl restart harvester-node-agent".to_owned();
        let commands = commands.into_iter().chain([restart]).collect();
        let step = "Install the drop-in for both units, and start the service again.";
        let finding = Finding::new(Code::AgentNotRunning, seen);
        Some(finding.with_remedy(step).with_commands(commands))
    }

    /// Returns the findings of the running agent that a single round cannot detect, because they need history. Findings in `found`
    /// are newer and replace those of the agent.
    pub(super) fn reported(&self, found: &[Finding]) -> Vec<Finding> {
        let is_new = |code| found.iter().all(|finding| finding.code != code);
        let problems = self.problems.iter();
        let reported = problems
            .filter(|_| self.is_running() == Some(true))
            .filter(|one| one.code.is(Flag::NeedsMemory) && is_new(one.code));
        let findings = reported.map(|one| {
            Finding::new(one.code, one.observed.clone())
                .about(one.group)
                .with_steps(one.fix.clone())
                .with_all_commands(one.commands.clone())
        });
        findings.collect()
    }

    /// Returns the time when the running agent first observed this finding.
    pub(super) fn since(&self, code: Code) -> Option<&str> {
        // One code may be about several event sources.
        let same = self.problems.iter().filter(|one| one.code == code);
        let since = same
            .filter_map(|one| one.first_observed_time.as_deref())
            .min()?;
        (self.is_running() == Some(true)).then_some(since)
    }
}

fn unusable(root: &Root) -> Option<Finding> {
    let error = Status::read(root).err()?;
    let finding = Finding::new(Code::FileNotWritten, chain(&error));
    match error {
        StatusError::Unreadable(cause) if cause.is_absent() && !has_published(root) => None,
        // To restart the agent does not help against an error of the disk.
        StatusError::Unreadable(_) => Some(finding),
        StatusError::Version(_) | StatusError::Damaged(_) => {
            let finding = finding.with_remedy("Restart the agent, which then writes the file.");
            let restart = "systemctl restart harvester-node-agent".to_owned();
            Some(finding.with_commands(vec![restart]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{tree, write};
    use crate::report::status_file::STATUS_FILE;
    use crate::sys::lock::{self, Holder};

    fn service(presence: Presence) -> Service {
        let problem = |code, since: Option<&str>| Problem {
            first_observed_time: since.map(str::to_owned),
            ..Problem::new(&Finding::new(code, "seen"), |_| None)
        };
        let problems = vec![
            problem(Code::LabelConflict, None),
            problem(Code::HostnameDiffers, Some("2026-11-21T11:00:00Z")),
            problem(Code::HostnameDiffers, Some("2026-11-21T10:00:00Z")),
        ];
        Service {
            presence,
            problems,
            ..Service::default()
        }
    }

    fn running() -> Service {
        service(Presence::Running(Holder { pid: Some(1) }))
    }

    /// The file has states of an agent, or its lock and status file, which are read. Below each are the finding with its steps and
    /// commands, or the gap.
    #[test]
    fn each_state_of_the_agent_has_its_finding() {
        let file = "src/commands/doctor/service.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let ((_dir, root), mut service, mut held) = (tree(), Service::default(), None);
            for word in case.split(' ') {
                match word {
                    "locked" => held = Some(lock::acquire(&root).unwrap()),
                    "directory" => write(&root, format!("{STATUS_FILE}/file"), ""),
                    _ if word.starts_with('{') => write(&root, STATUS_FILE, word),
                    "read" => service = Service::read(&root),
                    "running" => service = running(),
                    "stopped" => service.presence = Presence::Absent,
                    // The kernel may hide the process.
                    "hidden" => service.presence = Presence::Unknown,
                    "invalid" => service.is_invalid = true,
                    _ => service.lacks_namespaces = word == "unnamespaced",
                }
            }
            let found = service.finding();
            let text = found.map_or_else(String::new, |found| {
                let commands = found.commands().iter();
                let commands = commands.map(|command| format!("\n$ {}", command.text));
                let commands: String = commands.collect();
                format!(
                    "{}: {}\n{}{commands}\n",
                    found.code,
                    found.seen,
                    found.remedy()
                )
            });
            drop(held);
            let gap = service.gap();
            let gap = gap.map(|gap| format!("{}: {}", gap.check, gap.message));
            text + &gap.unwrap_or_default()
        });
    }

    #[test]
    fn what_needs_a_memory_is_of_the_running_agent() {
        let (running, gone) = (running(), service(Presence::Absent));
        let at = "2026-11-21T10:00:00Z";
        assert_eq!(running.since(Code::HostnameDiffers), Some(at));
        assert_eq!(running.since(Code::LabelConflict), None);
        assert_eq!(gone.since(Code::HostnameDiffers), None);
        let newer = [Finding::new(Code::LabelConflict, "newer")];
        for (service, found, expected) in [
            (&running, &[][..], &[Code::LabelConflict][..]),
            (&running, &newer, &[]),
            (&gone, &[], &[]),
        ] {
            let reported = service.reported(found);
            assert!(reported.iter().map(|one| &one.code).eq(expected));
        }
    }
}
