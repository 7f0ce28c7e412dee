// SPDX-License-Identifier: Apache-2.0
//! The result of one round of the loop.

use std::time::Duration;

use crate::catalog::Api;
use crate::config::Settings;
use crate::decide::identity::Identity;
use crate::decide::placement::Placement;
use crate::decide::{Action, Now, Plan, Refusal, Scene, Write, WriteResult};
use crate::facts::node::{ANNOTATION_HOST, Node};
use crate::facts::observation::Observation;
use crate::facts::requests::Requests;
use crate::facts::trigger::{Reasons, Trigger};
use crate::facts::{Fact, UnavailableKind};

/// The result of an action, with our Node if it was changed.
pub type Answer = Result<Option<Node>, Refusal>;

/// The result of one round.
#[derive(Debug)]
pub struct Round {
    /// The reasons of the round.
    pub reasons: Reasons,
    /// The reasons of the round that a new name interrupted, which must be repeated.
    pub cut: Option<Reasons>,
    /// The time of the decisions: if labels were written, after that.
    pub now: Now,
    /// The observed facts, with the Node after the labels were written.
    pub observation: Observation,
    /// The identity that follows from them.
    pub identity: Identity,
    /// The host of the VM and its topology.
    pub placement: Option<Placement>,
    /// The decisions, and the state to remember.
    pub plan: Plan,
    /// The results of the first actions of the plan; the others are not attempted yet.
    pub results: Vec<WriteResult>,
    /// The number of requests to each API until then.
    pub requests: Vec<Requests>,
}

impl Round {
    /// Reports whether an API did not respond.
    pub fn is_unanswered(&self) -> bool {
        let mut failures = Api::ALL
            .iter()
            .filter_map(|api| self.observation.read_failure(*api));
        failures.any(|why| why.kind == UnavailableKind::Unreachable)
    }

    /// Returns the next action.
    pub(super) fn next_action(&self) -> Option<Action> {
        self.plan.actions.get(self.results.len()).cloned()
    }

    /// Records the result of an action. Returns whether labels were written, so that the state is decided again.
    pub(super) fn note(&mut self, action: &Action, answer: Answer) -> bool {
        let result = answer.map(|node| {
            // The response is the newest version of our Node.
            if let Some(node) = node {
                self.observation.node = Fact::Known(node);
            }
        });
        let is_labeled = result.is_ok() && action.write() == Write::Node;
        self.plan.tried(action, &result, self.now);
        self.results.push(result);
        is_labeled
    }

    /// Decides again after labels were written.
    pub(super) fn conclude(&mut self, settings: &Settings, is_daemon: bool, now: Now) {
        self.now = now;
        let seen = Scene {
            settings,
            now,
            reasons: self.reasons,
            observation: &self.observation,
            identity: &self.identity,
            placement: self.placement.as_ref(),
            is_daemon,
        };
        self.plan.conclude(seen, self.results.len());
    }

    /// Returns each attempted write with its result.
    pub fn tried(&self) -> impl Iterator<Item = (&Action, &WriteResult)> {
        self.plan.actions.iter().zip(&self.results)
    }

    /// Returns the trigger to report.
    pub fn trigger(&self) -> Trigger {
        self.cause().0
    }

    /// Returns the time from the arrival of that trigger until the labels were written.
    pub fn latency(&self) -> Duration {
        self.now.uptime.saturating_sub(self.cause().1)
    }

    /// A migration is reported with its first hint.
    fn cause(&self) -> (Trigger, Duration) {
        let first = (self.reasons.trigger, self.reasons.at);
        self.plan.cause.unwrap_or(first)
    }

    /// Reports whether the labels of the last migration were written in this round.
    pub fn has_labeled_migration(&self) -> bool {
        // The annotation comes later than the first labels if another label of the host cannot be read yet.
        let is_first = self.plan.cause.is_some();
        let is_labeled = |(action, result): (&Action, &WriteResult)| match action {
            Action::PatchNode(patch) if result.is_ok() => {
                is_first && !patch.labels.is_empty()
                    || patch.annotations.contains_key(ANNOTATION_HOST)
            }
            _ => false,
        };
        self.plan.memory.last_migration.is_some() && self.tried().any(is_labeled)
    }
}
