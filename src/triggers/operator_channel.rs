// SPDX-License-Identifier: Apache-2.0
//! The event source `port`: the agent's virtio-serial port, on which an operator on the host sends commands without a network. That the
//! host side was reopened, as in a migration, is a hint.
//!
//! Active if the host provides a port named [`NAME`] (a libvirt `<channel>` with that target name). A host without one is normal and
//! costs nothing: inotify waits for the link that udev creates for it. The host may read the status, and request a round; it cannot
//! change anything.
//!
//! The protocol is in the form of qemu-ga (`docs/interop/qemu-ga.rst` of QEMU). A request is a line with one JSON object,
//! `{"execute": COMMAND, "id": ANYTHING}`; so is its reply, `{"return": ...}` or `{"error": ...}`, with the `id` of the request. Requests
//! are answered in their order, and input is not read while a reply cannot be written. To add a command: add a variant of [`Command`] to
//! [`Command::ALL`], and its answer.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::agent::source_board::SourceState;
use crate::report::status_file;
use crate::sys::escape::{chain, one_line};
use crate::sys::root::Root;
use crate::wire::virtio::port::{self, Port, PortError, Read};

/// The name of the port.
pub const NAME: &str = "io.harvesterhci.node_agent.0";

/// The maximum time between a response and an intentional disconnect. A later disconnect is treated as caused by a migration.
const VISIT: Duration = Duration::from_secs(10);

/// The maximum length of a request, in bytes. It has about a hundred.
pub const REQUEST_MAX: usize = 64 * 1024;

/// The maximum number of characters of an error, which may quote the request.
const SHOWN_MAX: usize = 200;

const NOT_CONNECTED: &str = "provided, host not connected";

/// The event source.
#[derive(Debug)]
pub(super) struct OperatorChannel(pub(super) Root);

impl Source for OperatorChannel {
    fn about(&self) -> (&'static str, &'static str) {
        ("port", "the host is not answered")
    }

    fn is_paced(&self) -> bool {
        true
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        Box::pin(async move {
            let link = Path::new(port::BY_NAME).join(NAME);
            let error = loop {
                let target = self.0.link_target(&link);
                let error = match Port::open(&self.0, NAME) {
                    Ok(port) => {
                        let mut conversation = Conversation::new(&self.0, out, port);
                        let Err(error) = conversation.serve().await;
                        conversation.stands(false);
                        error
                    }
                    Err(error) => error,
                };
                // Another port may have replaced one that failed.
                if self.0.link_target(&link) == target {
                    break error;
                }
            };
            let detail = detail(&chain(&error));
            match error {
                // Only a new port can help.
                PortError::Absent => Lost::Absent(detail, Some(link)),
                PortError::Busy | PortError::Io(_) => Lost::Failed(detail),
            }
        })
    }

    /// Does not open the port: it has one reader.
    fn probe<'a>(&'a mut self, _: &'a Output) -> Work<'a, SourceState> {
        let (is_active, detail) = match port::find(&self.0, NAME) {
            Some(_) => (true, detail("provided")),
            None => (false, detail(&PortError::Absent.to_string())),
        };
        Box::pin(std::future::ready(SourceState { is_active, detail }))
    }
}

fn detail(what: &str) -> String {
    format!("{NAME}: {what}")
}

/// The communication on one open port.
struct Conversation<'a> {
    root: &'a Root,
    out: &'a Output,
    port: Port,
    /// The rest of the last read.
    received: std::vec::IntoIter<u8>,
    input: Input,
    /// The rest of the last reply.
    output: Vec<u8>,
    /// Whether the host side was open at the last read.
    is_attached: bool,
    /// Whether the last change of the port was a disconnect of the host. Data that a host sends while it connects may arrive
    /// before that notification: the kernel accepts data immediately, and delivers the notification later.
    is_away: bool,
    /// The time of the last response.
    answered: Option<Instant>,
}

impl<'a> Conversation<'a> {
    /// Starts on a port that was just opened.
    fn new(root: &'a Root, out: &'a Output, port: Port) -> Self {
        out.active(detail(NOT_CONNECTED));
        Self {
            root,
            out,
            port,
            received: Vec::new().into_iter(),
            input: Input::default(),
            output: Vec::new(),
            is_attached: false,
            is_away: false,
            answered: None,
        }
    }

    /// Answers requests until the port fails.
    async fn serve(&mut self) -> Result<Infallible, PortError> {
        loop {
            match self.step()? {
                // A host that sends requests continuously must not block the thread for the rest of the agent.
                true => tokio::task::yield_now().await,
                false => self.is_away = self.port.changed().await?,
            }
        }
    }

    /// Writes part of a reply, or answers one request, or reads once; never blocks. Reports whether there may be more to do before the
    /// state of the port changes.
    fn step(&mut self) -> Result<bool, PortError> {
        // The earlier requests of a host that disconnected are still executed, but not answered.
        if self.is_attached && self.is_away {
            self.output.clear();
        }
        if !self.output.is_empty() {
            let count = self.port.write(&self.output)?;
            self.output.drain(..count.min(self.output.len()));
            return Ok(count > 0);
        }
        if let Some(line) = self.received.find_map(|byte| self.input.push(byte)) {
            self.output = reply(&line, |command| self.answer(command));
            self.answered = Some(Instant::now());
            return Ok(true);
        }
        match self.port.read()? {
            Read::Data(bytes) => {
                self.received = bytes.into_iter();
                // Data that a disconnected host left behind does not prove that it is connected.
                self.stands(self.is_attached || !self.is_away);
                return Ok(true);
            }
            Read::Nothing => {
                self.is_away = false;
                self.stands(true);
            }
            Read::HostAway => {
                if self.is_attached {
                    self.input = Input::default();
                }
                self.stands(false);
            }
        }
        Ok(false)
    }

    /// Records whether the host side is open. That it was closed is a hint, unless it was closed just after a response.
    fn stands(&mut self, is_attached: bool) {
        if std::mem::replace(&mut self.is_attached, is_attached) == is_attached {
            return;
        }
        let what = match is_attached {
            true => "host connected",
            false => NOT_CONNECTED,
        };
        self.out.active(detail(what));
        if !is_attached && self.answered.is_none_or(|at| at.elapsed() >= VISIT) {
            self.out.fire(Trigger::Port);
        }
    }

    fn answer(&self, command: Command) -> Result<Value, String> {
        match command {
            Command::GuestPing => {}
            Command::NodeAgentResync => self.out.fire(Trigger::Operator),
            Command::GuestInfo => {
                let commands = Command::ALL
                    .map(|name| json!({"name": name, "enabled": true, "success-response": true}));
                let version = env!("CARGO_PKG_VERSION");
                return Ok(json!({"version": version, "supported_commands": commands}));
            }
            Command::NodeAgentStatus => {
                return status_file::read(self.root).map_err(|error| chain(&error));
            }
        }
        Ok(json!({}))
    }
}

/// Returns the reply to a line, itself a line. `answer` is not called for a line that is no request.
pub fn reply(line: &[u8], answer: impl FnOnce(Command) -> Result<Value, String>) -> Vec<u8> {
    let request = Request::parse(line);
    let id = request.as_ref().ok().and_then(|request| request.id);
    let outcome = request.and_then(|request| {
        let command = Command::deserialize(request.execute.into_deserializer());
        answer(command.map_err(|error: serde::de::value::Error| error.to_string())?)
    });
    let (key, value) = match outcome {
        Ok(value) => ("return", value),
        Err(problem) => {
            let desc = one_line(&problem, SHOWN_MAX);
            ("error", json!({"class": "GenericError", "desc": desc}))
        }
    };
    let id = id.map(|id| format!(",\"id\":{id}")).unwrap_or_default();
    format!("{{\"{key}\":{value}{id}}}\n").into_bytes()
}

/// The start of the next line. One that is longer than [`REQUEST_MAX`] is kept up to there.
#[derive(Debug, Default)]
pub struct Input(Vec<u8>);

impl Input {
    /// Adds a byte, and returns the line that it ends, unless that is blank.
    pub fn push(&mut self, byte: u8) -> Option<Vec<u8>> {
        if byte == b'\n' {
            let line = std::mem::take(&mut self.0);
            return (!line.trim_ascii().is_empty()).then_some(line);
        }
        // One byte more than is allowed shows that the line is too long.
        if self.0.len() <= REQUEST_MAX {
            self.0.push(byte);
        }
        None
    }
}

/// What a host may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Returns the version and the commands.
    GuestInfo,
    /// Checks that the agent responds.
    GuestPing,
    /// Reconciles now.
    NodeAgentResync,
    /// Returns the agent's last status.
    NodeAgentStatus,
}

impl Command {
    /// All commands.
    pub const ALL: [Self; 4] = [
        Self::GuestInfo,
        Self::GuestPing,
        Self::NodeAgentResync,
        Self::NodeAgentStatus,
    ];
}

/// A request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a> {
    execute: String,
    /// The client's ID, repeated in the reply as it is.
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, String> {
        match line.len() > REQUEST_MAX {
            true => Err(format!("the line has more than {REQUEST_MAX} bytes")),
            false => serde_json::from_slice(line)
                .map_err(|error| format!("the line is not a request: {error}")),
        }
    }
}

#[cfg(test)]
mod tests;
