// SPDX-License-Identifier: Apache-2.0
//! The protocol of QEMU's guest agent, without I/O: bytes to requests, and replies to bytes.
//!
//! A client for qemu-ga (`docs/interop/qemu-ga.rst` of QEMU) can use this channel. A request is one JSON object,
//! `{"execute": NAME, "arguments": {...}, "id": ANYTHING}`; a reply is one line, `{"return": ...}` or `{"error": ...}`, with
//! the `id` of the request. The byte 0xFF, which is never in JSON, resets the parser; a client that does not
//! know the state of the channel sends it before `guest-sync-delimited`, whose reply begins with it.
//!
//! To add a command: add a variant of [`QgaCommand`], its name in [`QgaCommand::NAMES`], and its reply in
//! `triggers/operator_channel.rs`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::sys::document::json::Nesting;
use crate::sys::escape::one_line;

/// The maximum length of a value, in bytes. A request has about a hundred.
pub const INPUT_MAX: usize = 64 * 1024;

/// The byte that resets the parser of either side.
pub const RESET: u8 = 0xFF;

/// The maximum depth of a value, as of the JSON parser.
const DEPTH_MAX: usize = 127;

/// The maximum number of characters of an error, which may quote the request.
const SHOWN_MAX: usize = 200;

/// The start of the next request. Each byte is examined once, and the JSON parser gets a value only if it may be whole or invalid, so
/// the cost is linear, however the bytes arrive.
///
/// A value is returned as soon as it is complete, regardless of line ends; all else leads to one error and is dropped up to the end
/// of its line; 0xFF drops all bytes before it and is not part of a value.
#[derive(Debug, Default)]
pub struct Input {
    value: Vec<u8>,
    nesting: Nesting,
    /// The length at which the incomplete value was last found to be valid.
    checked: usize,
    /// Whether the rest of the line is dropped.
    is_dropped: bool,
}

impl Input {
    /// Adds a byte, and returns the request that it completes, or that is known to be invalid.
    pub fn push(&mut self, byte: u8) -> Option<Request> {
        if byte == RESET || self.is_dropped {
            if [RESET, b'\n'].contains(&byte) {
                *self = Self::default();
            }
            return None;
        }
        if self.value.is_empty() && byte.is_ascii_whitespace() {
            return None;
        }
        self.value.push(byte);
        let length = self.value.len();
        self.nesting.add(byte);
        let depth = self.nesting.depth;
        let is_broken = depth > DEPTH_MAX || self.nesting.is_in_string && byte < b' ';
        // A line may end within a value, which is parsed again when it has grown by an eighth.
        let is_line = byte == b'\n' && length >= self.checked + self.checked / 8;
        if depth > 0 && !is_broken && !is_line && length <= INPUT_MAX {
            return None;
        }
        let value = parse(&self.value);
        let is_whole = matches!(value, Ok(Value::Object(_) | Value::Array(_)));
        let members = match value {
            _ if length > INPUT_MAX => Err(format!("JSON value is longer than {INPUT_MAX} bytes")),
            Ok(Value::Object(members)) => Ok(members),
            Err(error) if is_line && error.is_eof() => {
                self.checked = length;
                return None;
            }
            Err(error) if self.value.starts_with(b"{") => Err(format!("JSON parse error, {error}")),
            _ => Err("a request must be a JSON object".to_owned()),
        };
        *self = Self {
            is_dropped: !is_whole && byte != b'\n',
            ..Self::default()
        };
        Some(Request::new(members))
    }
}

fn parse(value: &[u8]) -> serde_json::Result<Value> {
    #[cfg(test)]
    tests::PARSED.set(tests::PARSED.get() + value.len());
    serde_json::from_slice(value)
}

/// The reason why a request is rejected, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QgaRefusal {
    /// The error class of QEMU's protocol. It distinguishes an unknown command from all other errors.
    class: &'static str,
    desc: String,
}

impl QgaRefusal {
    /// Creates the error for all but an unknown command.
    pub fn new(problem: impl AsRef<str>) -> Self {
        Self {
            class: "GenericError",
            desc: one_line(problem.as_ref(), SHOWN_MAX).into_owned(),
        }
    }
}

/// A known command, with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum QgaCommand {
    /// Returns the version and the commands.
    GuestInfo {},
    /// Checks that the agent responds.
    GuestPing {},
    /// Returns the number of the request.
    GuestSync {
        /// The number.
        id: i64,
    },
    /// Like `GuestSync`; the reply begins with [`RESET`].
    GuestSyncDelimited {
        /// The number.
        id: i64,
    },
    /// Reconciles now.
    NodeAgentResync {},
    /// Returns the agent's last status.
    NodeAgentStatus {},
}

impl QgaCommand {
    /// The names of all commands, in the order of `guest-info`.
    pub const NAMES: [&str; 6] = [
        "guest-info",
        "guest-ping",
        "guest-sync",
        "guest-sync-delimited",
        "node-agent-resync",
        "node-agent-status",
    ];
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// The client's ID, repeated in the reply.
    id: Option<Value>,
    /// The requested command.
    pub command: Result<QgaCommand, QgaRefusal>,
}

impl Request {
    fn new(members: Result<Map<String, Value>, String>) -> Self {
        let mut id = None;
        let command = members.map_err(QgaRefusal::new).and_then(|mut members| {
            id = members.remove("id");
            command(members)
        });
        Self { id, command }
    }

    /// Returns the line of the reply.
    pub fn reply(self, outcome: Result<Value, QgaRefusal>) -> Vec<u8> {
        let (key, value) = match outcome {
            Ok(value) => ("return", value),
            Err(refusal) => ("error", json!(refusal)),
        };
        let members = [(key, Some(value)), ("id", self.id)].into_iter();
        let members = members.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let mut line = format!("{}\n", Value::Object(members.collect())).into_bytes();
        if matches!(self.command, Ok(QgaCommand::GuestSyncDelimited { .. })) {
            line.insert(0, RESET);
        }
        line
    }
}

/// A request without its `id`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    execute: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

fn command(members: Map<String, Value>) -> Result<QgaCommand, QgaRefusal> {
    let Members { execute, arguments } = parsed(members)?;
    if QgaCommand::NAMES.contains(&execute.as_str()) {
        return parsed(Map::from_iter([(execute, Value::Object(arguments))]));
    }
    Err(QgaRefusal {
        class: "CommandNotFound",
        // As qemu-ga words it.
        ..QgaRefusal::new(format!("The command {execute} has not been found"))
    })
}

fn parsed<T: DeserializeOwned>(members: Map<String, Value>) -> Result<T, QgaRefusal> {
    T::deserialize(Value::Object(members)).map_err(|error| QgaRefusal::new(error.to_string()))
}

#[cfg(test)]
mod tests;
