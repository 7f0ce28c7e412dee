// SPDX-License-Identifier: Apache-2.0
//! What one round of `doctor` found.

use super::case::Checked;
use super::service::Service;
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
