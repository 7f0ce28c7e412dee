// SPDX-License-Identifier: Apache-2.0
//! What happens to the fleet, and what is measured.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::agents::{self, Handle, Trees, bits, random};
use super::network::{Migration, Network, SERVERS, Way};
use super::record::{Kind, Record, Second};
use super::store::Side;

/// The agents start within this time.
const BOOT: Duration = Duration::from_secs(60);

/// When the event happens: long after all agents have settled.
const EVENT: Duration = Duration::from_secs(240);

/// How long the fleet is observed after the end of the event.
const AFTER: Duration = Duration::from_secs(240);

/// The same where watches must first turn out to be deaf.
const AFTER_RESTORE: Duration = Duration::from_secs(480);

/// The guest notices a migration this long before the API reports it.
const HINT: Duration = Duration::from_millis(300);

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Story {
    /// All agents start within a minute.
    MassBoot,
    /// All watches end in order, and the servers are there.
    OrderlyRestart,
    /// All connections are reset, and the servers are there.
    HardKill,
    /// Nothing listens for so many seconds.
    Away(u64),
    /// Every request is answered with 429 for five minutes.
    Overload,
    /// All watches end, and their versions are compacted.
    Compacted,
    /// All watches end, and each answer takes ten seconds for two minutes.
    Slow,
    /// SIGHUP for all within one second.
    HangUp,
    /// All VMs of a host migrate within ten seconds.
    Drain,
    /// A host is moved to another rack.
    Relabel,
    /// All connections are reset, and the versions go back.
    Restore,
    /// All credentials are replaced within one second.
    Rotation,
    /// One of three servers is gone for five minutes, and the virtual IP goes on sending it its share.
    Partial,
}

impl Story {
    /// All, the longest first.
    pub(super) const ALL: [Self; 15] = [
        Self::Away(3600),
        Self::Overload,
        Self::Partial,
        Self::Away(120),
        Self::Away(30),
        Self::OrderlyRestart,
        Self::HardKill,
        Self::Compacted,
        Self::Slow,
        Self::MassBoot,
        Self::HangUp,
        Self::Drain,
        Self::Relabel,
        Self::Restore,
        Self::Rotation,
    ];

    /// The name in the table and of the test.
    pub(super) fn name(self) -> String {
        match self {
            Self::MassBoot => "mass-boot".to_owned(),
            Self::OrderlyRestart => "orderly-restart".to_owned(),
            Self::HardKill => "hard-kill".to_owned(),
            Self::Away(seconds) => format!("away-{seconds}s"),
            Self::Overload => "overload-300s".to_owned(),
            Self::Compacted => "compacted".to_owned(),
            Self::Slow => "slow-answers".to_owned(),
            Self::HangUp => "sighup".to_owned(),
            Self::Drain => "drained-host".to_owned(),
            Self::Relabel => "relabeled-host".to_owned(),
            Self::Restore => "etcd-restore".to_owned(),
            Self::Rotation => "credential-rotation".to_owned(),
            Self::Partial => "partial-failure".to_owned(),
        }
    }

    /// How long the trouble lasts.
    pub(super) fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            Self::Away(seconds) => seconds,
            Self::Overload | Self::Partial => 300,
            Self::Slow => 120,
            Self::MassBoot => 60,
            _ => 0,
        })
    }

    /// When it begins.
    pub(super) fn begins(self) -> Duration {
        if self == Self::MassBoot {
            Duration::ZERO
        } else {
            EVENT
        }
    }
}

/// What was measured.
pub(super) struct Outcome {
    pub(super) story: Story,
    pub(super) agents: usize,
    pub(super) record: Record,
    /// The second in which the trouble begins, that in which it ends, and the last.
    pub(super) begins: usize,
    pub(super) ends: usize,
    pub(super) last: usize,
    /// From the end of the trouble until all watches were open.
    pub(super) all_back: Option<Duration>,
    /// Watches that are not open at the end.
    pub(super) missing: usize,
    /// From the report of each migration that came with a hint to the label; `None` where there is none.
    pub(super) hinted: Vec<Option<Duration>>,
    /// The same for those without a hint.
    pub(super) unhinted: Vec<Option<Duration>>,
    /// Requests that repeated a failed one within half a second.
    pub(super) hurried: u32,
}

impl Outcome {
    /// The seconds since the trouble began.
    pub(super) fn since_begin(&self) -> Vec<Second> {
        self.record.range(self.begins, self.last)
    }

    /// The seconds since the trouble ended.
    pub(super) fn since_end(&self) -> Vec<Second> {
        self.record.range(self.ends, self.last)
    }

    /// Arrivals of one kind since the trouble began.
    pub(super) fn total(&self, kind: Kind) -> u32 {
        self.since_begin()
            .iter()
            .map(|second| second.of(kind))
            .sum()
    }

    /// Sums of a part of each second since the trouble began.
    pub(super) fn sum(&self, part: impl Fn(&Second) -> u32) -> u32 {
        self.since_begin().iter().map(part).sum()
    }
}

/// A running fleet.
struct Fleet {
    network: Arc<Network>,
    trees: Arc<Trees>,
    handles: Rc<RefCell<Vec<Option<Handle>>>>,
    agents: usize,
}

/// Runs something on a clock of its own, in which nobody waits.
pub(super) fn simulate<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("the kernel gives an event loop");
    LocalSet::new().block_on(&runtime, work)
}

/// Starts the clock of the servers.
pub(super) fn tick(network: &Arc<Network>) {
    let network = Arc::clone(network);
    tokio::task::spawn_local(async move {
        loop {
            sleep(Duration::from_secs(1)).await;
            network.tick();
        }
    });
}

/// Plays a story with so many agents.
pub(super) fn play(story: Story, agents: usize, trees: &Arc<Trees>) -> Outcome {
    simulate(async {
        let network = Arc::new(Network::new(agents));
        agents::attach(&network, story.begins().as_secs() + 7);
        let fleet = Fleet {
            network,
            trees: Arc::clone(trees),
            handles: Rc::new(RefCell::new((0..agents).map(|_| None).collect())),
            agents,
        };
        fleet.boot();
        fleet.play(story).await
    })
}

impl Fleet {
    /// Starts the agents, each at a random moment, and the clock of the servers.
    fn boot(&self) {
        let starts = (0..self.agents).map(|agent| (BOOT.mul_f64(random().value()), agent));
        let mut starts: Vec<(Duration, usize)> = starts.collect();
        starts.sort();
        let (trees, network) = (Arc::clone(&self.trees), Arc::clone(&self.network));
        let handles = Rc::clone(&self.handles);
        tokio::task::spawn_local(async move {
            for (at, agent) in starts {
                sleep_until(network.start() + at).await;
                let handle = agents::start(&trees, &network, agent);
                handles.borrow_mut()[agent] = Some(handle);
            }
        });
        tick(&self.network);
    }

    async fn play(&self, story: Story) -> Outcome {
        let network = &self.network;
        sleep_until(network.start() + story.begins()).await;
        let begins = network.second();
        let mut unhinted = Vec::new();
        match story {
            Story::MassBoot => {}
            Story::OrderlyRestart => self.restart(false),
            Story::HardKill => self.restart(true),
            Story::Away(_) => {
                for side in Side::BOTH {
                    network.set_way(side, Way::Refused);
                }
                self.restart(true);
            }
            Story::Overload => {
                self.each(|network, side| network.set_shedding(side, true));
                self.restart(false);
            }
            Story::Compacted => {
                self.each(Network::compact);
                self.restart(false);
            }
            Story::Slow => {
                self.each(|network, side| network.set_slowness(side, Duration::from_secs(10)));
                self.restart(false);
            }
            Story::HangUp => self.to_each(Duration::from_secs(1), Handle::hang_up),
            Story::Drain => {
                let agents = network.read(|store| store.on_host(0));
                self.migrations(agents, Duration::from_secs(10), true);
            }
            Story::Relabel => {
                network.relabel(0);
                unhinted = network.migrations();
            }
            Story::Restore => {
                self.each(|network, side| network.restore(side, 500_000));
                self.restart(true);
            }
            Story::Rotation => {
                for agent in 0..self.agents {
                    self.trees.credentials(agent, 2);
                }
                self.to_each(Duration::from_secs(1), Handle::files_changed);
            }
            Story::Partial => {
                self.each(|network, side| {
                    network.set_up(side, 0, false);
                    network.restart(side, 0, true);
                });
            }
        }
        sleep_until(network.start() + story.begins() + story.lasts()).await;
        self.each(|network, side| {
            network.set_way(side, Way::Open);
            network.set_shedding(side, false);
            network.set_slowness(side, Duration::ZERO);
            (0..SERVERS).for_each(|server| network.set_up(side, server, true));
        });
        let end = Instant::now();
        let ends = network.second();
        let few = (self.agents / 250).clamp(10, 40);
        let is_about_migrations = matches!(story, Story::Drain | Story::Relabel | Story::MassBoot);
        if !is_about_migrations {
            let agents = self.some(few);
            self.migrations(agents, Duration::from_secs(60), true);
        }
        if story == Story::Restore {
            let agents = self.some(few);
            self.migrations(agents.clone(), Duration::from_secs(60), false);
            unhinted = agents
                .iter()
                .map(|agent| Migration {
                    agent: *agent,
                    reported: end,
                    labeled: None,
                })
                .collect();
        }
        let after = match story {
            Story::Restore => AFTER_RESTORE,
            _ => AFTER,
        };
        sleep_until(end + after).await;
        let is_unhinted =
            |migration: &Migration| unhinted.iter().any(|other| other.agent == migration.agent);
        let took = |migration: &Migration| {
            let labeled = migration.labeled?;
            Some(labeled.saturating_duration_since(migration.reported))
        };
        let migrations = network.migrations();
        let (unhinted, hinted): (Vec<&Migration>, Vec<&Migration>) = migrations
            .iter()
            .partition(|migration| is_unhinted(migration));
        Outcome {
            story,
            agents: self.agents,
            record: network.record(),
            begins,
            ends,
            last: network.second(),
            all_back: network
                .all_back()
                .map(|at| at.saturating_duration_since(end)),
            missing: network.missing(),
            hinted: hinted.into_iter().map(took).collect(),
            unhinted: unhinted.into_iter().map(took).collect(),
            hurried: network.hurried(),
        }
    }

    fn each(&self, act: impl Fn(&Network, Side)) {
        for side in Side::BOTH {
            act(&self.network, side);
        }
    }

    /// All servers restart in the same moment.
    fn restart(&self, is_reset: bool) {
        self.each(|network, side| {
            (0..SERVERS).for_each(|server| network.restart(side, server, is_reset));
        });
    }

    /// Does something to each agent, at a random moment within `time`.
    fn to_each(&self, time: Duration, act: fn(&Handle)) {
        for agent in 0..self.agents {
            let at = Instant::now() + time.mul_f64(random().value());
            let handles = Rc::clone(&self.handles);
            tokio::task::spawn_local(async move {
                sleep_until(at).await;
                if let Some(handle) = &handles.borrow()[agent] {
                    act(handle);
                }
            });
        }
    }

    /// Random agents, each once.
    fn some(&self, count: usize) -> Vec<usize> {
        let step = self.agents / count.min(self.agents);
        let offset = bits() as usize % step.max(1);
        (0..count.min(self.agents))
            .map(|index| index * step + offset)
            .collect()
    }

    /// Migrates VMs at random moments within `time`.
    fn migrations(&self, agents: Vec<usize>, time: Duration, is_hinted: bool) {
        for agent in agents {
            let at = Instant::now() + time.mul_f64(random().value());
            let (network, handles) = (Arc::clone(&self.network), Rc::clone(&self.handles));
            tokio::task::spawn_local(async move {
                sleep_until(at).await;
                if is_hinted {
                    network.hinted(agent);
                    if let Some(handle) = &handles.borrow()[agent] {
                        handle.hint();
                    }
                    sleep(HINT).await;
                }
                network.migrate(agent).await;
            });
        }
    }
}
