// SPDX-License-Identifier: Apache-2.0
//! Can the clock be believed? Where it cannot, ended certificates are its consequence and not the cause.

use super::Case;
use crate::findings::Finding;

/// What is wrong.
pub fn findings(_: &Case<'_>) -> Vec<Finding> {
    Vec::new()
}
