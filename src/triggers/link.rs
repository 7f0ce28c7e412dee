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

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use tokio::time::Instant;

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::agent::source_board::SourceState;
use crate::facts::nic::{Announce, Nic};
use crate::sys::epoll::EdgeTriggered;
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::netlink::filter::ANNOUNCEMENTS;
use crate::wire::netlink::inventory::{bus_of, read_nics};
use crate::wire::netlink::socket::{
    KERNEL, MESSAGE_MAX, RECEIVE_BUFFER, Received, receive, subscribe,
};
use burst::Burst;
use judge::judge;

/// The event source.
pub(super) struct Link {
    root: Root,
    /// Whether announcements may have been missed before the socket was opened.
    was_deaf: bool,
    burst: Burst,
}

impl Link {
    pub(super) fn new(root: Root) -> Self {
        Self {
            root,
            was_deaf: false,
            burst: Burst::default(),
        }
    }

    /// Handles what was received into `buffer`.
    fn take(&mut self, received: Received, buffer: &[u8], out: &Output) {
        let datagram = match received {
            // A process sent it, not the kernel.
            Received::Datagram { sender, .. } if sender != KERNEL => return,
            Received::Datagram { length, .. } => buffer.get(..length),
            Received::Overrun => None,
        };
        // A message that was truncated, or dropped by the kernel, may have been an announcement.
        let Some(datagram) = datagram else {
            return self.tell(out);
        };
        if let Some(nic) = judge(datagram, |name| bus_of(&self.root, name)) {
            tracing::debug!(?nic, "a virtio NIC sent an announcement");
            self.tell(out);
        }
    }

    fn tell(&mut self, out: &Output) {
        if self.burst.begins(Instant::now()) {
            out.fire(Trigger::Link);
            // NICs may have been added or removed, and another QEMU may offer other features.
            out.state(standing(&self.root));
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
        Box::pin(async move {
            let was_deaf = std::mem::replace(&mut self.was_deaf, true);
            self.burst = Burst::default();
            let opened = subscribe(&ANNOUNCEMENTS, RECEIVE_BUFFER)
                .and_then(|socket| EdgeTriggered::of(socket, EpollFlags::EPOLLIN));
            let socket = match opened {
                Ok(socket) => socket,
                Err(error) => return unopened(&error),
            };
            out.state(standing(&self.root));
            if was_deaf {
                self.tell(out);
            }
            let mut buffer = vec![0; MESSAGE_MAX];
            let error = loop {
                match receive(&socket.file, &mut buffer) {
                    Ok(received) => {
                        self.take(received, &buffer, out);
                        // Messages without end must not block the thread for the rest of the agent.
                        tokio::task::yield_now().await;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if let Err(error) = socket.next().await {
                            break error;
                        }
                    }
                    Err(error) => break error,
                }
            };
            Lost::Failed(format!(
                "rtnetlink: failed to use a netlink socket: {error}"
            ))
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
    let mut lines = lines.collect::<Vec<_>>().join(", ");
    if lines.is_empty() {
        lines.push_str("no virtio NIC");
    }
    let detail = format!("rtnetlink; {lines}");
    SourceState { is_active, detail }
}
