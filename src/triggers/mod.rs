// SPDX-License-Identifier: Apache-2.0
//! Triggers of a reconcile: one file for each event source, and the wait for all of them.
//!
//! A watch also delivers its object ([`feed`]), so that the round need not read it. An event source that fails is reported as
//! inactive ([`crate::agent::signal_board`]) and restarted.
//!
//! To add a trigger: a variant of [`Trigger`] with its scope, a file with its source, a line in `guest_signals`, or in
//! `Listener::subscribe` if the targets depend on the observation, and a line in `probe`.

pub mod clock;
pub mod dbus;
pub mod feed;
pub mod files;
pub mod hostname;
mod inbox;
pub mod link;
pub mod operator_channel;
pub mod port;
pub mod restart_delay;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::agent::signal_board::SignalBoard;
use crate::agent::{HintSink, Next, Reasons, Scope, Trigger, Wait, Wake};
use crate::decide::schedule::{Pace, Random};
use crate::facts::node::Node;
use crate::facts::vmi::Vmi;
use crate::sys::root::Root;
use crate::sys::timer::Alarm;
use crate::wire::dbus::Bus;
pub use inbox::{Inbox, Sender};
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
    root: Root,
    start: Instant,
    sender: Sender,
    reasons: Inbox,
    /// Reasons that were received but not acted on yet.
    pending: Option<Reasons>,
    health: SignalBoard,
    alarm: Alarm,
    watchdog: Option<Duration>,
    pace: Pace,
    /// The pace for each trigger that other users can cause at will.
    outside: BTreeMap<Trigger, Pace>,
    hangup: Signal,
    vmi: Option<Standing<Vmi>>,
    node: Option<Standing<Node>>,
    /// The number of this machine, see [`crate::decide::schedule::Phase::of`].
    machine: u64,
    files: Option<(BTreeSet<PathBuf>, JoinHandle<()>)>,
    files_delay: Duration,
    /// The time to read the credentials because a file changed.
    files_due: Option<Instant>,
    /// The reasons that exceeded the rate limit of their trigger, and the time at which they take effect.
    later: Option<(Instant, Reasons)>,
    /// The tasks of the guest's own signals, which run as long as the process.
    guest: Vec<JoinHandle<()>>,
}

impl Listener {
    /// Creates a listener, which takes over SIGHUP. `start` is the time from which the loop counts.
    ///
    /// # Errors
    ///
    /// Fails if the kernel provides no timer or does not allow us to handle signals.
    pub fn new(
        root: Root,
        bus: &Bus,
        start: Instant,
        watchdog: Option<Duration>,
        health: SignalBoard,
        chance: Chance,
        hint_sink: HintSink,
    ) -> std::io::Result<Self> {
        let Chance { random, machine } = chance;
        let (sender, reasons) = Inbox::new(random);
        link::listen(root.clone(), sender.clone(), &health, hint_sink);
        let guest = guest_signals(&root, bus, &sender, &health);
        Ok(Self {
            root,
            start,
            sender,
            reasons,
            pending: None,
            health,
            alarm: Alarm::new()?,
            watchdog,
            pace: Pace::of_reconciles(),
            outside: BTreeMap::new(),
            hangup: signal(SignalKind::hangup())?,
            vmi: None,
            node: None,
            machine,
            files: None,
            files_delay: Duration::ZERO,
            files_due: None,
            later: None,
            guest,
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
            && !old.task.is_finished()
        {
            return slot;
        }
        if let Some(old) = slot {
            old.task.abort();
            self.health
                .set(trigger.as_str(), false, "object to watch is still unknown");
            self.health.report(trigger.as_str(), None);
        }
        let target = target?;
        let pulse = Pulse::default();
        let keeper = Keeper::new(
            target.clone(),
            trigger,
            self.sender.clone(),
            self.health.clone(),
            pulse.clone(),
            self.machine,
        );
        let task = tokio::spawn(keeper.keep());
        Some(Standing {
            target,
            task,
            pulse,
        })
    }

    /// Keeps a reason for the next reconcile. The first reason for a changed file only reads this machine: the credentials are
    /// read after the delay, because tools replace those of a whole fleet in the same second. A trigger that other users can cause
    /// at will takes effect later if it exceeds its rate limit.
    fn keep(&mut self, trigger: Trigger, at: Instant) {
        let mut reasons = Reasons::new(trigger, self.since_start(at));
        if trigger.is_from_outside() {
            let now = self.since_start(Instant::now());
            let pace = self.outside.entry(trigger);
            let pace = pace.or_insert_with(Pace::of_outside_trigger);
            let left = pace.left(now);
            if let (Some((_, later)), false) = (&mut self.later, left.is_zero()) {
                *later = later.and(reasons);
                return;
            }
            pace.take(now);
            if !left.is_zero() {
                self.later = Some((Instant::now() + left, reasons));
                return;
            }
        }
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
        now + self.pace.left(self.since_start(now))
    }

    fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.start)
    }

    fn subscribe_files(&mut self, files: BTreeSet<PathBuf>) {
        #[cfg(test)]
        if crate::sys::timer::testing::is_on() {
            return;
        }
        if self
            .files
            .as_ref()
            .is_some_and(|(old, task)| *old == files && !task.is_finished())
        {
            return;
        }
        if let Some((_, task)) = self.files.take() {
            task.abort();
        }
        let (sender, health) = (self.sender.clone(), self.health.clone());
        let listening = files::listen(self.root.clone(), files.clone(), sender, health);
        let task = tokio::spawn(listening);
        self.files = Some((files, task));
    }
}

/// Starts the event sources of the guest itself. None of them ends: a source that fails reports that and restarts.
fn guest_signals(
    root: &Root,
    bus: &Bus,
    sender: &Sender,
    health: &SignalBoard,
) -> Vec<JoinHandle<()>> {
    #[cfg(test)]
    if crate::sys::timer::testing::is_on() {
        return Vec::new();
    }
    let (root, sender, health) = (|| root.clone(), || sender.clone(), || health.clone());
    vec![
        tokio::spawn(clock::listen(sender(), health())),
        tokio::spawn(hostname::listen(root(), sender(), health())),
        tokio::spawn(port::serve(root(), sender(), health())),
        tokio::spawn(dbus::keep_following(
            root(),
            bus.clone(),
            sender(),
            health(),
        )),
    ]
}

/// Reports the state of the guest's own signals, for a process that does not listen to them.
pub async fn probe(root: &Root, bus_address: Option<&str>, health: &SignalBoard) {
    let local = [
        ("link", link::probe(root)),
        ("clock", clock::probe(root)),
        ("hostname", hostname::probe(root)),
        ("port", port::probe(root)),
    ];
    let of_bus = dbus::probe(root, bus_address).await;
    for (name, signal) in local.into_iter().chain(of_bus) {
        health.set(name, signal.live, signal.detail);
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
    task: JoinHandle<()>,
    pulse: Pulse,
}

impl Wait for Listener {
    type Targets = Targets;

    fn subscribe(&mut self, targets: Targets) {
        let (vmi, node) = (self.vmi.take(), self.node.take());
        self.vmi = self.subscribe_watch(vmi, targets.vmi, Trigger::Vmi);
        self.node = self.subscribe_watch(node, targets.node, Trigger::Node);
        self.subscribe_files(targets.files);
        self.files_delay = targets.files_delay;
        if let Some(due) = &mut self.files_due {
            *due = (*due).min(Instant::now() + self.files_delay);
        }
    }

    async fn wait(&mut self, next: Next, alive: &mut dyn FnMut()) -> Wake {
        let planned = Instant::now() + next.after;
        let mut due = planned;
        let mut feed = self.watchdog.map(|period| Instant::now() + period);
        if self.pending.is_some() {
            due = due.min(self.earliest(Instant::now()));
        }
        loop {
            // A single timer for all deadlines: an idle process is woken once for each.
            let later = self.later.map(|(at, _)| at);
            let first = [feed, self.files_due, later]
                .into_iter()
                .flatten()
                .fold(due, Instant::min);
            self.alarm
                .set(first.saturating_duration_since(Instant::now()));
            // Every branch is cancel-safe: signals, channels and the timer lose nothing when another branch is first.
            let reason = tokio::select! {
                biased;
                _ = self.hangup.recv() => return Wake::Reload,
                Some(reason) = self.reasons.recv() => Some(reason),
                () = self.health.changed() => Some((Trigger::Signals, Instant::now())),
                () = self.alarm.ring() => None,
            };
            let now = Instant::now();
            if let Some((trigger, at)) = reason {
                let was_pending = self.pending.is_some();
                self.keep(trigger, at);
                if self.pending.is_some() && !was_pending {
                    due = due.min(self.earliest(now));
                }
                // Nothing may delay the report of a migration hint.
                if !(trigger.is_migration_hint() && due <= now) {
                    continue;
                }
            }
            if self.files_due.is_some_and(|at| at <= now) {
                self.files_due = None;
                if self.pending.is_none() {
                    due = due.min(self.earliest(now));
                }
                self.add(Reasons::new(Trigger::Files, self.since_start(now)));
            }
            if let Some((_, reasons)) = self.later.take_if(|(at, _)| *at <= now) {
                if self.pending.is_none() {
                    due = due.min(self.earliest(now));
                }
                self.add(reasons);
            }
            let is_fed = feed.is_some_and(|at| at <= now);
            if due <= now {
                let by_itself = Reasons {
                    trigger: next.trigger,
                    scope: next.scope,
                    at: self.since_start(now),
                    hint: None,
                    renamed: false,
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
            if is_fed {
                alive();
                feed = self.watchdog.map(|period| now + period);
            }
        }
    }

    async fn renamed(&mut self) {
        while let Some((trigger, at)) = self.reasons.recv().await {
            if trigger != Trigger::Hostname {
                self.keep(trigger, at);
                continue;
            }
            let now = Instant::now();
            let left = self.earliest(now).saturating_duration_since(now);
            if !left.is_zero() {
                // Kept as well: the read may finish before the pace allows a round.
                self.keep(trigger, at);
                self.alarm.set(left);
                self.alarm.ring().await;
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

impl Drop for Listener {
    fn drop(&mut self) {
        let vmi = self.vmi.take().map(|standing| standing.task);
        let node = self.node.take().map(|standing| standing.task);
        let watches = vmi.into_iter().chain(node);
        let others = self.files.take().map(|(_, task)| task);
        for task in watches.chain(others).chain(self.guest.drain(..)) {
            task.abort();
        }
    }
}
