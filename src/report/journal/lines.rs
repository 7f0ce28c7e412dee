// SPDX-License-Identifier: Apache-2.0
//! Entries as text for stderr: `level: message [finding]`, with the whole message and the fix on separate lines.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::record::Priority;
use crate::report::sink::StderrStyle;

/// The format of the lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryLines(pub(super) StderrStyle);

impl<S, N> FormatEvent<S, N> for EntryLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let priority = Priority::of(*event.metadata().level());
        let (before, after) = match self.0 {
            StderrStyle::Coloured if !colour(priority).is_empty() => (colour(priority), "\x1b[0m"),
            _ => ("", ""),
        };
        let mut first = format!("{before}{}{after}: {}", priority.name(), fields.message);
        if let Some(finding) = &fields.finding {
            first.push_str(&format!(" [{finding}]"));
        }
        let indented = |name, text: Option<String>| text.map(|text| format!("    {name}: {text}"));
        let lines = [
            Some(first),
            indented("detail", fields.detail),
            indented("fix", fields.fix),
        ];
        // The journal removes the number from each line.
        let prefix = match self.0 {
            StderrStyle::Prefixed => format!("<{}>", priority.number()),
            StderrStyle::Plain | StderrStyle::Coloured => String::new(),
        };
        for line in lines.into_iter().flatten() {
            writeln!(writer, "{prefix}{line}")?;
        }
        Ok(())
    }
}

/// Returns the color: bold red, yellow, none, none, dim.
fn colour(priority: Priority) -> &'static str {
    match priority {
        Priority::Error => "\x1b[1;31m",
        Priority::Warning => "\x1b[33m",
        Priority::Notice | Priority::Info => "",
        Priority::Debug => "\x1b[2m",
    }
}

/// The fields of an entry that are shown as text.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    finding: Option<String>,
    detail: Option<String>,
    fix: Option<String>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value = value.to_owned();
        match field.name() {
            "message" => self.message = value,
            "HNA_FINDING" => self.finding = Some(value),
            "HNA_DETAIL" => self.detail = Some(value),
            "HNA_FIX" => self.fix = Some(value),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
