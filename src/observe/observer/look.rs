// SPDX-License-Identifier: Apache-2.0
//! One look: what of the world is read again, and what is as it was.

use super::host::{METRICS, is_unasked};
use super::limit::{limited, too_slow};
use std::collections::BTreeSet;
use std::time::Duration;

use super::{ListKey, Listing, Observer, OwnInstance};
use crate::config::Settings;
use crate::decide::Now;
use crate::decide::identity::{is_likely, is_proven};
use crate::decide::schedule::{Phase, Purpose, list_delay};
use crate::facts::machine::Machine;
use crate::facts::names::VmName;
use crate::facts::observation::{Candidates, Observation, ObservationIssue};
use crate::facts::trigger::Scope;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::harvester::{self, ListPolicy, Others, Search};
use crate::observe::node::{self, Freshness};
use crate::observe::{credentials, distribution, guest_agent, host_metrics, machine, registration};
use crate::sys::escape::chain;

/// How long after a list in which no instance was ours the next one may be.
const LIST_AGAIN: Duration = Duration::from_secs(60 * 60);

impl Observer {
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
    pub(super) fn generations(&self) -> [Option<u64>; 2] {
        [&self.connections.harvester, &self.connections.guest]
            .map(|side| side.link().ok().map(|link| link.generation))
    }

    /// Keeps what the search found, and of the other instances those that have one of our names or our hardware.
    pub(super) fn found(&mut self, vmi: &Vmi) {
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
        let concerns = |other: &&Vmi| {
            let is_ours = names.contains(&other.name) || self.duplicates.contains(&other.name);
            other.name != vmi.name && is_ours
        };
        let others: Vec<Vmi> = candidates.vmis.iter().filter(concerns).cloned().collect();
        let coverage = candidates.coverage;
        self.own = Some(OwnInstance {
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
        self.candidates = Fact::Known(Candidates { vmis, coverage });
    }

    /// Whether the namespace may be listed in this look.
    fn list(&mut self, settings: &Settings, scope: Scope, now: Now, key: ListKey) -> ListPolicy {
        if !self.is_daemon || scope.search {
            return ListPolicy::Always;
        }
        if settings.harvester.vm.is_some() {
            return ListPolicy::Never;
        }
        if self.listing.key != key {
            self.listing = Listing {
                key,
                ..Listing::default()
            };
        }
        match self.listing.due {
            Some(due) if due <= now.uptime => ListPolicy::IfNeeded,
            Some(_) if self.listing.is_done => ListPolicy::Never,
            Some(due) => ListPolicy::After(due.saturating_sub(now.uptime)),
            None => {
                let phase = Phase::of(self.machine.unwrap_or_default(), Purpose::List);
                ListPolicy::After(list_delay(phase, now.random))
            }
        }
    }

    /// Takes note of a search: when the namespace may be listed the next time, and who has our hardware.
    fn searched(
        &mut self,
        found: harvester::SearchResult,
        observation: &Observation,
        pinned: Option<&VmName>,
        now: Now,
    ) {
        self.versions = found.versions;
        if found.is_listed {
            self.listing.due = Some(now.uptime + LIST_AGAIN);
            self.listing.is_done = true;
            let vmis = found.candidates.known().into_iter();
            let ours = vmis
                .flat_map(|candidates| &candidates.vmis)
                .filter(|vmi| is_proven(observation, vmi, None));
            let ours: Vec<&VmName> = ours.map(|vmi| &vmi.name).collect();
            self.duplicates = match ours.as_slice() {
                [_, _, ..] => ours.into_iter().cloned().collect(),
                _ => BTreeSet::new(),
            };
            // What was found before says nothing of the others: each look reads all of them until one is left.
            if !self.duplicates.is_empty() {
                self.own = None;
            }
        } else if let Fact::Failed(Unavailable {
            kind: UnavailableKind::NotAsked,
            retry_after: Some(left),
            ..
        }) = &found.candidates
        {
            self.listing.due.get_or_insert(now.uptime + *left);
        } else if !self.listing.is_done
            && found.candidates.known().is_some_and(|candidates| {
                let mut vmis = candidates.vmis.iter();
                vmis.any(|vmi| is_proven(observation, vmi, pinned))
            })
        {
            self.listing.due = None;
        }
        self.candidates = found.candidates;
    }

    pub(super) async fn look(
        &mut self,
        settings: &Settings,
        scope: Scope,
        now: Now,
        alive: &mut dyn FnMut(),
    ) -> Observation {
        if scope.hinted {
            self.connections.hurry();
        }
        let machine = machine::read_machine(&self.root);
        self.machine = Some(machine.phase());
        let before = self.generations();
        let must = self.take_delivered();
        if scope.refused {
            self.denied.clear();
        }
        // A server that does not take the credential may know a newer one, whatever inotify has seen.
        let rejected = [self.candidates.why(), self.node.why()];
        let rejected = rejected
            .into_iter()
            .flatten()
            .any(|why| matches!(why.kind, UnavailableKind::Credential | UnavailableKind::Tls));
        let is_remedy = scope.refused && self.may_need_credentials();
        if scope.files || rejected || is_remedy || before == [None, None] {
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
        let renamed = (scope.vm || scope.refused)
            && self.own.as_ref().is_some_and(|found| found.names != names);
        let namespace = self.harvester.known().map(|known| known.namespace.clone());
        let lost = |found: &OwnInstance| {
            renamed
                || Some(found.generation) != new_harvester
                || Some(&found.vmi.namespace) != namespace.as_ref()
        };
        if self.own.as_ref().is_some_and(lost) {
            self.own = None;
        }
        // What is not known is asked for by every look that asks for anything, unless a watch is about to tell.
        let asks = scope != Scope::NONE;
        let is_unknown = |why: Option<&Unavailable>| asks && why.is_none_or(|why| !why.is_watched);
        let stale_node = scope.node
            || must.read_node
            || old_guest != new_guest
            || self.node.known().is_none() && is_unknown(self.node.why());
        let stale_vm = scope.vm
            || scope.search
            || must.read_vm
            || renamed
            || old_harvester != new_harvester
            || self.candidates.known().is_none() && is_unknown(self.candidates.why());
        let freshness = if scope.cached {
            Freshness::Cached
        } else {
            Freshness::Newest
        };
        let key = (names.clone(), namespace.clone(), new_harvester);
        let list = self.list(settings, scope, now, key);
        let pinned = settings.harvester.vm.as_ref();
        let known = self.observation(machine.clone());
        let mut compared = std::mem::take(&mut self.compared);
        let read_node = async {
            match (self.connections.guest.link(), self.kubelet.known()) {
                (Ok(link), Some(kubelet)) if stale_node => {
                    Some(node::read(link, &kubelet.node_name, freshness).await)
                }
                (Ok(_), Some(_)) => None,
                (Ok(_), None) => Some(Fact::failed(
                    UnavailableKind::NotAsked,
                    "the name of this Node is unknown",
                )),
                (Err(why), _) => Some(Fact::Failed(Unavailable::new(
                    UnavailableKind::NotAsked,
                    why.text,
                ))),
            }
        };
        let read_vm = async {
            let (link, namespace) = match (self.connections.harvester.link(), &namespace) {
                (Ok(link), Some(namespace)) if stale_vm => (link, namespace),
                (Ok(_), Some(_)) => return None,
                (Ok(_), None) => {
                    let unknown =
                        Fact::failed(UnavailableKind::NotAsked, "the namespace is unknown");
                    return Some(VmAnswer::None(unknown));
                }
                (Err(why), _) => {
                    let why = Unavailable::new(UnavailableKind::NotAsked, why.text);
                    return Some(VmAnswer::None(Fact::Failed(why)));
                }
            };
            if let Some(found) = self.own.as_ref().filter(|_| !scope.search) {
                let others = if scope.node {
                    Others::Again
                } else {
                    Others::AsKnown
                };
                let known = self.versions.iter().find(|(uid, _)| *uid == found.vmi.uid);
                let known = harvester::Known {
                    own: &found.vmi,
                    version: known.and_then(|(_, version)| version.as_deref()),
                    others: &found.others,
                };
                let own = harvester::read_own(&link.client, known, others, freshness).await;
                if let Some(own) = own {
                    return Some(VmAnswer::Own(own));
                }
            }
            let search = Search {
                client: &link.client,
                namespace,
                names: &names,
                duplicates: &self.duplicates,
                is_ours: &|vmi| is_proven(&known, vmi, pinned),
                is_likely: &|name, owner| is_likely(&known, name, owner),
                list,
            };
            Some(VmAnswer::Search(search.run(&mut compared).await))
        };
        let read_units = async {
            match scope.units {
                true => Some(guest_agent::read(&self.root, &self.bus).await),
                false => None,
            }
        };
        let is_missed = self.drop_in.is_some_and(|drop_in| drop_in.needs_reload);
        let is_asked = scope.files || is_missed;
        let read_drop_in = async {
            match is_asked {
                true => registration::drop_in(&self.root, &self.bus).await,
                false => None,
            }
        };
        let hear_host = async {
            match self.needs_host(settings, scope) {
                true => Some(host_metrics::read(&self.root, now.wall).await),
                false => None,
            }
        };
        let (node, answer, units, drop_in, metrics) = tokio::join!(
            limited(read_node),
            limited(read_vm),
            limited(read_units),
            limited(read_drop_in),
            limited(hear_host)
        );
        alive();
        // Without an answer of systemd, a missed reload is still missed.
        self.drop_in = drop_in.flatten().or(self.drop_in);
        self.compared = compared;
        match units {
            Some(Some(agent)) => self.guest_agent = Fact::Known(agent),
            Some(None) => {}
            None => self.guest_agent = too_slow("the system bus"),
        }
        if let Some(metrics) = metrics.unwrap_or_else(|| Some(too_slow(METRICS))) {
            self.host_metrics = metrics;
        }
        if let Some(node) = node.unwrap_or_else(|| Some(too_slow("the guest cluster API"))) {
            self.node = node;
            defer(&mut self.node, self.connections.guest.deferred());
        }
        match answer {
            Some(None) => {}
            Some(Some(VmAnswer::None(candidates))) => self.candidates = candidates,
            Some(Some(VmAnswer::Own(own))) => {
                let uid = self.own.as_ref().map(|found| found.vmi.uid.clone());
                self.versions = uid.map(|uid| (uid, own.version)).into_iter().collect();
                self.candidates = own.candidates;
            }
            Some(Some(VmAnswer::Search(found))) => self.searched(found, &known, pinned, now),
            None => self.candidates = too_slow("the Harvester API"),
        }
        defer(&mut self.candidates, self.connections.harvester.deferred());
        if scope.host {
            self.hosts.clear();
        }
        if scope.host
            || old_harvester != new_harvester
            || self.candidates.known().is_none() && stale_vm
            || !self.are_reads_for(settings)
        {
            self.reads = None;
        }
        // On the heap only while it lasts.
        Box::pin(self.suspect_own_api()).await;
        alive();
        if scope.units {
            let (is_offered, detail) = host_metrics::probe(&self.root);
            self.health.set("downward-metrics", is_offered, detail);
        }
        if self.candidates.known().is_some() {
            self.host_metrics = Fact::failed(UnavailableKind::NotAsked, "not needed");
        } else if scope.refused
            && self.needs_host(settings, scope)
            && is_unasked(&self.host_metrics)
        {
            // The first look has no other time to ask: `whoami` is one look.
            self.host_metrics = limited(host_metrics::read(&self.root, now.wall))
                .await
                .unwrap_or_else(|| too_slow(METRICS));
            alive();
        }
        self.names = names;
        let problems = self.distribution_problems.iter().cloned();
        let remarks = problems
            .map(|(problem, is_denied)| ObservationIssue::DistributionFile { problem, is_denied })
            .chain(self.connections.remarks(&self.root))
            .chain(self.health.remarks())
            .collect();
        Observation {
            label_files: registration::read(&self.root),
            remarks,
            ..self.observation(machine)
        }
    }

    /// What is known, without what every look reads afresh.
    fn observation(&self, machine: Machine) -> Observation {
        Observation {
            machine,
            distributions: self.distributions.clone(),
            kubelet: self.kubelet.clone(),
            node: self.node.clone(),
            harvester: self.harvester.clone(),
            candidates: self.candidates.clone(),
            host_metrics: self.host_metrics.clone(),
            guest_agent: self.guest_agent.clone(),
            label_files: Vec::new(),
            drop_in: self.drop_in,
            remarks: Vec::new(),
        }
    }
}

/// What reading the VM gave.
enum VmAnswer {
    /// There was nobody to ask.
    None(Fact<Candidates>),
    /// The instance that was found before.
    Own(harvester::Own),
    /// A search.
    Search(harvester::SearchResult),
}

/// A fact that failed is asked for again when its API is not left alone any more.
fn defer<T>(fact: &mut Fact<T>, left: Option<Duration>) {
    if let (Fact::Failed(why), Some(left)) = (fact, left)
        && why.kind.is_passing()
    {
        why.retry_after = Some(left);
    }
}
