// SPDX-License-Identifier: Apache-2.0
//! Are the credentials of the right kind, kept well, and do they last?

use super::Case;
use crate::findings::Finding;

/// What is wrong.
pub fn findings(_: &Case<'_>) -> Vec<Finding> {
    Vec::new()
}
