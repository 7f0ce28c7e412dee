// SPDX-License-Identifier: Apache-2.0
//! Reads: one file for each data source. Only `observer` and `host_labels` keep results; `observer/due.rs` has when they are read again.
//!
//! To add a source: a type for its fact in `facts`, a file here that reads it, and a line in `observer/read.rs`; for labels of a
//! host, in `host_labels.rs`.

pub mod api_access;
pub mod configmap;
pub mod credentials;
pub mod distribution;
pub mod environment_file;
pub mod guest_agent;
pub mod harvester;
pub mod host_labels;
pub mod host_metrics;
pub mod machine;
pub mod node;
pub mod observer;
pub mod pod_info;
pub mod registration;
mod unavailable;

pub use unavailable::why;
