// SPDX-License-Identifier: Apache-2.0
//! The loop: wake for a reason, observe, decide, apply, report. It knows no I/O crate and cannot end by an error.
//!
//! The world is behind a few narrow traits, so that the loop runs in tests with a paused clock and no world at all.

mod round;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use round::{Report, Round};

use crate::config::Settings;
use crate::decide::identity::{Identity, identify};
use crate::decide::placement::place;
use crate::decide::rival::Rivalry;
use crate::decide::{self, Action, Memory, Now, Patience, Refused};
use crate::facts::placement::PlacementReads;
use crate::facts::vmi::Vmi;
use crate::facts::who::Who;

/// Rounds of `once`: labels, then conditions that say so, then a look that finds nothing to do.
const ONCE_ROUNDS: usize = 4;

/// Why the agent looks. A reason only: what is true is read afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// The agent has just started.
    Startup,
    /// Our VirtualMachineInstance changed.
    Vmi,
    /// Our Node changed.
    Node,
    /// A file changed: a credential, the host name, the distribution's configuration.
    Files,
    /// A virtual NIC announced itself anew: another QEMU runs us, or the same one after a pause for saving.
    Link,
    /// The host side of a virtio-serial port that we hold was replaced.
    Port,
    /// The wall clock was set.
    Clock,
    /// A name of this machine changed.
    Hostname,
    /// A unit of the guest agent changed.
    Units,
    /// Somebody on the host asked for it through our own channel.
    Operator,
    /// The configuration was read again.
    Reload,
    /// It is time.
    Timer,
}

impl Trigger {
    /// The name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Vmi => "vmi",
            Self::Node => "node",
            Self::Files => "files",
            Self::Link => "link",
            Self::Port => "port",
            Self::Clock => "clock",
            Self::Hostname => "hostname",
            Self::Units => "units",
            Self::Operator => "operator",
            Self::Reload => "reload",
            Self::Timer => "timer",
        }
    }

    /// What must be read afresh because of it.
    pub fn scope(self) -> Scope {
        match self {
            Self::Vmi => Scope::VM,
            Self::Node => Scope::NODE,
            Self::Timer | Self::Operator => Scope::KNOWN,
            Self::Files => Scope::FILES,
            Self::Link | Self::Port | Self::Clock => Scope::MOVED,
            // The names of this machine are read at every look.
            Self::Hostname => Scope::NONE,
            Self::Units => Scope::UNITS,
            Self::Startup | Self::Reload => Scope::ALL,
        }
    }
}

/// What an observation reads afresh; the rest is what was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The files that lead to the two APIs. Where they changed, all that was read through them is read again.
    pub files: bool,
    /// Our VM. Where it moved, the sources that tell of its host are read again as well.
    pub vm: bool,
    /// The sources that tell of the host, although it is the same one.
    pub host: bool,
    /// Our Node.
    pub node: bool,
    /// The guest agent's unit and what it needs.
    pub units: bool,
    /// Which VM is ours, as if it had never been found.
    pub search: bool,
}

impl Scope {
    /// Nothing: a decision on what was read last.
    pub const NONE: Self = Self {
        files: false,
        vm: false,
        host: false,
        node: false,
        units: false,
        search: false,
    };
    /// Everything, as if for the first time.
    pub const ALL: Self = Self {
        search: true,
        ..Self::KNOWN
    };
    /// The files, the VM that was found, its host, our Node and the guest agent.
    pub const KNOWN: Self = Self {
        files: true,
        vm: true,
        host: true,
        node: true,
        units: true,
        search: false,
    };
    /// The VM and its host.
    pub const VM: Self = Self {
        vm: true,
        host: true,
        ..Self::NONE
    };
    /// The VM, and its host where that is another one.
    pub const MOVED: Self = Self {
        vm: true,
        ..Self::NONE
    };
    /// Our Node.
    pub const NODE: Self = Self {
        node: true,
        ..Self::NONE
    };
    /// The files, and nothing more while they hold what they held.
    pub const FILES: Self = Self {
        files: true,
        ..Self::NONE
    };
    /// The guest agent.
    pub const UNITS: Self = Self {
        units: true,
        ..Self::NONE
    };

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            files: self.files || other.files,
            vm: self.vm || other.vm,
            host: self.host || other.host,
            node: self.node || other.node,
            units: self.units || other.units,
            search: self.search || other.search,
        }
    }
}

/// What ended a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Something may have changed.
    Look {
        /// The first reason, which the report names.
        trigger: Trigger,
        /// What to read, for all reasons together.
        scope: Scope,
        /// When the first reason arrived, since the start of the process.
        at: Duration,
    },
    /// The configuration is to be read again.
    Reload,
}

/// Reads the world. It never fails: a missing fact is a value.
pub trait Observe {
    /// What can be listened to.
    type Targets;
    /// What to listen to, given who we are.
    fn targets(&self, settings: &Settings, identity: &Identity) -> Self::Targets;
    /// Reads who we are.
    fn who(
        &mut self,
        settings: &Settings,
        scope: Scope,
        uptime: Duration,
    ) -> impl Future<Output = Who>;
    /// Reads what is told of the host that runs our VM; `None` when none does.
    fn placement(
        &mut self,
        settings: &Settings,
        vmi: &Vmi,
        uptime: Duration,
    ) -> impl Future<Output = Option<PlacementReads>>;
}

/// Writes, and nothing else.
pub trait Apply {
    /// Does what it is told, or says in one line why not.
    fn apply(&mut self, action: &Action, now: Now) -> impl Future<Output = Result<(), Refusal>>;
}

/// A write that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One line for people.
    pub text: String,
    /// Whether the same write may be accepted later, with nothing changed here.
    pub passing: bool,
    /// How long the server asked us to stay away.
    pub retry_after: Option<Duration>,
}

/// Tells people and systemd.
pub trait Publish {
    /// Tells what is new since the last time.
    fn publish(&mut self, report: &Report<'_>);
    /// The process works, as a finished step proves.
    fn alive(&mut self);
    /// The configuration was read again, or why the old one stays.
    fn reloaded(&mut self, outcome: Result<(), &str>);
    /// The process ends.
    fn stopping(&mut self);
}

/// Waits for reasons to look.
pub trait Wait {
    /// What can be listened to.
    type Targets;
    /// Says what to listen to, after each observation.
    fn aim(&mut self, targets: Self::Targets);
    /// The next reason, or the end of `limit`. Calls `alive` at intervals.
    fn wait(&mut self, limit: Duration, alive: &mut dyn FnMut()) -> impl Future<Output = Wake>;
}

/// Reads the configuration again.
pub trait Reload {
    /// The new settings, or why they cannot be used. The text is lines for people.
    fn reload(&mut self) -> Result<Settings, String>;
}

/// The clocks and the dice.
pub trait Clock {
    /// This moment.
    fn now(&self) -> Now;
}

/// The parts of a running agent.
#[derive(Debug)]
pub struct Agent<W, P, T, R, C> {
    /// Reads and writes.
    pub world: W,
    /// Tells.
    pub publish: P,
    /// Waits.
    pub wait: T,
    /// Reads the configuration.
    pub reload: R,
    /// Knows the time.
    pub clock: C,
}

/// Runs for ever; whoever wants it to stop drops it.
pub async fn run<W, P, T, R, C>(
    mut settings: Settings,
    agent: &mut Agent<W, P, T, R, C>,
    memory: Memory,
) where
    W: Observe + Apply,
    P: Publish,
    T: Wait<Targets = W::Targets>,
    R: Reload,
    C: Clock,
{
    let Agent {
        world,
        publish,
        wait,
        reload,
        clock,
    } = agent;
    let mut memory = memory;
    // The local facts were read before this: an API that is away must not hold the boot.
    publish.alive();
    let mut wake = Wake::Look {
        trigger: Trigger::Startup,
        scope: Scope::ALL,
        at: clock.now().uptime,
    };
    loop {
        match wake {
            Wake::Reload => {
                let outcome = reload.reload();
                publish.reloaded(outcome.as_ref().map(|_| ()).map_err(String::as_str));
                let at = clock.now().uptime;
                if let Ok(new) = outcome {
                    settings = new;
                    // The configuration may be the remedy of a fight.
                    memory.rivalry = Rivalry::default();
                }
                wake = Wake::Look {
                    trigger: Trigger::Reload,
                    scope: Scope::ALL,
                    at,
                };
            }
            Wake::Look { trigger, scope, at } => {
                let look = Look {
                    trigger,
                    scope,
                    at,
                    patience: Patience::Daemon,
                };
                let round = round(&settings, world, publish, clock, memory, look).await;
                wait.aim(world.targets(&settings, &round.identity));
                publish.publish(&round.report(&settings));
                wake = if round.labelled() && scope != Scope::NONE {
                    // The answer to the patch is our Node as it is now: conditions and status are decided on it at once.
                    Wake::Look {
                        trigger,
                        scope: Scope::NONE,
                        at: clock.now().uptime,
                    }
                } else {
                    wait.wait(round.plan.next, &mut || publish.alive()).await
                };
                memory = round.memory;
            }
        }
    }
}

/// Looks and writes until there is nothing left to write. `Mode::DryRun` writes nothing. Answers the rounds.
pub async fn once<W, P, C>(
    settings: &Settings,
    world: &mut W,
    publish: &mut P,
    clock: &C,
    memory: Memory,
    mode: Mode,
) -> Vec<Round>
where
    W: Observe + Apply,
    P: Publish,
    C: Clock,
{
    let mut rounds: Vec<Round> = Vec::new();
    let mut memory = memory;
    for _ in 0..ONCE_ROUNDS {
        let at = clock.now().uptime;
        let look = Look {
            trigger: Trigger::Startup,
            scope: Scope::ALL,
            at,
            patience: Patience::Once,
        };
        let round = match mode {
            Mode::Write => round(settings, world, publish, clock, memory.clone(), look).await,
            Mode::DryRun => decided(settings, world, publish, clock, memory.clone(), look).await,
        };
        memory = round.memory.clone();
        let done = mode == Mode::DryRun
            || round.plan.actions.is_empty()
            || round.outcomes.iter().any(Result::is_err);
        rounds.push(round);
        if done {
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
struct Look {
    trigger: Trigger,
    scope: Scope,
    at: Duration,
    patience: Patience,
}

/// Observe, decide, apply.
async fn round<W, P, C>(
    settings: &Settings,
    world: &mut W,
    publish: &mut P,
    clock: &C,
    memory: Memory,
    look: Look,
) -> Round
where
    W: Observe + Apply,
    P: Publish,
    C: Clock,
{
    let mut round = decided(settings, world, publish, clock, memory, look).await;
    for action in &round.plan.actions {
        let outcome = world.apply(action, round.now).await;
        publish.alive();
        match (&outcome, action) {
            (Ok(()), Action::PatchNode(patch)) => round.memory.rivalry.wrote(&patch.labels),
            (Ok(()), Action::PatchConditions(_)) => {}
            (Err(refusal), action) => {
                round.memory.refusal = Some(Refused {
                    write: action.write(),
                    text: refusal.text.clone(),
                    passing: refusal.passing,
                    retry_after: refusal.retry_after,
                });
            }
        }
        round.outcomes.push(outcome);
        if round.labelled() {
            // Conditions speak of labels as they are, so they are decided after these were written.
            break;
        }
    }
    if let Some(Err(refusal)) = round.outcomes.iter().find(|outcome| outcome.is_err()) {
        // Refused work is tried again with growing waits, as every other trouble.
        round.memory.failures = round.memory.failures.max(1);
        let retry =
            decide::schedule::retry(round.memory.failures, refusal.retry_after, round.now.random);
        round.plan.next = retry;
    }
    round.latency = clock.now().uptime.saturating_sub(look.at);
    round
}

/// Observe and decide.
async fn decided<W, P, C>(
    settings: &Settings,
    world: &mut W,
    publish: &mut P,
    clock: &C,
    memory: Memory,
    look: Look,
) -> Round
where
    W: Observe,
    P: Publish,
    C: Clock,
{
    let who = world.who(settings, look.scope, clock.now().uptime).await;
    publish.alive();
    let identity = identify(
        &who,
        settings.harvester.vm.as_ref(),
        memory
            .last_vmi
            .as_ref()
            .map(|vmi| (vmi, memory.last_others.as_slice())),
    );
    let mut placement = None;
    if let Some(vmi) = identity.vmi() {
        let reads = world.placement(settings, vmi, clock.now().uptime).await;
        publish.alive();
        placement = reads.and_then(|reads| place(vmi, &reads, &settings.topology.sources));
    }
    let now = clock.now();
    let seen = decide::Seen {
        who: &who,
        identity: &identity,
        placement: placement.as_ref(),
    };
    let plan = decide::plan(settings, seen, &memory, look.patience, now);
    let memory = plan.memory.clone();
    Round {
        trigger: look.trigger,
        now,
        who,
        identity,
        placement,
        plan,
        outcomes: Vec::new(),
        latency: now.uptime.saturating_sub(look.at),
        memory,
    }
}
