// SPDX-License-Identifier: Apache-2.0
//! Debug events for developers, and the output of a panic.
//!
//! Reports for users go through `report::journal`. This module handles the debug events of our own modules, which are written only
//! on request, and the message of a panic.

use std::any::Any;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::thread;

use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogLevel;
use crate::report::journal::{Journal, Priority, Record};
use crate::sys::escape::one_line;

/// The target of our own events: those of HTTP and TLS libraries can contain headers, and headers contain tokens.
const OWN_TARGET: &str = "harvester_node_agent";

/// The maximum length of a panic message: a file name, a line and one of our own texts.
const PANIC_LIMIT: usize = 512;

/// The maximum length of a debug event on stderr: a sentence, and an error with its causes.
const DEBUG_LIMIT: usize = 2048;

/// Writes the debug events of our own modules to stderr if the level is debug. Later calls have no effect.
pub fn debug_to_stderr(level: LogLevel) {
    debug_to(level, |text| {
        let line = format!("{}\n", one_line(&text, DEBUG_LIMIT));
        let _ = io::stderr().write_all(line.as_bytes());
    });
}

/// Writes the debug events to the journal, whose queue prevents blocking. Later calls have no effect.
pub fn debug_to_journal(journal: &Journal, level: LogLevel) {
    let journal = journal.clone();
    debug_to(level, move |text| {
        journal.send(Record::new(Priority::Debug, text));
    });
}

fn debug_to(level: LogLevel, write: impl Fn(String) + Send + Sync + 'static) {
    if level == LogLevel::Debug {
        let filter = Targets::new().with_target(OWN_TARGET, LevelFilter::DEBUG);
        let subscriber = tracing_subscriber::registry().with(filter);
        // Fails only if there already is a subscriber.
        let _ = subscriber.with(DebugEvents(write)).try_init();
    }
}

/// Writes each event as text: the module, the message, and the fields.
struct DebugEvents<F>(F);

impl<S: Subscriber, F: Fn(String) + 'static> Layer<S> for DebugEvents<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = format!("{}:", event.metadata().target());
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            // Writing to a string cannot fail.
            let _ = match field.name() {
                "message" => write!(text, " {value:?}"),
                name => write!(text, " {name}={value:?}"),
            };
        });
        (self.0)(text);
    }
}

/// Installs a hook that writes a panic as one line to stderr, which systemd forwards to the journal.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|info| {
        let line = format!("{}\n", describe_panic(info));
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }));
}

/// Prevents core dumps, which would write our memory, with tokens and keys, to disk.
pub fn deny_core_dumps() -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // A core pattern that pipes to a program ignores the limit, but not this. It also excludes debuggers of other users.
    set_dumpable(false)?;
    Ok(())
}

fn describe_panic(info: &PanicHookInfo<'_>) -> String {
    let place = info
        .location()
        .map_or_else(|| "an unknown location".to_owned(), ToString::to_string);
    let current = thread::current();
    let thread = current.name().unwrap_or("unnamed");
    let text = literal_message(info.payload());
    let line = format!("harvester-node-agent panicked at {place} in thread {thread}: {text}");
    one_line(&line, PANIC_LIMIT).into_owned()
}

/// Returns the message if it is a literal of the source code. A message that was formatted at run time can contain anything, even
/// a secret, and is never shown.
fn literal_message(payload: &(dyn Any + Send)) -> &'static str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or("message withheld")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Role, own_process};

    #[test]
    fn a_panic_is_one_line_without_what_was_put_into_the_message() {
        let Role::Parent(output) = own_process() else {
            install_panic_hook();
            let secret = "hunter".to_owned() + "2";
            let worker = thread::Builder::new().name("worker\n1".into());
            let panicking = worker.spawn(move || panic!("token {secret}")).unwrap();
            panicking.join().unwrap_err();
            panic!("a literal\nof ours");
        };
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        let lines = text.lines().filter(|line| line.contains("panicked"));
        let [first, second] = lines.collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        let start = "harvester-node-agent panicked at src/report/logging.rs:";
        assert!(first.starts_with(start), "{text}");
        let end = " in thread worker\\n1: message withheld";
        assert!(first.ends_with(end), "{text}");
        assert!(second.ends_with(": a literal\\nof ours"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn only_our_own_debug_events_are_shown_without_colours() {
        let Role::Parent(output) = own_process() else {
            debug_to_stderr(LogLevel::Info);
            tracing::debug!("not wanted");
            debug_to_stderr(LogLevel::Debug);
            debug_to_stderr(LogLevel::Debug);
            tracing::debug!(text = "\x1b[31m", "shown");
            tracing::trace!("too detailed");
            tracing::error!(target: "hyper::proto", "authorization: secret");
            return;
        };
        assert!(output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        let shown = "harvester_node_agent::report::logging::tests: shown";
        assert!(text.contains(shown), "{text}");
        for hidden in ["\x1b", "secret", "too detailed", "not wanted"] {
            assert!(!text.contains(hidden), "{text}");
        }
    }

    #[test]
    fn no_core_is_dumped() {
        if !own_process().is_child() {
            return;
        }
        assert!(nix::sys::prctl::get_dumpable().unwrap());
        deny_core_dumps().unwrap();
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
        let limits = nix::sys::resource::getrlimit(Resource::RLIMIT_CORE).unwrap();
        assert_eq!(limits, (0, 0));
    }
}
