// SPDX-License-Identifier: Apache-2.0
//! Announcements of virtio NICs: the first sign of a live migration that reaches the guest.
//!
//! QEMU asks each virtio NIC of a VM that begins to run elsewhere to announce itself. The kernel's driver
//! (`virtnet_config_changed_work`) tells its neighbours, and rtnetlink tells us: `RTM_NEWLINK` with `IFLA_EVENT` =
//! `IFLA_EVENT_NOTIFY_PEERS`, within milliseconds. A restore from a file looks the same, so it is a reason to look and proves
//! nothing.

pub mod burst;
pub mod judge;
#[cfg(test)]
mod tests;

use tokio::time::Instant;

use super::Sender;
use super::health::{Health, Signal};
use super::waits::Waits;
use crate::agent::Trigger;
use crate::escape::chain;
use crate::facts::nic::{Announce, Nic};
use crate::facts::who::Remark;
use crate::netlink::filter::ANNOUNCEMENTS;
use crate::netlink::inventory::{bus_of, read_nics};
use crate::netlink::socket::{LinkSocket, NetlinkError, RECEIVE_BUFFER, Received, Source};
use crate::root::Root;
use burst::Burst;
use judge::{Refused, judge};

const SIGNAL: &str = "link";

/// Room for one message: the kernel makes them of 1.5 kB, and of less than a page.
const MESSAGE_MAX: usize = 8 << 10;

/// Messages that are taken before others have their turn: no flood of them may stop the agent.
const TURN: u32 = 64;

/// Listens until dropped.
pub async fn listen(root: Root, sender: Sender, health: Health) {
    let mut listening = Listening::new(root, sender, health);
    listening
        .keep(|| LinkSocket::open(&ANNOUNCEMENTS, RECEIVE_BUFFER))
        .await;
}

/// How the signal would stand, without listening. Needs a tokio runtime.
pub fn probe(root: &Root) -> Signal {
    match LinkSocket::open(&ANNOUNCEMENTS, RECEIVE_BUFFER) {
        Ok(_) => standing(root),
        Err(error) => Signal {
            live: false,
            detail: format!("rtnetlink: {}", chain(&error)),
        },
    }
}

/// What came in so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    /// Times that the socket woke us.
    wakes: u64,
    /// Announcements of virtio NICs.
    announced: u64,
    /// Messages that are no reason to look.
    refused: u64,
    /// Of these, announcements that a process made up.
    forged: u64,
    /// Times that the kernel dropped messages.
    overruns: u64,
    /// Reasons given.
    told: u64,
}

#[derive(Debug)]
struct Listening {
    root: Root,
    sender: Sender,
    health: Health,
    start: Instant,
    burst: Burst,
    tally: Tally,
    /// How the signal stands, forgeries aside.
    signal: Signal,
    /// A reason was given, and it was not yet looked how the signal stands now.
    has_told: bool,
}

impl Listening {
    fn new(root: Root, sender: Sender, health: Health) -> Self {
        Self {
            signal: Signal {
                live: false,
                detail: "rtnetlink: not open yet".to_owned(),
            },
            root,
            sender,
            health,
            start: Instant::now(),
            burst: Burst::default(),
            tally: Tally::default(),
            has_told: false,
        }
    }

    /// Listens until dropped to what `open` gives, anew each time that it dies.
    async fn keep<S: Source>(&mut self, mut open: impl FnMut() -> Result<S, NetlinkError>) {
        let mut waits = Waits::default();
        let mut was_deaf = false;
        loop {
            let opened = Instant::now();
            let died = match open() {
                Ok(source) => {
                    self.signal = standing(&self.root);
                    self.say();
                    self.health.remark(SIGNAL, None);
                    if was_deaf {
                        // What was announced in the meantime is made up for.
                        self.tell();
                    }
                    NetlinkError::Io(self.follow(&source).await)
                }
                Err(error) => error,
            };
            was_deaf = true;
            let detail = format!("rtnetlink: {}", chain(&died));
            self.signal = Signal {
                live: false,
                detail: detail.clone(),
            };
            self.say();
            let what = format!("{detail}; a migration is noticed later, by the other signals");
            self.health
                .remark(SIGNAL, Some(Remark::SignalUnavailable { what }));
            tokio::time::sleep(waits.after(opened.elapsed())).await;
        }
    }

    /// Listens to one source for as long as it lives. Cancel-safe.
    async fn follow(&mut self, source: &impl Source) -> std::io::Error {
        let mut buffer = vec![0; MESSAGE_MAX];
        loop {
            if let Err(error) = source.ready().await {
                return error;
            }
            self.tally.wakes += 1;
            let mut taken = 0;
            loop {
                match source.receive(&mut buffer) {
                    Ok(Received::Nothing) => break,
                    Ok(Received::Overrun) => self.lost(),
                    Ok(Received::Datagram { length, sender }) => {
                        self.hear(buffer.get(..length), sender);
                    }
                    Err(error) => return error,
                }
                taken += 1;
                if taken % TURN == 0 {
                    tokio::task::yield_now().await;
                }
            }
            if std::mem::take(&mut self.has_told) {
                // Whoever was told goes first. NICs may have come and gone, and another QEMU may offer other features.
                tokio::task::yield_now().await;
                self.signal = standing(&self.root);
                self.say();
            }
        }
    }

    /// Takes a message; `None` if it was too long to be taken whole.
    fn hear(&mut self, datagram: Option<&[u8]>, sender: u32) {
        let judged = judge(datagram.unwrap_or_default(), sender, |name| {
            bus_of(&self.root, name)
        });
        match judged {
            Ok(announce) => {
                tracing::debug!(nic = ?announce.nic, "a virtio NIC announces itself");
                self.tally.announced += 1;
                self.tell();
            }
            Err(Refused::Forged(_)) => {
                self.tally.refused += 1;
                self.tally.forged += 1;
                self.say();
            }
            Err(_) if datagram.is_none() => self.lost(),
            Err(_) => self.tally.refused += 1,
        }
    }

    /// Messages were dropped; one of them may have been an announcement.
    fn lost(&mut self) {
        self.tally.overruns += 1;
        self.tell();
    }

    fn tell(&mut self) {
        if self.burst.begins(self.start.elapsed()) {
            self.tally.told += 1;
            self.sender.send(Trigger::Link);
            self.has_told = true;
        }
    }

    fn say(&self) {
        let detail = match self.tally.forged {
            0 => self.signal.detail.clone(),
            count => format!("{}; {count} forged refused", self.signal.detail),
        };
        self.health.set(SIGNAL, self.signal.live, detail);
    }
}

/// How the signal stands while the socket is open.
fn standing(root: &Root) -> Signal {
    match read_nics(root) {
        Ok(nics) => describe(&nics),
        Err(error) => Signal {
            live: false,
            detail: format!("rtnetlink; no NIC can be seen: {}", chain(&error)),
        },
    }
}

/// Which of the NICs announce themselves, and why not where none does.
fn describe(nics: &[Nic]) -> Signal {
    let live = nics.iter().any(|nic| nic.announce == Announce::Negotiated);
    let lines = nics.iter().filter_map(|nic| {
        let name = nic.name.escape_debug();
        Some(match &nic.announce {
            Announce::Negotiated => format!("{name} announces (virtio_net)"),
            Announce::NotNegotiated(missing) => {
                format!("{name}: {} not negotiated", missing.join(", "))
            }
            Announce::Unknown => format!("{name}: features cannot be read"),
            Announce::NotVirtio => return None,
        })
    });
    let lines: Vec<String> = lines.collect();
    let detail = if lines.is_empty() {
        "rtnetlink; no virtio NIC".to_owned()
    } else {
        format!("rtnetlink; {}", lines.join(", "))
    };
    Signal { live, detail }
}
