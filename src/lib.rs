// SPDX-License-Identifier: Apache-2.0
//! Agent.

pub mod agent;
pub mod apply;
pub mod config;
pub mod credentials;
pub mod decide;
pub mod facts;
pub mod findings;
pub mod kubeapi;
pub mod observe;
pub mod report;
pub mod root;
pub mod triggers;
