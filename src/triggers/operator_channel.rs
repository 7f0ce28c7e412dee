// SPDX-License-Identifier: Apache-2.0
//! The event source `port`: the agent's virtio-serial port, on which an operator on the host sends commands without a network. That the
//! host side was reopened, as in a migration, is a hint.
//!
//! Active if the host provides a port named [`NAME`] (a libvirt `<channel>` with that target name). A host without one is normal and
//! costs nothing: inotify waits for the link that udev creates for it. The protocol is that of qemu-ga
//! ([`crate::wire::virtio::qga`]): one command at a time, and input is not read while a reply cannot be written. The host may read the
//! status, and request a round; it cannot change anything.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::agent::signal_board::Signal;
use crate::report::status_file;
use crate::sys::escape::chain;
use crate::sys::file_watch::{What, watch};
use crate::sys::root::Root;
use crate::wire::virtio::port::{self, Change, Port, PortError, READ_MAX, Read};
use crate::wire::virtio::qga::{Input, QgaCommand, QgaRefusal, Request};

/// The name of the port.
pub const NAME: &str = "io.harvesterhci.node_agent.0";

/// The maximum time between a response and an intentional disconnect. A later disconnect is treated as caused by a migration.
const VISIT: Duration = Duration::from_secs(10);

const NO_PORT: &str = "the host does not provide the port";

const NOT_CONNECTED: &str = "provided, host not connected";

/// The event source.
#[derive(Debug)]
pub(super) struct OperatorChannel {
    root: Root,
    /// The path of udev's link to the port.
    link: PathBuf,
}

impl Source for OperatorChannel {
    fn about(&self) -> (&'static str, &'static str) {
        ("port", "the host is not answered")
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        Box::pin(async move {
            let error = loop {
                let target = self.root.link_target(&self.link);
                let served = self.serve(target.as_deref(), out).await;
                // Another port may have replaced one that failed.
                if let Err(error) = served
                    && self.root.link_target(&self.link) == target
                {
                    break error;
                }
            };
            let detail = detail(&describe(&error));
            match error {
                // Only a new port can help.
                PortError::NotOffered(_) | PortError::Unplugged(_) => {
                    Lost::Absent(detail, Some(self.link.clone()))
                }
                PortError::Busy(_) | PortError::Denied(_) | PortError::Io { .. } => {
                    Lost::Failed(detail)
                }
            }
        })
    }

    /// Does not open the port: it has one reader.
    fn probe<'a>(&'a mut self, _: &'a Output) -> Work<'a, Signal> {
        let (live, what) = match port::find(&self.root, NAME) {
            Some(_) => (true, "provided"),
            None => (false, NO_PORT),
        };
        let detail = detail(what);
        Box::pin(std::future::ready(Signal { live, detail }))
    }
}

impl OperatorChannel {
    pub(super) fn new(root: Root) -> Self {
        let link = Path::new(port::BY_NAME).join(NAME);
        Self { root, link }
    }

    /// Serves the port until it fails or its link no longer points to `target`.
    async fn serve(&self, target: Option<&Path>, out: &Output) -> Result<(), PortError> {
        let port = Port::open(&self.root, NAME)?;
        let replaced = Notify::new();
        let look = || {
            if self.root.link_target(&self.link).as_deref() != target {
                replaced.notify_one();
            }
        };
        let watching = watch(self.root.clone(), vec![self.link.clone()], What::Name, look);
        tokio::select! {
            ended = self.converse(port, &replaced, out) => ended,
            // Without inotify, a port is used until it is removed.
            () = async { let _ = watching.await; std::future::pending().await } => Ok(()),
        }
    }

    async fn converse(&self, port: Port, replaced: &Notify, out: &Output) -> Result<(), PortError> {
        let say = |what: &str| out.live(detail(what));
        say(NOT_CONNECTED);
        let mut conversation = Conversation::new(self.root.clone(), port);
        loop {
            let attached = conversation.is_attached();
            let event = tokio::select! {
                event = conversation.next() => event,
                // A host that is attached to the open port is served first.
                () = replaced.notified(), if !attached => return Ok(()),
            };
            match event {
                Ok(Event::Attached) => say("host connected"),
                Ok(Event::HungUp) => {
                    say(NOT_CONNECTED);
                    out.fire(Trigger::Port);
                }
                Ok(Event::Left) => say(NOT_CONNECTED),
                Ok(Event::Resync) => out.fire(Trigger::Operator),
                Err(error) => {
                    if conversation.is_attached() && !conversation.has_just_answered() {
                        out.fire(Trigger::Port);
                    }
                    return Err(error);
                }
            }
        }
    }
}

fn detail(what: &str) -> String {
    format!("{NAME}: {what}")
}

fn describe(error: &PortError) -> String {
    match error {
        PortError::NotOffered(_) => NO_PORT.to_owned(),
        PortError::Unplugged(_) => "the host removed the port".to_owned(),
        PortError::Busy(_) => "the port is in use by another program".to_owned(),
        PortError::Denied(_) | PortError::Io { .. } => chain(error),
    }
}

/// An event on the host side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
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
struct Conversation {
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
}

impl Conversation {
    /// Starts on a port that was just opened.
    fn new(root: Root, port: Port) -> Self {
        Self {
            root,
            port,
            input: Input::default(),
            output: Vec::new(),
            attached: false,
            away: false,
            left: false,
            answered: None,
        }
    }

    /// Reports whether the host side was open at the last read.
    fn is_attached(&self) -> bool {
        self.attached
    }

    /// Reports whether a request was answered recently.
    fn has_just_answered(&self) -> bool {
        self.answered.is_some_and(|at| at.elapsed() < VISIT)
    }

    /// Answers requests until an event that the agent must handle. Cancel-safe.
    async fn next(&mut self) -> Result<Event, PortError> {
        loop {
            match self.step()? {
                ChannelStep::Event(event) => return Ok(event),
                // A host that sends requests continuously must not block the thread for the rest of the agent.
                ChannelStep::Worked => tokio::task::yield_now().await,
                ChannelStep::Stuck => {
                    self.away = self.port.changed().await? == Change::HostAway;
                    self.left = self.away && self.attached;
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

#[cfg(test)]
mod tests;
