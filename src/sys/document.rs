// SPDX-License-Identifier: Apache-2.0
//! Documents from outside, read within bounds of size, depth and memory.
//!
//! A text within its cap costs at most eight times its size: aliases that expand, keys that nothing reads and brackets
//! without end are paid for by anyone who wrote them, not by the process.

pub mod json;
pub(crate) mod yaml;

pub use yaml::DocumentError;
