// SPDX-License-Identifier: Apache-2.0
//! Do the versions that meet here go together? Versions that are not known are not fine, they are gaps.

use super::Case;
use crate::findings::Finding;

/// What is wrong.
pub fn findings(_: &Case<'_>) -> Vec<Finding> {
    Vec::new()
}
