// SPDX-License-Identifier: Apache-2.0
//! Triggers of a reconcile: one file for each event source, and the wait for all of them.
//!
//! A watch also delivers its object ([`feed`]), so that the round need not read it. An event source that fails is reported as
//! inactive ([`crate::agent::source_board`]) and restarted.
//!
//! To add an event source of this machine: a file with its `Source`, its `mod`, a line in `sources`, and a row in
//! `harvester-node-agent-triggers.7.md`. What a reconcile reads for it is the scope of a [`Trigger`]: that of another one, or a new
//! variant.

mod clock;
pub mod feed;
mod files;
mod hostname;
mod inbox;
pub mod link;
pub mod operator_channel;
mod source;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod units;
pub mod watch;
mod watch_cuts;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::source_board::SourceBoard;
use crate::agent::{Next, Reasons, Scope, Trigger, Wait, Wake};
use crate::decide::schedule::{Pace, Random};
use crate::facts::node::Node;
use crate::facts::vmi::Vmi;
use crate::sys::root::Root;
use crate::sys::timer::Alarm;
use crate::wire::dbus::Bus;
pub use inbox::{Inbox, Sender};
use source::{Output, Source, keep};
use watch::{Keeper, Pulse, Target, Watched};

/// The targets of watches and inotify.
#[derive(Debug, Default)]
pub struct Targets {
    /// Our VirtualMachineInstance.
    pub vmi: Option<Target<Vmi>>,
    /// Our Node, whose metadata is watched.
    pub node: Option<Target<Node>>,
    /// The credential files, and the paths where one may appear.
    pub files: BTreeSet<PathBuf>,
    /// The delay between a change of `files` and the read of the credentials: zero while either API does not respond, because a
    /// new credential may fix that.
    pub files_delay: Duration,
}

/// Waits for all event sources.
#[derive(Debug)]
pub struct Listener {
    /// The tasks of the event sources of this machine. They end before what they use.
    _guest: JoinSet<()>,
    start: Instant,
    sender: Sender,
    reasons: Inbox,
    /// Reasons that were received but not acted on yet.
    pending: Option<Reasons>,
    board: SourceBoard,
    alarm: Alarm,
    watchdog: Option<Duration>,
    pace: Pace,
    hangup: Signal,
    vmi: Option<Standing<Vmi>>,
    node: Option<Standing<Node>>,
    /// The number of this machine, see [`crate::decide::schedule::Phase::of`].
    machine: u64,
    files: tokio::sync::watch::Sender<BTreeSet<PathBuf>>,
    files_delay: Duration,
    /// The time at which changed credentials are read.
    files_due: Option<Instant>,
}

impl Listener {
    /// Creates a listener, which takes over SIGHUP. `start` is the time from which the loop counts. Fails if the
    /// kernel does not allow us to handle signals.
    pub fn new(
        root: &Root,
        bus: &Bus,
        start: Instant,
        watchdog: Option<Duration>,
        board: SourceBoard,
        chance: Chance,
    ) -> std::io::Result<Self> {
        let Chance { random, machine } = chance;
        let (sender, reasons) = Inbox::new(random);
        let files = tokio::sync::watch::Sender::default();
        let mut guest = JoinSet::new();
        for mut source in sources(root, bus, &files.subscribe()) {
            let (root, out) = (root.clone(), output_of(&*source, &sender, &board));
            guest.spawn(async move { keep(&mut *source, &root, &out).await });
        }
        Ok(Self {
            start,
            sender,
            reasons,
            pending: None,
            board,
            alarm: Alarm::create(),
            watchdog,
            pace: Pace::of_reconciles(),
            hangup: signal(SignalKind::hangup())?,
            vmi: None,
            node: None,
            machine,
            files,
            files_delay: Duration::ZERO,
            files_due: None,
            _guest: guest,
        })
    }

    fn subscribe_watch<T: Watched>(
        &self,
        slot: Option<Standing<T>>,
        target: Option<Target<T>>,
        trigger: Trigger,
    ) -> Option<Standing<T>> {
        if let (Some(old), Some(new)) = (&slot, &target)
            && old.target.is_same(new)
        {
            return slot;
        }
        if slot.is_some() {
            drop(slot);
            self.board
                .set(trigger.as_str(), false, "object to watch is still unknown");
            self.board.report(trigger.as_str(), None);
        }
        let target = target?;
        let (sender, board) = (self.sender.clone(), self.board.clone());
        let keeper = Keeper::new(target.clone(), trigger, sender, board, self.machine);
        let pulse = keeper.pulse.clone();
        let mut task = JoinSet::new();
        task.spawn(keeper.keep());
        Some(Standing {
            target,
            _task: task,
            pulse,
        })
    }

    /// Keeps a reason for the next reconcile. The first reason for a changed file only reads this machine: the credentials are
    /// read after the delay, because tools replace those of a whole fleet in the same second.
    fn keep(&mut self, trigger: Trigger, at: Instant) {
        let mut reasons = Reasons::new(trigger, self.since_start(at));
        if trigger == Trigger::Files && !self.files_delay.is_zero() {
            let due = Instant::now() + self.files_delay;
            self.files_due.get_or_insert(due);
            reasons.scope = Scope::NONE;
        }
        self.add(reasons);
    }

    fn add(&mut self, reasons: Reasons) {
        self.pending = Some(match self.pending.take() {
            None => reasons,
            Some(earlier) => earlier.and(reasons),
        });
    }

    /// Returns when the pace allows a round for a reason that is there at `now`. Only a round that reasons cause uses up the pace:
    /// what a planned round takes along must not delay a later one.
    fn earliest(&self, now: Instant) -> Instant {
        now + self.pace.left(self.since_start(now)).unwrap_or_default()
    }

    /// Returns when the next round is due, if one is planned.
    fn due(&self, planned: Instant, now: Instant) -> Instant {
        match self.pending {
            Some(_) => planned.min(self.earliest(now)),
            None => planned,
        }
    }

    fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.start)
    }
}

/// Returns the event sources of this machine. `files` are those that the agent reads.
fn sources(root: &Root, bus: &Bus, files: &Receiver<BTreeSet<PathBuf>>) -> Vec<Box<dyn Source>> {
    #[cfg(test)]
    if crate::testing::is_simulated() {
        return Vec::new();
    }
    vec![
        Box::new(link::Link::new(root.clone())),
        Box::new(clock::Clock),
        Box::new(files::Files::new(root, files)),
        Box::new(hostname::Hostname(root.clone())),
        Box::new(operator_channel::OperatorChannel(root.clone())),
        Box::new(units::Units(bus.clone())),
    ]
}

/// Returns the output of a source. What others can cause at will is limited.
fn output_of(source: &dyn Source, sender: &Sender, board: &SourceBoard) -> Output {
    let sender = sender.clone().paced(source.is_paced());
    Output::new(source, sender, board.clone())
}

/// Reports the state of the event sources of this machine, for a process that does not listen to them. `files` are those that it read.
pub async fn probe(root: &Root, bus: &Bus, files: BTreeSet<PathBuf>, board: &SourceBoard) {
    let (_kept, files) = tokio::sync::watch::channel(files);
    for mut source in sources(root, bus, &files) {
        let (sender, _) = Inbox::new(|| Random::from_bits(0));
        let out = Output::new(&*source, sender, SourceBoard::default());
        let state = source.probe(&out).await;
        board.set(source.about().0, state.is_active, state.detail);
    }
}

/// The values that spread a fleet over time.
#[derive(Debug, Clone, Copy)]
pub struct Chance {
    /// Returns new random bits.
    pub random: fn() -> Random,
    /// The number of this machine, see [`crate::decide::schedule::Phase::of`].
    pub machine: u64,
}

/// An established watch.
#[derive(Debug)]
struct Standing<T> {
    target: Target<T>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
    pulse: Pulse,
}

impl Wait for Listener {
    type Targets = Targets;

    fn subscribe(&mut self, targets: Targets) {
        let (vmi, node) = (self.vmi.take(), self.node.take());
        self.vmi = self.subscribe_watch(vmi, targets.vmi, Trigger::Vmi);
        self.node = self.subscribe_watch(node, targets.node, Trigger::Node);
        self.files.send_replace(targets.files);
        self.files_delay = targets.files_delay;
        let latest = Instant::now() + self.files_delay;
        self.files_due = self.files_due.map(|due| due.min(latest));
    }

    async fn wait(&mut self, next: Next, alive: &mut dyn FnMut()) -> Wake {
        let planned = Instant::now() + next.after;
        let mut feed = self.watchdog.map(|period| Instant::now() + period);
        loop {
            // A single timer for all deadlines: an idle process is woken once for each.
            let now = Instant::now();
            let others = self.files_due.into_iter().chain(feed);
            let first = others.fold(self.due(planned, now), Instant::min);
            // Every branch is cancel-safe: signals, channels and the timer lose nothing when another branch is first.
            let reason = tokio::select! {
                biased;
                _ = self.hangup.recv() => return Wake::Reload,
                reason = self.reasons.recv() => Some(reason),
                () = self.board.changed() => Some((Trigger::EventSource, Instant::now())),
                () = self.alarm.until(first) => None,
            };
            let now = Instant::now();
            if let Some((trigger, at)) = reason {
                self.keep(trigger, at);
                // Nothing may delay the report of a migration hint.
                if !(trigger.is_migration_hint() && self.due(planned, now) <= now) {
                    continue;
                }
            }
            if let Some(due) = self.files_due.take_if(|due| *due <= now) {
                self.add(Reasons::new(Trigger::Files, self.since_start(due)));
            }
            if self.due(planned, now) <= now {
                let by_itself = Reasons {
                    trigger: next.trigger,
                    scope: next.scope,
                    ..Reasons::new(Trigger::Timer, self.since_start(now))
                };
                return Wake::Reconcile(match self.pending.take() {
                    Some(pending) if planned <= now => pending.and(by_itself),
                    Some(pending) => {
                        self.pace.take(by_itself.at);
                        pending
                    }
                    None => by_itself,
                });
            }
            if feed.is_some_and(|at| at <= now) {
                alive();
                feed = self.watchdog.map(|period| now + period);
            }
        }
    }

    async fn renamed(&mut self) {
        loop {
            let (trigger, at) = self.reasons.recv().await;
            if trigger != Trigger::Hostname {
                self.keep(trigger, at);
                continue;
            }
            let now = Instant::now();
            let earliest = self.earliest(now);
            if earliest > now {
                // Kept as well: the read may finish before the pace allows a round.
                self.keep(trigger, at);
                self.alarm.until(earliest).await;
            }
            self.pace.take(self.since_start(Instant::now()));
            return;
        }
    }

    fn verify(&mut self, since: Duration) {
        let vmi = self.vmi.as_ref().map(|standing| &standing.pulse);
        let node = self.node.as_ref().map(|standing| &standing.pulse);
        for pulse in [vmi, node].into_iter().flatten() {
            pulse.verify(self.start + since);
        }
    }
}
