// SPDX-License-Identifier: Apache-2.0
//! The complete diagnosis: all findings and gaps in groups, and the outcome.

mod gaps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::catalog::{Code, Finding, Group, Severity};
use crate::commands::doctor::facts::Gap;
use crate::facts::Prerequisite;

pub use gaps::{Privileges, gaps, is_hidden};

/// The result of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// One section for each group, in their order.
    pub sections: Vec<Section>,
}

/// The findings and gaps of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The group.
    pub group: Group,
    /// The findings, by severity.
    pub findings: Vec<Finding>,
    /// Findings that are caused by another finding.
    pub suppressed: Vec<Suppressed>,
    /// The checks that could not be done.
    pub gaps: Vec<Gap>,
}

/// A finding that is caused by another finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppressed {
    /// The finding.
    pub finding: Finding,
    /// The code of its cause.
    pub by: Code,
}

/// The outcome of the diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorOutcome {
    /// No problem; there may be notices.
    Ok,
    /// Warnings only.
    Warnings,
    /// An API is unreachable, or a credential is not readable, and there is no error.
    Unreachable,
    /// An error.
    Errors,
    /// This machine is not a KubeVirt virtual machine: nothing else was checked.
    NotKubevirt,
    /// The configuration is invalid: everything was checked with the defaults.
    Configuration,
}

/// The drop-in of both packages for kernels without user namespaces.
const NO_NAMESPACE: &str =
    "/usr/share/doc/harvester-node-agent/examples/systemd/no-user-namespace.conf";

/// The running agent, according to its lock and its status file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// The process that runs, such as `process 812`; `None` if there is none.
    pub holder: Option<String>,
    /// Whether this user is not allowed to see the process.
    pub is_unknown: bool,
    /// Whether the kernel allows no user namespaces, which the units need (`PrivateUsers=`).
    pub lacks_namespaces: bool,
    /// The time of the last status change, RFC 3339; the status is written on changes only.
    pub updated_at: Option<String>,
    /// The findings in its status.
    pub findings: Vec<Finding>,
    /// The time when each finding was first observed, by code, RFC 3339.
    pub since: BTreeMap<Code, String>,
}

impl Service {
    /// Returns a finding if no agent keeps the labels up to date.
    pub fn finding(&self) -> Option<Finding> {
        let seen = match (&self.holder, &self.updated_at) {
            _ if self.is_unknown => return None,
            (Some(_), _) => return None,
            (None, Some(at)) => format!("no agent process is running; last status from {at}"),
            (None, None) => {
                "no agent process is running, and no status has been written since boot".to_owned()
            }
        };
        if !self.lacks_namespaces {
            return Some(Finding::new(Code::AgentNotRunning, seen));
        }
        let seen = format!(
            "{seen}; `user.max_user_namespaces` is 0, so the units fail with status 217/USER unless they have a drop-in"
        );
        let dir = "/etc/systemd/system/harvester-node-agent";
        let commands = ["", "-gate"].map(|unit| {
            format!(
                "install -D -m 0644 {NO_NAMESPACE} {dir}{unit}.service.d/no-user-namespace.conf"
            )
        });
        let restart =
            "systemctl daemon-reload && systemctl restart harvester-node-agent".to_owned();
        let commands = commands.into_iter().chain([restart]).collect();
        let step = "Install the drop-in for both units, and start the service again.";
        Some(
            Finding::new(Code::AgentNotRunning, seen)
                .with_remedy(step)
                .with_commands(commands),
        )
    }

    /// Returns the findings of the running agent that a single round cannot detect: they need history, or more permissions than
    /// this process has. Findings in `found` are newer and replace those of the agent.
    pub fn reported<'a>(
        &'a self,
        found: &'a [Finding],
        privileges: Privileges,
    ) -> impl Iterator<Item = &'a Finding> {
        let reported = self.findings.iter().filter(|_| self.holder.is_some());
        reported
            .filter(move |reported| {
                reported.code.entry().flags.needs_memory || privileges == Privileges::Unprivileged
            })
            .filter(|reported| found.iter().all(|finding| finding.code != reported.code))
    }

    /// Returns the time when the running agent first observed this finding.
    pub fn since(&self, code: Code) -> Option<&str> {
        self.holder.as_ref()?;
        self.since.get(&code).map(String::as_str)
    }
}

impl Diagnosis {
    /// Creates a diagnosis from the findings of a round and of an examination. Findings that another one explains are suppressed,
    /// from either source. Duplicates are merged.
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

    /// Returns all findings, in the order of the groups.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    /// Returns all gaps, in the order of the groups.
    pub fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.sections.iter().flat_map(|section| &section.gaps)
    }

    /// Returns the code of the displayed finding that reports or explains this failure.
    pub fn cause(&self, failed: Prerequisite) -> Option<Code> {
        let reports = |finding: &Finding| finding.prerequisite == Some(failed);
        if let Some(cause) = self.findings().find(|finding| reports(finding)) {
            return Some(cause.code);
        }
        let sections = self.sections.iter();
        let suppressed: Vec<&Suppressed> =
            sections.flat_map(|section| &section.suppressed).collect();
        let mut cause = suppressed.iter().find(|one| reports(&one.finding))?.by;
        for _ in &suppressed {
            let next = suppressed.iter().find(|one| one.finding.code == cause);
            cause = next.map_or(cause, |next| next.by);
        }
        Some(cause)
    }

    /// Returns the number of findings with this severity.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings();
        findings
            .filter(|finding| finding.code.entry().severity == severity)
            .count()
    }

    /// Returns the outcome. `unanswered`: a request to an API failed, or a credential is not readable.
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

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn of<T: Clone>(list: &[T], belongs: impl Fn(&T) -> bool) -> Vec<T> {
    list.iter().filter(|item| belongs(item)).cloned().collect()
}
