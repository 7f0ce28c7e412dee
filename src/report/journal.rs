// SPDX-License-Identifier: Apache-2.0
//! One record in the journal for each change of state.
//!
//! `tracing-journald` sends on a blocking socket, and a pipe behind stderr can block as well: a stalled journal would stall
//! whoever writes to it. So one thread does the writing and nothing else, behind a bounded queue that never makes the
//! sender wait; what does not fit is counted, and the count is written down as soon as something fits again. The thread
//! sleeps in the queue while nothing happens.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::Level;
use tracing_journald::PriorityMappings;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use super::message_id::RECORDS_LOST;
use super::sink::{Sink, StderrStyle};
use super::trouble::Trouble;
use crate::escape::one_line;

/// What journald calls us.
const SYSLOG_IDENTIFIER: &str = "harvester-node-agent";

/// Records that wait for a journal that is slow: more than one change of everything that we report on.
const QUEUE_LENGTH: usize = 64;

/// Longest text of one field in characters. All our own texts are shorter; foreign ones have no right to more.
const FIELD_LIMIT: usize = 1024;

/// How much a record matters, as syslog names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Something does not work and needs a person.
    Error,
    /// Something will not work for long.
    Warning,
    /// A change that is worth knowing, and normal.
    #[default]
    Notice,
    /// Everyday.
    Info,
    /// For developers.
    Debug,
}

impl Priority {
    /// The number of the priority in syslog.
    fn number(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Notice => 5,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Bold red, yellow, nothing, nothing, dim.
    fn colour(self) -> &'static str {
        match self {
            Self::Error => "\x1b[1;31m",
            Self::Warning => "\x1b[33m",
            Self::Notice | Self::Info => "",
            Self::Debug => "\x1b[2m",
        }
    }
}

/// One record. What is `None` or empty does not appear in it. Texts may be foreign: they are escaped here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// How much it matters.
    pub priority: Priority,
    /// What a person reads.
    pub message: String,
    /// The entry in the message catalog, 32 hexadecimal digits.
    pub message_id: Option<&'static str>,
    /// Code of the finding, `HNA_FINDING`.
    pub finding: Option<String>,
    /// `namespace/name` of the Harvester VM, `HNA_VM`.
    pub vm: Option<String>,
    /// The Harvester host, `HNA_HOST`.
    pub host: Option<String>,
    /// The host before a migration, `HNA_HOST_OLD`.
    pub host_old: Option<String>,
    /// The zone, `HNA_ZONE`.
    pub zone: Option<String>,
    /// What woke us, `HNA_TRIGGER`.
    pub trigger: Option<String>,
    /// From the trigger to the result, `HNA_LATENCY_MS`.
    pub latency_ms: Option<u64>,
    /// What to do about it, `HNA_REMEDY`.
    pub remedy: Option<String>,
}

impl Record {
    /// A record without fields.
    pub fn new(priority: Priority, message: impl Into<String>) -> Self {
        Self {
            priority,
            message: message.into(),
            ..Self::default()
        }
    }

    fn lost(count: u64) -> Self {
        Self {
            message_id: Some(RECORDS_LOST),
            ..Self::new(
                Priority::Warning,
                format!("{count} records were lost here, the journal did not take them in time"),
            )
        }
    }
}

/// The sending end. Sending never blocks and never fails.
#[derive(Debug)]
pub struct Journal {
    queue: Option<SyncSender<Queued>>,
    /// Lost since the last record that fitted.
    lost: Arc<AtomicU64>,
    lost_in_total: AtomicU64,
    /// Disconnected when the thread has ended. In a mutex for `Sync` only.
    ended: Mutex<Receiver<Infallible>>,
}

#[derive(Debug)]
struct Queued {
    record: Record,
    /// Records that did not fit just before this one.
    lost_before: u64,
}

impl Journal {
    /// Starts the thread. Where that is impossible the journal is mute, counts what it loses, and the trouble says why.
    pub fn start(sink: Sink) -> (Self, Option<Trouble>) {
        let (queue, records) = sync_channel(QUEUE_LENGTH);
        let (alive, ended) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        let lost_at_end = Arc::clone(&lost);
        let started = thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || {
                write_to(sink, &records, &lost_at_end);
                drop::<SyncSender<Infallible>>(alive);
            });
        let journal = Self {
            queue: started.is_ok().then_some(queue),
            lost,
            lost_in_total: AtomicU64::new(0),
            ended: Mutex::new(ended),
        };
        let trouble = started
            .err()
            .map(|error| Trouble::new("journal-writer", &error));
        (journal, trouble)
    }

    /// Queues a record, or counts it as lost.
    pub fn send(&self, record: Record) {
        let lost_before = self.lost.swap(0, Ordering::Relaxed);
        let queued = Queued {
            record,
            lost_before,
        };
        let queue = self.queue.as_ref();
        if queue.is_none_or(|queue| queue.try_send(queued).is_err()) {
            self.lost.fetch_add(lost_before + 1, Ordering::Relaxed);
            self.lost_in_total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many records were lost since the start.
    pub fn lost(&self) -> u64 {
        self.lost_in_total.load(Ordering::Relaxed)
    }

    /// Waits until all records are written, but no longer than `timeout`. Returns whether they were.
    pub fn close(self, timeout: Duration) -> bool {
        drop(self.queue);
        let ended = self
            .ended
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        matches!(
            ended.recv_timeout(timeout),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
        )
    }
}

/// The thread.
fn write_to(sink: Sink, records: &Receiver<Queued>, lost: &AtomicU64) {
    let style = match sink {
        Sink::Stderr(style) => style,
        Sink::Journal => match tracing_journald::layer() {
            Ok(layer) => {
                let layer = layer
                    .with_field_prefix(None)
                    .with_priority_mappings(priority_mappings())
                    .with_syslog_identifier(SYSLOG_IDENTIFIER.to_owned());
                let subscriber = tracing_subscriber::registry().with(filter()).with(layer);
                // For this thread only: nothing that other threads log may get into this path, or wait for it.
                tracing::subscriber::with_default(subscriber, || {
                    drain(records, lost, write_to_journal);
                });
                return;
            }
            Err(error) => {
                let text =
                    format!("failed to reach the journal, writing to stderr instead: {error}");
                write_to_stderr(StderrStyle::Prefixed, &Record::new(Priority::Warning, text));
                StderrStyle::Prefixed
            }
        },
    };
    drain(records, lost, |record| write_to_stderr(style, record));
}

fn drain(records: &Receiver<Queued>, lost: &AtomicU64, write: impl Fn(&Record)) {
    for queued in records {
        write(&queued.record);
        if queued.lost_before > 0 {
            write(&Record::lost(queued.lost_before));
        }
    }
    // The queue is closed: nobody else will tell of what was lost last.
    let lost_last = lost.swap(0, Ordering::Relaxed);
    if lost_last > 0 {
        write(&Record::lost(lost_last));
    }
}

/// Only this module's events. Without it the mere existence of this subscriber would switch on the evaluation of every
/// trace event of every library in all threads.
fn filter() -> Targets {
    Targets::new().with_target(module_path!(), Level::TRACE)
}

/// The five levels of `tracing` carry our five priorities; their own names mean nothing here.
fn priority_mappings() -> PriorityMappings {
    use tracing_journald::Priority::{Debug, Error, Informational, Notice, Warning};
    PriorityMappings {
        error: Error,
        warn: Warning,
        info: Notice,
        debug: Informational,
        trace: Debug,
    }
}

fn write_to_journal(record: &Record) {
    // A level is part of an event's static description, so each needs an event of its own. A field that is `None` is not
    // recorded. Field names become upper case; they must never be those that journald itself sets.
    macro_rules! event {
        ($level:expr) => {
            tracing::event!(
                $level,
                message = one_line(&record.message, FIELD_LIMIT).as_ref(),
                message_id = record.message_id,
                hna_finding = shown(&record.finding).as_deref(),
                hna_vm = shown(&record.vm).as_deref(),
                hna_host = shown(&record.host).as_deref(),
                hna_host_old = shown(&record.host_old).as_deref(),
                hna_zone = shown(&record.zone).as_deref(),
                hna_trigger = shown(&record.trigger).as_deref(),
                hna_latency_ms = record.latency_ms,
                hna_remedy = shown(&record.remedy).as_deref(),
            )
        };
    }
    match record.priority {
        Priority::Error => event!(Level::ERROR),
        Priority::Warning => event!(Level::WARN),
        Priority::Notice => event!(Level::INFO),
        Priority::Info => event!(Level::DEBUG),
        Priority::Debug => event!(Level::TRACE),
    }
}

fn write_to_stderr(style: StderrStyle, record: &Record) {
    // One write, so that lines of other writers do not get in between. Nobody can be told that stderr is gone.
    let _ = io::stderr()
        .lock()
        .write_all(render(style, record).as_bytes());
}

/// `level: message [finding]`, and the remedy on a line of its own.
fn render(style: StderrStyle, record: &Record) -> String {
    let priority = record.priority;
    let (before, after) = match style {
        StderrStyle::Coloured if !priority.colour().is_empty() => (priority.colour(), "\x1b[0m"),
        _ => ("", ""),
    };
    let message = one_line(&record.message, FIELD_LIMIT);
    let mut line = format!("{before}{}{after}: {message}", priority.name());
    if let Some(finding) = shown(&record.finding) {
        line.push_str(&format!(" [{finding}]"));
    }
    let remedy = shown(&record.remedy).map(|remedy| format!("    fix: {remedy}"));
    // The journal takes the number off each line again.
    let prefix = match style {
        StderrStyle::Prefixed => format!("<{}>", priority.number()),
        StderrStyle::Plain | StderrStyle::Coloured => String::new(),
    };
    [Some(line), remedy]
        .into_iter()
        .flatten()
        .map(|line| format!("{prefix}{line}\n"))
        .collect()
}

/// The text of a field, if it has any.
fn shown(field: &Option<String>) -> Option<std::borrow::Cow<'_, str>> {
    let text = field.as_deref().filter(|text| !text.is_empty())?;
    Some(one_line(text, FIELD_LIMIT))
}

#[cfg(test)]
mod tests;
