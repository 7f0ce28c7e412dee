// SPDX-License-Identifier: Apache-2.0
//! One entry of the journal, which becomes an event of `tracing`.

use std::borrow::Cow;

use tracing::Level;

use crate::decide::scheduled_events::ScheduledEvent;
use crate::report::message_id::RECORDS_LOST;
use crate::sys::escape::one_line;

/// The maximum length of a message in characters: one line of a wide terminal, with the time and the name that `journalctl` adds.
pub const MESSAGE_LIMIT: usize = 160;

/// The maximum length of another field in characters. All fields together are far smaller than the maximum datagram.
const FIELD_LIMIT: usize = 1024;

/// The priority of a record, as in syslog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Something does not work and requires an administrator.
    Error,
    /// Something will fail soon.
    Warning,
    /// A normal but relevant change.
    #[default]
    Notice,
    /// A routine event.
    Info,
    /// Details for developers.
    Debug,
}

impl Priority {
    /// Returns the level of an event. `tracing` has no notice and syslog no trace: from notice downwards, each priority uses the
    /// next lower level.
    pub(super) fn level(self) -> Level {
        match self {
            Self::Error => Level::ERROR,
            Self::Warning => Level::WARN,
            Self::Notice => Level::INFO,
            Self::Info => Level::DEBUG,
            Self::Debug => Level::TRACE,
        }
    }

    /// Returns the priority of an event.
    pub(super) fn of(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            Level::INFO => Self::Notice,
            Level::DEBUG => Self::Info,
            Level::TRACE => Self::Debug,
        }
    }

    /// Returns the number in syslog.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Notice => 5,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }

    /// Returns the name in text.
    pub(super) fn name(self) -> &'static str {
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

    /// Emits the entry as an event with the field names of the journal. No value contains a line break.
    pub(super) fn emit(&self) {
        let message = self.short_message();
        let finding = field(self.finding.as_deref());
        let vm = field(self.vm.as_deref());
        let host = field(self.host.as_deref());
        let previous_host = field(self.previous_host.as_deref());
        let zone = field(self.zone.as_deref());
        let trigger = field(self.trigger.as_deref());
        let detail = field(self.detail());
        let event = self.event.as_ref();
        let target_host = field(event.and_then(|event| event.target_host.as_deref()));
        let impact = field(self.impact.as_deref());
        let fix = field(self.fix.as_deref());
        // The level of an event is a constant. A field that is `None` is omitted.
        macro_rules! event {
            ($level:expr) => {
                tracing::event!(
                    target: "harvester_node_agent",
                    $level,
                    {
                        message = &*message,
                        MESSAGE_ID = self.message_id,
                        HNA_FINDING = finding.as_deref(),
                        HNA_VM = vm.as_deref(),
                        HNA_HOST = host.as_deref(),
                        HNA_PREVIOUS_HOST = previous_host.as_deref(),
                        HNA_ZONE = zone.as_deref(),
                        HNA_TRIGGER = trigger.as_deref(),
                        HNA_LATENCY_MS = self.latency_ms,
                        HNA_INTERRUPTION_MS = self.interruption_ms,
                        HNA_DETAIL = detail.as_deref(),
                        HNA_EVENT_ID = event.map(|event| event.id.as_str()),
                        HNA_EVENT_TYPE = event.map(|event| event.kind.as_str()),
                        HNA_EVENT_STATE = event.map(|event| event.state.as_str()),
                        HNA_EVENT_REASON = event.map(|event| event.reason.as_str()),
                        HNA_TARGET_HOST = target_host.as_deref(),
                        HNA_DEADLINE = event.and_then(|event| event.deadline.as_deref()),
                        HNA_IMPACT = impact.as_deref(),
                        HNA_FIX = fix.as_deref(),
                    }
                )
            };
        }
        match self.priority {
            Priority::Error => event!(Level::ERROR),
            Priority::Warning => event!(Level::WARN),
            Priority::Notice => event!(Level::INFO),
            Priority::Info => event!(Level::DEBUG),
            Priority::Debug => event!(Level::TRACE),
        }
    }

    /// Returns the message, truncated to its limit.
    pub(in crate::report) fn short_message(&self) -> Cow<'_, str> {
        one_line(&self.message, MESSAGE_LIMIT)
    }

    /// Returns the whole message if [`Record::short_message`] truncates it.
    fn detail(&self) -> Option<&str> {
        let is_cut = self.short_message() != one_line(&self.message, FIELD_LIMIT);
        is_cut.then_some(self.message.as_str())
    }
}

/// Returns a field, truncated to its limit; `None` if it is empty.
fn field(value: Option<&str>) -> Option<Cow<'_, str>> {
    let value = value.filter(|value| !value.is_empty())?;
    Some(one_line(value, FIELD_LIMIT))
}
