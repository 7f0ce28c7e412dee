// SPDX-License-Identifier: Apache-2.0
//! Did the image bring what belongs to one machine?

use super::Case;
use crate::findings::Finding;

/// What is wrong.
pub fn findings(_: &Case<'_>) -> Vec<Finding> {
    Vec::new()
}
