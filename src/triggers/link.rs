// SPDX-License-Identifier: Apache-2.0
//! Announcements of virtio NICs: the first migration hint that reaches the guest.
//!
//! After a migration, QEMU requests each virtio NIC to announce itself. The kernel's driver (`virtnet_config_changed_work`)
//! notifies the network peers, and rtnetlink notifies us: `RTM_NEWLINK` with `IFLA_EVENT` = `IFLA_EVENT_NOTIFY_PEERS`, within
//! milliseconds. A restore from a file looks the same, so an announcement is a reason to reconcile but proves nothing.
//!
//! The listener has a dedicated thread: even if the agent is busy, a migration hint is recorded as soon as the kernel has reported
//! it.

pub mod burst;
pub mod judge;
#[cfg(test)]
mod tests;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::inbox::Sender;
use super::restart_delay::Waits;
use crate::agent::signal_board::{Signal, SignalBoard};
use crate::agent::{HintSink, Trigger};
use crate::facts::nic::{Announce, Nic};
use crate::sys::debug::debug;
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::netlink::filter::ANNOUNCEMENTS;
use crate::wire::netlink::inventory::{bus_of, read_nics};
use crate::wire::netlink::socket::{
    LinkSocket, MessageSource, NetlinkError, RECEIVE_BUFFER, Received,
};
use burst::Burst;
use judge::{RefusedAnnounce, judge};

const SIGNAL: &str = "link";

/// The size of the receive buffer: the kernel's messages have 1.5 kB, and less than a page.
const MESSAGE_MAX: usize = 8 << 10;

/// Listens as long as the process lives.
pub fn listen(root: Root, sender: Sender, health: &SignalBoard, hint_sink: HintSink) {
    #[cfg(test)]
    if crate::sys::timer::testing::is_on() {
        return;
    }
    let start = Instant::now();
    let now = Box::new(move || start.elapsed());
    let mut listening = Listening::new(root, sender, health.clone(), hint_sink, now);
    let started = thread::Builder::new()
        .name(SIGNAL.to_owned())
        .spawn(move || listening.keep());
    if let Err(error) = started {
        deaf(
            health,
            &format!("failed to spawn the rtnetlink thread: {error}"),
        );
    }
}

/// Reports that the event source is inactive.
fn deaf(health: &SignalBoard, detail: &str) {
    health.set(SIGNAL, false, detail.to_owned());
    let what = format!("{detail}; a migration is detected later, by the other event sources");
    health.unavailable(SIGNAL, what);
}

/// Returns the state of the event source, without listening.
pub fn probe(root: &Root) -> Signal {
    match LinkSocket::open(&ANNOUNCEMENTS, RECEIVE_BUFFER) {
        Ok(_) => standing(root),
        Err(error) => Signal {
            live: false,
            detail: format!("rtnetlink: {}", chain(&error)),
        },
    }
}

/// The counts of received messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct HintTally {
    /// Announcements of virtio NICs.
    announced: u64,
    /// Messages that are not a reason to reconcile.
    refused: u64,
    /// Messages among the refused that a process forged.
    forged: u64,
    /// The number of times that the kernel dropped messages.
    overruns: u64,
    /// Reasons sent.
    reported: u64,
}

struct Listening {
    root: Root,
    sender: Sender,
    health: SignalBoard,
    hint_sink: HintSink,
    /// Returns the time since a fixed start.
    now: Box<dyn Fn() -> Duration + Send>,
    burst: Burst,
    waits: Waits,
    tally: HintTally,
    /// The state of the event source, without the forged messages.
    signal: Signal,
    /// Whether announcements may have been missed before the socket was opened.
    was_deaf: bool,
}

impl Listening {
    fn new(
        root: Root,
        sender: Sender,
        health: SignalBoard,
        hint_sink: HintSink,
        now: Box<dyn Fn() -> Duration + Send>,
    ) -> Self {
        Self {
            root,
            sender,
            health,
            hint_sink,
            now,
            burst: Burst::default(),
            waits: Waits::default(),
            tally: HintTally::default(),
            signal: Signal {
                live: false,
                detail: "rtnetlink: not open yet".to_owned(),
            },
            was_deaf: false,
        }
    }

    /// Listens, and reopens the kernel's socket each time that it fails.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread is the listener's own"
    )]
    fn keep(&mut self) -> ! {
        loop {
            thread::sleep(self.live(LinkSocket::open(&ANNOUNCEMENTS, RECEIVE_BUFFER)));
        }
    }

    /// Listens to a source until it fails. Returns the delay before the next one.
    fn live<S: MessageSource>(&mut self, opened: Result<S, NetlinkError>) -> Duration {
        let began = (self.now)();
        let died = match opened {
            Ok(source) => {
                self.update();
                self.health.report(SIGNAL, None);
                if std::mem::take(&mut self.was_deaf) {
                    self.tell();
                }
                NetlinkError::Io(self.follow(&source))
            }
            Err(error) => error,
        };
        self.was_deaf = true;
        deaf(&self.health, &format!("rtnetlink: {}", chain(&died)));
        self.waits.after((self.now)().saturating_sub(began))
    }

    /// Handles the messages of a source until it fails.
    fn follow(&mut self, source: &impl MessageSource) -> io::Error {
        let mut buffer = vec![0; MESSAGE_MAX];
        loop {
            let reported = self.tally.reported;
            match source.receive(&mut buffer) {
                Ok(Received::Nothing) => {}
                Ok(Received::Overrun) => self.lost(),
                Ok(Received::Datagram { length, sender }) => {
                    self.handle(buffer.get(..length), sender);
                }
                Err(error) => return error,
            }
            if self.tally.reported != reported {
                // NICs may have been added or removed, and another QEMU may offer other features.
                self.update();
            }
        }
    }

    /// Updates the state of the event source.
    fn update(&mut self) {
        self.signal = standing(&self.root);
        self.say();
    }

    /// Handles a message; `None` if it was truncated.
    fn handle(&mut self, datagram: Option<&[u8]>, sender: u32) {
        let judged = judge(datagram.unwrap_or_default(), sender, |name| {
            bus_of(&self.root, name)
        });
        match judged {
            Ok(announce) => {
                debug(|| format!("virtio NIC {:?} sent an announcement", announce.nic));
                self.tally.announced += 1;
                self.tell();
            }
            Err(RefusedAnnounce::Forged(_)) => {
                self.tally.refused += 1;
                self.tally.forged += 1;
                self.say();
            }
            Err(_) if datagram.is_none() => self.lost(),
            Err(_) => self.tally.refused += 1,
        }
    }

    /// Handles dropped messages; one of them may have been an announcement.
    fn lost(&mut self) {
        self.tally.overruns += 1;
        self.tell();
    }

    fn tell(&mut self) {
        if self.burst.begins((self.now)()) {
            self.tally.reported += 1;
            // Journal readers are notified first.
            (self.hint_sink)(Trigger::Link);
            self.sender.send(Trigger::Link);
        }
    }

    fn say(&self) {
        let detail = match self.tally.forged {
            0 => self.signal.detail.clone(),
            count => format!("{}; {count} forged messages ignored", self.signal.detail),
        };
        self.health.set(SIGNAL, self.signal.live, detail);
    }
}

/// Returns the state of the event source while the socket is open.
fn standing(root: &Root) -> Signal {
    match read_nics(root) {
        Ok(nics) => describe(&nics),
        Err(error) => Signal {
            live: false,
            detail: format!("rtnetlink; cannot list NICs: {}", chain(&error)),
        },
    }
}

/// Returns which of the NICs send announcements, and the reason if none does.
fn describe(nics: &[Nic]) -> Signal {
    let live = nics.iter().any(|nic| nic.announce == Announce::Negotiated);
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
    Signal { live, detail }
}
