// SPDX-License-Identifier: Apache-2.0
//! Records for the journal, or for standard error where there is none.
//!
//! journald's socket blocks its senders while journald stands still, and so does a pipe that nobody reads. One thread
//! does nothing but write records and is the only one that such a stall can hold; the loop hands records over a bounded
//! queue and never waits. What does not fit is counted and said later.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

/// Records that may wait while the journal stands still.
const QUEUE: usize = 64;

/// `SYSLOG_IDENTIFIER` of our records.
const IDENTIFIER: &str = "harvester-node-agent";

/// How loud a record is; the names and meanings of syslog(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The main job is not done.
    Error,
    /// It works less well than it could, or will stop.
    Warning,
    /// A change that a person wants to find.
    Notice,
    /// Good to know.
    Info,
}

impl Priority {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
        }
    }
}

/// One record. What is `None` is no field of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `PRIORITY`.
    pub priority: Priority,
    /// `MESSAGE`: one line for people.
    pub message: String,
    /// `MESSAGE_ID`, for the catalogue of `journalctl -x`.
    pub message_id: Option<&'static str>,
    /// `HNA_FINDING`: code of a finding.
    pub finding: Option<String>,
    /// `HNA_VM`: name of the VM.
    pub vm: Option<String>,
    /// `HNA_HOST`: the Harvester host.
    pub host: Option<String>,
    /// `HNA_HOST_OLD`: the host before.
    pub host_old: Option<String>,
    /// `HNA_ZONE`: zone of the host.
    pub zone: Option<String>,
    /// `HNA_TRIGGER`: why the agent looked.
    pub trigger: Option<String>,
    /// `HNA_LATENCY_MS`: milliseconds from the trigger to the written labels.
    pub latency_ms: Option<u64>,
    /// `HNA_REMEDY`: what to type.
    pub remedy: Option<String>,
}

impl Record {
    /// A record with a message and no fields.
    pub fn new(priority: Priority, message: impl Into<String>) -> Self {
        Self {
            priority,
            message: message.into(),
            message_id: None,
            finding: None,
            vm: None,
            host: None,
            host_old: None,
            zone: None,
            trigger: None,
            latency_ms: None,
            remedy: None,
        }
    }

    /// The record as lines of text.
    pub fn text(&self) -> String {
        let finding = self
            .finding
            .as_ref()
            .map(|code| format!(" [{code}]"))
            .unwrap_or_default();
        let remedy = self
            .remedy
            .as_ref()
            .map(|remedy| format!("\n    fix: {remedy}"))
            .unwrap_or_default();
        format!(
            "{}: {}{finding}{remedy}\n",
            self.priority.as_str(),
            self.message
        )
    }
}

/// Where records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// journald's own socket, with fields.
    Journal,
    /// Standard error, as text.
    Stderr,
}

impl Sink {
    /// The journal when systemd connected standard error to it and this is the running system; text otherwise, so that
    /// a person who starts the agent by hand sees it talk.
    pub fn choose(live_root: bool, journal_stream: Option<&str>) -> Self {
        if live_root && journal_stream.is_some_and(|stream| !stream.is_empty()) {
            Self::Journal
        } else {
            Self::Stderr
        }
    }
}

/// Takes records and writes them in a thread of its own.
#[derive(Debug)]
pub struct Journal {
    queue: Option<SyncSender<Record>>,
    done: Receiver<()>,
    lost: Arc<AtomicU64>,
    _writer: JoinHandle<()>,
}

impl Journal {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the kernel gives us no thread.
    pub fn start(sink: Sink) -> std::io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE);
        let (finished, done) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        let writer = Builder::new()
            .name("journal-writer".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                match sink {
                    Sink::Journal => write_to_journal(&records, &counter),
                    Sink::Stderr => write_to(&records, &counter, &mut std::io::stderr()),
                }
                let _ = finished.send(());
            })?;
        Ok(Self {
            queue: Some(queue),
            done,
            lost,
            _writer: writer,
        })
    }

    /// Hands a record over. Never waits.
    pub fn send(&self, record: Record) {
        if let Some(Err(TrySendError::Full(_))) =
            self.queue.as_ref().map(|queue| queue.try_send(record))
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for what was handed over to be written, but not for long.
    pub fn close(mut self, patience: Duration) {
        self.queue = None;
        match self.done.recv_timeout(patience) {
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
}

/// The record that tells of lost ones, if there are any.
fn losses(lost: &AtomicU64) -> Option<Record> {
    match lost.swap(0, Ordering::Relaxed) {
        0 => None,
        count => Some(Record::new(
            Priority::Warning,
            format!("{count} records were lost while the journal stood still"),
        )),
    }
}

fn write_to(records: &Receiver<Record>, lost: &AtomicU64, output: &mut impl Write) {
    for record in records {
        // Nobody is left to tell when this fails.
        let _ = output.write_all(record.text().as_bytes());
        if let Some(losses) = losses(lost) {
            let _ = output.write_all(losses.text().as_bytes());
        }
        let _ = output.flush();
    }
}

fn write_to_journal(records: &Receiver<Record>, lost: &AtomicU64) {
    match tracing_journald::Layer::new() {
        Err(_) => write_to(records, lost, &mut std::io::stderr()),
        Ok(layer) => {
            let layer = layer
                .with_field_prefix(None)
                .with_syslog_identifier(IDENTIFIER.to_owned());
            tracing::subscriber::with_default(Registry::default().with(layer), || {
                for record in records {
                    emit(&record);
                    if let Some(losses) = losses(lost) {
                        emit(&losses);
                    }
                }
            });
        }
    }
}

/// One event with a field for each part that the record has. `tracing-journald` maps the levels to priorities 3, 4, 5, 6.
fn emit(record: &Record) {
    macro_rules! event {
        ($level:expr) => {
            tracing::event!(
                $level,
                message_id = record.message_id,
                hna_finding = record.finding.as_deref(),
                hna_vm = record.vm.as_deref(),
                hna_host = record.host.as_deref(),
                hna_host_old = record.host_old.as_deref(),
                hna_zone = record.zone.as_deref(),
                hna_trigger = record.trigger.as_deref(),
                hna_latency_ms = record.latency_ms,
                hna_remedy = record.remedy.as_deref(),
                "{}",
                record.message
            )
        };
    }
    match record.priority {
        Priority::Error => event!(Level::ERROR),
        Priority::Warning => event!(Level::WARN),
        Priority::Notice => event!(Level::INFO),
        Priority::Info => event!(Level::DEBUG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line_with_its_code_and_the_remedy_below() {
        let mut record = Record::new(Priority::Warning, "the hostname differs");
        record.finding = Some("hostname-differs".to_owned());
        record.remedy = Some("hostnamectl set-hostname vm-1".to_owned());
        let expected = "warning: the hostname differs [hostname-differs]\n    fix: hostnamectl set-hostname vm-1\n";
        assert_eq!(record.text(), expected);
    }

    #[test]
    fn the_journal_is_used_only_where_systemd_connected_us_to_it() {
        assert_eq!(Sink::choose(true, Some("8:1234")), Sink::Journal);
        for (live, stream) in [(true, None), (true, Some("")), (false, Some("8:1234"))] {
            assert_eq!(Sink::choose(live, stream), Sink::Stderr);
        }
    }

    #[test]
    fn a_sink_that_stands_still_never_holds_the_sender_and_losses_are_told() {
        struct Stuck(Receiver<()>, Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let _ = self.0.recv();
                self.1.lock().unwrap().extend(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (queue, records) = sync_channel(QUEUE);
        let (release, held) = sync_channel(0);
        let (finished, done) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let written = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (counter, output) = (lost.clone(), written.clone());
        let writer = std::thread::spawn(move || {
            write_to(&records, &counter, &mut Stuck(held, output));
            let _ = finished.send(());
        });
        let journal = Journal {
            queue: Some(queue),
            done,
            lost,
            _writer: writer,
        };
        for number in 0..QUEUE * 3 {
            journal.send(Record::new(Priority::Info, format!("record {number}")));
        }
        drop(release);
        journal.close(Duration::from_secs(5));
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(
            text.contains("records were lost while the journal stood still"),
            "{text}"
        );
        assert!(text.starts_with("info: record 0\n"));
    }
}
