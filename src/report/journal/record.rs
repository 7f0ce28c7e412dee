// SPDX-License-Identifier: Apache-2.0
//! One entry of the journal in its two forms: journald's own, and lines of text.

use std::borrow::Cow;

use crate::escape::one_line;
use crate::report::message_id::RECORDS_LOST;
use crate::report::sink::StderrStyle;

/// The name of the service in the journal.
const SYSLOG_IDENTIFIER: &str = "harvester-node-agent";

/// Longest message in characters: one line of a wide terminal, beside the time and the name that `journalctl` adds.
pub const MESSAGE_LIMIT: usize = 160;

/// Longest other field in characters. All fields together are far shorter than the longest datagram.
const FIELD_LIMIT: usize = 1024;

/// Room for a usual record.
const NATIVE_LENGTH: usize = 1024;

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

/// One entry. A field that is `None` or empty is left out. Texts may be foreign: they are escaped and shortened here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// How much it matters.
    pub priority: Priority,
    /// What happened and where, `MESSAGE`; `HNA_DETAIL` has the whole text if it is longer than [`MESSAGE_LIMIT`].
    pub message: String,
    /// The entry in the message catalog, 32 hexadecimal digits.
    pub message_id: Option<&'static str>,
    /// Code of the finding, `HNA_FINDING`.
    pub finding: Option<String>,
    /// `namespace/name` of the Harvester VM, `HNA_VM`.
    pub vm: Option<String>,
    /// The Harvester host, `HNA_HOST`.
    pub host: Option<String>,
    /// The host before a migration, `HNA_PREVIOUS_HOST`.
    pub previous_host: Option<String>,
    /// The zone, `HNA_ZONE`.
    pub zone: Option<String>,
    /// What triggered the reconcile, `HNA_TRIGGER`.
    pub trigger: Option<String>,
    /// From the trigger to the result, `HNA_LATENCY_MS`.
    pub latency_ms: Option<u64>,
    /// Why it matters, `HNA_IMPACT`.
    pub impact: Option<String>,
    /// What to do about it, `HNA_FIX`.
    pub fix: Option<String>,
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

    /// Returns the entry that reports lost entries.
    pub(super) fn lost(count: u64) -> Self {
        Self {
            message_id: Some(RECORDS_LOST),
            ..Self::new(
                Priority::Warning,
                format!("{count} journal entries lost: journald was too slow"),
            )
        }
    }

    /// The record as journald's socket takes it, a line `NAME=value` for each field; no value holds a line break. Source: "Native
    /// Journal Protocol" of systemd.io.
    pub(in crate::report) fn to_native(&self) -> Vec<u8> {
        let mut datagram = String::with_capacity(NATIVE_LENGTH);
        let message = self.short_message();
        let priority = self.priority.number().to_string();
        let latency = self.latency_ms.map(|latency| latency.to_string());
        for (name, value) in [
            ("MESSAGE", Some(&*message)),
            ("PRIORITY", Some(priority.as_str())),
            ("SYSLOG_IDENTIFIER", Some(SYSLOG_IDENTIFIER)),
            ("MESSAGE_ID", self.message_id),
            ("HNA_FINDING", self.finding.as_deref()),
            ("HNA_VM", self.vm.as_deref()),
            ("HNA_HOST", self.host.as_deref()),
            ("HNA_PREVIOUS_HOST", self.previous_host.as_deref()),
            ("HNA_ZONE", self.zone.as_deref()),
            ("HNA_TRIGGER", self.trigger.as_deref()),
            ("HNA_LATENCY_MS", latency.as_deref()),
            ("HNA_DETAIL", self.detail()),
            ("HNA_IMPACT", self.impact.as_deref()),
            ("HNA_FIX", self.fix.as_deref()),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                datagram.extend([name, "=", &one_line(value, FIELD_LIMIT), "\n"]);
            }
        }
        datagram.into_bytes()
    }

    /// Returns the message as it is written.
    fn short_message(&self) -> Cow<'_, str> {
        one_line(&self.message, MESSAGE_LIMIT)
    }

    /// Returns the whole message where [`Record::short_message`] is only its beginning.
    fn detail(&self) -> Option<&str> {
        let is_cut = self.short_message() != one_line(&self.message, FIELD_LIMIT);
        is_cut.then_some(self.message.as_str())
    }

    /// Returns the human-readable form: `level: message [finding]`, with the whole message and the fix on lines of their own.
    pub(in crate::report) fn to_text(&self, style: StderrStyle) -> String {
        let priority = self.priority;
        let (before, after) = match style {
            StderrStyle::Coloured if !priority.colour().is_empty() => {
                (priority.colour(), "\x1b[0m")
            }
            _ => ("", ""),
        };
        let message = self.short_message();
        let mut line = format!("{before}{}{after}: {message}", priority.name());
        if let Some(finding) = &self.finding {
            line.push_str(&format!(" [{}]", one_line(finding, FIELD_LIMIT)));
        }
        let indented = |name, text: Option<&str>| {
            text.map(|text| format!("    {name}: {}", one_line(text, FIELD_LIMIT)))
        };
        let detail = indented("detail", self.detail());
        let fix = indented("fix", self.fix.as_deref());
        // The journal takes the number off each line again.
        let prefix = match style {
            StderrStyle::Prefixed => format!("<{}>", priority.number()),
            StderrStyle::Plain | StderrStyle::Coloured => String::new(),
        };
        [Some(line), detail, fix]
            .into_iter()
            .flatten()
            .map(|line| format!("{prefix}{line}\n"))
            .collect()
    }
}
