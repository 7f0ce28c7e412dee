// SPDX-License-Identifier: Apache-2.0
//! Reads the credentials, and describes the situation before a read.

use super::delivered::Uncertain;
use super::read_plan::{OwnState, Situation};
use super::state::Observer;
use crate::config::Settings;
use crate::facts::placement::Source;
use crate::facts::trigger::Scope;
use crate::observe::distribution::DistributionProblem;
use crate::observe::{credentials, distribution, harvester};
use crate::sys::escape::chain;

/// The generation of each credential in use: Harvester's, the guest cluster's.
pub(super) type Generations = [Option<u64>; 2];

impl Observer {
    /// Returns the situation before a read, with the current credentials; `before` are those of the previous read.
    pub(super) fn situation(
        &self,
        settings: &Settings,
        scope: Scope,
        before: Generations,
        uncertain: Uncertain,
        names: &harvester::Names,
    ) -> Situation {
        let [old_harvester, old_guest] = before;
        let [new_harvester, new_guest] = self.generations();
        let namespace = self.facts.harvester.known().map(|known| &known.namespace);
        let own = self.own.as_ref().map(|found| OwnState {
            is_renamed: found.names != *names,
            is_elsewhere: Some(found.generation) != new_harvester
                || Some(&found.vmi.namespace) != namespace,
        });
        Situation {
            scope,
            is_harvester_changed: old_harvester != new_harvester,
            is_guest_changed: old_guest != new_guest,
            own,
            is_vm_uncertain: uncertain.vm,
            is_node_uncertain: uncertain.node,
            may_ask_host: settings.topology.sources.contains(&Source::HostsTable),
            are_reads_current: self.host_labels.are_for(settings),
        }
    }

    /// Reads the credentials of both APIs.
    pub(super) fn read_credentials(&mut self, settings: &Settings) {
        let (distributions, problems) = distribution::read_distribution(&self.root);
        self.facts.distributions = distributions;
        let problems = problems.iter();
        self.is_distribution_unread = problems.clone().any(DistributionProblem::is_passing);
        self.distribution_problems = problems.map(|problem| chain(problem)).collect();
        self.connections
            .refresh(&self.root, settings, &self.facts.distributions);
        self.facts.kubelet = self
            .connections
            .guest
            .link()
            .and_then(|link| credentials::kubelet(link, settings))
            .into();
        self.facts.harvester = self
            .connections
            .harvester
            .link()
            .and_then(|link| credentials::harvester(link, settings))
            .into();
    }

    /// Returns the generation of each credential in use.
    pub(super) fn generations(&self) -> Generations {
        [&self.connections.harvester, &self.connections.guest]
            .map(|side| side.link().ok().map(|link| link.generation))
    }
}
