// SPDX-License-Identifier: Apache-2.0
//! The result of one round of the loop, and its report.

use std::time::Duration;

use crate::config::Settings;
use crate::decide::identity::Identity;
use crate::decide::{self, Action, FollowUp, Memory, Migration, Now, Plan, WriteResult};
use crate::facts::UnavailableKind;
use crate::facts::node::ANNOTATION_HOST;
use crate::facts::observation::Observation;
use crate::facts::requests::Requests;
use crate::facts::trigger::{Reasons, Trigger};

/// The result of one round.
#[derive(Debug)]
pub struct Round {
    /// The reasons of the round.
    pub reasons: Reasons,
    /// The reasons of the round that a new name interrupted, which must be repeated.
    pub cut: Option<Reasons>,
    /// The time of the decision.
    pub now: Now,
    /// The observed facts.
    pub observation: Observation,
    /// The identity that follows from them.
    pub identity: Identity,
    /// The host of the VM and its topology.
    pub placement: Option<decide::placement::Placement>,
    /// The decision.
    pub plan: Plan,
    /// The results of the first actions of the plan; the others were not attempted.
    pub results: Vec<WriteResult>,
    /// The time when the last write was finished, since the start of the process.
    pub ended: Duration,
    /// The number of requests to each API until then.
    pub requests: Vec<Requests>,
    /// The state to remember.
    pub memory: Memory,
    /// The next step.
    pub follow_up: FollowUp,
}

impl Round {
    /// Reports whether an API did not respond.
    pub fn is_unanswered(&self) -> bool {
        let reads = [
            self.observation.candidates.why(),
            self.observation.node.why(),
        ];
        reads
            .into_iter()
            .flatten()
            .any(|why| why.kind == UnavailableKind::Unreachable)
    }

    /// Reports whether nothing is left to send to the API of the guest cluster, or a write was refused.
    pub(super) fn is_settled(&self) -> bool {
        let is_refused =
            |(action, result): (&Action, &WriteResult)| action.is_sent() && result.is_err();
        !self.plan.actions.iter().any(Action::is_sent)
            || self.plan.tried(&self.results).any(is_refused)
    }

    /// Returns the report of the round.
    pub fn report<'a>(&'a self, settings: &'a Settings) -> RoundReport<'a> {
        let labeled = self.plan.tried(&self.results).any(|(action, result)| {
            result.is_ok() && matches!(action, Action::PatchNode(patch) if patch.annotations.contains_key(ANNOTATION_HOST))
        });
        // A migration is reported with its first hint.
        let first = (self.reasons.trigger, self.reasons.at);
        let (trigger, since) = self.plan.memory.cause.unwrap_or(first);
        RoundReport {
            trigger,
            now: self.now,
            observation: &self.observation,
            identity: &self.identity,
            placement: self.placement.as_ref(),
            plan: &self.plan,
            results: &self.results,
            latency: self.ended.saturating_sub(since),
            migrated: self.memory.last_migration.as_ref().filter(|_| labeled),
            requests: &self.requests,
            settings,
        }
    }
}

impl RoundReport<'_> {
    /// Returns each attempted write with its result.
    pub fn tried(&self) -> impl Iterator<Item = (&Action, &WriteResult)> {
        self.plan.tried(self.results)
    }
}

/// The observations, decisions and results of one round.
#[derive(Debug)]
pub struct RoundReport<'a> {
    /// The trigger of the round.
    pub trigger: Trigger,
    /// The time of the decision.
    pub now: Now,
    /// The observed facts.
    pub observation: &'a Observation,
    /// The identity that follows from them.
    pub identity: &'a Identity,
    /// The host of the VM and its topology.
    pub placement: Option<&'a decide::placement::Placement>,
    /// The decisions.
    pub plan: &'a Plan,
    /// The results of the first actions of the plan; the others were not attempted.
    pub results: &'a [WriteResult],
    /// The time from the arrival of the trigger to the end of the last write.
    pub latency: Duration,
    /// The migration whose labels were written in this round.
    pub migrated: Option<&'a Migration>,
    /// The number of requests to each API so far.
    pub requests: &'a [Requests],
    /// The current settings.
    pub settings: &'a Settings,
}
