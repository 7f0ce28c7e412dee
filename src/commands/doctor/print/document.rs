// SPDX-License-Identifier: Apache-2.0
//! The machine-readable diagnosis, as described in `packaging/schema/doctor.schema.json`: fields are added, but never renamed or
//! removed, for the same `apiVersion`.

use serde_json::{Value, json};

use super::{SHOWN_MAX, View};
use crate::catalog::{Code, Finding, Severity};
use crate::commands::doctor::diagnosis::Suppressed;
use crate::commands::doctor::facts::Gap;
use crate::report::layout::Mark;
use crate::report::status::API_VERSION;
use crate::sys::escape::one_line;

/// Returns the diagnosis as JSON. `exit` is the exit code of the process.
pub fn document(view: &View<'_>, exit: u8) -> Value {
    let sections = view.diagnosis.sections.iter().map(|section| {
        let findings = section.findings.iter();
        json!({
            "group": section.group.as_str(),
            "title": section.group.title(),
            "state": match view.state(section) {
                Mark::Ok => "ok",
                Mark::Skipped => "skipped",
                Mark::Found(severity) => severity.as_str(),
            },
            "summary": one_line(&view.summary(section.group), SHOWN_MAX),
            "findings": findings.map(|finding| found(view, finding)).collect::<Vec<_>>(),
            "suppressed": section.suppressed.iter().map(suppressed).collect::<Vec<_>>(),
            "skippedChecks": section.gaps.iter().map(|gap| skipped_check(view, gap)).collect::<Vec<_>>(),
        })
    });
    let count = |severity| view.diagnosis.count(severity);
    json!({
        "apiVersion": API_VERSION,
        "kind": "Diagnosis",
        "time": view.at,
        "version": env!("CARGO_PKG_VERSION"),
        "outcome": view.outcome,
        "exitCode": exit,
        "counts": {
            "errors": count(Severity::Error),
            "warnings": count(Severity::Warning),
            "notices": count(Severity::Notice),
            "skippedChecks": view.diagnosis.gaps().count(),
        },
        "service": {
            "running": (!view.service.is_unknown).then_some(view.service.holder.is_some()),
            "lastUpdateTime": view.service.updated_at,
        },
        "groups": sections.collect::<Vec<_>>(),
    })
}

fn found(view: &View<'_>, finding: &Finding) -> Value {
    let entry = finding.code.entry();
    let commands = view.commands(finding);
    json!({
        "code": entry.name,
        "severity": entry.severity.as_str(),
        "title": entry.title,
        "observed": one_line(&finding.seen, SHOWN_MAX),
        "impact": entry.impact,
        "fix": finding.fix().iter().map(|step| one_line(step, SHOWN_MAX)).collect::<Vec<_>>(),
        "commands": commands.into_iter().map(|(place, text)| json!({ "runOn": place.as_str(), "text": text })).collect::<Vec<_>>(),
        "firstObservedTime": view.service.since(finding.code),
        "links": finding.code.links(),
    })
}

fn suppressed(suppressed: &Suppressed) -> Value {
    let entry = suppressed.finding.code.entry();
    json!({
        "code": entry.name,
        "severity": entry.severity.as_str(),
        "observed": one_line(&suppressed.finding.seen, SHOWN_MAX),
        "suppressedBy": suppressed.by.as_str(),
    })
}

fn skipped_check(view: &View<'_>, gap: &Gap) -> Value {
    json!({
        "check": gap.what,
        "reason": gap.why.kind,
        "message": one_line(&gap.why.text, SHOWN_MAX),
        "dueTo": view.cause(gap).map(Code::as_str),
    })
}
