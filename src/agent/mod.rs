// SPDX-License-Identifier: Apache-2.0
//! The loop: wait for a trigger, observe, decide, apply, report. It uses no I/O crate and never returns an error.
//!
//! Everything outside the process is behind small traits, so that tests run the loop with a paused clock and fakes.

pub(crate) mod limit;
mod round;
pub mod source_board;
pub mod state;
#[cfg(test)]
mod tests;

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::time::Instant;

pub use crate::facts::trigger::{Next, Reasons, Scope, Trigger};
pub use round::{Answer, Round};

use crate::config::Settings;
use crate::decide::conflict::ConflictTracker;
use crate::decide::identity::{Identity, identify};
use crate::decide::placement::{Located, Placement, locate};
use crate::decide::{self, Action, Memory, Now, Write};
use crate::facts::observation::Observation;
use crate::facts::requests::Requests;

/// The maximum number of consecutive rounds that a new name interrupts.
const CUTS_MAX: u32 = 8;

/// The minimum time between two interruptions: each one cancels a request and closes its connection.
const CUT_AGAIN: Duration = Duration::from_secs(1);

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A trigger to reconcile.
    Reconcile(Reasons),
    /// A request to reload the configuration.
    Reload,
}

/// Reads the facts. It never fails: a missing fact is a value.
pub trait Observe {
    /// The event sources that can be subscribed to.
    type Targets;
    /// Returns the event sources to subscribe to, given the identity of this machine.
    fn targets(&self, settings: &Settings, identity: &Identity) -> Self::Targets;
    /// Reads the facts of this machine. Calls `alive` between steps, each of which may take long.
    fn observation(
        &mut self,
        settings: &Settings,
        scope: Scope,
        now: Now,
        alive: &mut dyn FnMut(),
    ) -> impl Future<Output = Observation>;
    /// Asks the sources of region and zone of the host that runs our VM, as [`Choice`](crate::decide::placement::Choice) requests.
    fn placement(
        &mut self,
        settings: &Settings,
        located: &Located<'_>,
        now: Now,
    ) -> impl Future<Output = Placement>;
    /// Returns the number of requests to each API so far.
    fn requests(&self) -> Vec<Requests>;
}

/// Executes writes.
pub trait Apply {
    /// Executes the action, or returns a one-line error.
    fn apply(&mut self, action: &Action, now: Now) -> impl Future<Output = Answer>;
    /// Sends the Events of the actions so far. The daemon does not wait until they are sent.
    fn announce(&mut self) -> impl Future<Output = ()>;
}

/// Reports to users and to systemd.
pub trait Publish {
    /// Reports changes since the last call.
    fn publish(&mut self, round: &Round, settings: &Settings);
    /// Reports a migration hint before its result is known.
    fn hint(&mut self, hint: Trigger);
    /// Notifies systemd that the process is alive, after a finished step.
    fn alive(&mut self);
    /// Reports a reload of the configuration, or why the previous one stays in use.
    fn reloaded(&mut self, outcome: Result<(), &str>);
}

/// Waits for triggers.
pub trait Wait {
    /// The event sources that can be subscribed to.
    type Targets;
    /// Sets the event sources, after each observation.
    fn subscribe(&mut self, targets: Self::Targets);
    /// Waits for the next triggers, or for the scheduled round. Calls `alive` at intervals.
    fn wait(&mut self, next: Next, alive: &mut dyn FnMut()) -> impl Future<Output = Wake>;
    /// Waits until a name of this machine changes. Other triggers in the meantime are kept for the next wait. Cancel-safe.
    fn renamed(&mut self) -> impl Future<Output = ()>;
    /// Re-establishes a watch that delivered nothing since `since`: its connection may have been lost in a migration.
    fn verify(&mut self, since: Duration);
}

/// The parts of a running agent.
#[derive(Debug)]
pub struct Agent<IO, P, T, R, C> {
    /// The observer, which reads and writes.
    pub io: IO,
    /// The publisher of reports.
    pub publish: P,
    /// The source of triggers.
    pub wait: T,
    /// Returns the settings of the new configuration, or an error of one or more lines.
    pub reload: R,
    /// Returns the current time with new random bits.
    pub clock: C,
}

/// Runs indefinitely. To stop it, drop the future.
pub async fn run<IO, P, T, R, C>(
    mut settings: Settings,
    agent: &mut Agent<IO, P, T, R, C>,
    mut memory: Memory,
) where
    IO: Observe + Apply,
    P: Publish,
    T: Wait<Targets = IO::Targets>,
    R: FnMut() -> Result<Settings, String>,
    C: Fn() -> Now,
{
    let Agent {
        io,
        publish,
        wait,
        reload,
        clock,
    } = agent;
    // The local facts were read before this: an unavailable API must not delay the boot.
    publish.alive();
    let mut wake = Wake::Reconcile(Reasons::new(Trigger::Startup, clock().uptime));
    let mut cuts: u32 = 0;
    let mut next_cut = None;
    let mut reported = None;
    loop {
        match wake {
            Wake::Reload => {
                let outcome = reload();
                publish.reloaded(outcome.as_ref().map(|_| ()).map_err(String::as_str));
                let at = clock().uptime;
                if let Ok(new) = outcome {
                    settings = new;
                    // The new configuration may resolve a conflict.
                    memory.conflicts = ConflictTracker::default();
                }
                wake = Wake::Reconcile(Reasons::new(Trigger::Reload, at));
            }
            Wake::Reconcile(reasons) => {
                // An interrupted round is repeated with its hint.
                if let Some(hint) = decide::new_hint(&memory, &reasons)
                    && reported != reasons.hint
                {
                    reported = reasons.hint;
                    publish.hint(hint);
                }
                // A round may take long.
                publish.alive();
                // Names that keep changing must not block slow responses indefinitely.
                let renamed = async {
                    if cuts >= CUTS_MAX {
                        std::future::pending::<()>().await;
                    }
                    if let Some(at) = next_cut {
                        tokio::time::sleep_until(at).await;
                    }
                    // The name may have changed together with a trigger that needs API requests.
                    if !reasons.renamed || reasons.scope == Scope::NONE {
                        wait.renamed().await;
                    }
                };
                let mut round = round(
                    &settings,
                    io,
                    publish,
                    clock,
                    memory,
                    (reasons, Mode::Daemon),
                    pin!(renamed),
                )
                .await;
                wait.subscribe(io.targets(&settings, &round.identity));
                if let Some(since) = round.plan.verify {
                    wait.verify(since);
                }
                publish.publish(&round, &settings);
                describe(&mut round, io, publish).await;
                wake = match round.cut {
                    Some(cut) => {
                        (cuts, next_cut) = (cuts + 1, Some(Instant::now() + CUT_AGAIN));
                        Wake::Reconcile(cut)
                    }
                    None => {
                        cuts = 0;
                        io.announce().await;
                        wait.wait(round.plan.next, &mut || publish.alive()).await
                    }
                };
                memory = round.plan.memory;
            }
        }
    }
}

/// Runs one round. `Mode::DryRun` writes nothing.
pub async fn once(
    settings: &Settings,
    io: &mut (impl Observe + Apply),
    publish: &mut dyn Publish,
    clock: &impl Fn() -> Now,
    memory: Memory,
    mode: Mode,
) -> Round {
    let attempt = (Reasons::new(Trigger::Startup, clock().uptime), mode);
    let never = pin!(std::future::pending());
    let mut round = round(settings, io, publish, clock, memory, attempt, never).await;
    if mode != Mode::DryRun {
        describe(&mut round, io, publish).await;
    }
    io.announce().await;
    round
}

/// The kind of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One of the daemon: all changes are written.
    Daemon,
    /// A single one: all changes are written.
    Write,
    /// A single one: the changes are only reported.
    DryRun,
}

/// Observes, decides, and writes all but the conditions. An unavailable API may take long to time out, and a new name is reported
/// immediately: when `renamed` completes, the reads are canceled for a round on cached facts, and repeated after it.
async fn round(
    settings: &Settings,
    io: &mut (impl Observe + Apply),
    publish: &mut dyn Publish,
    clock: &impl Fn() -> Now,
    memory: Memory,
    (wanted, mode): (Reasons, Mode),
    renamed: Pin<&mut dyn Future<Output = ()>>,
) -> Round {
    let reading = observed(settings, io, publish, clock, &memory, wanted.scope);
    let reading = tokio::select! {
        biased;
        observed = reading => Some(observed),
        () = renamed => None,
    };
    let (reasons, cut, observed) = match reading {
        Some(observed) => (wanted, None, observed),
        None => {
            let reasons = Reasons::new(Trigger::Hostname, clock().uptime);
            let observed = observed(settings, io, publish, clock, &memory, reasons.scope).await;
            // File changes that were read but not applied yet are lost, so all facts that depend on them are read again.
            let cut = Reasons {
                scope: wanted.scope | Scope::KNOWN,
                renamed: false,
                ..wanted
            };
            (reasons, Some(cut), observed)
        }
    };
    let (observation, identity, placement) = observed;
    let now = clock();
    let scene = decide::Scene {
        settings,
        now,
        reasons,
        observation: &observation,
        identity: &identity,
        placement: placement.as_ref(),
        is_daemon: mode == Mode::Daemon,
    };
    let plan = decide::plan(scene, memory);
    let mut round = Round {
        reasons,
        cut,
        now,
        observation,
        identity,
        placement,
        plan,
        results: Vec::new(),
        requests: Vec::new(),
    };
    while mode != Mode::DryRun
        && let Some(action) = round.next_action()
        && action.write() != Write::Conditions
    {
        let answer = io.apply(&action, round.now).await;
        publish.alive();
        if round.note(&action, answer) {
            round.conclude(settings, mode == Mode::Daemon, clock());
        }
    }
    round.requests = io.requests();
    round
}

/// Writes the conditions, the last action of a round. They come after the report, which must not wait if they hang.
async fn describe(round: &mut Round, io: &mut impl Apply, publish: &mut dyn Publish) {
    if let Some(action) = round.next_action() {
        let answer = io.apply(&action, round.now).await;
        publish.alive();
        round.note(&action, answer);
    }
}

/// Observes the facts, the identity and the placement.
async fn observed(
    settings: &Settings,
    io: &mut impl Observe,
    publish: &mut dyn Publish,
    clock: &impl Fn() -> Now,
    memory: &Memory,
    scope: Scope,
) -> (Observation, Identity, Option<Placement>) {
    let observation = io
        .observation(settings, scope, clock(), &mut || publish.alive())
        .await;
    publish.alive();
    let last = memory.last_vmi.as_ref();
    let last = last.map(|vmi| (vmi, memory.last_others.as_slice()));
    let identity = identify(&observation, settings.harvester.vm.as_ref(), last);
    let mut placement = None;
    if let Some(located) = locate(&identity, &observation) {
        placement = Some(io.placement(settings, &located, clock()).await);
        publish.alive();
    }
    (observation, identity, placement)
}
