// SPDX-License-Identifier: Apache-2.0
//! What is new since the last report: one journal record for each change of state, none for a state that stays.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::{Priority, Record};
use super::status::Status;
use crate::decide::Migration;
use crate::findings::{Code, Severity};

/// `MESSAGE_ID`s, one for each kind of record. They never change once released.
pub mod message_id {
    /// The agent started.
    pub const STARTED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a101";
    /// A finding appeared or changed.
    pub const FINDING: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a102";
    /// A finding went away.
    pub const RESOLVED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a103";
    /// The VM moved to another host.
    pub const MIGRATED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a104";
    /// The labels of the Node were written.
    pub const LABELLED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a105";
    /// It became known which VM this is.
    pub const IDENTIFIED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a106";
    /// The configuration was read again.
    pub const RELOADED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a107";
    /// The agent ends.
    pub const STOPPED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a108";
}

/// What was reported already.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// What was seen, by code; one code may have several.
    findings: BTreeMap<String, BTreeSet<String>>,
    vm: Option<String>,
}

/// What happened in a round, beyond its status.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deeds<'a> {
    /// Labels that were written, as `key=value` or `key-`.
    pub labelled: &'a [String],
    /// Milliseconds from the trigger to the end of the last write.
    pub latency_ms: u64,
    /// A move that is seen for the first time.
    pub moved: Option<&'a Migration>,
}

impl Told {
    /// The records for what is new in `status`, in the order in which a person wants to read them.
    pub fn news(&mut self, status: &Status, deeds: Deeds<'_>) -> Vec<Record> {
        let mut records = Vec::new();
        let vm = status.identity.vm.as_ref().map(|vm| match &vm.namespace {
            Some(namespace) => format!("{namespace}/{}", vm.name),
            None => vm.name.clone(),
        });
        let host = status
            .placement
            .as_ref()
            .map(|placement| placement.host.clone());
        let zone = status
            .placement
            .as_ref()
            .and_then(|placement| placement.zone.clone());
        let record = |priority, message_id, message: String| Record {
            message_id: Some(message_id),
            vm: vm.clone(),
            host: host.clone(),
            zone: zone.clone(),
            trigger: Some(status.trigger.clone()),
            ..Record::new(priority, message)
        };
        if vm.is_some() && vm != self.vm {
            let identity = &status.identity;
            let text = format!(
                "this machine is VM {}, names: {}",
                vm.as_deref().unwrap_or_default(),
                identity.verdict
            );
            records.push(record(Priority::Info, message_id::IDENTIFIED, text));
        }
        if let Some(Migration { from, to, .. }) = deeds.moved {
            let text = format!("moved from Harvester host {from} to {to}");
            let moved = record(Priority::Notice, message_id::MIGRATED, text);
            records.push(Record {
                host_old: Some(from.clone()),
                ..moved
            });
        }
        if !deeds.labelled.is_empty() {
            let node = status.labels.node.as_deref().unwrap_or_default();
            let text = format!(
                "Node {node} labelled in {} ms: {}",
                deeds.latency_ms,
                deeds.labelled.join(" ")
            );
            let labelled = record(Priority::Notice, message_id::LABELLED, text);
            records.push(Record {
                latency_ms: Some(deeds.latency_ms),
                ..labelled
            });
        }
        for finding in &status.findings {
            if self.is_news(&finding.code, &finding.seen) {
                let priority = match finding.severity.as_str() {
                    word if word == Severity::Error.as_str() => Priority::Error,
                    word if word == Severity::Warning.as_str() => Priority::Warning,
                    _ => Priority::Notice,
                };
                let text = format!(
                    "{}: {}; {}",
                    finding.title, finding.seen, finding.consequence
                );
                let new = record(priority, message_id::FINDING, text);
                records.push(Record {
                    finding: Some(finding.code.clone()),
                    remedy: Some(finding.remedy.clone()),
                    ..new
                });
            }
        }
        let mut present: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for finding in &status.findings {
            present
                .entry(finding.code.clone())
                .or_default()
                .insert(finding.seen.clone());
        }
        // What cannot be looked at just now is neither there nor gone.
        let unread = status.placement.is_none();
        let unknown =
            |code: &String| unread && Code::parse(code).is_some_and(Code::needs_placement);
        for (code, seen) in std::mem::take(&mut self.findings) {
            if present.contains_key(&code) {
                continue;
            }
            if unknown(&code) {
                present.insert(code, seen);
            } else {
                let resolved = record(
                    Priority::Notice,
                    message_id::RESOLVED,
                    format!("no longer: {code}"),
                );
                records.push(Record {
                    finding: Some(code),
                    ..resolved
                });
            }
        }
        self.findings = present;
        self.vm = vm.clone().or(self.vm.take());
        records
    }

    /// Whether a finding is to be told: it is new, or something else was seen.
    fn is_news(&self, code: &str, seen: &str) -> bool {
        let same = |told: &BTreeSet<String>| {
            told.contains(seen) || Code::parse(code).is_some_and(Code::is_error_text)
        };
        !self.findings.get(code).is_some_and(same)
    }
}

#[cfg(test)]
mod tests;
