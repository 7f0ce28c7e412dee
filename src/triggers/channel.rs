// SPDX-License-Identifier: Apache-2.0
//! Our own channel to the host: somebody asks for a look, or the host side is replaced, as a migration does.
//!
//! That the host offers no port is normal and costs nothing: the link that udev would make for it is awaited.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::Sender;
use super::files;
use super::health::{Health, Signal};
use crate::agent::Trigger;
use crate::channel::own::{Conversation, Event, NAME};
use crate::channel::port::{self, Port, PortError};
use crate::escape::chain;
use crate::facts::who::Remark;
use crate::root::Root;

/// What reports call this signal.
const SIGNAL: &str = "channel";

/// The first wait after a port that is offered could not be opened; it doubles with each failure.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest such wait.
const RETRY_MAX: Duration = Duration::from_secs(60);

const NO_PORT: &str = "the host offers no such port";

const NOBODY: &str = "offered, nobody attached";

/// Serves the channel until dropped. How it stands is known at once: the first report comes before the first turn of this.
pub fn serve(root: Root, sender: Sender, health: Health) -> impl Future<Output = ()> + Send {
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

/// How the channel stands for a process that does not serve it.
pub fn probe(root: &Root) -> Signal {
    let (live, detail) = match port::find(root, NAME) {
        Some(_) => (true, format!("{NAME}: offered")),
        None => (false, format!("{NAME}: {NO_PORT}")),
    };
    Signal { live, detail }
}

struct Server {
    root: Root,
    sender: Sender,
    health: Health,
    /// Where udev links the port.
    link: PathBuf,
    /// Something new may stand there.
    offered: Notify,
}

impl Server {
    /// Notices ports that come while the agent runs.
    async fn await_offers(&self) {
        loop {
            let offered = || self.offered.notify_one();
            let _ = files::watch_name(self.root.clone(), self.link.clone(), offered).await;
            // The kernel has no inotify left: a look now and then must do.
            self.offered.notify_one();
            tokio::time::sleep(RETRY_MAX).await;
        }
    }

    /// Opens the port whenever there is one, and serves it while it lasts.
    async fn hold(&self) {
        let mut failures: u32 = 0;
        let mut wait = None;
        loop {
            // The watch says so once it stands, and then for each change.
            match wait {
                None => self.offered.notified().await,
                Some(wait) => {
                    let _ = timeout(wait, self.offered.notified()).await;
                }
            }
            wait = match self.serve_one(&mut failures).await {
                Ok(()) => Some(Duration::ZERO),
                Err(error) => {
                    let wait = pause(&error, failures);
                    failures = wait.map_or(0, |_| failures.saturating_add(1));
                    let what = chain(&error);
                    let remark = wait.map(|_| Remark::SignalUnavailable { what });
                    self.health.remark(SIGNAL, remark);
                    self.say(false, &describe(&error));
                    wait
                }
            };
        }
    }

    /// Serves the port to its end, or until another one stands under its name.
    async fn serve_one(&self, failures: &mut u32) -> Result<(), PortError> {
        let target = self.root.link_target(&self.link);
        let port = Port::open(&self.root, NAME)?;
        self.health.remark(SIGNAL, None);
        self.say(true, NOBODY);
        let mut conversation = Conversation::new(self.root.clone(), port);
        loop {
            let attached = conversation.is_attached();
            let event = tokio::select! {
                event = conversation.next() => event,
                // Whoever is attached to the port that we hold is served first.
                () = self.offered.notified(), if !attached => {
                    if self.root.link_target(&self.link) == target {
                        continue;
                    }
                    return Ok(());
                }
            };
            match event {
                Ok(Event::Attached) => {
                    *failures = 0;
                    self.say(true, "host attached");
                }
                Ok(Event::HungUp) => {
                    self.say(true, NOBODY);
                    self.sender.send(Trigger::Port);
                }
                Ok(Event::Left) => self.say(true, NOBODY),
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
        PortError::Unplugged(_) => "the host took the port away".to_owned(),
        PortError::Busy(_) => "another program holds the port".to_owned(),
        PortError::Denied(_) | PortError::Io { .. } => chain(error),
    }
}

/// How long to wait after so many failures in a row; `None` where only something new can help.
fn pause(error: &PortError, failures: u32) -> Option<Duration> {
    match error {
        PortError::NotOffered(_) | PortError::Unplugged(_) => None,
        PortError::Busy(_) | PortError::Denied(_) | PortError::Io { .. } => {
            let doubled = RETRY_FIRST.saturating_mul(1 << failures.min(16));
            Some(doubled.min(RETRY_MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_port_that_cannot_be_opened_is_tried_again_after_one_second_and_at_last_each_minute() {
        let path = || PathBuf::from("/dev/vport1p1");
        let waits = |error: &PortError| -> Vec<Option<u64>> {
            let pause = |failures| pause(error, failures).map(|wait| wait.as_secs());
            [0, 1, 2, 3, 4, 5, 6, 7, u32::MAX].map(pause).into()
        };
        let growing = [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Some);
        let refused = io::ErrorKind::Other.into();
        for error in [
            PortError::Busy(path()),
            PortError::Denied(path()),
            PortError::Io {
                path: path(),
                source: refused,
            },
        ] {
            assert_eq!(waits(&error), growing, "{error}");
        }
        for error in [
            PortError::NotOffered(NAME.to_owned()),
            PortError::Unplugged(path()),
        ] {
            assert_eq!(waits(&error), [None; 9], "{error}");
        }
    }

    #[test]
    fn a_probe_tells_whether_the_host_offers_the_port() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert!(!probe(&root).live);
        // As the kernel tells it, where there is no udev.
        let class = root.join("/sys/class/virtio-ports/vport1p1");
        std::fs::create_dir_all(&class).unwrap();
        std::fs::write(class.join("name"), format!("{NAME}\n")).unwrap();
        assert_eq!(probe(&root).detail, format!("{NAME}: offered"));
        assert!(probe(&root).live);
    }
}
