// SPDX-License-Identifier: Apache-2.0
//! A node without any facts for the tests in this directory; each test adds its own.

use std::time::Duration;

use super::Case;
use super::fixtures::unseen;
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::Examination;
use crate::commands::doctor::facts::credentials::{CertificateFacts, CredentialRole};
use crate::commands::doctor::facts::servers::Shown;
use crate::decide::Now;
use crate::decide::fixtures::World;
use crate::decide::schedule::Random;
use crate::facts::Fact;
use crate::facts::observation::Api;

/// The time in all tests.
pub(crate) const NOW: i64 = 1_795_000_000;

/// A day, in seconds.
pub(crate) const DAY: i64 = 86_400;

/// A node and its examination.
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

    /// Returns the findings of one topic.
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

    /// Returns the codes of the findings of one topic.
    pub(crate) fn codes(&self, question: fn(&Case<'_>) -> Vec<Finding>) -> Vec<Code> {
        let findings = self.ask(question);
        findings.iter().map(|finding| finding.code).collect()
    }
}

/// Creates a certificate that is valid between these times, in seconds from now.
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

/// Creates a server without TLS whose clock is ahead by this number of seconds.
pub(crate) fn clock_ahead(ahead: i64) -> Fact<Shown> {
    Fact::Known(Shown {
        certificate: None,
        ahead: Some(ahead),
    })
}
