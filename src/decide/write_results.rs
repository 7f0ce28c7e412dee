// SPDX-License-Identifier: Apache-2.0
//! Evaluates the results of the writes of a plan: what to remember, what is decided again, and when to reconcile next.

use std::time::Duration;

use super::action::{Action, Refusal, Write, WriteResult};
use super::input::{Now, Scene};
use super::memory::Refused;
use super::plan::{Plan, believed};
use super::schedule;
use crate::facts::trigger::{Next, Scope, Trigger};

impl Plan {
    /// Remembers the result of an action. A refused change may be due before the next scheduled round.
    pub fn tried(&mut self, action: &Action, result: &WriteResult, now: Now) {
        let (write, memory) = (action.write(), &mut self.memory);
        match write {
            Write::Node => memory.writes.note(now.uptime),
            Write::Conditions | Write::Events => memory.report_writes.note(now.uptime),
            Write::Unit => {}
        }
        match (action, result) {
            (Action::StartUnit(_), _) => memory.guest_agent.started = Some(now.uptime),
            (Action::PatchNode(patch), Ok(())) => {
                memory.note_patch(patch);
                memory.forget_refusal(write);
                memory.cause = None;
            }
            (Action::PatchConditions(_), Ok(())) => {
                // The refusal was reported before this write: a round reports its end.
                if memory.refusal(write).is_some() {
                    self.next = Next {
                        after: Duration::ZERO,
                        trigger: Trigger::Timer,
                        scope: Scope::NONE,
                    };
                }
                memory.forget_refusal(write);
            }
            // A failed hook becomes a finding. An Event that was not sent is lost: the journal has the same state.
            (Action::RunHooks(_) | Action::SendEvents(_), _) => {}
            (Action::PatchNode(_) | Action::PatchConditions(_), Err(why)) => {
                // An attempt that was not sent is none.
                let before = memory.refusal(write).map_or(0, |refused| refused.count);
                let count = before.saturating_add(u32::from(!why.is_deferred)).max(1);
                let after = retry(why, count, now);
                memory.forget_refusal(write);
                memory.refusals.push(Refused {
                    action: action.clone(),
                    text: why.text.clone(),
                    passing: why.passing,
                    count,
                    due: now.uptime + after,
                });
                if after < self.next.after {
                    self.next = Next {
                        after,
                        trigger: Trigger::Timer,
                        scope: Scope::REFUSED,
                    };
                }
            }
        }
    }

    /// Decides again when the API has accepted labels: what is said describes the Node of its response. `count` is the number of
    /// actions that were tried. If a webhook changes what the API accepted, the labels are written again, until that is a conflict.
    pub fn conclude(&mut self, seen: Scene<'_>, count: usize) {
        let mut own = None;
        let seen = Scene {
            reasons: seen.reasons.again(seen.now.uptime),
            ..believed(&mut self.memory, seen, &mut own)
        };
        let mut untried = self.actions.split_off(count);
        // None about a Node that is not ours.
        let is_ours = seen.observation.node.known().is_some();
        untried.retain(|action| is_ours && action.write() == Write::Events);
        self.actions.extend(untried);
        // Their Events are planned.
        let scheduled = std::mem::take(&mut self.scheduled);
        self.decide(seen);
        self.scheduled = scheduled;
    }
}

/// Returns how long to wait before a write that failed `failures` times is sent again.
fn retry(refusal: &Refusal, failures: u32, now: Now) -> Duration {
    match refusal.retry_after {
        None if refusal.passing => schedule::retry(failures, None, now.random),
        Some(left) if refusal.is_deferred => left,
        // The backoff of the API restarts after each response. The number of failed writes does not.
        Some(left) => left.max(schedule::retry(failures, None, now.random)),
        None => schedule::retry_refused(failures, now.random),
    }
}

#[cfg(test)]
mod tests;
