// SPDX-License-Identifier: Apache-2.0
//! Decides what follows from the results of the writes of a plan: what to remember, and when to reconcile next.

use super::action::{Action, Refusal, Write, WriteResult};
use super::{Memory, Now, Plan, Refused, schedule};
use crate::facts::Fact;
use crate::facts::node::Node;
use crate::facts::trigger::{Next, Scope, Trigger};

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// What to remember.
    pub memory: Memory,
    /// What comes next.
    pub follow_up: FollowUp,
}

/// What comes after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowUp {
    /// A round for the same reason that reads nothing.
    Immediate,
    /// A wait for a trigger, or for this.
    Wait(Next),
}

impl Plan {
    /// Returns the next write, after those with these results; `None` when the round is over. Conditions describe labels as they
    /// are, so they are decided again after these were written.
    pub fn next_action(&self, results: &[WriteResult]) -> Option<&Action> {
        if self.has_patched_node(results) {
            return None;
        }
        self.actions.get(results.len())
    }

    /// Returns each write that was tried, with its result.
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

/// Decides. `results` are those of the first actions of the plan; none is a round that writes nothing. `scope` is what the round
/// read, `node` what it knew of our Node.
pub fn learn(
    plan: &Plan,
    results: &[WriteResult],
    scope: Scope,
    node: &Fact<Node>,
    now: Now,
) -> Learned {
    let mut memory = plan.memory.clone();
    let mut is_newly_unwritten = false;
    let mut refusal = None;
    for (action, result) in plan.tried(results) {
        if action.is_sent() {
            memory.writes.note(now.uptime);
        }
        match (action, result) {
            (Action::StartUnit(_), _) => memory.guest_agent.note_start(now.uptime),
            (Action::EditLabelFile(_), Err(refusal)) => {
                is_newly_unwritten |= memory.unwritten_file.as_ref() != Some(&refusal.text);
                memory.unwritten_file = Some(refusal.text.clone());
            }
            (Action::PatchNode(patch), Ok(())) => memory.conflicts.wrote(patch),
            (Action::EditLabelFile(_) | Action::PatchConditions(_), Ok(())) => {}
            (Action::PatchNode(_) | Action::PatchConditions(_), Err(why)) => {
                memory.refusal = Some(Refused {
                    action: action.clone(),
                    text: why.text.clone(),
                    passing: why.passing,
                    retry_after: why.retry_after,
                });
                refusal.get_or_insert(why);
            }
        }
    }
    let mut next = plan.next;
    if let Some(refusal) = refusal {
        // A failed write is retried with growing waits, like any other failure.
        memory.failures = memory.failures.max(1);
        // What is not for the sake of time alone goes on as planned, the reads of a window above all: it retries the write.
        let retry = retry(refusal, memory.failures, node, now);
        memory.retry = Some(now.uptime + retry.after);
        if next.trigger == Trigger::Timer {
            next = retry;
        }
    }
    let is_labelled = plan.has_patched_node(results);
    if is_labelled {
        memory.cause = None;
    }
    // The answer to the patch is our Node as it is now: conditions and status are decided on it immediately. A file that could not
    // be written is reported immediately.
    let is_immediate = (is_labelled || is_newly_unwritten) && scope != Scope::NONE;
    let follow_up = if is_immediate {
        FollowUp::Immediate
    } else {
        FollowUp::Wait(next)
    };
    Learned { memory, follow_up }
}

/// Returns when a failed write is retried.
fn retry(refusal: &Refusal, failures: u32, node: &Fact<Node>, now: Now) -> Next {
    let is_deferred = node.why().is_some_and(|why| why.is_deferred);
    let after = match refusal.retry_after {
        None if refusal.passing => schedule::retry(failures, None, now.random),
        Some(left) if is_deferred => left,
        // The API's backoff starts again after each answer; the count of failed writes does not.
        Some(left) => left.max(schedule::retry(failures, None, now.random)),
        None => schedule::retry_refused(failures, now.random),
    };
    Next {
        after,
        trigger: Trigger::Timer,
        scope: Scope::REFUSED,
    }
}

#[cfg(test)]
mod tests;
