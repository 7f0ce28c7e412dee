// SPDX-License-Identifier: Apache-2.0
//! Handles the commands that an operator on the host sends on the agent's virtio-serial port, which needs no network.
//!
//! Active if the host provides a port named [`NAME`] (a libvirt `<channel>` with that target name). The protocol is that of
//! qemu-ga ([`crate::wire::virtio::qga`]): one command at a time, and input is not read while a reply cannot be written. The host
//! may read the content of `status` and `events`, and request a round; it cannot change anything.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::report::{event_log, status_file};
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::virtio::port::{Change, Port, PortError, READ_MAX, Read};
use crate::wire::virtio::qga::{Input, QgaCommand, QgaRefusal, Request};

/// The name of the port.
pub const NAME: &str = "io.harvesterhci.node_agent.0";

/// The file with the kernel's host name, relative to the root.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The maximum time between a response and an intentional disconnect. A later disconnect is treated as caused by a migration.
const VISIT: Duration = Duration::from_secs(10);

/// The maximum size of the file. A host name has at most 64 bytes (`__NEW_UTS_LEN`) and a line feed.
const HOST_NAME_MAX: u64 = 256;

/// An event on the host side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The host opened the port.
    Attached,
    /// The host side closed.
    HungUp,
    /// The host side closed just after a response.
    Left,
    /// The host requests a round.
    Resync,
}

/// The result of one step.
enum ChannelStep {
    /// An event that the agent must handle.
    Event(Event),
    /// Work was done, and there may be more.
    Worked,
    /// Nothing can be done until the state of the port changes.
    Stuck,
}

/// The communication on one open port.
#[derive(Debug)]
pub struct Conversation {
    root: Root,
    port: Port,
    input: Input,
    /// The rest of the last reply.
    output: Vec<u8>,
    /// Whether the host side was open at the last read.
    attached: bool,
    /// Whether the last change of the port was a disconnect of the host. Data that a host sends while it connects may arrive
    /// before that notification: the kernel accepts data immediately, and delivers the notification later.
    away: bool,
    /// Whether an attached host disconnected: its earlier requests are still executed, but not answered.
    left: bool,
    /// The time of the last response.
    answered: Option<Instant>,
    wake_ups: u64,
}

impl Conversation {
    /// Starts on a port that was just opened.
    pub fn new(root: Root, port: Port) -> Self {
        Self {
            root,
            port,
            input: Input::default(),
            output: Vec::new(),
            attached: false,
            away: false,
            left: false,
            answered: None,
            wake_ups: 0,
        }
    }

    /// Reports whether the host side was open at the last read.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Reports whether a request was answered recently.
    pub fn has_just_answered(&self) -> bool {
        self.answered.is_some_and(|at| at.elapsed() < VISIT)
    }

    /// Returns the number of wake-ups by a change of the port.
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups
    }

    /// Answers requests until an event that the agent must handle. Cancel-safe.
    ///
    /// # Errors
    ///
    /// Fails if the port can no longer be used.
    pub async fn next(&mut self) -> Result<Event, PortError> {
        loop {
            match self.step()? {
                ChannelStep::Event(event) => return Ok(event),
                // A host that sends requests continuously must not block the thread for the rest of the agent.
                ChannelStep::Worked => tokio::task::yield_now().await,
                ChannelStep::Stuck => {
                    self.away = self.port.changed().await? == Change::HostAway;
                    self.left = self.away && self.attached;
                    self.wake_ups += 1;
                }
            }
        }
    }

    /// Writes part of a reply, or answers one request, or reads once; never blocks.
    fn step(&mut self) -> Result<ChannelStep, PortError> {
        if self.left {
            self.output = Vec::new();
        }
        if !self.output.is_empty() {
            let count = self.port.write(&self.output)?;
            if count == 0 {
                return Ok(ChannelStep::Stuck);
            }
            self.output.drain(..count.min(self.output.len()));
            return Ok(ChannelStep::Worked);
        }
        if let Some(input) = self.input.take() {
            let request = Request::parse(input);
            let outcome = match &request.command {
                Ok(command) => self.answer(command),
                Err(refusal) => Err(refusal.clone()),
            };
            let is_resync = request.command == Ok(QgaCommand::Resync);
            self.output = request.reply(outcome);
            self.answered = Some(Instant::now());
            return Ok(if is_resync {
                ChannelStep::Event(Event::Resync)
            } else {
                ChannelStep::Worked
            });
        }
        let mut buffer = [0; READ_MAX];
        Ok(match self.port.read(&mut buffer)? {
            Read::Data(count) => {
                self.input.push(buffer.get(..count).unwrap_or_default());
                // Data that a disconnected host left behind does not prove that it is connected.
                self.stands(self.attached || !self.away)
                    .map_or(ChannelStep::Worked, ChannelStep::Event)
            }
            Read::Nothing => {
                self.away = false;
                self.left = false;
                self.stands(true)
                    .map_or(ChannelStep::Stuck, ChannelStep::Event)
            }
            Read::HostAway => {
                if self.attached {
                    self.input.clear();
                }
                self.stands(false)
                    .map_or(ChannelStep::Stuck, ChannelStep::Event)
            }
        })
    }

    /// Records whether the host side is open, and returns the event if that changed.
    fn stands(&mut self, attached: bool) -> Option<Event> {
        match std::mem::replace(&mut self.attached, attached) {
            before if before == attached => None,
            false => Some(Event::Attached),
            true if self.has_just_answered() => Some(Event::Left),
            true => Some(Event::HungUp),
        }
    }

    fn answer(&self, command: &QgaCommand) -> Result<Value, QgaRefusal> {
        match command {
            QgaCommand::Sync(number) | QgaCommand::SyncDelimited(number) => Ok(json!(number)),
            QgaCommand::Ping | QgaCommand::Resync => Ok(json!({})),
            QgaCommand::Info => Ok(info()),
            QgaCommand::HostName => Ok(json!({"host-name": host_name(&self.root)?})),
            QgaCommand::Events => event_log::read(&self.root)
                .map(|events| json!(events))
                .map_err(|error| QgaRefusal::Unavailable(chain(&error))),
            QgaCommand::Status => status_file::read(&self.root)
                .map_err(|error| QgaRefusal::Unavailable(chain(&error))),
        }
    }
}

/// Returns the response to `guest-info`. A client looks up a command in it before use.
fn info() -> Value {
    let commands: Vec<Value> = QgaCommand::NAMES
        .iter()
        .map(|name| json!({"name": name, "enabled": true, "success-response": true}))
        .collect();
    json!({"version": env!("CARGO_PKG_VERSION"), "supported_commands": commands})
}

fn host_name(root: &Root) -> Result<String, QgaRefusal> {
    match root.read_text(HOST_NAME, HOST_NAME_MAX) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        // A sandbox may hide that file.
        Err(_) if root.is_live() => match nix::unistd::gethostname() {
            Ok(name) => Ok(name.to_string_lossy().into_owned()),
            Err(errno) => Err(QgaRefusal::Unavailable(errno.desc().to_owned())),
        },
        Err(error) => Err(QgaRefusal::Unavailable(chain(&error))),
    }
}

#[cfg(test)]
mod tests;
