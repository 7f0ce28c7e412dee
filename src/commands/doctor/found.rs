// SPDX-License-Identifier: Apache-2.0
//! What one round of `doctor` found.

use super::case::{Checked, Gap};
use super::service::Service;
use crate::catalog::Group;
use crate::facts::{Unavailable, UnavailableKind};
use crate::report::status::Status;

/// What one round of `doctor` found: complete, or until it timed out.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// The running agent.
    pub(super) service: Service,
    /// The result of the round and of the checks.
    pub(super) checked: Checked,
    /// The status of the round, if there was one.
    pub(super) status: Option<Status>,
    /// Whether a request to an API failed.
    pub(super) is_unanswered: bool,
}

impl Found {
    /// Completes a round whose other steps could not be done.
    pub(super) fn end_early(&mut self, why: &str) {
        let what = match self.status {
            Some(_) => "the remaining checks",
            None => "all checks",
        };
        let why = Unavailable::new(UnavailableKind::Unreachable, why);
        let gaps = Group::ALL.iter().map(|group| Gap::new(*group, what, &why));
        self.checked.gaps.extend(gaps);
        self.is_unanswered = true;
    }
}
