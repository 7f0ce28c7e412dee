// SPDX-License-Identifier: Apache-2.0
//! What the checks have in common: the round before them, and what each returns.

use std::path::PathBuf;

use crate::catalog::{Api, Code, Finding, Group};
use crate::config::Settings;
use crate::decide::Now;
use crate::decide::identity::Identity;
use crate::decide::placement::Placement;
use crate::decide::unread;
use crate::facts::clock::rfc3339;
use crate::facts::distribution::Distribution;
use crate::facts::observation::Observation;
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The round before the checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    /// The settings in force.
    pub(crate) settings: &'a Settings,
    /// The observation of the round.
    pub(crate) observation: &'a Observation,
    /// The identity derived from it.
    pub(crate) identity: &'a Identity,
    /// The placement, if known.
    pub(crate) placement: Option<&'a Placement>,
    /// The time.
    pub(crate) now: Now,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The group of the check.
    pub(super) group: Group,
    /// The name, as in "cannot see ...".
    pub(crate) what: &'static str,
    /// The reason.
    pub(crate) why: Unavailable,
    /// The code of the finding that is the cause, if that is known.
    pub(super) due_to: Option<Code>,
}

impl<'a> Case<'a> {
    /// Returns the time as a Unix timestamp.
    pub(super) fn seconds(&self) -> i64 {
        self.now.wall.unix_timestamp()
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
    /// Returns a fact that the check `what` needs, if it is known. If it could not be read, the check is skipped.
    pub(super) fn need<'f, T>(
        &mut self,
        group: Group,
        what: &'static str,
        fact: &'f Fact<T>,
    ) -> Option<&'f T> {
        let gap = |why: &Unavailable| Gap {
            group,
            what,
            why: why.clone(),
            due_to: None,
        };
        self.gaps.extend(fact.why().map(gap));
        fact.known()
    }

    /// Returns the same of a fact that an API has. If no request was sent, that is due to an earlier failure.
    pub(super) fn need_of<'f, T>(
        &mut self,
        case: &Case<'_>,
        api: Api,
        group: Group,
        what: &'static str,
        fact: &'f Fact<T>,
    ) -> Option<&'f T> {
        let known = self.need(group, what, fact);
        let is_skipped = fact.why().map(|why| why.kind) == Some(UnavailableKind::NotAsked);
        if let Some(gap) = self.gaps.last_mut().filter(|_| is_skipped) {
            gap.due_to = unread::api(case.observation, api);
        }
        known
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

/// Formats a Unix timestamp as a date.
pub(super) fn date(seconds: i64) -> String {
    time::UtcDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| format!("Unix timestamp {seconds}"), rfc3339)
}
