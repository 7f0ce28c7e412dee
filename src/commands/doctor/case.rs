// SPDX-License-Identifier: Apache-2.0
//! What the checks have in common: the round before them, and what each returns.

use std::path::PathBuf;

use serde::Serialize;

use crate::catalog::{Api, Code, Finding, Group};
use crate::config::Settings;
use crate::decide::Now;
use crate::decide::identity::Identity;
use crate::decide::placement::Placement;
use crate::facts::distribution::Distribution;
use crate::facts::observation::Observation;
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The round before the checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    /// The settings in force.
    pub(super) settings: &'a Settings,
    /// The observation of the round.
    pub(super) observation: &'a Observation,
    /// The identity derived from it.
    pub(super) identity: &'a Identity,
    /// The placement, if known.
    pub(super) placement: Option<&'a Placement>,
    /// The time.
    pub(super) now: Now,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checked {
    /// The findings. Those that another one explains are removed later.
    pub(crate) findings: Vec<Finding>,
    /// What could not be checked.
    pub(crate) gaps: Vec<Gap>,
    /// Additions to the summaries of groups.
    pub(super) notes: Vec<(Group, String)>,
    /// The path for a new Harvester kubeconfig.
    pub(super) kubeconfig: Option<PathBuf>,
}

/// A check that could not be done: the absence of a finding has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gap {
    /// The group of the check.
    #[serde(skip)]
    pub(super) group: Group,
    /// The name of the check: what could not be seen.
    pub(crate) check: &'static str,
    /// The reason in one word.
    pub(crate) reason: UnavailableKind,
    /// The reason as text.
    pub(crate) message: String,
    /// The code of the finding that is the cause, if that is known.
    #[serde(skip)]
    pub(super) due_to: Option<Code>,
}

impl Gap {
    /// Creates a gap for a fact that could not be read.
    pub(super) fn new(group: Group, check: &'static str, why: &Unavailable) -> Self {
        Self {
            group,
            check,
            reason: why.kind,
            message: why.text.clone(),
            due_to: None,
        }
    }
}

impl<'a> Case<'a> {
    /// Returns the time as a Unix timestamp.
    pub(super) fn seconds(&self) -> i64 {
        self.now.wall.unix_timestamp()
    }

    /// Returns why the first request to an API failed, if it did.
    pub(super) fn failure(&self, api: Api) -> Option<&'a Unavailable> {
        self.observation.read_failure(api)
    }

    /// Returns the names of our Node and our VM, if both are known.
    pub(super) fn node_and_vm(&self) -> Option<(&'a str, &'a str)> {
        let node = &self.observation.kubelet.known()?.node_name;
        Some((node.as_str(), self.identity.vm_name()?.as_str()))
    }

    /// Reports whether a distribution on this node is configured for Harvester's cloud provider.
    pub(super) fn asks_for_cloud_provider(&self) -> bool {
        let mut distributions = self.observation.distributions.iter();
        distributions.any(Distribution::asks_for_harvester)
    }
}

impl Checked {
    /// Returns a fact that a check needs, if it is known. If it could not be read, the check is skipped.
    pub(super) fn need<'f, T>(
        &mut self,
        group: Group,
        check: &'static str,
        fact: &'f Fact<T>,
    ) -> Option<&'f T> {
        let gap = fact.why().map(|why| Gap::new(group, check, why));
        self.gaps.extend(gap);
        fact.known()
    }

    /// Adds a text to the summary of a group.
    pub(super) fn note(&mut self, group: Group, text: impl Into<String>) {
        self.notes.push((group, text.into()));
    }

    /// Adds the result of another check.
    pub(super) fn merge(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.gaps.extend(other.gaps);
        self.notes.extend(other.notes);
        self.kubeconfig = self.kubeconfig.take().or(other.kubeconfig);
    }
}

/// Returns a finding with these observations, or `None` without any.
pub(super) fn finding(code: Code, texts: &[String]) -> Option<Finding> {
    (!texts.is_empty()).then(|| Finding::new(code, texts.join("; ")))
}
