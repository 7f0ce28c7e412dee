// SPDX-License-Identifier: Apache-2.0
//! Agent.

pub mod agent;
pub mod apply;
pub mod cli;
pub mod config;
pub mod connections;
pub mod credentials;
pub mod decide;
pub mod durable;
pub mod escape;
pub mod facts;
pub mod findings;
pub mod kubeapi;
pub mod lock;
pub mod logging;
pub mod observe;
pub mod report;
pub mod root;
pub mod state;
#[cfg(test)]
pub(crate) mod testing;
pub mod triggers;
