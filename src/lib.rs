// SPDX-License-Identifier: Apache-2.0
//! Agent.

pub mod config;
pub mod credentials;
pub mod facts;
pub mod kubeapi;
pub mod report;
pub mod root;
