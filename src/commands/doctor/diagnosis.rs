// SPDX-License-Identifier: Apache-2.0
//! The whole diagnosis: all findings and gaps, sorted out and in groups, and what they come to.

mod gaps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::catalogue::{Code, Finding, Group, Severity};
use crate::commands::doctor::facts::Gap;

pub use gaps::{Privileges, gaps, is_hidden};

/// What `doctor` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// One for each group, in their order.
    pub sections: Vec<Section>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What it is about.
    pub group: Group,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What was found and is only a consequence of what another finding says.
    pub suppressed: Vec<Suppressed>,
    /// What could not be checked.
    pub gaps: Vec<Gap>,
}

/// A finding that another one explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppressed {
    /// What was found.
    pub finding: Finding,
    /// What explains it.
    pub by: Code,
}

/// What it all comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoctorOutcome {
    /// Nothing is wrong; notices may be there.
    Ok,
    /// Warnings, and nothing worse.
    Warnings,
    /// An API gave no answer, or a credential may not be read, and nothing that was seen is an error.
    Unreachable,
    /// An error.
    Errors,
    /// This machine is not a KubeVirt virtual machine: nothing else was checked.
    NotKubevirt,
    /// Our configuration has faults: all was checked with the defaults.
    Configuration,
}

/// The running agent, as its lock and its status file tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Who runs, such as `process 812`; `None` where no one does.
    pub holder: Option<String>,
    /// Whether this user cannot know who runs.
    pub is_unknown: bool,
    /// When its status last changed, RFC 3339; it is written on change only.
    pub updated_at: Option<String>,
    /// What it reports.
    pub findings: Vec<Finding>,
    /// Since when each of its findings is there, by code, RFC 3339.
    pub since: BTreeMap<String, String>,
}

impl Service {
    /// That no one keeps the labels right.
    pub fn finding(&self) -> Option<Finding> {
        let seen = match (&self.holder, &self.updated_at) {
            _ if self.is_unknown => return None,
            (Some(_), _) => return None,
            (None, Some(at)) => format!("no process holds its lock; last status from {at}"),
            (None, None) => {
                "no process holds its lock, and there is no status since boot".to_owned()
            }
        };
        Some(Finding::new(Code::AgentNotRunning, seen))
    }

    /// What the running agent reports and one round cannot find: what needs a memory, or more rights than this process
    /// has. What was `found` here is newer and counts alone.
    pub fn reported<'a>(
        &'a self,
        found: &'a [Finding],
        privileges: Privileges,
    ) -> impl Iterator<Item = &'a Finding> {
        let reported = self.findings.iter().filter(|_| self.holder.is_some());
        reported
            .filter(move |reported| {
                reported.code.needs_memory() || privileges == Privileges::Unprivileged
            })
            .filter(|reported| found.iter().all(|finding| finding.code != reported.code))
    }

    /// Since when the running agent has reported the same.
    pub fn since(&self, code: Code) -> Option<&str> {
        self.holder.as_ref()?;
        self.since.get(code.as_str()).map(String::as_str)
    }
}

impl Diagnosis {
    /// From the findings of a round and of an examination: what another one explains is left out, whichever of the two
    /// found it, and what both found is said once.
    pub fn new(findings: &[Finding], gaps: &[Gap]) -> Self {
        let (mut reported, mut suppressed) = (Vec::new(), Vec::new());
        for finding in findings {
            let cause = findings.iter().find(|cause| cause.explains(finding));
            let finding = finding.clone();
            match cause.map(|cause| cause.code) {
                Some(by) => push_new(&mut suppressed, Suppressed { finding, by }),
                None => push_new(&mut reported, finding),
            }
        }
        reported.sort_by_key(|finding| std::cmp::Reverse(finding.code.entry().severity));
        let sections = Group::ALL.iter().map(|group| Section {
            group: *group,
            findings: of(&reported, |finding| finding.group() == *group),
            suppressed: of(&suppressed, |suppressed| {
                suppressed.finding.group() == *group
            }),
            gaps: of(gaps, |gap| gap.group == *group),
        });
        Self {
            sections: sections.collect(),
        }
    }

    /// All findings, in the order of the groups.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    /// All gaps, in the order of the groups.
    pub fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.sections.iter().flat_map(|section| &section.gaps)
    }

    /// How many findings are this bad.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings();
        findings
            .filter(|finding| finding.code.entry().severity == severity)
            .count()
    }

    /// What it comes to. `unanswered`: an API was asked and gave no answer, or a credential may not be read.
    pub fn outcome(&self, unanswered: bool) -> DoctorOutcome {
        let has = |code| self.findings().any(|finding| finding.code == code);
        match () {
            () if has(Code::NotKubevirt) => DoctorOutcome::NotKubevirt,
            () if has(Code::ConfigInvalid) => DoctorOutcome::Configuration,
            () if self.count(Severity::Error) > 0 => DoctorOutcome::Errors,
            () if unanswered => DoctorOutcome::Unreachable,
            () if self.count(Severity::Warning) > 0 => DoctorOutcome::Warnings,
            () => DoctorOutcome::Ok,
        }
    }
}

impl DoctorOutcome {
    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warnings => "warnings",
            Self::Unreachable => "unreachable",
            Self::Errors => "errors",
            Self::NotKubevirt => "not-kubevirt",
            Self::Configuration => "configuration",
        }
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn of<T: Clone>(list: &[T], belongs: impl Fn(&T) -> bool) -> Vec<T> {
    list.iter().filter(|item| belongs(item)).cloned().collect()
}
