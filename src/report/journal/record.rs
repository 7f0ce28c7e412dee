// SPDX-License-Identifier: Apache-2.0
//! One record, and its two forms: journald's own, and lines of text.

use crate::escape::one_line;
use crate::report::message_id::RECORDS_LOST;
use crate::report::sink::StderrStyle;

/// What journald calls us.
const SYSLOG_IDENTIFIER: &str = "harvester-node-agent";

/// Longest text of one field in characters. All our own texts are shorter; foreign ones have no right to more. All fields of a
/// record are far shorter together than a datagram may be.
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

    /// What tells of records that were lost.
    pub(super) fn lost(count: u64) -> Self {
        Self {
            message_id: Some(RECORDS_LOST),
            ..Self::new(
                Priority::Warning,
                format!("{count} records were lost here, the journal did not take them in time"),
            )
        }
    }

    /// The record as journald's socket takes it, a line `NAME=value` for each field; no value holds a line break. Source: "Native
    /// Journal Protocol" of systemd.io.
    pub(super) fn to_native(&self) -> Vec<u8> {
        let mut datagram = String::with_capacity(NATIVE_LENGTH);
        let priority = self.priority.number().to_string();
        let latency = self.latency_ms.map(|latency| latency.to_string());
        for (name, value) in [
            ("MESSAGE", Some(self.message.as_str())),
            ("PRIORITY", Some(priority.as_str())),
            ("SYSLOG_IDENTIFIER", Some(SYSLOG_IDENTIFIER)),
            ("MESSAGE_ID", self.message_id),
            ("HNA_FINDING", self.finding.as_deref()),
            ("HNA_VM", self.vm.as_deref()),
            ("HNA_HOST", self.host.as_deref()),
            ("HNA_HOST_OLD", self.host_old.as_deref()),
            ("HNA_ZONE", self.zone.as_deref()),
            ("HNA_TRIGGER", self.trigger.as_deref()),
            ("HNA_LATENCY_MS", latency.as_deref()),
            ("HNA_REMEDY", self.remedy.as_deref()),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                datagram.extend([name, "=", &one_line(value, FIELD_LIMIT), "\n"]);
            }
        }
        datagram.into_bytes()
    }

    /// The record for people: `level: message [finding]`, and the remedy on a line of its own.
    pub(super) fn to_text(&self, style: StderrStyle) -> String {
        let priority = self.priority;
        let (before, after) = match style {
            StderrStyle::Coloured if !priority.colour().is_empty() => {
                (priority.colour(), "\x1b[0m")
            }
            _ => ("", ""),
        };
        let message = one_line(&self.message, FIELD_LIMIT);
        let mut line = format!("{before}{}{after}: {message}", priority.name());
        if let Some(finding) = &self.finding {
            line.push_str(&format!(" [{}]", one_line(finding, FIELD_LIMIT)));
        }
        let remedy = self
            .remedy
            .as_ref()
            .map(|remedy| format!("    fix: {}", one_line(remedy, FIELD_LIMIT)));
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
}
