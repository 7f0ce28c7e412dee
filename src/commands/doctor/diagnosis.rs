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
        let count = |severity| {
            let same = reported.iter();
            same.filter(|finding| finding.code.entry().severity == severity)
                .count()
        };
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
        self.groups
            .iter()
            .flat_map(|section| &section.skipped_checks)
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

    fn of(findings: Vec<Finding>, gaps: Vec<Gap>) -> Found {
        Found {
            checked: Checked {
                findings,
                gaps,
                ..Checked::default()
            },
            ..Found::default()
        }
    }

    fn diagnosis(codes: &[Code], is_unanswered: bool) -> Diagnosis {
        let findings = codes.iter().map(|code| Finding::new(*code, "seen"));
        let found = Found {
            is_unanswered,
            ..of(findings.collect(), Vec::new())
        };
        Diagnosis::new(&found, UtcDateTime::UNIX_EPOCH)
    }

    fn codes(diagnosis: &Diagnosis) -> Vec<Code> {
        diagnosis.findings().map(|finding| finding.code).collect()
    }

    #[test]
    fn what_a_check_found_hides_its_consequences_in_the_round() {
        let diagnosis = diagnosis(&[Code::NoTopologySource, Code::HarvesterForbidden], false);
        assert_eq!(codes(&diagnosis), [Code::HarvesterForbidden]);
        let mut groups = diagnosis.groups.iter();
        let placement = groups.find(|section| section.group == "placement").unwrap();
        assert_eq!(
            placement.suppressed[0].suppressed_by,
            Code::HarvesterForbidden
        );
        assert_eq!(
            (placement.state, diagnosis.counts.errors),
            (Mark::Skipped, 1)
        );
    }

    #[test]
    fn a_skipped_check_is_due_to_the_reported_finding() {
        let due_to = |codes: &[Code]| {
            let why = Unavailable::new(UnavailableKind::NotAsked, "unauthorized (401)");
            let gap = Gap {
                due_to: Some(Code::HarvesterUnauthorized),
                ..Gap::new(Group::HarvesterApi, "the VM", &why)
            };
            let findings = codes.iter().map(|code| Finding::new(*code, "seen"));
            let found = of(findings.collect(), vec![gap]);
            let diagnosis = Diagnosis::new(&found, UtcDateTime::UNIX_EPOCH);
            diagnosis.skipped_checks().next().unwrap().due_to
        };
        let (rejected, rancher) = (Code::HarvesterUnauthorized, Code::RancherTokenRejected);
        assert_eq!(due_to(&[]), None);
        assert_eq!(due_to(&[rejected]), Some(rejected));
        assert_eq!(due_to(&[rejected, rancher]), Some(rancher));
    }

    #[test]
    fn each_finding_stands_in_its_group_worst_first() {
        let exposed = Finding::new(Code::CredentialExposed, "seen");
        let findings = vec![
            exposed.about(Group::KubeletCredential),
            Finding::new(Code::KubeletCredentialInvalid, "seen"),
            Finding::new(Code::KubeletCredentialInvalid, "seen"),
        ];
        let found = of(findings, Vec::new());
        let diagnosis = Diagnosis::new(&found, UtcDateTime::UNIX_EPOCH);
        let groups: Vec<&str> = diagnosis
            .groups
            .iter()
            .map(|section| section.group)
            .collect();
        let all: Vec<&str> = Group::ALL.iter().map(|group| group.as_str()).collect();
        assert_eq!(groups, all);
        let mut groups = diagnosis.groups.iter();
        let section = groups.find(|section| !section.findings.is_empty()).unwrap();
        assert_eq!(section.group, Group::KubeletCredential.as_str());
        assert_eq!(section.state, Mark::Found(Severity::Error));
        let expected = [Code::KubeletCredentialInvalid, Code::CredentialExposed];
        assert_eq!(codes(&diagnosis), expected);
    }

    #[test]
    fn the_outcome_is_the_worst_that_is_known() {
        let of = |codes: &[Code], is_unanswered| diagnosis(codes, is_unanswered).outcome;
        let (notice, warning, error) = (
            Code::HostWithoutTopology,
            Code::HarvesterUnreachable,
            Code::LabelConflict,
        );
        assert_eq!(of(&[], false), Outcome::Ok);
        assert_eq!(of(&[notice], false), Outcome::Ok);
        assert_eq!(of(&[notice, warning], false), Outcome::Warnings);
        assert_eq!(of(&[warning], true), Outcome::Unreachable);
        assert_eq!(of(&[warning, error], true), Outcome::Errors);
        let invalid = [error, Code::ConfigInvalid];
        assert_eq!(of(&invalid, true), Outcome::Configuration);
        let foreign = [Code::ConfigInvalid, Code::NotKubevirt];
        assert_eq!(of(&foreign, true), Outcome::NotKubevirt);
    }

    #[test]
    fn a_faulty_configuration_hides_what_the_defaults_do_not_find() {
        let causes = [
            Code::HarvesterCredentialMissing,
            Code::KubeletCredentialMissing,
            Code::VmNotFound,
            Code::NoTopologySource,
            Code::AgentNotRunning,
            Code::ConfigInvalid,
        ];
        // Nothing else reports an agent that is stopped.
        let expected = [Code::ConfigInvalid, Code::AgentNotRunning];
        assert_eq!(codes(&diagnosis(&causes, false)), expected);
    }
}
