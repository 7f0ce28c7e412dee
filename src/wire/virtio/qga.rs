// SPDX-License-Identifier: Apache-2.0
//! The protocol of QEMU's guest agent, without I/O: bytes to requests, and replies to bytes.
//!
//! A client for qemu-ga (`docs/interop/qemu-ga.rst` of QEMU) can use this channel. A request is one JSON object,
//! `{"execute": NAME, "arguments": {...}, "id": ANYTHING}`, in one line, whose end may be missing, as QEMU's
//! client does not send it; so is a reply, `{"return": ...}` or `{"error": ...}`, with the `id` of the request. The byte 0xFF, which is never in JSON, resets the parser; a client that does not
//! know the state of the channel sends it before `guest-sync-delimited`, whose reply begins with it.
//!
//! To add a command: add a variant of [`QgaCommand`], its name in [`QgaCommand::NAMES`], and its reply in
//! `triggers/operator_channel.rs`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::sys::document::json::Nesting;
use crate::sys::escape::one_line;

/// The maximum length of a line, in bytes. A request has about a hundred.
pub const INPUT_MAX: usize = 64 * 1024;

/// The byte that resets the parser of either side.
pub const RESET: u8 = 0xFF;

/// The maximum number of characters of an error, which may quote the request.
const SHOWN_MAX: usize = 200;

/// The start of the next request, which ends with its object or its line. A line that is longer than [`INPUT_MAX`] is dropped up to its
/// end; 0xFF drops all bytes before it.
#[derive(Debug, Default)]
pub struct Input {
    line: Vec<u8>,
    nesting: Nesting,
}

impl Input {
    /// Adds a byte, and returns the request that it completes.
    pub fn push(&mut self, byte: u8) -> Option<Request> {
        if byte == RESET {
            *self = Self::default();
            return None;
        }
        // One byte more than is allowed shows that the line is too long.
        let is_kept = byte != b'\n' && self.line.len() <= INPUT_MAX;
        if is_kept {
            self.line.push(byte);
            self.nesting.add(byte);
        }
        let is_at_end = self.nesting.depth == 0 && !self.nesting.is_in_string;
        let is_object = is_kept && byte == b'}' && is_at_end;
        if byte != b'\n' && !is_object {
            return None;
        }
        let Self { line, .. } = std::mem::take(self);
        (!line.trim_ascii().is_empty()).then(|| Request::new(&line))
    }
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
    fn new(line: &[u8]) -> Self {
        let members = match line.len() > INPUT_MAX {
            true => Err(format!("a line has more than {INPUT_MAX} bytes")),
            false => serde_json::from_slice::<Map<String, Value>>(line)
                .map_err(|error| format!("a line must be one JSON object: {error}")),
        };
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
