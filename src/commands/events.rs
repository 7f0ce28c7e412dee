// SPDX-License-Identifier: Apache-2.0
//! `events`: the scheduled events that the running agent published, read from its file.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::answer::{Answer, Exit, Output};
use super::process::Process;
use super::run::in_loop;
use super::status::{NO_STATUS, last, not_running};
use crate::decide::scheduled_events::{ScheduledEvent, ScheduledEventState};
use crate::report::event_log::{self, EVENTS_FILE};
use crate::sys::escape::{chain, one_line};
use crate::sys::file_watch::{What, watch};
use crate::sys::root::ReadError;

/// The text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  Show the last scheduled events:
    harvester-node-agent events
  Wait for the next ones, and print each state as one JSON object:
    harvester-node-agent events --follow -o json

Exit status: 0 ok; 1 standard output cannot be written; 75 with --follow, the events cannot be watched, and without it, the agent \
is not running or is idle, or its events are missing or damaged.";

/// How often `--follow` checks whether the agent still runs.
const PRESENCE_POLL: Duration = Duration::from_secs(10);

/// The next step if the file cannot be parsed. The agent has the states in a file of its own.
const REWRITE: &str = "To write it again, as root:\n  systemctl restart harvester-node-agent\n";

/// The next step if this process is older than the agent that writes the file.
const AGAIN: &str = "After an upgrade, start this command again.\n";

/// What it means that no agent runs, before the reason.
const UNKNOWN: &str = "warning: later scheduled events are unknown: ";

/// The maximum length of a line of text, in characters.
const LINE_MAX: usize = 500;

/// The options of `events`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Options {
    /// Print the states of an event that has not ended, then new states as they are published, until interrupted
    #[arg(long)]
    pub follow: bool,
}

/// Prints the published states, or with `--follow` those of an event that has not ended and those that are published later.
pub fn run(process: &Process, options: Options, to: &mut impl Write) -> Answer {
    let (root, output) = (&process.root, process.output);
    if options.follow {
        return follow(process, to);
    }
    let away = not_running(process, last(root).1);
    let (events, line) = match event_log::read(root) {
        Ok(log) => log,
        Err(error) => {
            let none = "error: the agent has not published any scheduled events";
            let text = match (&error, away) {
                (ReadError::NotFound(_), Some(why)) => format!("{none}: {why}"),
                (ReadError::NotFound(_), None) => format!("{none} yet; {NO_STATUS}\n"),
                (ReadError::NotText(_), _) => format!("error: {}. {REWRITE}", chain(&error)),
                _ => format!("error: {}; {NO_STATUS}\n", chain(&error)),
            };
            return Answer::stderr(text, Exit::TryAgain);
        }
    };
    let text = match (events.as_slice(), output, line, away.is_some()) {
        ([], Output::Text, None, false) => "No scheduled events.\n".to_owned(),
        (events, ..) => print(events, output),
    };
    let damaged = line.map(|line| damaged("error", line));
    let away = away.map(|why| format!("{UNKNOWN}{why}"));
    let stderr: String = damaged.into_iter().chain(away).collect();
    let is_whole = stderr.is_empty();
    let exit = if is_whole { Exit::Ok } else { Exit::TryAgain };
    Answer { text, stderr, exit }
}

/// Returns what is wrong with the file, and the next step. Another version of the agent may have written this line.
fn damaged(level: &str, line: usize) -> String {
    format!(
        "{level}: `{EVENTS_FILE}` is damaged, or of another version of the agent: line {line} is not a scheduled event. {REWRITE}"
    )
}

fn print(events: &[ScheduledEvent], output: Output) -> String {
    events
        .iter()
        .map(|event| match output {
            Output::Json => event_log::line(event),
            Output::Text => {
                let line = format!("{}  {}  {}", event.time, event.id, event.text());
                format!("{}\n", one_line(&line, LINE_MAX))
            }
        })
        .collect()
}

/// Returns the states of the last event if it has not ended: a consumer must not act on events of the past.
fn current(events: &[ScheduledEvent]) -> impl Iterator<Item = &ScheduledEvent> {
    let last = events.last().filter(|last| !last.state.is_final());
    events
        .iter()
        .filter(move |event| last.is_some_and(|last| event.id == last.id))
}

/// Prints the states of an event that has not ended, then each new state once, and on standard error once if the agent stops. The file
/// is replaced as a whole, so inotify reports each change.
fn follow(process: &Process, to: &mut impl Write) -> Answer {
    let (root, output) = (&process.root, process.output);
    let failed = |text: String| Answer::stderr(format!("error: {text}\n"), Exit::TryAgain);
    // States that the agent dropped never come back.
    let key = |event: &ScheduledEvent| (event.id.clone(), event.state);
    // Without standard error, the events are still printed.
    let warn = |text: String| drop(io::stderr().write_all(text.as_bytes()));
    let mut known_damage = None;
    let mut read = || {
        let log = event_log::read(root).unwrap_or_default();
        if let Some(line) = log.1.filter(|_| known_damage != log.1) {
            warn(damaged("warning", line) + AGAIN);
        }
        known_damage = log.1;
        log
    };
    let (before, _) = read();
    let mut printed: BTreeSet<(String, ScheduledEventState)> = before.iter().map(key).collect();
    for event in current(&before) {
        printed.remove(&key(event));
    }
    let changed = Notify::new();
    let look = || changed.notify_one();
    let files = vec![EVENTS_FILE.into()];
    let watch = watch(root.clone(), files, What::Whole, look, |_| {});
    let work = async {
        tokio::pin!(watch);
        let mut checks = interval(PRESENCE_POLL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // An agent that restarts is seldom absent in two checks. The first one alone decides.
        let mut absences = 1_u64;
        loop {
            tokio::select! {
                _ = checks.tick() => {
                    let away = not_running(process, last(root).1);
                    absences = if away.is_some() { absences + 1 } else { 0 };
                    if let Some(why) = away.filter(|_| absences == 2) {
                        warn(format!("{UNKNOWN}{why}"));
                    }
                    continue;
                }
                () = changed.notified() => {}
                ended = &mut watch => return Ok(failed(match ended {
                    Err(error) => format!("failed to watch {EVENTS_FILE}: {error}"),
                    Ok(()) => format!("{EVENTS_FILE} is no longer watched"),
                })),
            }
            let (events, line) = read();
            let is_new = |event: &&ScheduledEvent| !printed.contains(&key(event));
            let new: Vec<ScheduledEvent> = events.iter().filter(is_new).cloned().collect();
            // A state in a damaged line comes back.
            if !events.is_empty() && line.is_none() {
                printed.clear();
            }
            printed.extend(events.iter().map(key));
            let text = print(&new, output);
            match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Answer::new("", Exit::Ok));
                }
                Err(error) => {
                    let text = format!("error: failed to write to standard output: {error}\n");
                    return Ok(Answer::stderr(text, Exit::Failed));
                }
            }
        }
    };
    in_loop(work).unwrap_or_else(|error| failed(format!("failed to create event loop: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{tree, write as put};

    #[test]
    fn what_is_no_text_is_damaged() {
        let (_dir, root) = tree();
        put(&root, EVENTS_FILE, "\0\n");
        let process = Process::plain(root);
        let says = |part: &str| {
            let answer = run(&process, Options::default(), &mut Vec::new());
            assert_eq!((answer.text.as_str(), answer.exit), ("", Exit::TryAgain));
            let said = answer.stderr;
            assert!(said.contains(part), "{said}");
            assert!(said.contains("systemctl restart"), "{said}");
        };
        says("line 1 is not");
        std::fs::write(process.root.join(EVENTS_FILE), b"\xff").unwrap();
        says("not valid UTF-8");
    }
}
