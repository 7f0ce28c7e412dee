// SPDX-License-Identifier: Apache-2.0
//! The loop: wake for a reason, observe, decide, apply, report. It knows no I/O crate and cannot end by an error.
//!
//! What is outside the process is behind a few narrow traits, so that the loop runs in tests with a paused clock and fakes.

mod round;
pub mod signal_board;
pub mod state;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

pub use crate::facts::trigger::{HintSink, Next, Reasons, Scope, Trigger};
pub use round::{Round, RoundReport};

use crate::config::Settings;
use crate::decide::conflict::ConflictTracker;
use crate::decide::identity::{Identity, identify};
use crate::decide::placement::{Located, Placement, locate, place};
use crate::decide::{self, Action, FollowUp, Memory, Now, RunKind, WriteResult};
use crate::facts::observation::Observation;
use crate::facts::placement::PlacementReads;
use crate::facts::requests::Requests;

/// Rounds of `once`: labels, then conditions that say so, then a round that finds nothing to do.
const ONCE_ROUNDS: usize = 4;

/// How often in a row a new name cuts the reading short.
const CUTS_MAX: u32 = 8;

/// After a cut, the next one comes no sooner: each gives up a request, and its connection with it.
const CUT_AGAIN: Duration = Duration::from_secs(1);

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Something may have changed.
    Reconcile(Reasons),
    /// The configuration is to be read again.
    Reload,
}

/// Reads the io. It never fails: a missing fact is a value.
pub trait Observe {
    /// What can be listened to.
    type Targets;
    /// What to listen to, given who we are.
    fn targets(&self, settings: &Settings, identity: &Identity) -> Self::Targets;
    /// Reads who we are. Calls `alive` between steps, each of which may take long.
    fn observation(
        &mut self,
        settings: &Settings,
        scope: Scope,
        now: Now,
        alive: &mut dyn FnMut(),
    ) -> impl Future<Output = Observation>;
    /// Reads what is known of the host that runs our VM.
    fn placement(
        &mut self,
        settings: &Settings,
        located: &Located<'_>,
        now: Now,
    ) -> impl Future<Output = PlacementReads>;
    /// How often each API was asked until now.
    fn requests(&self) -> Vec<Requests>;
}

/// Writes, and nothing else.
pub trait Apply {
    /// Does the action, or says in one line why not.
    fn apply(&mut self, action: &Action, now: Now) -> impl Future<Output = WriteResult>;
}

/// Tells people and systemd.
pub trait Publish {
    /// Tells what is new since the last time.
    fn publish(&mut self, report: &RoundReport<'_>);
    /// A migration hint, before it is asked what became of it. Its source may have reported it already.
    fn hint(&mut self, hint: Trigger);
    /// The process works, as a finished step proves.
    fn alive(&mut self);
    /// The configuration was read again, or why the old one stays.
    fn reloaded(&mut self, outcome: Result<(), &str>);
    /// The process ends.
    fn stopping(&mut self);
}

/// Waits for reasons to reconcile.
pub trait Wait {
    /// What can be listened to.
    type Targets;
    /// Says what to listen to, after each observation.
    fn subscribe(&mut self, targets: Self::Targets);
    /// The next reasons, or what is to come by itself. Calls `alive` at intervals.
    fn wait(&mut self, next: Next, alive: &mut dyn FnMut()) -> impl Future<Output = Wake>;
    /// Ends when a name of this machine changes. Other reasons that come meanwhile are kept for the next wait. Cancel-safe.
    fn renamed(&mut self) -> impl Future<Output = ()>;
    /// Re-establishes a watch that has said nothing since `since`: its connection may not have survived a move.
    fn verify(&mut self, since: Duration);
}

/// Reads the configuration again.
pub trait Reload {
    /// The new settings, or why they cannot be used. The text is lines for people.
    fn reload(&mut self) -> Result<Settings, String>;
}

/// The clocks and the random numbers.
pub trait Clock {
    /// This moment.
    fn now(&self) -> Now;
}

/// The parts of a running agent.
#[derive(Debug)]
pub struct Agent<IO, P, T, R, C> {
    /// Reads and writes.
    pub io: IO,
    /// Tells.
    pub publish: P,
    /// Waits.
    pub wait: T,
    /// Reads the configuration.
    pub reload: R,
    /// Knows the time.
    pub clock: C,
}

/// Runs indefinitely; anyone who wants it to stop drops it.
pub async fn run<IO, P, T, R, C>(
    mut settings: Settings,
    agent: &mut Agent<IO, P, T, R, C>,
    memory: Memory,
) where
    IO: Observe + Apply,
    P: Publish,
    T: Wait<Targets = IO::Targets>,
    R: Reload,
    C: Clock,
{
    let Agent {
        io,
        publish,
        wait,
        reload,
        clock,
    } = agent;
    let mut memory = memory;
    // The local facts were read before this: an API that is away must not hold the boot.
    publish.alive();
    let mut wake = Wake::Reconcile(Reasons::new(Trigger::Startup, clock.now().uptime));
    let mut cuts: u32 = 0;
    let mut next_cut = None;
    let mut reported = None;
    loop {
        match wake {
            Wake::Reload => {
                let outcome = reload.reload();
                publish.reloaded(outcome.as_ref().map(|_| ()).map_err(String::as_str));
                let at = clock.now().uptime;
                if let Ok(new) = outcome {
                    settings = new;
                    // The configuration may be the remedy of a conflict.
                    memory.conflicts = ConflictTracker::default();
                }
                wake = Wake::Reconcile(Reasons::new(Trigger::Reload, at));
            }
            Wake::Reconcile(reasons) => {
                // A round that was cut short comes again with its hint.
                if let Some(hint) = decide::new_hint(&memory, &reasons)
                    && reported != reasons.hint
                {
                    reported = reasons.hint;
                    publish.hint(hint);
                }
                // A round may take long.
                publish.alive();
                let attempt = Attempt {
                    reasons,
                    run_kind: RunKind::Daemon,
                    mode: Mode::Write,
                };
                // Names that never rest must not keep a slow answer from ever being heard.
                let renamed = async {
                    if cuts >= CUTS_MAX {
                        std::future::pending::<()>().await;
                    }
                    if let Some(at) = next_cut {
                        tokio::time::sleep_until(at).await;
                    }
                    // It may have come together with a reason to ask an API.
                    if !reasons.renamed || reasons.scope == Scope::NONE {
                        wait.renamed().await;
                    }
                };
                let round = round(&settings, io, publish, clock, memory, attempt, renamed).await;
                wait.subscribe(io.targets(&settings, &round.identity));
                if let Some(since) = round.plan.verify {
                    wait.verify(since);
                }
                publish.publish(&round.report(&settings));
                cuts = if round.cut.is_some() { cuts + 1 } else { 0 };
                if round.cut.is_some() {
                    next_cut = Some(Instant::now() + CUT_AGAIN);
                }
                wake = match (round.cut, round.follow_up) {
                    (Some(cut), _) => Wake::Reconcile(cut),
                    (None, FollowUp::Immediate) => {
                        Wake::Reconcile(round.reasons.again(clock.now().uptime))
                    }
                    (None, FollowUp::Wait(next)) => wait.wait(next, &mut || publish.alive()).await,
                };
                memory = round.memory;
            }
        }
    }
}

/// Looks and writes until there is nothing left to write. `Mode::DryRun` writes nothing. Answers the rounds.
pub async fn once<IO, P, C>(
    settings: &Settings,
    io: &mut IO,
    publish: &mut P,
    clock: &C,
    memory: Memory,
    mode: Mode,
) -> Vec<Round>
where
    IO: Observe + Apply,
    P: Publish,
    C: Clock,
{
    let mut rounds: Vec<Round> = Vec::new();
    let mut memory = memory;
    for _ in 0..ONCE_ROUNDS {
        let at = clock.now().uptime;
        let mut reasons = Reasons::new(Trigger::Startup, at);
        if !rounds.is_empty() {
            // Everything was read, and what was written was answered with the Node as it is now.
            reasons.scope = Scope::NONE;
        }
        let attempt = Attempt {
            reasons,
            run_kind: RunKind::Once,
            mode,
        };
        let never = std::future::pending();
        let round = round(settings, io, publish, clock, memory, attempt, never).await;
        memory = round.memory.clone();
        let is_done = mode == Mode::DryRun || round.is_settled();
        rounds.push(round);
        if is_done {
            break;
        }
    }
    rounds
}

/// Whether `once` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Write,
    /// It only says what it would write.
    DryRun,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    reasons: Reasons,
    run_kind: RunKind,
    mode: Mode,
}

/// Observes, decides, applies. An API may take long not to answer, and a new name is reported immediately: when `renamed` ends, the
/// reading is canceled for a round on what is known, and starts again after it.
async fn round<IO, P, C>(
    settings: &Settings,
    io: &mut IO,
    publish: &mut P,
    clock: &C,
    memory: Memory,
    attempt: Attempt,
    renamed: impl Future<Output = ()>,
) -> Round
where
    IO: Observe + Apply,
    P: Publish,
    C: Clock,
{
    let wanted = attempt.reasons;
    let reading = observed(settings, io, publish, clock, &memory, wanted.scope);
    let (reasons, cut, observed) = match unless(renamed, reading).await {
        Some(observed) => (wanted, None, observed),
        None => {
            let reasons = Reasons::new(Trigger::Hostname, clock.now().uptime);
            let observed = observed(settings, io, publish, clock, &memory, reasons.scope).await;
            // What was learned of the files, and not yet acted upon, is forgotten: all that follows from it is read.
            let cut = Reasons {
                scope: wanted.scope.and(Scope::KNOWN),
                renamed: false,
                ..wanted
            };
            (reasons, Some(cut), observed)
        }
    };
    let (observation, identity, placement) = observed;
    let now = clock.now();
    let scene = decide::Scene {
        reasons,
        observation: &observation,
        identity: &identity,
        placement: placement.as_ref(),
    };
    let plan = decide::plan(settings, scene, &memory, attempt.run_kind, now);
    let mut results = Vec::new();
    while let Some(action) = plan.next_action(&results)
        && attempt.mode == Mode::Write
    {
        results.push(io.apply(action, now).await);
        publish.alive();
    }
    let learned = decide::learn(&plan, &results, reasons.scope, &observation.node, now);
    Round {
        reasons,
        cut,
        now,
        observation,
        identity,
        placement,
        plan,
        results,
        ended: clock.now().uptime,
        requests: io.requests(),
        memory: learned.memory,
        follow_up: learned.follow_up,
    }
}

/// Observe.
async fn observed<IO, P, C>(
    settings: &Settings,
    io: &mut IO,
    publish: &mut P,
    clock: &C,
    memory: &Memory,
    scope: Scope,
) -> (Observation, Identity, Option<Placement>)
where
    IO: Observe,
    P: Publish,
    C: Clock,
{
    let observation = io
        .observation(settings, scope, clock.now(), &mut || publish.alive())
        .await;
    publish.alive();
    let identity = identify(
        &observation,
        settings.harvester.vm.as_ref(),
        memory
            .last_vmi
            .as_ref()
            .map(|vmi| (vmi, memory.last_others.as_slice())),
    );
    let mut placement = None;
    if let Some(located) = locate(&identity, &observation) {
        let reads = io.placement(settings, &located, clock.now()).await;
        publish.alive();
        placement = Some(place(settings, &located, &reads));
    }
    (observation, identity, placement)
}

/// The work's result, or `None` where `cut` ends first.
async fn unless<T>(cut: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut cut, mut work) = (pin!(cut), pin!(work));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => cut.as_mut().poll(context).map(|()| None),
    })
    .await
}
