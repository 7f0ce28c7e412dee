// SPDX-License-Identifier: Apache-2.0
//! Decisions: pure functions of observations, configuration, remembered state, and time.
//!
//! Each file contains one decision, or its types. The agent loop calls [`identity::identify`] and [`placement::locate`], the
//! observer asks the sources that a [`placement::Choice`] wants, and [`plan`] calls all others in order and collects the results;
//! [`Plan::conclude`] calls those about the Node again after labels were written. None does I/O, reads a clock or logs, so that a test can pass any input.
//!
//! To add a decision: add a file with its function and result type, and a line in [`plan`].

pub mod action;
pub mod agenda;
pub mod conditions;
pub mod conflict;
pub mod doing;
pub mod events;
pub mod failure_code;
pub mod fast_poll;
pub mod findings;
pub mod guest_agent;
pub mod identity;
mod input;
mod interruption;
pub mod label_state;
mod labeling;
pub mod labels;
pub mod memory;
pub mod name_match;
mod next;
pub mod node_ownership;
pub mod patches;
pub mod placement;
mod plan;
pub mod registration;
pub mod schedule;
pub mod scheduled_events;
mod write_results;

pub use action::{
    Action, ConditionsPatch, HookRun, NodeEvents, NodePatch, Refusal, Write, WriteResult,
};
pub use input::{Now, Scene};
pub use memory::{Memory, Migration, Refused};
pub use plan::{Plan, new_hint, plan};

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
