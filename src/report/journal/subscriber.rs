// SPDX-License-Identifier: Apache-2.0
//! The layers of `tracing-subscriber` for entries: a filter by level, then journald or stderr.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Metadata};
use tracing_journald::{Priority as Syslog, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt;

use super::lines::EntryLines;
use super::record::{Priority, Record};
use crate::config::LogLevel;
use crate::report::sink::{Sink, StderrStyle};

/// The name of the service in the journal.
const SYSLOG_IDENTIFIER: &str = "harvester-node-agent";

/// `tracing` has five levels and no notice: each of our priorities is one level, as in [`Priority::level`].
const PRIORITIES: PriorityMappings = PriorityMappings {
    error: Syslog::Error,
    warn: Syslog::Warning,
    info: Syslog::Notice,
    debug: Syslog::Informational,
    trace: Syslog::Debug,
};

/// The least severe level that is written, shared with the filter. The library's reloadable filter does not work here: it uses the
/// subscriber of the thread that changes it, and only the writer thread has one.
#[derive(Debug, Clone)]
pub(super) struct Level(Arc<Mutex<LevelFilter>>);

impl Level {
    pub(super) fn new(level: LogLevel) -> Self {
        Self(Arc::new(Mutex::new(least(level))))
    }

    pub(super) fn set(&self, level: LogLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = least(level);
    }

    fn admits(&self, event: &Metadata<'_>) -> bool {
        *event.level() <= *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates the subscriber. Blocks while journald is stalled: only for the writer thread.
pub(super) fn of(sink: Sink, level: Level) -> (Dispatch, Option<Record>) {
    let filter = dynamic_filter_fn(move |event, _| level.admits(event));
    let stack = tracing_subscriber::registry().with(filter);
    let style = match sink {
        Sink::Stderr(style) => style,
        Sink::Journal => match tracing_journald::layer() {
            Ok(journald) => {
                let journald = journald
                    .with_field_prefix(None)
                    .with_priority_mappings(PRIORITIES)
                    .with_syslog_identifier(SYSLOG_IDENTIFIER.to_owned());
                return (Dispatch::new(stack.with(journald)), None);
            }
            Err(error) => {
                let text =
                    format!("failed to connect to the journal, writing to stderr instead: {error}");
                // systemd forwards stderr to the journal when it is available again.
                let stderr = stack.with(stderr(StderrStyle::Prefixed));
                let warning = Record::new(Priority::Warning, text);
                return (Dispatch::new(stderr), Some(warning));
            }
        },
    };
    (Dispatch::new(stack.with(stderr(style))), None)
}

/// Writes text lines. One write for each entry, so that lines of other writers do not interleave.
fn stderr<S>(style: StderrStyle) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
{
    tracing_subscriber::fmt::layer()
        .event_format(EntryLines(style))
        .with_writer(io::stderr)
        // An error of stderr cannot be reported anywhere.
        .log_internal_errors(false)
}

/// Returns the least severe level that is written.
fn least(level: LogLevel) -> LevelFilter {
    let least = match level {
        LogLevel::Error => Priority::Error,
        LogLevel::Warn => Priority::Warning,
        LogLevel::Info => Priority::Info,
        LogLevel::Debug => Priority::Debug,
    };
    least.level().into()
}
