// SPDX-License-Identifier: Apache-2.0
//! Evaluates the results of the writes of a plan: what to remember, and when to reconcile next.

use std::time::Duration;

use super::action::{Action, Refusal, Write, WriteResult};
use super::input::Now;
use super::memory::{Memory, Refused};
use super::plan::Plan;
use super::schedule;
use crate::facts::trigger::{Next, Scope, Trigger};

/// The result of [`learn`].
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// The state to remember.
    pub memory: Memory,
    /// The next step.
    pub follow_up: FollowUp,
}

/// The next step after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowUp {
    /// A round for the same reason that reads nothing.
    Immediate,
    /// A wait for a trigger or for this round.
    Wait(Next),
}

impl Plan {
    /// Returns the next write after those with `results`; `None` at the end of the round. Conditions describe the current labels,
    /// so they are decided again after labels were written.
    pub fn next_action(&self, results: &[WriteResult]) -> Option<&Action> {
        let next = self.actions.get(results.len())?;
        let is_skipped = self.has_patched_node(results) && next.write() != Write::Events;
        (!is_skipped).then_some(next)
    }

    /// Returns each attempted write with its result.
    pub fn tried<'a>(
        &'a self,
        results: &'a [WriteResult],
    ) -> impl Iterator<Item = (&'a Action, &'a WriteResult)> {
        self.actions.iter().zip(results)
    }

    /// Reports whether labels or annotations were written.
    fn has_patched_node(&self, results: &[WriteResult]) -> bool {
        self.tried(results)
            .any(|(action, result)| action.write() == Write::Node && result.is_ok())
    }
}

/// Evaluates the results. `results` belong to the first actions of the plan; it is empty in a round that does not write. `scope`
/// is what the round read.
pub fn learn(plan: &Plan, results: &[WriteResult], scope: Scope, now: Now) -> Learned {
    let mut memory = plan.memory.clone();
    let mut next = plan.next;
    for (action, result) in plan.tried(results) {
        match action.write() {
            Write::Node => memory.writes.note(now.uptime),
            Write::Conditions | Write::Events => memory.report_writes.note(now.uptime),
            Write::Unit => {}
        }
        match (action, result) {
            (Action::StartUnit(_), _) => memory.guest_agent.note_start(now.uptime),
            (Action::PatchNode(patch), Ok(())) => {
                memory.note_patch(patch);
                memory.forget_refusal(Write::Node);
            }
            (Action::PatchConditions(_), Ok(())) => memory.forget_refusal(Write::Conditions),
            // A failed hook becomes a finding. An Event that was not sent is lost: the journal has the same state.
            (Action::RunHooks(_) | Action::SendEvents(_), _) => {}
            (Action::PatchNode(_) | Action::PatchConditions(_), Err(why)) => {
                let write = action.write();
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
                if after < next.after {
                    next = Next {
                        after,
                        trigger: Trigger::Timer,
                        scope: Scope::REFUSED,
                    };
                }
            }
        }
    }
    let is_labeled = plan.has_patched_node(results);
    if is_labeled {
        memory.cause = None;
    }
    // The response to the patch is the current Node: conditions and status are decided on it immediately.
    let follow_up = if is_labeled && scope != Scope::NONE {
        FollowUp::Immediate
    } else {
        FollowUp::Wait(next)
    };
    Learned { memory, follow_up }
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
