// SPDX-License-Identifier: Apache-2.0
//! One read of all sources: reads what is [`due`](Observer::due), and keeps the results.

use std::time::Duration;

use super::credentials::reads_credentials;
use super::due::Due;
use super::state::Observer;
use crate::agent::limit::in_time;
use crate::catalog::{Code, Finding};
use crate::config::Settings;
use crate::decide::Now;
use crate::decide::identity::is_certain;
use crate::facts::node::Node;
use crate::facts::observation::{Candidates, Coverage, Observation};
use crate::facts::placement::Source;
use crate::facts::pod_info::PodInfo;
use crate::facts::trigger::Scope;
use crate::facts::{Fact, UnavailableKind};
use crate::observe::harvester::{self, List, ListPolicy, Search};
use crate::observe::{guest_agent, host_metrics, node};
use crate::sys::escape::chain;

// The names of the sources in messages.
const HARVESTER: &str = "the Harvester API";
const GUEST: &str = "the guest cluster API";
const BUS: &str = "the system bus";
const METRICS: &str = "the downward metrics of the host";

impl Observer {
    pub(super) async fn read(
        &mut self,
        settings: &Settings,
        scope: Scope,
        now: Now,
        alive: &mut dyn FnMut(),
    ) -> Observation {
        if scope.contains(Scope::AT_ONCE) {
            self.connections.skip_backoff();
        }
        let stalled = self.read_local().await;
        alive();
        let mut doubted = self.take_delivered();
        let has_any = self.generations() != [None; 2];
        // Nothing else may wait for a disk that does not respond.
        if stalled.is_none() && reads_credentials(scope, self.failures(), has_any) {
            doubted |= self.read_credentials(settings);
        }
        self.names = harvester::Names::new(settings, self.earlier.as_ref(), &self.facts);
        let due = self.due(settings, scope, doubted);
        let policy = self.list(settings, scope, now);
        let mut list = List::Unsent;
        let units = async { Fact::Known(guest_agent::read(&self.root, &self.bus).await) };
        let are_units_due = due.contains(Due::UNITS) && stalled.is_none();
        let metrics = host_metrics::read(&self.root, now.wall);
        let knew_node = self.facts.node.known().is_some();
        let vm = self.read_vm(due, settings, policy, &mut list);
        let (node, mut candidates, units, metrics, pod_info) = tokio::join!(
            read_if(due.contains(Due::NODE), GUEST, self.read_node()),
            read_if(due.contains(Due::VM), HARVESTER, vm),
            read_if(are_units_due, BUS, units),
            read_if(due.contains(Due::METRICS), METRICS, metrics),
            self.read_pod(settings)
        );
        self.facts.pod_info = pod_info;
        alive();
        replace(&mut self.facts.guest_agent, units);
        replace(&mut self.facts.host_metrics, metrics);
        if let Some(node) = &node {
            self.delivered_version = node.known().and_then(|node| node.resource_version.clone());
        }
        replace(&mut self.facts.node, node);
        // The search did not know yet which VM the Node names.
        if !knew_node
            && self.facts.node.known().is_some()
            && candidates
                .as_ref()
                .is_some_and(|found| self.is_doubtful(found, settings))
        {
            let vm = self.read_vm(due, settings, policy, &mut list);
            candidates = read_if(true, HARVESTER, vm).await;
        }
        if let Some(candidates) = candidates {
            self.searched(candidates, list, settings.harvester.vm.as_ref(), now);
        }
        let (guest, harvester) = (&self.connections.guest, &self.connections.harvester);
        defer(&mut self.facts.node, guest.deferred());
        defer(&mut self.facts.candidates, harvester.deferred());
        self.forget_labels(scope, due);
        if due.contains(Due::VM) {
            // Boxed, so that the memory is freed afterwards.
            Box::pin(self.check_own_api()).await;
        }
        alive();
        self.read_stopped_vm(scope).await;
        if self.facts.candidates.known().is_some() {
            self.facts.host_metrics = Fact::failed(UnavailableKind::NotAsked, "not needed");
        } else if self.needs_metrics_late(settings, scope) {
            let metrics = host_metrics::read(&self.root, now.wall);
            self.facts.host_metrics = in_time(METRICS, metrics).await;
            alive();
        }
        if scope.contains(Scope::UNITS) {
            let (is_offered, detail) = host_metrics::probe(&self.root);
            self.board.set("downward-metrics", is_offered, detail);
        }
        self.find_problems(stalled);
        self.facts.clone()
    }

    /// Reports whether instances were found by their names, and none of them is certainly ours.
    fn is_doubtful(&self, found: &Fact<Candidates>, settings: &Settings) -> bool {
        let pinned = settings.harvester.vm.as_ref();
        found.known().is_some_and(|found| {
            let mut vmis = found.vmis.iter();
            let is_ours = |vmi| is_certain(&self.facts, vmi, pinned);
            found.coverage == Coverage::Listed && !found.vmis.is_empty() && !vmis.any(is_ours)
        })
    }

    /// Collects what is wrong beside the main reads. `stalled`: why the files of this machine were not read.
    fn find_problems(&mut self, stalled: Option<Finding>) {
        let problems = self.distribution_problems.iter();
        self.facts.clock = self.board.clock_steps();
        self.facts.is_unread = stalled.is_some()
            || self.facts.machine.is_unread()
            || problems.clone().any(|problem| problem.is_passing)
            || self.connections.is_unread();
        self.facts.findings = problems
            .map(|problem| Finding::new(Code::DistributionFileBroken, chain(problem)))
            .chain(self.connections.findings())
            .chain(self.board.findings())
            .chain(stalled)
            .collect();
    }

    async fn read_node(&self) -> Fact<Node> {
        match (self.connections.guest.link(), self.facts.kubelet.known()) {
            (Ok(link), Some(kubelet)) => node::read(link, &kubelet.node_name).await,
            (Ok(_), None) => Fact::failed(
                UnavailableKind::NotAsked,
                "the name of this Node is unknown",
            ),
            (Err(why), _) => Fact::Failed(why.skipping()),
        }
    }

    async fn read_vm(
        &self,
        due: Due,
        settings: &Settings,
        policy: ListPolicy,
        list: &mut List,
    ) -> Fact<Candidates> {
        let link = match self.connections.harvester.link() {
            Ok(link) => link,
            Err(why) => return Fact::Failed(why.skipping()),
        };
        let Some(harvester) = self.facts.harvester.known() else {
            return Fact::failed(UnavailableKind::NotAsked, "the namespace is unknown");
        };
        if let Some(found) = self.own.as_ref().filter(|_| !due.contains(Due::SEARCH)) {
            let with_others = due.contains(Due::OTHERS);
            let own = harvester::read_own(&link.client, found, with_others).await;
            if let Some(candidates) = own {
                return candidates;
            }
        }
        let search = Search {
            client: &link.client,
            namespace: &harvester.namespace,
            names: &self.names,
            duplicates: &self.duplicates,
            facts: &self.facts,
            pinned: settings.harvester.vm.as_ref(),
            list: policy,
        };
        search.run(list).await
    }

    async fn read_pod(&self, settings: &Settings) -> Fact<PodInfo> {
        match &settings.pod_info.path {
            Some(dir) if settings.topology.sources.contains(&Source::PodInfo) => {
                self.pod_reader.lock().await.read(&self.root, dir).await
            }
            _ => Fact::Absent,
        }
    }

    /// Reads the VirtualMachine of an instance that stops, until it is known.
    async fn read_stopped_vm(&mut self, scope: Scope) {
        let own = self.own.as_ref().map(|own| &own.vmi);
        // What this round has read is not kept yet.
        let only = match self.facts.vmis() {
            [only] => Some(only),
            _ => None,
        };
        let Some(vmi) = only.or(own).filter(|vmi| vmi.announcements.stop.is_some()) else {
            self.facts.vm = Fact::failed(UnavailableKind::NotAsked, "not needed");
            return;
        };
        if scope.asks_apis()
            && let (Fact::Failed(_), Ok(link)) = (&self.facts.vm, self.connections.harvester.link())
        {
            self.facts.vm = in_time(HARVESTER, harvester::read_vm(&link.client, vmi)).await;
        }
    }
}

/// Reads a fact within the time limit; `None` if the known one stays.
async fn read_if<T>(
    is_due: bool,
    whom: &str,
    read: impl Future<Output = Fact<T>>,
) -> Option<Fact<T>> {
    match is_due {
        true => Some(in_time(whom, read).await),
        false => None,
    }
}

fn replace<T>(fact: &mut Fact<T>, read: Option<Fact<T>>) {
    if let Some(read) = read {
        *fact = read;
    }
}

/// Delays the retry of a failed fact until the backoff of its API ends.
fn defer<T>(fact: &mut Fact<T>, left: Option<Duration>) {
    if let (Fact::Failed(why), Some(left)) = (fact, left)
        && why.kind.is_passing()
    {
        why.retry_after = Some(left);
    }
}
