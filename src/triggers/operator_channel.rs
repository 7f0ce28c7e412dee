// SPDX-License-Identifier: Apache-2.0
//! Handles the commands that an operator on the host sends on the agent's virtio-serial port, which needs no network.
//!
//! Served if the host offers a port named [`NAME`] (a libvirt `<channel>` with that target name). The protocol is that of qemu-ga ([`crate::wire::virtio::qga`]): one command at a time, and no more input is read while a reply
//! waits for room. The host may see what `status` shows and ask for a round; it cannot change anything.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::report::status_file;
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::virtio::port::{Change, Port, PortError, READ_MAX, Read};
use crate::wire::virtio::qga::{Input, QgaCommand, QgaRefusal, Request};

/// The port.
pub const NAME: &str = "io.harvesterhci.node_agent.0";

/// The kernel's host name, in a tree as well.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Anyone who leaves so soon after an answer has what was asked for; anyone who stayed longer was taken away, as a move does.
const VISIT: Duration = Duration::from_secs(10);

/// A host name is at most 64 bytes (`__NEW_UTS_LEN`) and a line feed.
const HOST_NAME_MAX: u64 = 256;

/// What happened on the host's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Someone holds the other end now.
    Attached,
    /// Someone held the other end, and no one does now.
    HungUp,
    /// The same, by someone who had just been answered.
    Left,
    /// Someone asks for a round now.
    Resync,
}

/// What one step came to.
enum ChannelStep {
    /// Something the rest of the agent must know.
    Event(Event),
    /// Work was done, and there may be more.
    Worked,
    /// Nothing can be done before the port changes.
    Stuck,
}

/// The talk on one open port.
#[derive(Debug)]
pub struct Conversation {
    root: Root,
    port: Port,
    input: Input,
    /// What is left of the last reply.
    output: Vec<u8>,
    /// Whether the host side was there when it was last read.
    attached: bool,
    /// Whether the last change of the port was one with no one at the other end. What a host sends while it comes may be here
    /// before the news of it is: the kernel takes data at once, and that news in its own time.
    away: bool,
    /// Whether the host that was there went away: what it asked before is still done, and no one is there to be informed.
    left: bool,
    /// When a request was answered last.
    answered: Option<Instant>,
    wake_ups: u64,
}

impl Conversation {
    /// Begins on a port that was just opened.
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

    /// Whether the host side was there when it was last read.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Whether a request was answered a moment ago.
    pub fn has_just_answered(&self) -> bool {
        self.answered.is_some_and(|at| at.elapsed() < VISIT)
    }

    /// Times that a change of the port woke us.
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups
    }

    /// Answers until something happens that the rest of the agent must know. Cancel-safe.
    ///
    /// # Errors
    ///
    /// When the port cannot be used any more.
    pub async fn next(&mut self) -> Result<Event, PortError> {
        loop {
            match self.step()? {
                ChannelStep::Event(event) => return Ok(event),
                // A host that asks without end must not keep the thread from the rest of the agent.
                ChannelStep::Worked => tokio::task::yield_now().await,
                ChannelStep::Stuck => {
                    self.away = self.port.changed().await? == Change::HostAway;
                    self.left = self.away && self.attached;
                    self.wake_ups += 1;
                }
            }
        }
    }

    /// Writes a part of a reply, or answers one request, or reads once; never waits.
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
                // What an absent host left behind is no sign that it is there.
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

    /// Notes whether the host side is there, and tells where that is news.
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
            QgaCommand::Status => status_file::read(&self.root)
                .map_err(|error| QgaRefusal::Unavailable(chain(&error))),
        }
    }
}

/// What `guest-info` says. A client looks a command up in it before use.
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
