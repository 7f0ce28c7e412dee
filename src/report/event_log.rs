// SPDX-License-Identifier: Apache-2.0
//! `/run/harvester-node-agent/events.json`: the last states of scheduled events, one JSON object a line, the oldest first, for
//! `events` and for all users.
//!
//! The file is world-readable: it must never contain a secret.

use crate::decide::scheduled_events::ScheduledEvent;
use crate::sys::disk::Content;
use crate::sys::escape::in_json;
use crate::sys::root::{ReadError, Root};

/// The path of the file.
pub const EVENTS_FILE: &str = "/run/harvester-node-agent/events.json";

/// The mode of the file: all users may read it, only the agent writes it.
const MODE: u32 = 0o644;

/// The maximum number of states that are kept.
const STATES_MAX: usize = 32;

/// The maximum size of the file. A state has less than 1 KiB.
const SIZE_MAX: u64 = 64 << 10;

/// Adds new states, and drops the oldest ones.
pub fn append(log: &mut Vec<ScheduledEvent>, states: &[ScheduledEvent]) {
    log.extend_from_slice(states);
    log.drain(..log.len().saturating_sub(STATES_MAX));
}

/// Returns a state as one line.
pub fn line(event: &ScheduledEvent) -> String {
    let text = serde_json::to_string(event).unwrap_or_default();
    format!("{}\n", in_json(&text))
}

/// Returns the content of the file.
pub fn content(log: &[ScheduledEvent]) -> Content {
    Content {
        path: EVENTS_FILE.into(),
        text: Some(log.iter().map(line).collect()),
        mode: MODE,
    }
}

/// Reads the states, the oldest first, and the number of the first line that cannot be parsed: an agent of another version may have
/// written it.
///
/// # Errors
///
/// Fails if the file cannot be read; a missing file means that no daemon has run since boot.
pub fn read(root: &Root) -> Result<(Vec<ScheduledEvent>, Option<usize>), ReadError> {
    let text = root.read_text(EVENTS_FILE, SIZE_MAX)?;
    let (mut events, mut damaged) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        match serde_json::from_str(line) {
            Ok(event) => events.push(event),
            Err(_) => damaged = damaged.or(Some(number)),
        }
    }
    Ok((events, damaged))
}
