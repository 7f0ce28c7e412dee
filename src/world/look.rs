// SPDX-License-Identifier: Apache-2.0
//! One look: what of the world is read again, and what is as it was.

use super::host::{METRICS, is_unasked};
use super::limit::{limited, too_slow};
use super::{Found, World};
use crate::config::Settings;
use crate::decide::Now;
use crate::escape::chain;
use crate::facts::vmi::Vmi;
use crate::facts::who::{Candidates, Remark, Who};
use crate::facts::{Seen, Why, WhyKind};
use crate::observe::harvester::{self, Others};
use crate::observe::node::{self, Freshness};
use crate::observe::{credentials, distribution, guest_agent, host_metrics, machine, registration};
use crate::reason::Scope;

impl World {
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

    /// Keeps what the search found, and of the other instances those that have one of our names.
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

    pub(super) async fn look(&mut self, settings: &Settings, scope: Scope, now: Now) -> Who {
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
        let (node, candidates, units, drop_in, metrics) = tokio::join!(
            limited(read_node),
            limited(read_vm),
            limited(read_units),
            limited(read_drop_in),
            limited(hear_host)
        );
        // Without an answer of systemd, a missed reload is still missed.
        self.drop_in = drop_in.flatten().or(self.drop_in);
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
            drop_in: self.drop_in,
            remarks,
        }
    }
}
