// SPDX-License-Identifier: Apache-2.0
//! A machine that is examined, for the tests of this folder: everything in agreement, and nothing seen but what a test says.

use std::time::Duration;

use super::Case;
use super::fixtures::unseen;
use crate::catalogue::{Code, Finding};
use crate::commands::doctor::facts::Examination;
use crate::commands::doctor::facts::credentials::{CertificateFacts, CredentialRole};
use crate::commands::doctor::facts::servers::Shown;
use crate::decide::Now;
use crate::decide::fixtures::World;
use crate::decide::schedule::Random;
use crate::facts::Fact;
use crate::facts::observation::Api;

/// The time of all tests.
pub(crate) const NOW: i64 = 1_795_000_000;

/// A day, in seconds.
pub(crate) const DAY: i64 = 86_400;

/// What is examined, and what was seen of it.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(crate) world: World,
    pub(crate) examination: Examination,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self {
            world: World::new(),
            examination: unseen(),
        }
    }

    /// What one question finds.
    pub(crate) fn ask(&self, question: fn(&Case<'_>) -> Vec<Finding>) -> Vec<Finding> {
        let (identity, placement) = (self.world.identity(), self.world.placement());
        question(&Case {
            settings: &self.world.settings,
            observation: &self.world.observation,
            identity: &identity,
            placement: placement.as_ref(),
            examination: &self.examination,
            now: Now {
                uptime: Duration::from_secs(1),
                wall: time::UtcDateTime::from_unix_timestamp(NOW).unwrap(),
                random: Random::from_bits(0),
            },
        })
    }

    /// The codes of what one question finds.
    pub(crate) fn codes(&self, question: fn(&Case<'_>) -> Vec<Finding>) -> Vec<Code> {
        let findings = self.ask(question);
        findings.iter().map(|finding| finding.code).collect()
    }
}

/// A certificate that begins and ends so many seconds from now.
pub(crate) fn certificate(
    api: Api,
    role: CredentialRole,
    begins: i64,
    ends: i64,
) -> CertificateFacts {
    CertificateFacts {
        api,
        role,
        origin: "https://192.0.2.1:6443".to_owned(),
        subject: "CN=somebody".to_owned(),
        begins: NOW + begins,
        ends: NOW + ends,
        names: vec!["192.0.2.1".to_owned()],
    }
}

/// A server without TLS whose clock is ahead by so many seconds.
pub(crate) fn clock_ahead(ahead: i64) -> Fact<Shown> {
    Fact::Known(Shown {
        certificate: None,
        ahead: Some(ahead),
    })
}
