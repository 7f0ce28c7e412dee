// SPDX-License-Identifier: Apache-2.0
//! Announcements of virtio NICs: the first migration hint that reaches the guest.
//!
//! After a migration, QEMU requests each virtio NIC to announce itself. The kernel's driver (`virtnet_config_changed_work`)
//! notifies the network peers, and rtnetlink notifies us: `RTM_NEWLINK` with `IFLA_EVENT` = `IFLA_EVENT_NOTIFY_PEERS`, within
//! milliseconds. A restore from a file looks the same, so an announcement is a reason to reconcile but proves nothing.

pub mod burst;
pub mod judge;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use super::source::{Lost, Output, Source, Work};
use crate::agent::source_board::SourceState;
use crate::agent::{HintSink, Trigger};
use crate::facts::nic::{Announce, Nic};
use crate::sys::epoll::EdgeTriggered;
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::netlink::filter::ANNOUNCEMENTS;
use crate::wire::netlink::inventory::{bus_of, read_nics};
use crate::wire::netlink::socket::{KERNEL, MessageSource, RECEIVE_BUFFER, Received, subscribe};
use burst::Burst;
use judge::judge;

/// The size of the receive buffer: the kernel's messages have 1.5 kB, and less than a page.
const MESSAGE_MAX: usize = 8 << 10;

/// The event source.
pub(super) struct Link {
    root: Root,
    hint_sink: HintSink,
    /// Whether announcements may have been missed before the socket was opened.
    was_deaf: bool,
}

impl Link {
    pub(super) fn new(root: Root, hint_sink: HintSink) -> Self {
        Self {
            root,
            hint_sink,
            was_deaf: false,
        }
    }
}

impl Source for Link {
    fn about(&self) -> (&'static str, &'static str) {
        (
            "link",
            "a migration is detected later, by the other event sources",
        )
    }

    fn is_paced(&self) -> bool {
        true
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        let was_deaf = std::mem::replace(&mut self.was_deaf, true);
        let start = Instant::now();
        let mut listening = Listening::new(
            self.root.clone(),
            out.clone(),
            HintSink::clone(&self.hint_sink),
            Box::new(move || start.elapsed()),
        );
        Box::pin(async move {
            let opened = subscribe(&ANNOUNCEMENTS, RECEIVE_BUFFER).and_then(|socket| {
                let edges = EdgeTriggered::of(&socket, EpollFlags::EPOLLIN)?;
                Ok((socket, edges))
            });
            let (socket, edges) = match opened {
                Ok(opened) => opened,
                Err(error) => return unopened(&error),
            };
            listening.update();
            if was_deaf {
                listening.tell();
            }
            let mut buffer = vec![0; MESSAGE_MAX];
            loop {
                let ended = match socket.receive(&mut buffer) {
                    Ok(received) => {
                        listening.take(received, &buffer);
                        // Messages without end must not block the thread for the rest of the agent.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => edges.next().await.err(),
                    Err(error) => Some(error),
                };
                if let Some(error) = ended {
                    let detail = format!("rtnetlink: failed to use a netlink socket: {error}");
                    return Lost::Failed(detail);
                }
            }
        })
    }
}

fn unopened(error: &std::io::Error) -> Lost {
    let problem = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAFNOSUPPORT) => {
            "netlink sockets are not permitted (`RestrictAddressFamilies=` without `AF_NETLINK`)"
                .to_owned()
        }
        _ => format!("failed to open a netlink socket: {error}"),
    };
    Lost::Failed(format!("rtnetlink: {problem}"))
}

struct Listening {
    root: Root,
    out: Output,
    hint_sink: HintSink,
    /// Returns the time since a fixed start.
    now: Box<dyn Fn() -> Duration + Send>,
    burst: Burst,
    /// The number of messages that a process forged.
    forged: u64,
    /// The state of the event source, without the forged messages.
    state: SourceState,
}

impl Listening {
    fn new(
        root: Root,
        out: Output,
        hint_sink: HintSink,
        now: Box<dyn Fn() -> Duration + Send>,
    ) -> Self {
        Self {
            root,
            out,
            hint_sink,
            now,
            burst: Burst::default(),
            forged: 0,
            state: SourceState {
                is_active: false,
                detail: "rtnetlink: not open yet".to_owned(),
            },
        }
    }

    /// Handles what was received into `buffer`.
    fn take(&mut self, received: Received, buffer: &[u8]) {
        match received {
            // One of the messages that the kernel dropped may have been an announcement.
            Received::Overrun => self.tell(),
            Received::Datagram { length, sender } => self.handle(buffer.get(..length), sender),
        }
    }

    /// Updates the state of the event source.
    fn update(&mut self) {
        self.state = standing(&self.root);
        self.say();
    }

    /// Handles a message; `None` if it was truncated, and may have been an announcement.
    fn handle(&mut self, datagram: Option<&[u8]>, sender: u32) {
        // A process sent it, not the kernel.
        if sender != KERNEL {
            self.forged += 1;
            return self.say();
        }
        let Some(datagram) = datagram else {
            return self.tell();
        };
        if let Some(nic) = judge(datagram, |name| bus_of(&self.root, name)) {
            tracing::debug!(?nic, "a virtio NIC sent an announcement");
            self.tell();
        }
    }

    fn tell(&mut self) {
        if self.burst.begins((self.now)()) {
            // Journal readers are notified first.
            (self.hint_sink)(Trigger::Link);
            self.out.fire(Trigger::Link);
            // NICs may have been added or removed, and another QEMU may offer other features.
            self.update();
        }
    }

    fn say(&self) {
        let detail = match self.forged {
            0 => self.state.detail.clone(),
            count => format!("{}; {count} forged messages ignored", self.state.detail),
        };
        self.out.state(SourceState {
            is_active: self.state.is_active,
            detail,
        });
    }
}

/// Returns the state of the event source while the socket is open.
fn standing(root: &Root) -> SourceState {
    match read_nics(root) {
        Ok(nics) => describe(&nics),
        Err(error) => SourceState {
            is_active: false,
            detail: format!("rtnetlink; cannot list NICs: {}", chain(&error)),
        },
    }
}

/// Returns which of the NICs send announcements, and the reason if none does.
fn describe(nics: &[Nic]) -> SourceState {
    let is_active = nics.iter().any(|nic| nic.announce == Announce::Negotiated);
    let lines = nics.iter().filter_map(|nic| {
        let name = nic.name.escape_debug();
        Some(match &nic.announce {
            Announce::Negotiated => format!("{name} sends announcements (virtio_net)"),
            Announce::NotNegotiated(missing) => {
                format!("{name}: {} not negotiated", missing.join(", "))
            }
            Announce::Unknown => format!("{name}: cannot read features"),
            Announce::NotVirtio => return None,
        })
    });
    let lines: Vec<String> = lines.collect();
    let detail = if lines.is_empty() {
        "rtnetlink; no virtio NIC".to_owned()
    } else {
        format!("rtnetlink; {}", lines.join(", "))
    };
    SourceState { is_active, detail }
}
