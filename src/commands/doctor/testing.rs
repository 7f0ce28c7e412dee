// SPDX-License-Identifier: Apache-2.0
//! An RKE2 node in order, for the tests of the checks.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::case::Case;
use super::certificate::{Certificate, CertificateRole};
use crate::catalog::{Api, Code, Finding};
use crate::commands::doctor::release::Release;
use crate::decide::fixtures::{World, now};
use crate::facts::distribution::{Distribution, DistributionKind};
use crate::facts::names::NodeName;

/// The time of the fixtures, as a Unix timestamp.
pub(super) const NOW: i64 = 1_795_000_000;

/// A day, in seconds.
pub(super) const DAY: i64 = 86_400;

/// Returns a number of seconds; `d` stands for those of a day.
pub(super) fn seconds(text: &str) -> i64 {
    match text.strip_suffix('d') {
        Some(days) => days.parse::<i64>().unwrap() * DAY,
        None => text.parse().unwrap(),
    }
}

/// A node after a round.
pub(super) struct Bench {
    pub(super) world: World,
}

impl Bench {
    pub(super) fn new() -> Self {
        let mut world = World::new();
        world.node().provider_id = Some("harvester://vm-uid".to_owned());
        world.observation.distributions = vec![Distribution {
            cloud_provider_name: Some("harvester".to_owned()),
            ..Distribution::new(DistributionKind::Rke2)
        }];
        Self { world }
    }

    /// Gives the Node another name than the VM.
    pub(super) fn rename_node(&mut self) {
        if let crate::facts::Fact::Known(kubelet) = &mut self.world.observation.kubelet {
            kubelet.node_name = NodeName::parse("renamed").unwrap();
        }
    }

    /// Returns what a judgment says of the round.
    pub(super) fn ask<T>(&self, judge: impl FnOnce(&Case<'_>) -> T) -> T {
        let (identity, placement) = (self.world.identity(), self.world.placement());
        judge(&Case {
            settings: &self.world.settings,
            observation: &self.world.observation,
            identity: &identity,
            placement: placement.as_ref(),
            now: now(self.world.uptime),
        })
    }

    /// Returns the findings, each as `code: text`.
    pub(super) fn texts(&self, judge: impl FnOnce(&Case<'_>) -> Vec<Finding>) -> Vec<String> {
        texts(&self.ask(judge))
    }

    /// Returns the codes of the findings.
    pub(super) fn codes(&self, judge: impl FnOnce(&Case<'_>) -> Vec<Finding>) -> Vec<Code> {
        let found = self.ask(judge).into_iter();
        found.map(|finding| finding.code).collect()
    }
}

/// Returns findings, each as `code: text`.
pub(super) fn texts(found: &[Finding]) -> Vec<String> {
    let texts = found.iter();
    let texts = texts.map(|finding| format!("{}: {}", finding.code, finding.seen));
    texts.collect()
}

pub(super) fn release(text: &str) -> Release {
    Release::parse(text).unwrap()
}

pub(super) fn object<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

/// Creates a certificate that is valid between these times, in seconds from now.
pub(super) fn certificate(api: Api, role: CertificateRole, begins: i64, ends: i64) -> Certificate {
    Certificate {
        api,
        role,
        origin: "https://192.0.2.1:6443".to_owned(),
        subject: "CN=server".to_owned(),
        begins: NOW + begins,
        ends: NOW + ends,
        names: vec!["192.0.2.1".to_owned()],
        is_misnamed: false,
    }
}
