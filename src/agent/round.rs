// SPDX-License-Identifier: Apache-2.0
//! The result of one round of the loop.

use std::time::Duration;

use crate::decide::identity::Identity;
use crate::decide::placement::Placement;
use crate::decide::{Action, FollowUp, Memory, Now, Plan, WriteResult};
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
    pub placement: Option<Placement>,
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
        !self.plan.actions.iter().any(Action::is_sent) || self.tried().any(is_refused)
    }

    /// Returns each attempted write with its result.
    pub fn tried(&self) -> impl Iterator<Item = (&Action, &WriteResult)> {
        self.plan.tried(&self.results)
    }

    /// Returns the trigger to report.
    pub fn trigger(&self) -> Trigger {
        self.cause().0
    }

    /// Returns the time from the arrival of that trigger to the end of the last write.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_sub(self.cause().1)
    }

    /// A migration is reported with its first hint.
    fn cause(&self) -> (Trigger, Duration) {
        let first = (self.reasons.trigger, self.reasons.at);
        self.plan.memory.cause.unwrap_or(first)
    }

    /// Reports whether the labels of the last migration were written in this round.
    pub fn has_labeled_migration(&self) -> bool {
        let is_labeled = |(action, result): (&Action, &WriteResult)| match action {
            Action::PatchNode(patch) => {
                result.is_ok() && patch.annotations.contains_key(ANNOTATION_HOST)
            }
            _ => false,
        };
        self.memory.last_migration.is_some() && self.tried().any(is_labeled)
    }
}
