// SPDX-License-Identifier: Apache-2.0
//! What is wrong that only an examination shows? One file for each question; each is a function of the same [`Case`].
//!
//! What the running agent finds too is found in `decide/complaints.rs` and not here.

pub mod clock;
pub mod conflicts;
pub mod credentials;
pub mod image;
pub mod versions;

use super::Now;
use super::identity::Identity;
use super::placement::Placement;
use crate::config::Settings;
use crate::facts::examination::Examination;
use crate::facts::who::Who;
use crate::findings::Finding;

/// All that is known: an ordinary round, and the examination beside it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The settings in force.
    pub settings: &'a Settings,
    /// What the round saw of who we are.
    pub who: &'a Who,
    /// The judgement of that.
    pub identity: &'a Identity,
    /// Where we are, where known.
    pub placement: Option<&'a Placement>,
    /// What the examination saw.
    pub examination: &'a Examination,
    /// The time.
    pub now: Now,
}

/// All findings of the examination, in the order of its parts. What explains what is for the caller to sort out.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    [
        versions::findings(case),
        conflicts::findings(case),
        credentials::findings(case),
        clock::findings(case),
        image::findings(case),
    ]
    .into_iter()
    .flatten()
    .collect()
}
