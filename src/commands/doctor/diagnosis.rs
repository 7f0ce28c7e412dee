// SPDX-License-Identifier: Apache-2.0
//! The complete diagnosis: all findings and gaps in groups, with what is shown of each. Its serialized form is described in
//! `packaging/schema/doctor.schema.json`: fields are added, but never renamed or removed, for the same `apiVersion`.

use std::iter::successors;

use serde::{Serialize, Serializer};
use serde_json::Value;
use time::UtcDateTime;

use super::case::{Checked, Gap};
use super::found::Found;
use crate::catalog::{Code, Finding, Group, Severity};
use crate::facts::clock::rfc3339;
use crate::report::problem::Problem;
use crate::report::status::API_VERSION;
use crate::report::text::{Mark, unique};

/// The result of `doctor`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Diagnosis {
    api_version: &'static str,
    kind: &'static str,
    /// The time, RFC 3339.
    time: String,
    version: &'static str,
    pub(super) outcome: Outcome,
    /// The exit code of the process.
    pub(super) exit_code: u8,
    counts: Counts,
    service: ServiceState,
    /// One section for each group, in their order.
    pub(super) groups: Vec<Section>,
    /// The same time, as the base of relative times.
    #[serde(skip)]
    pub(super) now: UtcDateTime,
    /// The name of this node.
    #[serde(skip)]
    pub(super) name: String,
    /// The VM and its host, if known.
    #[serde(skip)]
    pub(super) place: Option<String>,
}

/// The outcome of the diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// No problem; there may be notices.
    Ok,
    /// Warnings only.
    Warnings,
    /// An API is unreachable, and there is no error.
    Unreachable,
    /// An error.
    Errors,
    /// This machine is not a KubeVirt virtual machine: nothing else was checked.
    NotKubevirt,
    /// The configuration is invalid: everything was checked with the defaults.
    Configuration,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    errors: usize,
    warnings: usize,
    notices: usize,
    skipped_checks: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceState {
    running: Option<bool>,
    last_update_time: Option<String>,
}

/// The findings and gaps of one group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Section {
    group: &'static str,
    pub(super) title: &'static str,
    #[serde(serialize_with = "state")]
    pub(super) state: Mark,
    pub(super) summary: String,
    /// By severity.
    pub(super) findings: Vec<Problem>,
    /// Findings that are caused by another finding.
    pub(super) suppressed: Vec<Suppressed>,
    /// Each due to a reported finding, or to none.
    pub(super) skipped_checks: Vec<Gap>,
}

/// A finding that is caused by another finding.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Suppressed {
    pub(super) code: Code,
    severity: Severity,
    pub(super) observed: String,
    /// The code of its cause.
    pub(super) suppressed_by: Code,
}

fn state<S: Serializer>(mark: &Mark, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match mark {
        Mark::Ok => "ok",
        Mark::Skipped => "skipped",
        Mark::Found(severity) => severity.as_str(),
    })
}

impl Diagnosis {
    /// Creates a diagnosis. Findings that another one explains are suppressed, and duplicates are merged. The exit code is that of
    /// success.
    pub(super) fn new(found: &Found, now: UtcDateTime) -> Self {
        let Checked { findings, gaps, .. } = &found.checked;
        let reported = findings.iter().filter(|one| cause(findings, one).is_none());
        let mut reported = unique(reported);
        let suppressed = findings.iter();
        let suppressed = suppressed.filter_map(|one| Some((one, cause(findings, one)?.code)));
        let suppressed = unique(suppressed);
        reported.sort_by_key(|finding| std::cmp::Reverse(finding.code.entry().severity));
        let severities = reported.iter().map(|one| one.code.entry().severity);
        let count = |severity| severities.clone().filter(|one| *one == severity).count();
        let counts = Counts {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notices: count(Severity::Notice),
            skipped_checks: gaps.len(),
        };
        let groups = Group::ALL.iter().map(|group| {
            let own = reported.iter().filter(|one| one.group() == *group);
            let own: Vec<Problem> = own.map(|finding| found.problem(finding)).collect();
            let consequences = suppressed.iter().filter(|(one, _)| one.group() == *group);
            let consequences = consequences.map(|(one, cause)| Suppressed {
                code: one.code,
                severity: one.code.entry().severity,
                observed: one.seen.clone(),
                suppressed_by: *cause,
            });
            let consequences: Vec<Suppressed> = consequences.collect();
            let skipped = gaps.iter().filter(|gap| gap.group == *group);
            let skipped = skipped.map(|gap| Gap {
                due_to: gap.due_to.and_then(|code| root_cause(findings, code)),
                ..gap.clone()
            });
            let skipped: Vec<Gap> = skipped.collect();
            let is_whole = consequences.is_empty() && skipped.is_empty();
            let state = match own.first() {
                Some(worst) => Mark::Found(worst.severity),
                None if found.status.is_some() && is_whole => Mark::Ok,
                None => Mark::Skipped,
            };
            Section {
                group: group.as_str(),
                title: group.title(),
                state,
                summary: found.summary(*group, state, now),
                findings: own,
                suppressed: consequences,
                skipped_checks: skipped,
            }
        });
        Self {
            api_version: API_VERSION,
            kind: "Diagnosis",
            time: rfc3339(now),
            version: env!("CARGO_PKG_VERSION"),
            outcome: outcome(&reported, &counts, found.is_unanswered),
            exit_code: 0,
            counts,
            service: ServiceState {
                running: found.service.is_running(),
                last_update_time: found.service.updated_at.clone(),
            },
            groups: groups.collect(),
            now,
            name: found.node(),
            place: found.place(),
        }
    }

    /// Returns the diagnosis as JSON.
    pub(super) fn document(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns all findings, in the order of the groups.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Problem> {
        self.groups.iter().flat_map(|section| &section.findings)
    }

    /// Returns all findings that another one causes.
    pub(super) fn suppressed(&self) -> impl Iterator<Item = &Suppressed> {
        self.groups.iter().flat_map(|section| &section.suppressed)
    }

    /// Returns all skipped checks, in the order of the groups.
    pub(super) fn skipped_checks(&self) -> impl Iterator<Item = &Gap> {
        self.groups.iter().flat_map(|one| &one.skipped_checks)
    }
}

fn outcome(reported: &[&Finding], counts: &Counts, is_unanswered: bool) -> Outcome {
    let has = |code| reported.iter().any(|finding| finding.code == code);
    match () {
        () if has(Code::NotKubevirt) => Outcome::NotKubevirt,
        () if has(Code::ConfigInvalid) => Outcome::Configuration,
        () if counts.errors > 0 => Outcome::Errors,
        () if is_unanswered => Outcome::Unreachable,
        () if counts.warnings > 0 => Outcome::Warnings,
        () => Outcome::Ok,
    }
}

/// Returns the finding that explains this one, if there is one.
fn cause<'a>(findings: &'a [Finding], finding: &Finding) -> Option<&'a Finding> {
    findings.iter().find(|cause| cause.explains(finding))
}

/// Returns the code of the finding that explains the one with this code, or of that one; `None` if there is none.
fn root_cause(findings: &[Finding], code: Code) -> Option<Code> {
    let found = findings.iter().find(|finding| finding.code == code);
    let causes = successors(found, |found| cause(findings, found));
    // Two codes of the catalog must not explain each other; if they did, this would not end.
    let last = causes.take(findings.len()).last();
    last.map(|cause| cause.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Unavailable, UnavailableKind};

    /// The file has findings, each its code and the group if it is not that of the catalog, and checks that were skipped due to a code.
    /// Below are the outcome, and what each group that is not only skipped has.
    #[test]
    fn each_finding_is_in_its_group_and_hides_its_consequences() {
        let file = "src/commands/doctor/diagnosis.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let (mut found, code) = (Found::default(), |name| Code::parse(name).unwrap());
            for line in case.lines() {
                match line.split(' ').collect::<Vec<_>>()[..] {
                    ["unanswered"] => found.is_unanswered = true,
                    ["skipped", name] => {
                        let why = Unavailable::new(UnavailableKind::NotAsked, "unauthorized (401)");
                        found.checked.gaps.push(Gap {
                            due_to: Some(code(name)),
                            ..Gap::new(Group::HarvesterApi, "the VM", &why)
                        });
                    }
                    [name, group] => {
                        let mut groups = Group::ALL.iter();
                        let group = groups.find(|one| one.as_str() == group).unwrap();
                        let finding = Finding::new(code(name), "seen").about(*group);
                        found.checked.findings.push(finding);
                    }
                    _ if line.is_empty() => {}
                    _ => found
                        .checked
                        .findings
                        .push(Finding::new(code(line), "seen")),
                }
            }
            let diagnosis = Diagnosis::new(&found, UtcDateTime::UNIX_EPOCH);
            let mut text = format!(
                "{:?}, {} errors\n",
                diagnosis.outcome, diagnosis.counts.errors
            );
            for section in &diagnosis.groups {
                let mut add = |what: String| text += &format!("{}: {what}\n", section.group);
                for finding in &section.findings {
                    add(format!("{:?} {}", section.state, finding.code));
                }
                for one in &section.suppressed {
                    let state = section.state;
                    add(format!("{state:?} {} by {}", one.code, one.suppressed_by));
                }
                for gap in &section.skipped_checks {
                    add(format!("skipped due to {:?}", gap.due_to));
                }
            }
            text
        });
    }
}
