// SPDX-License-Identifier: Apache-2.0
//! One round of the loop, whole, and as the reports see it.

use std::time::Duration;

use super::{Reasons, Trigger};
use crate::config::Settings;
use crate::decide::identity::Identity;
use crate::decide::{self, Action, FollowUp, Memory, Migration, Now, Plan, WriteResult};
use crate::facts::UnavailableKind;
use crate::facts::observation::Observation;
use crate::facts::requests::Requests;

/// One round, whole.
#[derive(Debug)]
pub struct Round {
    /// Why.
    pub reasons: Reasons,
    /// The round that a new name cut short, which is to be done again.
    pub cut: Option<Reasons>,
    /// When it was decided.
    pub now: Now,
    /// Who we are.
    pub observation: Observation,
    /// The judgement of that.
    pub identity: Identity,
    /// Where we are.
    pub placement: Option<decide::placement::Placement>,
    /// The decision.
    pub plan: Plan,
    /// What came of the first actions of the plan; the others were not tried.
    pub results: Vec<WriteResult>,
    /// When the last write was done, since the start of the process.
    pub ended: Duration,
    /// How often each API was asked until then.
    pub requests: Vec<Requests>,
    /// What to remember.
    pub memory: Memory,
    /// What comes next.
    pub follow_up: FollowUp,
}

impl Round {
    /// Whether an API that was asked gave no answer.
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

    /// Reports whether nothing is left to send to the API of the guest cluster, or it was refused.
    pub(super) fn is_settled(&self) -> bool {
        let is_refused =
            |(action, result): (&Action, &WriteResult)| action.is_sent() && result.is_err();
        !self.plan.actions.iter().any(Action::is_sent)
            || self.plan.tried(&self.results).any(is_refused)
    }

    /// The round as a report.
    pub fn report<'a>(&'a self, settings: &'a Settings) -> RoundReport<'a> {
        let labelled = self.plan.tried(&self.results).any(|(action, result)| {
            result.is_ok() && matches!(action, Action::PatchNode(patch) if patch.annotations.contains_key(decide::ANNOTATION_HOST))
        });
        // What is done about a move is done because of the first hint of it.
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
            migrated: self.memory.last_migration.as_ref().filter(|_| labelled),
            requests: &self.requests,
            settings,
        }
    }
}

impl RoundReport<'_> {
    /// Returns each write that was tried, with its result.
    pub fn tried(&self) -> impl Iterator<Item = (&Action, &WriteResult)> {
        self.plan.tried(self.results)
    }
}

/// All that one round found out and did.
#[derive(Debug)]
pub struct RoundReport<'a> {
    /// Why the agent reconciled.
    pub trigger: Trigger,
    /// The moment of the decision.
    pub now: Now,
    /// Who we are.
    pub observation: &'a Observation,
    /// The judgement of that.
    pub identity: &'a Identity,
    /// Where we are.
    pub placement: Option<&'a decide::placement::Placement>,
    /// What was decided.
    pub plan: &'a Plan,
    /// What came of the first actions of the plan; the others were not tried.
    pub results: &'a [WriteResult],
    /// From the arrival of the trigger to the end of the last write.
    pub latency: Duration,
    /// The move whose labels were written in this round.
    pub migrated: Option<&'a Migration>,
    /// How often each API was asked until now.
    pub requests: &'a [Requests],
    /// The settings in force.
    pub settings: &'a Settings,
}
