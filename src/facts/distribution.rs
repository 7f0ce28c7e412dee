// SPDX-License-Identifier: Apache-2.0
//! Placeholder.
/// Placeholder.
#[derive(Debug, Clone)]
pub struct Distribution;
