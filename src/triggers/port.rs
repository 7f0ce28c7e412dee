// SPDX-License-Identifier: Apache-2.0
//! The event source `port`: opens the agent's virtio-serial port, and detects that the host side reopened it, as in a migration.
//!
//! A host that does not provide the port is normal and costs nothing: inotify waits for the link that udev creates for it.

use std::path::{Path, PathBuf};

use tokio::sync::Notify;

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::agent::signal_board::Signal;
use crate::sys::escape::chain;
use crate::sys::file_watch::{What, watch};
use crate::sys::root::Root;
use crate::triggers::operator_channel::{Conversation, Event, NAME};
use crate::wire::virtio::port::{self, Port, PortError};

const NO_PORT: &str = "the host does not provide the port";

const NOT_CONNECTED: &str = "provided, host not connected";

/// The event source, which also serves the channel.
#[derive(Debug)]
pub(super) struct OwnPort {
    root: Root,
    /// The path of udev's link to the port.
    link: PathBuf,
}

impl Source for OwnPort {
    fn name(&self) -> &'static str {
        "port"
    }

    fn loss(&self) -> &'static str {
        "the host is not answered"
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

impl OwnPort {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triggers::testing::{output, probed};

    #[tokio::test]
    async fn a_port_that_another_process_holds_is_tried_again_and_one_that_is_not_there_is_awaited()
    {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let mut port = OwnPort::new(root.clone());
        let (out, _reasons) = output(&port);
        let absent = port.follow(&out).await;
        let link = PathBuf::from(port::BY_NAME).join(NAME);
        assert_eq!(absent, Lost::Absent(detail(NO_PORT), Some(link.clone())));
        // A file is no device, which is as unusable as a port that is not permitted.
        std::fs::create_dir_all(root.join(port::BY_NAME)).unwrap();
        std::fs::write(root.join(&link), "").unwrap();
        let unusable = port.follow(&out).await;
        assert!(matches!(unusable, Lost::Failed(_)), "{unusable:?}");
    }

    #[tokio::test]
    async fn a_probe_reports_whether_the_host_offers_the_port() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let mut port = OwnPort::new(root.clone());
        assert!(!probed(&mut port).await.live);
        // As the kernel reports it, without udev.
        let class = root.join("/sys/class/virtio-ports/vport1p1");
        std::fs::create_dir_all(&class).unwrap();
        std::fs::write(class.join("name"), format!("{NAME}\n")).unwrap();
        let signal = probed(&mut port).await;
        assert_eq!(signal.detail, format!("{NAME}: provided"));
        assert!(signal.live);
    }
}
