// SPDX-License-Identifier: Apache-2.0
//! Who else has a hand in our names, labels and addresses, and do they agree?

use super::Case;
use crate::findings::Finding;

/// What is wrong.
pub fn findings(_: &Case<'_>) -> Vec<Finding> {
    Vec::new()
}
