// SPDX-License-Identifier: Apache-2.0
//! The event source `port`: opens the agent's virtio-serial port, and detects that the host side reopened it, as in a migration.
//!
//! A host that does not provide the port is normal and costs nothing: inotify waits for the link that udev creates for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::files;
use super::inbox::Sender;
use super::restart_delay::Waits;
use crate::agent::Trigger;
use crate::agent::signal_board::{Signal, SignalBoard};
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::triggers::operator_channel::{Conversation, Event, NAME};
use crate::wire::virtio::port::{self, Port, PortError};

/// The name of this event source in reports.
const SIGNAL: &str = "port";

/// The interval of checks for the port if inotify is not available.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

const NO_PORT: &str = "the host does not provide the port";

const NOT_CONNECTED: &str = "provided, host not connected";

/// Serves the channel until dropped. Reports its state immediately, before the future is polled.
pub fn serve(root: Root, sender: Sender, health: SignalBoard) -> impl Future<Output = ()> + Send {
    let Signal { live, detail } = probe(&root);
    health.set(SIGNAL, live, detail);
    let server = Server {
        link: Path::new(port::BY_NAME).join(NAME),
        offered: Notify::new(),
        root,
        sender,
        health,
    };
    async move {
        tokio::join!(server.await_offers(), server.hold());
    }
}

/// Returns the state of the channel for a process that does not serve it.
pub fn probe(root: &Root) -> Signal {
    let (live, detail) = match port::find(root, NAME) {
        Some(_) => (true, format!("{NAME}: provided")),
        None => (false, format!("{NAME}: {NO_PORT}")),
    };
    Signal { live, detail }
}

struct Server {
    root: Root,
    sender: Sender,
    health: SignalBoard,
    /// The path of udev's link to the port.
    link: PathBuf,
    /// Notified when there may be a new port.
    offered: Notify,
}

impl Server {
    /// Detects ports that are added while the agent runs.
    async fn await_offers(&self) {
        loop {
            let offered = || self.offered.notify_one();
            let _ = files::watch_name(self.root.clone(), self.link.clone(), offered).await;
            // inotify is not available: check periodically instead.
            self.offered.notify_one();
            tokio::time::sleep(CHECK_AGAIN).await;
        }
    }

    /// Opens the port whenever there is one, and serves it until it fails.
    async fn hold(&self) {
        let mut waits = Waits::default();
        let mut wait = None;
        loop {
            // The watch notifies once it is established, and then for each change.
            match wait {
                None => self.offered.notified().await,
                Some(wait) => {
                    let _ = timeout(wait, self.offered.notified()).await;
                }
            }
            let opened = Instant::now();
            wait = match self.serve_one().await {
                Ok(()) => Some(Duration::ZERO),
                Err(error) => {
                    let wait = may_pass(&error).then(|| waits.after(opened.elapsed()));
                    match wait {
                        Some(_) => self.health.unavailable(SIGNAL, chain(&error)),
                        None => self.health.report(SIGNAL, None),
                    }
                    self.say(false, &describe(&error));
                    wait
                }
            };
        }
    }

    /// Serves the port until it fails or its link points to another one.
    async fn serve_one(&self) -> Result<(), PortError> {
        let target = self.root.link_target(&self.link);
        let port = Port::open(&self.root, NAME)?;
        self.health.report(SIGNAL, None);
        self.say(true, NOT_CONNECTED);
        let mut conversation = Conversation::new(self.root.clone(), port);
        loop {
            let attached = conversation.is_attached();
            let event = tokio::select! {
                event = conversation.next() => event,
                // A host that is attached to the open port is served first.
                () = self.offered.notified(), if !attached => {
                    if self.root.link_target(&self.link) == target {
                        continue;
                    }
                    return Ok(());
                }
            };
            match event {
                Ok(Event::Attached) => self.say(true, "host connected"),
                Ok(Event::HungUp) => {
                    self.say(true, NOT_CONNECTED);
                    self.sender.send(Trigger::Port);
                }
                Ok(Event::Left) => self.say(true, NOT_CONNECTED),
                Ok(Event::Resync) => self.sender.send(Trigger::Operator),
                Err(error) => {
                    if conversation.is_attached() && !conversation.has_just_answered() {
                        self.sender.send(Trigger::Port);
                    }
                    return Err(error);
                }
            }
        }
    }

    fn say(&self, live: bool, detail: &str) {
        self.health.set(SIGNAL, live, format!("{NAME}: {detail}"));
    }
}

fn describe(error: &PortError) -> String {
    match error {
        PortError::NotOffered(_) => NO_PORT.to_owned(),
        PortError::Unplugged(_) => "the host removed the port".to_owned(),
        PortError::Busy(_) => "the port is in use by another program".to_owned(),
        PortError::Denied(_) | PortError::Io { .. } => chain(error),
    }
}

/// Reports whether the same port may become available later. If it does not exist, only a new port can help.
fn may_pass(error: &PortError) -> bool {
    match error {
        PortError::NotOffered(_) | PortError::Unplugged(_) => false,
        PortError::Busy(_) | PortError::Denied(_) | PortError::Io { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_another_process_holds_is_tried_again_and_one_that_is_not_there_is_awaited() {
        let path = || PathBuf::from("/dev/vport1p1");
        let source = std::io::ErrorKind::Other.into();
        for error in [
            PortError::Busy(path()),
            PortError::Denied(path()),
            PortError::Io {
                path: path(),
                source,
            },
        ] {
            assert!(may_pass(&error), "{error}");
        }
        for error in [
            PortError::NotOffered(NAME.to_owned()),
            PortError::Unplugged(path()),
        ] {
            assert!(!may_pass(&error), "{error}");
        }
    }

    #[test]
    fn a_probe_reports_whether_the_host_offers_the_port() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert!(!probe(&root).live);
        // As the kernel reports it, without udev.
        let class = root.join("/sys/class/virtio-ports/vport1p1");
        std::fs::create_dir_all(&class).unwrap();
        std::fs::write(class.join("name"), format!("{NAME}\n")).unwrap();
        assert_eq!(probe(&root).detail, format!("{NAME}: provided"));
        assert!(probe(&root).live);
    }
}
