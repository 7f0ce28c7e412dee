// SPDX-License-Identifier: Apache-2.0
//! What is wrong that only an examination shows? One file for each question; each is a function of the same [`Case`].
//!
//! What the running agent finds too is found in `decide/complaints.rs` and not here.

pub mod clock;
pub mod conflicts;
pub mod credentials;
pub mod image;
pub mod permissions;
#[cfg(test)]
pub(crate) mod testing;
pub mod versions;

use super::identity::Identity;
use super::placement::Placement;
use super::{Now, rfc3339};
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
        permissions::findings(case),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Seconds since 1970 as a date.
fn date(seconds: i64) -> String {
    time::UtcDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| format!("{seconds} s after 1970"), rfc3339)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::decide::fixtures::{World, now};
    use crate::facts::examination::{
        clock::Clock, conflicts::Conflicts, credentials::Credentials, image::Image, pods::Pods,
        servers::Servers, versions::Versions,
    };
    use crate::facts::{Why, WhyKind};
    use crate::findings::Code;

    /// One that saw nothing.
    pub(crate) fn examination() -> Examination {
        let why = Why::new(WhyKind::NotAsked, "not asked");
        Examination {
            versions: Versions::unseen(&why),
            pods: Pods::unseen(&why),
            conflicts: Conflicts::unseen(&why),
            credentials: Credentials::unseen(&why),
            servers: Servers::unseen(&why),
            clock: Clock::unseen(&why),
            image: Image::unseen(&why),
            permissions: Vec::new(),
        }
    }

    /// What a question finds in a world.
    pub(crate) fn codes(
        world: &World,
        examination: &Examination,
        ask: impl Fn(&Case<'_>) -> Vec<Finding>,
    ) -> Vec<Code> {
        let (identity, placement) = (world.identity(), world.placement());
        let found = ask(&Case {
            settings: &world.settings,
            who: &world.who,
            identity: &identity,
            placement: placement.as_ref(),
            examination,
            now: now(world.uptime),
        });
        found.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn an_examination_that_saw_nothing_finds_nothing() {
        assert_eq!(codes(&World::new(), &examination(), findings), []);
        assert!(!examination().gaps().is_empty());
    }
}
