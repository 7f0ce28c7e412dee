// SPDX-License-Identifier: Apache-2.0
//! `status`: the status that the running agent published last, read from its status file.

use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use nix::unistd::Uid;
use serde_json::{Value, json};

use super::answer::{Answer, Exit, Output};
use super::options::{STRICT, config_option};
use super::process::Process;
use super::run::{can_read_all, foreign};
use crate::config;
use crate::decide::label_state;
use crate::observe::machine::read_machine;
use crate::report::relative::relative;
use crate::report::show;
use crate::report::status::{AgentStatus, Status};
use crate::report::status_file::{self, StatusError};
use crate::sys::escape::{chain, json_text};
use crate::sys::lock::{self, Instance, LOCK_FILE, Presence};
use crate::sys::root::Root;

/// The text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  Show the runtime status:
    harvester-node-agent status
  Wait up to 5 minutes until the labels are in sync:
    harvester-node-agent status --wait
  Wait at most 90 seconds:
    harvester-node-agent status --wait 90s

Exit status: 0 no error; 1 an error, or a status of another version; 3 warnings with --strict; 4 not a KubeVirt virtual machine; 75 the agent is not \
running or is idle, its status is damaged, or --wait timed out and there is no error.";

/// The interval between two reads of the status file with `--wait`.
const POLL: Duration = Duration::from_secs(1);

/// The time after which an agent has published its first status, whatever timed out.
const STARTING: Duration = Duration::from_secs(120);

/// The options of `status`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Options {
    /// Wait until the labels are in sync or need a fix, for at most TIME (default: 5m)
    ///
    /// Then prints the status. If the labels need a fix, exits immediately with status 1. If TIME elapses first, exits with
    /// status 75, or 1 if there is an error; standard error has the state that was reached.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "5m",
        value_parser = crate::config::parse_duration
    )]
    pub wait: Option<Duration>,
    /// `--strict`.
    #[arg(long, help = STRICT)]
    pub strict: bool,
}

/// The next step if no status has the state of the labels.
pub(super) const NO_STATUS: &str = "check the service: systemctl status harvester-node-agent";

/// The next step if the labels are not in sync.
const NOT_SYNCED: &str = "for the cause, run: harvester-node-agent doctor";

/// What is wrong, why it matters and the next step, if no agent runs.
const NOT_RUNNING: &str = "the agent is not running, so labels do not follow a live migration. To start it, as root: \
                           systemctl enable --now harvester-node-agent\n";

/// The command for the lines to correct if the service reads another configuration than this command.
const JOURNAL: &str =
    "; if the service uses another file: journalctl -u harvester-node-agent -n 20";

/// What it may mean that no agent can be seen, and the next step.
const NOT_VISIBLE: &str = "only root can see whether the agent is running. If it is not, labels do not follow a live migration. \
                           To check it: systemctl status harvester-node-agent\n";

/// Returns the status, and whether an agent updates it. With `--wait`, once it is final.
pub fn run(process: &Process, options: &Options) -> Answer {
    let timed_out = options.wait.and_then(|limit| wait(&process.root, limit));
    let answer = published(process).map(|(value, status)| {
        shown(process, value, &status).with_warnings(options.strict, &status)
    });
    let mut answer = answer.unwrap_or_else(|answer| answer);
    if let Some(text) = timed_out {
        answer.stderr.push_str(&text);
        if matches!(answer.exit, Exit::Ok | Exit::Warnings) {
            answer.exit = Exit::TryAgain;
        }
    }
    answer
}

/// Waits until the running agent reports a final state. Reads the status file once a second. Returns the error if `limit` elapses
/// first, with the last state and the next step.
#[expect(
    clippy::disallowed_methods,
    reason = "the command has no event loop that this could block"
)]
fn wait(root: &Root, limit: Duration) -> Option<String> {
    let began = Instant::now();
    loop {
        let (state, hint) = match last(root) {
            (Some(status), presence) => unfinished(&status, presence)?,
            (None, _) => ("no status of the agent can be read".to_owned(), NO_STATUS),
        };
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            let limit = config::duration_text(limit);
            return Some(format!("error: timed out after {limit}: {state}; {hint}\n"));
        }
        std::thread::sleep(POLL.min(left));
    }
}

/// Returns the state and the next step, unless the status is final: from the running process, and with labels that do not change
/// with time alone.
fn unfinished(status: &Status, presence: Presence) -> Option<(String, &'static str)> {
    match presence {
        Presence::Running(holder) if !is_of(&status.agent, holder) => {
            let text = "agent has not published a status since its start";
            return Some((text.to_owned(), NO_STATUS));
        }
        Presence::Absent => return Some(("agent is idle or not running".to_owned(), NO_STATUS)),
        // A user without access to the process has only the published status.
        Presence::Running(_) | Presence::Unknown => {}
    }
    let state = &status.labels.state;
    let is_final = label_state::is_final_state(state);
    (!is_final).then(|| (format!("labels are {state}"), NOT_SYNCED))
}

/// Returns the published status as it is in the file and as it was understood.
fn published(process: &Process) -> Result<(Value, Status), Answer> {
    let read = status_file::read(&process.root);
    let read = read.and_then(|value| Status::from_json(&value).map(|status| (value, status)));
    read.map_err(|error| {
        let restart = "systemctl restart harvester-node-agent";
        let why = chain(&error);
        let away = not_running(process, presence(&process.root, None));
        let text = match &error {
            StatusError::Unreadable(cause)
                if cause.is_absent() && !has_published(&process.root) =>
            {
                return missing(process);
            }
            StatusError::Unreadable(_) => format!("{why}; {NO_STATUS}"),
            // Its start writes the file.
            _ if away.is_some() => why,
            StatusError::Version(_) => format!("{why}. After an upgrade, restart it:\n  {restart}"),
            StatusError::Damaged(_) => format!("{why}. To write it again:\n  {restart}"),
        };
        let exit = match error {
            StatusError::Version(_) => Exit::Failed,
            _ => Exit::TryAgain,
        };
        let away = away.map(|why| format!("warning: {why}"));
        Answer::stderr(format!("error: {text}\n{}", away.unwrap_or_default()), exit)
    })
}

/// Reports whether the agent has run for so long that it has published a status. It writes its lock when it starts.
pub(super) fn has_published(root: &Root) -> bool {
    let is_long_ago = |at: SystemTime| at.elapsed().is_ok_and(|age| age > STARTING);
    let lock = root.metadata(LOCK_FILE);
    let is_old = lock.is_ok_and(|lock| lock.modified().is_ok_and(is_long_ago));
    is_old && matches!(presence(root, None), Presence::Running(_))
}

fn missing(process: &Process) -> Answer {
    let root = &process.root;
    let presence = presence(root, None);
    let config = config::load(root, process.config.as_deref());
    let settings = config.map(|loaded| loaded.settings).unwrap_or_default();
    if let Presence::Absent = presence
        && let Some(vendor) = foreign(&read_machine(root), &settings)
    {
        let text = format!(
            "error: the agent is not running: not a KubeVirt virtual machine (SMBIOS vendor {vendor}); for details, run: harvester-node-agent doctor\n"
        );
        return Answer::stderr(text, Exit::NotKubevirt);
    }
    let away = not_running(process, presence).unwrap_or_default();
    let text = match presence {
        Presence::Running(holder) => format!(
            "error: no status yet, because the agent ({holder}) is starting: host and labels are unknown. To wait for them: \
             harvester-node-agent status --wait\n"
        ),
        Presence::Unknown => format!("error: no status, and {NOT_VISIBLE}"),
        Presence::Absent => format!("error: {away}"),
    };
    Answer::stderr(text, Exit::TryAgain)
}

/// Reports whether the configuration is invalid: then the service may be idle, and holds no lock. To another user than root, a file that
/// only root can read is no mistake in it.
fn is_invalid(process: &Process) -> bool {
    can_read_all(&process.root, Uid::effective())
        && config::load(&process.root, process.config.as_deref()).is_err()
}

/// Returns why no agent updates the labels, and the next step; `None` if one may do so.
pub(super) fn not_running(process: &Process, presence: Presence) -> Option<String> {
    let only = process.config.as_deref();
    let (why, other) = match only {
        _ if !matches!(presence, Presence::Absent) => return None,
        _ if !is_invalid(process) => return Some(NOT_RUNNING.to_owned()),
        None => ("because its configuration", ""),
        Some(_) => ("and the file of --config", JOURNAL),
    };
    let option = config_option(only);
    Some(format!(
        "the agent is idle or not running, {why} is invalid, so labels do not follow a live migration. For the lines to correct: \
         harvester-node-agent {option}config check{other}\n"
    ))
}

fn shown(process: &Process, mut value: Value, status: &Status) -> Answer {
    let presence = presence(&process.root, Some(&status.agent));
    let (is_running, doubt) = match presence {
        Presence::Running(_) => (Some(true), None),
        Presence::Absent if is_invalid(process) => {
            (Some(false), Some("agent is idle or not running"))
        }
        Presence::Absent => (Some(false), Some("agent is not running")),
        Presence::Unknown => (None, Some("agent may not be running")),
    };
    let next = not_running(process, presence).unwrap_or_else(|| NOT_VISIBLE.to_owned());
    let show = process.show_now();
    let text = match process.output {
        Output::Json => {
            if let Some(Value::Object(agent)) = value.get_mut("agent") {
                agent.insert("running".to_owned(), json!(is_running));
            }
            json_text(&value)
        }
        Output::Text => show::status(status, show, doubt),
    };
    let Some(doubt) = doubt else {
        let has_error = status.has_error();
        let exit = if has_error { Exit::Failed } else { Exit::Ok };
        return Answer::new(text, exit);
    };
    let stderr = match process.output {
        Output::Json => {
            let updated = relative(show.now, &status.last_update_time);
            format!("warning: {doubt}; showing last status from {updated}\nwarning: {next}")
        }
        // The headline has the doubt.
        Output::Text => format!("warning: {next}"),
    };
    Answer {
        text,
        stderr,
        exit: Exit::TryAgain,
    }
}

/// Returns the last status that can be read, and whether an agent runs.
pub(super) fn last(root: &Root) -> (Option<Status>, Presence) {
    let status = Status::read(root).ok();
    let presence = presence(root, status.as_ref().map(|status| &status.agent));
    (status, presence)
}

/// Reports whether an agent runs, based on what the last one published.
fn presence(root: &Root, published: Option<&AgentStatus>) -> Presence {
    lock::presence(root, published.and_then(instance).as_ref())
}

/// Reports whether the holder of the lock has published a status. If its process ID is unknown, the process in the status decides,
/// if it can be seen.
pub(super) fn is_of(published: &AgentStatus, holder: lock::Holder) -> bool {
    match holder.pid {
        Some(pid) => pid == published.pid,
        None => instance(published).is_none_or(|process| process.is_running()),
    }
}

fn instance(agent: &AgentStatus) -> Option<Instance> {
    Some(Instance {
        pid: agent.pid,
        start_ticks: agent.start_ticks?,
        boot_id: agent.boot_id.clone()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::World;
    use crate::report::compose::Context;
    use crate::report::tests::round;
    use crate::sys::lock::Holder;

    #[test]
    fn only_root_and_the_owner_of_a_tree_read_what_the_agent_reads() {
        let dir = tempfile::tempdir().unwrap();
        let [tree, live] = [Root::new(dir.path()), Root::new("/")];
        let owner = Uid::effective();
        let stranger = Uid::from_raw(owner.as_raw() + 1);
        for (root, user, can_read) in [
            (&tree, owner, true),
            (&tree, stranger, false),
            (&tree, Uid::from_raw(0), true),
            (&live, Uid::from_raw(0), true),
            (&live, Uid::from_raw(65534), false),
        ] {
            assert_eq!(can_read_all(root, user), can_read, "{root:?} {user}");
        }
    }

    #[test]
    fn only_the_status_of_the_running_process_is_final() {
        let process = |pid| Presence::Running(Holder { pid });
        for (state, presence, is_done) in [
            ("synced", process(Some(7)), true),
            ("synced", process(None), true),
            ("synced", Presence::Unknown, true),
            ("synced", process(Some(8)), false),
            ("synced", Presence::Absent, false),
            ("harvester-forbidden", process(Some(7)), true),
            ("pending", process(Some(7)), false),
        ] {
            let mut status = Status::new(&round(&World::new(), &[]), &Context::default());
            status.agent.pid = 7;
            status.labels.state = state.to_owned();
            assert_eq!(
                unfinished(&status, presence).is_none(),
                is_done,
                "{state} {presence:?}"
            );
        }
    }
}
