// SPDX-License-Identifier: Apache-2.0
//! One entry of the journal: as an event of `tracing`, which `tracing-journald` sends, and as text for stderr.

use std::borrow::Cow;

use crate::decide::scheduled_events::ScheduledEvent;
use crate::report::message_id::RECORDS_LOST;
use crate::sys::escape::one_line;

/// The maximum length of a message in characters: one line of a wide terminal, with the time and the name that `journalctl` adds.
pub const MESSAGE_LIMIT: usize = 160;

/// The maximum length of another field in characters. All fields together are far smaller than the maximum datagram.
const FIELD_LIMIT: usize = 1024;

/// The priority of a record, with its number in syslog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Priority {
    /// Something does not work and requires an administrator.
    Error = 3,
    /// Something will fail soon.
    Warning = 4,
    /// A normal but relevant change.
    #[default]
    Notice = 5,
    /// A routine event.
    Info = 6,
    /// Details for developers.
    Debug = 7,
}

impl Priority {
    /// Returns the name in text.
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// One entry. A field that is `None` or empty is omitted. Texts may be untrusted: they are escaped and truncated here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The priority.
    pub priority: Priority,
    /// The event and its object, `MESSAGE`; `HNA_DETAIL` has the whole text if it is longer than [`MESSAGE_LIMIT`].
    pub message: String,
    /// The ID of the entry in the message catalog, 32 hexadecimal digits.
    pub message_id: Option<&'static str>,
    /// The code of the finding, `HNA_FINDING`.
    pub finding: Option<String>,
    /// `namespace/name` of the Harvester VM, `HNA_VM`.
    pub vm: Option<String>,
    /// The Harvester host, `HNA_HOST`.
    pub host: Option<String>,
    /// The host before a migration, `HNA_PREVIOUS_HOST`.
    pub previous_host: Option<String>,
    /// The zone, `HNA_ZONE`.
    pub zone: Option<String>,
    /// The trigger of the reconcile, `HNA_TRIGGER`.
    pub trigger: Option<String>,
    /// The milliseconds from the trigger to the result, `HNA_LATENCY_MS`.
    pub latency_ms: Option<u64>,
    /// The milliseconds for which a live migration interrupted the guest, `HNA_INTERRUPTION_MS`.
    pub interruption_ms: Option<u64>,
    /// The scheduled event, in `HNA_EVENT_ID`, `HNA_EVENT_TYPE`, `HNA_EVENT_STATE`, `HNA_EVENT_REASON`, `HNA_TARGET_HOST` and
    /// `HNA_DEADLINE`.
    pub event: Option<ScheduledEvent>,
    /// The impact, `HNA_IMPACT`.
    pub impact: Option<String>,
    /// The fix, `HNA_FIX`.
    pub fix: Option<String>,
}

impl Record {
    /// Creates a record without fields.
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
                format!("{count} journal entries were dropped: journald was too slow"),
            )
        }
    }

    /// Emits the entry as an event with the field names of the journal. A field that is `None` is omitted.
    pub(super) fn emit(&self) {
        let event = self.event.as_ref();
        // The level of an event is a constant. `tracing` has no notice and syslog no trace: from notice downwards, each priority
        // is the next lower level.
        macro_rules! event {
            ($level:ident) => {
                tracing::event!(
                    target: "harvester_node_agent",
                    tracing::Level::$level,
                    {
                        message = &*self.short_message(),
                        MESSAGE_ID = self.message_id,
                        HNA_FINDING = field(self.finding.as_deref()),
                        HNA_VM = field(self.vm.as_deref()),
                        HNA_HOST = field(self.host.as_deref()),
                        HNA_PREVIOUS_HOST = field(self.previous_host.as_deref()),
                        HNA_ZONE = field(self.zone.as_deref()),
                        HNA_TRIGGER = field(self.trigger.as_deref()),
                        HNA_LATENCY_MS = self.latency_ms,
                        HNA_INTERRUPTION_MS = self.interruption_ms,
                        HNA_DETAIL = self.detail(),
                        HNA_EVENT_ID = event.map(|event| event.id.as_str()),
                        HNA_EVENT_TYPE = event.map(|event| event.kind.as_str()),
                        HNA_EVENT_STATE = event.map(|event| event.state.as_str()),
                        HNA_EVENT_REASON = event.map(|event| event.reason.as_str()),
                        HNA_TARGET_HOST = field(event.and_then(|event| event.target_host.as_deref())),
                        HNA_DEADLINE = event.and_then(|event| event.deadline.as_deref()),
                        HNA_IMPACT = field(self.impact.as_deref()),
                        HNA_FIX = field(self.fix.as_deref()),
                    }
                )
            };
        }
        match self.priority {
            Priority::Error => event!(ERROR),
            Priority::Warning => event!(WARN),
            Priority::Notice => event!(INFO),
            Priority::Info => event!(DEBUG),
            Priority::Debug => event!(TRACE),
        }
    }

    /// Returns the entry as text: `priority: message [finding]`, with the whole message and the fix on separate lines.
    pub(in crate::report) fn text(&self, is_prefixed: bool) -> String {
        let name = self.priority.name();
        let finding = field(self.finding.as_deref());
        let finding = finding.map(|code| format!(" [{code}]")).unwrap_or_default();
        let first = format!("{name}: {}{finding}", self.short_message());
        let line = |name, text: Option<String>| text.map(|text| format!("    {name}: {text}"));
        let lines = [
            Some(first),
            line("detail", self.detail()),
            line("fix", field(self.fix.as_deref())),
        ];
        // The journal removes the number from each line.
        let prefix = match is_prefixed {
            true => format!("<{}>", self.priority as u8),
            false => String::new(),
        };
        let lines = lines.into_iter().flatten();
        lines.map(|line| format!("{prefix}{line}\n")).collect()
    }

    /// Returns the message, truncated to its limit.
    pub(in crate::report) fn short_message(&self) -> Cow<'_, str> {
        one_line(&self.message, MESSAGE_LIMIT)
    }

    /// Returns the whole message if [`Record::short_message`] truncates it.
    fn detail(&self) -> Option<String> {
        field(Some(&self.message)).filter(|whole| *whole != self.short_message())
    }
}

/// Returns a field without line breaks, truncated to its limit; `None` if it is empty.
fn field(value: Option<&str>) -> Option<String> {
    let value = value.filter(|value| !value.is_empty())?;
    Some(one_line(value, FIELD_LIMIT).into_owned())
}
