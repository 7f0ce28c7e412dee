// SPDX-License-Identifier: Apache-2.0
//! Facts: observed values, parsed once into types.
//!
//! This module does no I/O, reads no clock and makes no decisions. A fact that could not be read is a value too ([`Fact`]), so
//! that a decision always handles a missing one.
//!
//! To add a fact: add its type here, read it in one file of `observe`, and use it in one decision of `decide`.

pub mod clock;
pub mod distribution;
mod fact;
pub mod guest_agent;
pub mod host_metrics;
pub mod machine;
pub mod names;
pub mod nic;
pub mod node;
pub mod observation;
pub mod placement;
pub mod pod_info;
pub mod registration;
pub mod requests;
pub mod scheduled_events;
pub mod topology;
pub mod trigger;
pub mod vmi;

pub use fact::{Fact, UNRESOLVED, Unavailable, UnavailableKind};
