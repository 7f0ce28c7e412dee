// SPDX-License-Identifier: Apache-2.0
//! The whole diagnosis: all findings and gaps, sorted out and in groups.

use crate::facts::examination::Gap;
use crate::few;
use crate::findings::{Finding, Group, Severity, without_consequences};

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
    /// What could not be looked at.
    pub gaps: Vec<Gap>,
}

impl Diagnosis {
    /// From the findings of a round and of an examination: what another one explains is left out, whichever of the two
    /// found it.
    pub fn new(findings: &[Finding], gaps: &[Gap]) -> Self {
        let mut findings = without_consequences(findings);
        few::sort_by_key(&mut findings, |finding| {
            std::cmp::Reverse(finding.code.entry().severity)
        });
        let sections = Group::ALL.iter().map(|group| Section {
            group: *group,
            findings: of(&findings, |finding| finding.group() == *group),
            gaps: of(gaps, |gap| gap.group == *group),
        });
        Self {
            sections: sections.collect(),
        }
    }

    /// Whether the main job is not done.
    pub fn has_errors(&self) -> bool {
        self.findings()
            .any(|finding| finding.code.entry().severity == Severity::Error)
    }

    /// All findings, in the order of the groups.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }
}

fn of<T: Clone>(list: &[T], belongs: impl Fn(&T) -> bool) -> Vec<T> {
    list.iter().filter(|item| belongs(item)).cloned().collect()
}
