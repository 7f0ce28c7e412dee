// SPDX-License-Identifier: Apache-2.0
//! Reads: one file for each source of truth. Nothing here judges, and nothing here is sent that changes anything.
//!
//! To add a source: a type for its fact in `facts`, a file here that reads it, and a line in `World::look`.

pub mod credentials;
pub mod distribution;
mod environment;
pub mod examination;
pub mod guest_agent;
pub mod harvester;
mod host;
pub mod host_metrics;
pub mod image;
mod limit;
pub mod machine;
pub mod nics;
mod node;
mod own_api;
mod permissions;
pub mod registration;
mod targets;
pub mod whereabouts;
mod why;

use std::time::Duration;

use crate::agent::{Apply, Observe, Refusal, Scope};
use crate::bus::Bus;
use crate::config::Settings;
use crate::connections::Connections;
use crate::decide::identity::Identity;
use crate::decide::placement::{Located, ToldBy};
use crate::decide::registration::FileChange;
use crate::decide::{Action, Now};
use crate::escape::chain;
use crate::facts::distribution::Distribution;
use crate::facts::guest_agent::GuestAgent;
use crate::facts::host_metrics::HostMetrics;
use crate::facts::names::VmName;
use crate::facts::node::Node;
use crate::facts::placement::PlacementReads;
use crate::facts::requests::Requests;
use crate::facts::vmi::Vmi;
use crate::facts::who::{Candidates, Harvester, Kubelet, Remark, Who};
use crate::facts::{Seen, Why, WhyKind};
use crate::kubeapi::Timeouts;
use crate::root::Root;
use crate::triggers::Targets;
use crate::triggers::health::Health;
use harvester::Others;
use host::{METRICS, is_unasked};
use limit::{limited, too_slow, too_slow_text};
use node::Freshness;
use whereabouts::Denied;

pub use why::why;

/// For one look with somebody waiting for it.
const HURRIED: Timeouts = Timeouts {
    connect: Duration::from_secs(3),
    headers: Duration::from_secs(3),
    body_progress: Duration::from_secs(3),
    body: Duration::from_secs(10),
    watch_silence: Duration::from_secs(10),
};

/// The world outside the process, as far as the agent reads and writes it.
#[derive(Debug)]
pub struct World {
    root: Root,
    bus: Bus,
    connections: Connections,
    health: Health,
    distributions: Vec<Distribution>,
    distribution_problems: Vec<(String, bool)>,
    kubelet: Seen<Kubelet>,
    harvester: Seen<Harvester>,
    node: Seen<Node>,
    candidates: Seen<Candidates>,
    host_metrics: Seen<HostMetrics>,
    guest_agent: Seen<GuestAgent>,
    /// The VM of an earlier run.
    earlier: Option<VmName>,
    /// What was found to be our own instance, and how it was searched for.
    own: Option<Found>,
    names: harvester::Names,
    /// What the sources said last, until the VM is read again.
    reads: Option<PlacementReads>,
    /// The credentials for which it was found out that they do not lead to one API.
    cleared: Option<[Option<u64>; 2]>,
    denied: Denied,
}

/// A search that found our own instance. While nothing of it changes, reading that one instance is enough.
#[derive(Debug)]
struct Found {
    vmi: Vmi,
    others: Candidates,
    names: harvester::Names,
    generation: u64,
}

impl World {
    /// A world of which nothing was read yet. `earlier` is the VM of an earlier run on this machine.
    pub fn new(root: Root, bus: Bus, health: Health, earlier: Option<VmName>) -> Self {
        let unread = || Why::new(WhyKind::NotAsked, "not read yet");
        Self {
            root,
            bus,
            connections: Connections::default(),
            health,
            distributions: Vec::new(),
            distribution_problems: Vec::new(),
            kubelet: Seen::Failed(unread()),
            harvester: Seen::Failed(unread()),
            node: Seen::Failed(unread()),
            candidates: Seen::Failed(unread()),
            host_metrics: Seen::Failed(unread()),
            guest_agent: Seen::Failed(unread()),
            earlier,
            own: None,
            names: harvester::Names::default(),
            reads: None,
            cleared: None,
            denied: Denied::default(),
        }
    }

    /// The same with a person before it who waits: what does not answer within seconds is given up.
    pub fn hurried(mut self) -> Self {
        self.connections.timeouts = HURRIED;
        self
    }

    /// Reads the files that lead to the two APIs.
    fn read_credentials(&mut self, settings: &Settings) {
        let (distributions, problems) = distribution::read_distribution(&self.root);
        self.distributions = distributions;
        let problems = problems.iter();
        self.distribution_problems = problems
            .map(|problem| (chain(problem), problem.is_denied()))
            .collect();
        self.connections
            .refresh(&self.root, settings, &self.distributions);
        self.kubelet = self
            .connections
            .guest
            .link()
            .and_then(|link| credentials::kubelet(link, settings))
            .into();
        self.harvester = self
            .connections
            .harvester
            .link()
            .and_then(|link| credentials::harvester(link, settings))
            .into();
    }

    /// Which credential of each side is in force: Harvester's, the guest cluster's.
    fn generations(&self) -> [Option<u64>; 2] {
        [&self.connections.harvester, &self.connections.guest]
            .map(|side| side.link().ok().map(|link| link.generation))
    }

    /// Keeps what the search found, and of the other instances those that have one of our names.
    fn found(&mut self, vmi: &Vmi) {
        let (Ok(link), Some(candidates)) =
            (self.connections.harvester.link(), self.candidates.known())
        else {
            return;
        };
        // The names of the search: a name that is new since then is still to be searched.
        let names = match &self.own {
            Some(own) => own.names.clone(),
            None => self.names.clone(),
        };
        let concerns = |other: &&Vmi| other.name != vmi.name && names.contains(&other.name);
        let others: Vec<Vmi> = candidates.vmis.iter().filter(concerns).cloned().collect();
        let coverage = candidates.coverage;
        self.own = Some(Found {
            vmi: vmi.clone(),
            others: Candidates {
                vmis: others.clone(),
                coverage,
            },
            names,
            generation: link.generation,
        });
        // The rest of the namespace has had its say; an idle agent does not keep it.
        let vmis = [vmi.clone()].into_iter().chain(others).collect();
        self.candidates = Seen::Known(Candidates { vmis, coverage });
    }

    async fn look(&mut self, settings: &Settings, scope: Scope, now: Now) -> Who {
        let machine = machine::read_machine(&self.root);
        let before = self.generations();
        if scope.search {
            self.denied.clear();
        }
        // A server that does not take the credential may know a newer one, whatever inotify has seen.
        let rejected = [self.candidates.why(), self.node.why()];
        let rejected = rejected
            .into_iter()
            .flatten()
            .any(|why| matches!(why.kind, WhyKind::Credential | WhyKind::Tls));
        if scope.files || rejected || before == [None, None] {
            self.read_credentials(settings);
        }
        let [old_harvester, old_guest] = before;
        let [new_harvester, new_guest] = self.generations();
        let names = harvester::Names::new(
            settings,
            self.earlier.as_ref(),
            &machine,
            self.kubelet.known(),
        );
        // A new name is said at once, whatever the APIs do; who else has that name is searched when it has been quiet.
        let renamed = scope.vm && self.own.as_ref().is_some_and(|found| found.names != names);
        let lost =
            |found: &Found| scope.search || renamed || Some(found.generation) != new_harvester;
        if self.own.as_ref().is_some_and(lost) {
            self.own = None;
        }
        // What is not known is asked for by every look that asks for anything.
        let asks = scope != Scope::NONE;
        let stale_node =
            scope.node || old_guest != new_guest || asks && self.node.known().is_none();
        let stale_vm = scope.vm
            || renamed
            || old_harvester != new_harvester
            || asks && self.candidates.known().is_none();
        let freshness = if scope.cached {
            Freshness::Cached
        } else {
            Freshness::Newest
        };
        let read_node = async {
            match (self.connections.guest.link(), self.kubelet.known()) {
                (Ok(link), Some(kubelet)) if stale_node => {
                    Some(node::read(link, &kubelet.node_name, freshness).await)
                }
                (Ok(_), Some(_)) => None,
                (Ok(_), None) => Some(Seen::failed(
                    WhyKind::NotAsked,
                    "the name of our Node is not known",
                )),
                (Err(why), _) => Some(Seen::Failed(Why::new(WhyKind::NotAsked, why.text))),
            }
        };
        let read_vm = async {
            match (self.connections.harvester.link(), self.harvester.known()) {
                (Ok(link), Some(harvester)) if stale_vm => {
                    let own = match &self.own {
                        Some(found) => {
                            let others = if scope.node {
                                Others::Again
                            } else {
                                Others::AsKnown
                            };
                            let (client, vmi) = (&link.client, &found.vmi);
                            harvester::read_own(client, vmi, &found.others, others, freshness).await
                        }
                        None => None,
                    };
                    match own {
                        Some(candidates) => Some(candidates),
                        None => Some(
                            harvester::search(&link.client, &harvester.namespace, &names).await,
                        ),
                    }
                }
                (Ok(_), Some(_)) => None,
                (Ok(_), None) => Some(Seen::failed(
                    WhyKind::NotAsked,
                    "the namespace is not known",
                )),
                (Err(why), _) => Some(Seen::Failed(Why::new(WhyKind::NotAsked, why.text))),
            }
        };
        let read_units = async {
            match scope.units {
                true => Some(guest_agent::read(&self.root, &self.bus).await),
                false => None,
            }
        };
        let hear_host = async {
            match self.needs_host(settings, scope) {
                true => Some(host_metrics::read(&self.root, now.wall).await),
                false => None,
            }
        };
        let (node, candidates, units, metrics) = tokio::join!(
            limited(read_node),
            limited(read_vm),
            limited(read_units),
            limited(hear_host)
        );
        match units {
            Some(Some(agent)) => self.guest_agent = Seen::Known(agent),
            Some(None) => {}
            None => self.guest_agent = too_slow("the system bus"),
        }
        if let Some(metrics) = metrics.unwrap_or_else(|| Some(too_slow(METRICS))) {
            self.host_metrics = metrics;
        }
        if let Some(node) = node.unwrap_or_else(|| Some(too_slow("the guest cluster's API"))) {
            self.node = node;
        }
        if let Some(candidates) = candidates.unwrap_or_else(|| Some(too_slow("Harvester's API"))) {
            self.candidates = candidates;
        }
        if scope.host || old_harvester != new_harvester || self.candidates.known().is_none() {
            self.reads = None;
        }
        self.suspect_own_api().await;
        if scope.units {
            let (is_offered, detail) = host_metrics::probe(&self.root);
            self.health.set("downward-metrics", is_offered, detail);
        }
        if self.candidates.known().is_some() {
            self.host_metrics = Seen::failed(WhyKind::NotAsked, "not needed");
        } else if scope.search && self.needs_host(settings, scope) && is_unasked(&self.host_metrics)
        {
            // The first look has no other time to ask: `whoami` is one look.
            self.host_metrics = limited(host_metrics::read(&self.root, now.wall))
                .await
                .unwrap_or_else(|| too_slow(METRICS));
        }
        self.names = names;
        let problems = self.distribution_problems.iter().cloned();
        let remarks = problems
            .map(|(problem, is_denied)| Remark::DistributionFile { problem, is_denied })
            .chain(self.connections.remarks(&self.root))
            .chain(self.health.remarks())
            .collect();
        Who {
            machine,
            distributions: self.distributions.clone(),
            kubelet: self.kubelet.clone(),
            node: self.node.clone(),
            harvester: self.harvester.clone(),
            candidates: self.candidates.clone(),
            host_metrics: self.host_metrics.clone(),
            guest_agent: self.guest_agent.clone(),
            label_files: registration::read(&self.root),
            remarks,
        }
    }
}

impl Observe for World {
    type Targets = Targets;

    fn targets(&self, settings: &Settings, identity: &Identity) -> Targets {
        self.aims(settings, identity)
    }

    fn requests(&self) -> Vec<Requests> {
        self.connections.requests()
    }

    async fn who(&mut self, settings: &Settings, scope: Scope, now: Now) -> Who {
        // On the heap only while it lasts: an idle agent does not keep its room.
        Box::pin(self.look(settings, scope, now)).await
    }

    async fn placement(
        &mut self,
        settings: &Settings,
        located: &Located<'_>,
        now: Now,
    ) -> PlacementReads {
        let host = &located.host;
        let ToldBy::Harvester(vmi) = located.told_by else {
            return PlacementReads::none(host.clone());
        };
        self.found(vmi);
        if let Some(reads) = self.reads.as_ref().filter(|reads| reads.host == *host) {
            return reads.clone();
        }
        let reads = match self.connections.harvester.link() {
            Ok(link) => {
                let (client, generation) = (&link.client, link.generation);
                let denied = &mut self.denied;
                let reads =
                    whereabouts::read(client, generation, settings, vmi, host, denied, now.uptime);
                let failed =
                    || PlacementReads::failed(host.clone(), &too_slow_text("Harvester's API"));
                limited(reads).await.unwrap_or_else(failed)
            }
            Err(_) => PlacementReads::none(host.clone()),
        };
        self.reads = Some(reads.clone());
        reads
    }
}

impl Apply for World {
    async fn start(&mut self, unit: &str) -> Result<(), Refusal> {
        crate::apply::unit::start(&self.bus, unit).await
    }

    async fn keep(&mut self, change: &FileChange) -> Result<(), Refusal> {
        crate::apply::registration::keep(&self.root, &self.bus, change).await
    }

    async fn apply(&mut self, action: &Action, now: Now) -> Result<(), Refusal> {
        let (Ok(link), Some(kubelet)) = (self.connections.guest.link(), self.kubelet.known())
        else {
            return Err(Refusal {
                text: "there is no kubelet credential".to_owned(),
                passing: true,
                retry_after: None,
            });
        };
        let written = limited(crate::apply::send(
            &link.client,
            &kubelet.node_name,
            action,
            now,
        ))
        .await;
        match written {
            Some(Ok(node)) => {
                // The answer is the newest there is of our Node: the next decision must not be made on the old one.
                self.node = node.map_or_else(|| self.node.clone(), Seen::Known);
                Ok(())
            }
            Some(Err(refusal)) => Err(refusal),
            None => Err(Refusal {
                text: too_slow_text("the guest cluster's API"),
                passing: true,
                retry_after: None,
            }),
        }
    }
}
