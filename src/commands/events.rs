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
use super::status::last;
use crate::decide::scheduled_events::{ScheduledEvent, ScheduledEventState};
use crate::report::event_log::{self, EVENTS_FILE};
use crate::sys::escape::{chain, one_line};
use crate::sys::file_watch::{What, watch};
use crate::sys::lock::Presence;

/// The text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  Show the last scheduled events:
    harvester-node-agent events
  Wait for the next ones, and print each state as one JSON object:
    harvester-node-agent events --follow -o json

Exit status: 0 ok; 1 standard output cannot be written; 75 without --follow, the agent is not running; it has not published events, or they cannot be watched.";

/// How often `--follow` checks whether the agent still runs.
const PRESENCE_POLL: Duration = Duration::from_secs(10);

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
    match event_log::read(root) {
        Ok(events) => {
            let text = match (events.as_slice(), output) {
                ([], Output::Text) => "No scheduled events.\n".to_owned(),
                (events, _) => print(events, output),
            };
            match last(root).1 {
                Presence::Absent => Answer {
                    text,
                    stderr: not_running(process),
                    exit: Exit::TryAgain,
                },
                Presence::Running(_) | Presence::Unknown => Answer::new(text, Exit::Ok),
            }
        }
        Err(error) => {
            let text = format!(
                "error: no events: the agent has not published any (see: systemctl status harvester-node-agent)\n{}\n",
                chain(&error)
            );
            Answer::stderr(text, Exit::TryAgain)
        }
    }
}

/// Returns the warning that events may be missing.
fn not_running(process: &Process) -> String {
    let why = super::status::not_running(process);
    format!("warning: later scheduled events are unknown: {why}")
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
    let before = event_log::read(root).unwrap_or_default();
    let mut printed: BTreeSet<(String, ScheduledEventState)> = before.iter().map(key).collect();
    for event in current(&before) {
        printed.remove(&key(event));
    }
    let changed = Notify::new();
    let look = || changed.notify_one();
    let watch = watch(root.clone(), vec![EVENTS_FILE.into()], What::Whole, look);
    let work = async {
        tokio::pin!(watch);
        let mut checks = interval(PRESENCE_POLL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // An agent that restarts is seldom absent in two checks. The first one alone decides.
        let mut absences = 1_u64;
        loop {
            tokio::select! {
                _ = checks.tick() => {
                    absences = match last(root).1 {
                        Presence::Absent => absences + 1,
                        Presence::Running(_) | Presence::Unknown => 0,
                    };
                    if absences == 2 {
                        // Without standard error, the events are still printed.
                        let _ = io::stderr().write_all(not_running(process).as_bytes());
                    }
                    continue;
                }
                () = changed.notified() => {}
                ended = &mut watch => return Ok(failed(match ended {
                    Err(error) => format!("failed to watch {EVENTS_FILE}: {error}"),
                    Ok(()) => format!("{EVENTS_FILE} is no longer watched"),
                })),
            }
            let events = event_log::read(root).unwrap_or_default();
            let is_new = |event: &&ScheduledEvent| !printed.contains(&key(event));
            let new: Vec<ScheduledEvent> = events.iter().filter(is_new).cloned().collect();
            if !events.is_empty() {
                printed = events.iter().map(key).collect();
            }
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
