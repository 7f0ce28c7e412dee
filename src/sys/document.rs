// SPDX-License-Identifier: Apache-2.0
//! Parses untrusted documents with limits on size, depth and memory.
//!
//! A text within its size limit needs at most eight times its size in memory: unused keys and unclosed brackets count against that
//! limit.

pub mod json;
pub mod yaml;

pub use yaml::DocumentError;
