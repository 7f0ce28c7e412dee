// SPDX-License-Identifier: Apache-2.0
//! One read of all sources: runs what [`read_plan`] decides, and keeps the results.

use std::time::Duration;

use super::limit::{limited, too_slow};
use super::read_plan::{self, VmReading};
use super::state::Observer;
use crate::catalog::{Code, Finding};
use crate::config::Settings;
use crate::decide::Now;
use crate::facts::names::VmName;
use crate::facts::node::Node;
use crate::facts::observation::Observation;
use crate::facts::placement::Source;
use crate::facts::trigger::Scope;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::harvester::{self, ListPolicy, Search, SearchResult};
use crate::observe::{guest_agent, host_metrics, node};

/// The name of the source in messages.
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
        let before = self.generations();
        let uncertain = self.take_delivered();
        if scope.contains(Scope::AFRESH) {
            self.host_labels.forget_refusals();
        }
        let is_needed =
            read_plan::reads_credentials(scope, self.failures(), before != [None, None]);
        // Nothing else may wait for a disk that does not respond.
        if stalled.is_none() && is_needed {
            self.read_credentials(settings);
        }
        let names = harvester::Names::new(
            settings,
            self.earlier.as_ref(),
            &self.facts.machine,
            self.facts.kubelet.known(),
        );
        let situation = self.situation(settings, scope, before, uncertain, &names);
        let plan = read_plan::decide(&situation, &self.facts);
        if plan.forgets_own {
            self.own = None;
        }
        let namespace = self
            .facts
            .harvester
            .known()
            .map(|known| known.namespace.clone());
        let [generation, _] = self.generations();
        let list = self.list(settings, scope, now, (names.clone(), namespace, generation));
        let pinned = settings.harvester.vm.as_ref();
        let mut is_list_sent = false;
        let read_units = async {
            match plan.units && stalled.is_none() {
                true => Some(Fact::Known(guest_agent::read(&self.root, &self.bus).await)),
                false => None,
            }
        };
        let read_host = async {
            match plan.host_metrics {
                true => Some(host_metrics::read(&self.root, now.wall).await),
                false => None,
            }
        };
        let read_pod = async {
            match &settings.pod_info.path {
                Some(dir) if settings.topology.sources.contains(&Source::PodInfo) => {
                    self.pod_reader.lock().await.read(&self.root, dir).await
                }
                _ => Fact::Absent,
            }
        };
        let (node, vm, units, metrics, pod_info) = tokio::join!(
            limited(self.read_node(plan.node)),
            limited(self.read_vm(plan.vm, pinned, &names, list, &mut is_list_sent)),
            limited(read_units),
            limited(read_host),
            read_pod
        );
        self.facts.pod_info = pod_info;
        alive();
        let is_listed = matches!(&vm, Some(Some(found)) if found.is_listed);
        if is_list_sent && !is_listed {
            self.list_failed(now);
        }
        if let Some(agent) = in_time(units, "the system bus") {
            self.facts.guest_agent = agent;
        }
        if let Some(metrics) = in_time(metrics, METRICS) {
            self.facts.host_metrics = metrics;
        }
        if let Some(node) = in_time(node, "the guest cluster API") {
            self.delivered_version = node.known().and_then(|node| node.resource_version.clone());
            self.facts.node = node;
            defer(&mut self.facts.node, self.connections.guest.deferred());
        }
        match vm {
            Some(None) => {}
            Some(Some(found)) => self.searched(found, pinned, now),
            None => self.facts.candidates = too_slow("the Harvester API"),
        }
        defer(
            &mut self.facts.candidates,
            self.connections.harvester.deferred(),
        );
        if plan.forgets_hosts {
            self.host_labels.forget_labels();
        }
        let is_lost = plan.vm.is_some() && self.facts.candidates.known().is_none();
        if plan.forgets_reads || is_lost {
            self.host_labels.forget_current();
        }
        if plan.vm.is_some() {
            // Boxed, so that the memory is freed afterwards.
            Box::pin(self.check_own_api()).await;
        }
        alive();
        if scope.contains(Scope::UNITS) {
            let (is_offered, detail) = host_metrics::probe(&self.root);
            self.health.set("downward-metrics", is_offered, detail);
        }
        self.read_stopped_vm().await;
        self.names = names;
        let problems = self.distribution_problems.iter().cloned();
        self.facts.findings = problems
            .map(|problem| Finding::new(Code::DistributionFileBroken, problem))
            .chain(self.connections.findings())
            .chain(self.health.findings())
            .chain(stalled.clone())
            .collect();
        self.facts.clock = self.health.clock_steps();
        self.facts.is_unread = stalled.is_some()
            || self.facts.machine.is_unread()
            || self.is_distribution_unread
            || self.connections.is_unread();
        if self.facts.candidates.known().is_some() {
            self.facts.host_metrics = Fact::failed(UnavailableKind::NotAsked, "not needed");
        } else if read_plan::reads_host_late(&situation, &self.facts) {
            self.facts.host_metrics = limited(host_metrics::read(&self.root, now.wall))
                .await
                .unwrap_or_else(|| too_slow(METRICS));
            alive();
        }
        self.facts.clone()
    }

    /// Reads our Node if `is_due`; `None` if the known one stays.
    async fn read_node(&self, is_due: bool) -> Option<Fact<Node>> {
        match (self.connections.guest.link(), self.facts.kubelet.known()) {
            (Err(why), _) => Some(Fact::Failed(why.skipping())),
            (Ok(_), None) => Some(Fact::failed(
                UnavailableKind::NotAsked,
                "the name of this Node is unknown",
            )),
            (Ok(link), Some(kubelet)) if is_due => Some(node::read(link, &kubelet.node_name).await),
            (Ok(_), Some(_)) => None,
        }
    }

    async fn read_vm(
        &self,
        how: Option<VmReading>,
        pinned: Option<&VmName>,
        names: &harvester::Names,
        list: ListPolicy,
        is_list_sent: &mut bool,
    ) -> Option<SearchResult> {
        let unasked = |why| Some(SearchResult::unlisted(Fact::Failed(why)));
        let link = match self.connections.harvester.link() {
            Ok(link) => link,
            Err(why) => return unasked(why.skipping()),
        };
        let Some(harvester) = self.facts.harvester.known() else {
            let text = "the namespace is unknown";
            return unasked(Unavailable::new(UnavailableKind::NotAsked, text));
        };
        if let (VmReading::Own { with_others }, Some(found)) = (how?, &self.own) {
            let own = harvester::read_own(&link.client, found, with_others).await;
            if let Some(candidates) = own {
                return Some(SearchResult::unlisted(candidates));
            }
        }
        let search = Search {
            client: &link.client,
            namespace: &harvester.namespace,
            names,
            duplicates: &self.duplicates,
            facts: &self.facts,
            pinned,
            list,
        };
        Some(search.run(is_list_sent).await)
    }

    /// Reads the VirtualMachine of an instance that stops, once.
    async fn read_stopped_vm(&mut self) {
        let own = self.own.as_ref().map(|own| &own.vmi);
        // The first read is before the instance is known to be ours.
        let only = match self.facts.vmis() {
            [only] => Some(only),
            _ => None,
        };
        let Some(vmi) = own.or(only).filter(|vmi| vmi.announcements.stop.is_some()) else {
            self.facts.vm = Fact::failed(UnavailableKind::NotAsked, "not needed");
            return;
        };
        if let (Fact::Failed(_), Ok(link)) = (&self.facts.vm, self.connections.harvester.link()) {
            let read = limited(harvester::read_vm(&link.client, vmi)).await;
            self.facts.vm = read.unwrap_or_else(|| too_slow("the Harvester API"));
        }
    }
}

/// Converts a timeout to a failed fact; `None` if the source was not requested.
fn in_time<T>(answer: Option<Option<Fact<T>>>, whom: &str) -> Option<Fact<T>> {
    answer.unwrap_or_else(|| Some(too_slow(whom)))
}

/// Delays the retry of a failed fact until the backoff of its API ends.
fn defer<T>(fact: &mut Fact<T>, left: Option<Duration>) {
    if let (Fact::Failed(why), Some(left)) = (fact, left)
        && why.kind.is_passing()
    {
        why.retry_after = Some(left);
    }
}
