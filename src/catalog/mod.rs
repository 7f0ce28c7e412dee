// SPDX-License-Identifier: Apache-2.0
//! All findings of the agent: one catalog for the journal, the status, the command line and the manual pages.
//!
//! A code never changes once released. To add a finding: an entry in `entries.rs`, and one place that raises it: where it is seen, in
//! `decide/findings/` if it is decided, or in `commands/doctor/checks/` if only `doctor` detects it.

mod command;
mod declare;
mod entries;
mod group;
mod links;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use command::{CommandPlace, FixCommand, PLACEHOLDERS};
pub use entries::{
    Code, DOCTOR_REPLACES, ETCD_NODE_DELETED, Entry, Flag, NEW_HARVESTER_KUBECONFIG, NODE_DELETED,
    REJOIN, REJOIN_COMMANDS, REJOIN_KUBEADM, REJOIN_SERVERS, RESTART_HARVESTER, RESTART_SERVERS,
    ROTATE_CA, Severity, USE_SERVICE_ACCOUNT,
};
pub use group::{Api, Group};

/// A finding: its code in the catalog, and the observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The code.
    pub code: Code,
    /// The observation, on which object.
    pub seen: String,
    /// Steps for this observation; empty: use those of the catalog.
    steps: Vec<String>,
    /// Commands for this observation; empty: use those of the catalog.
    commands: Vec<FixCommand>,
    /// The group, if it differs from that of the catalog.
    about: Option<Group>,
    /// The event source that it is about, if there are several.
    source: Option<&'static str>,
}

/// The code of a finding, and the API or event source that it is about if the code alone does not tell. Findings with different
/// keys begin and end independently.
pub type FindingKey = (Code, Option<&'static str>);

/// The maximum length of an observation, in characters. It may quote objects, and is in the status several times.
const SEEN_MAX: usize = 4096;

impl Finding {
    /// Creates a finding from an observation.
    pub fn new(code: Code, seen: impl Into<String>) -> Self {
        Self {
            code,
            seen: seen.into().chars().take(SEEN_MAX).collect(),
            steps: Vec::new(),
            commands: Vec::new(),
            about: None,
            source: None,
        }
    }

    /// Sets the event source that it is about.
    pub fn of_source(mut self, source: &'static str) -> Self {
        self.source = Some(source);
        self
    }

    /// Returns what distinguishes it from other findings.
    pub fn key(&self) -> FindingKey {
        let api = self.about.and_then(Group::api).map(Api::as_str);
        (self.code, self.source.or(api))
    }

    /// Replaces the commands with commands on this VM for this observation.
    pub fn with_commands(self, commands: Vec<String>) -> Self {
        let here = |text| FixCommand::new(CommandPlace::Vm, text);
        let commands = commands.into_iter().map(here).collect();
        Self { commands, ..self }
    }

    /// Replaces the commands.
    pub fn with_all_commands(self, commands: Vec<FixCommand>) -> Self {
        Self { commands, ..self }
    }

    /// Appends one command to the current ones.
    pub fn and_command(self, place: CommandPlace, text: String) -> Self {
        self.and_commands(&[FixCommand::new(place, text)])
    }

    /// Appends commands to the current ones.
    pub fn and_commands(mut self, more: &[FixCommand]) -> Self {
        self.commands = [self.commands(), more].concat();
        self
    }

    /// Sets another group than that of the catalog: problems of either credential have the same code.
    pub fn about(mut self, group: Group) -> Self {
        self.about = Some(group);
        self
    }

    /// Returns the group.
    pub fn group(&self) -> Group {
        self.about.unwrap_or(self.code.entry().group)
    }

    /// Returns the API that it is about, if there is one.
    pub fn api(&self) -> Option<Api> {
        self.group().api()
    }

    /// Reports whether `other` is only a consequence of this finding. A problem with one API explains nothing at the other.
    pub fn explains(&self, other: &Self) -> bool {
        let is_elsewhere = self.api().zip(other.api()).is_some_and(|(a, b)| a != b);
        !is_elsewhere && self.code.entry().suppresses.contains(&other.code)
    }

    /// Replaces the steps of the catalog with one step for this observation.
    pub fn with_remedy(self, step: impl Into<String>) -> Self {
        self.with_steps(vec![step.into()])
    }

    /// Replaces the steps of the catalog with steps for this observation.
    pub fn with_steps(self, steps: Vec<String>) -> Self {
        Self { steps, ..self }
    }

    /// Returns the commands to paste: those for this observation, or those of the catalog.
    pub fn commands(&self) -> &[FixCommand] {
        if self.commands.is_empty() {
            return self.code.entry().commands;
        }
        &self.commands
    }

    /// Returns the steps of the fix.
    pub fn fix(&self) -> Vec<&str> {
        if self.steps.is_empty() {
            return self.code.entry().fix.to_vec();
        }
        self.steps.iter().map(String::as_str).collect()
    }

    /// Returns the steps of the fix, those of the catalog with all values that `known` returns for a placeholder.
    pub fn steps_filled<'a>(&self, known: impl Fn(&str) -> Option<&'a str>) -> Vec<String> {
        if self.steps.is_empty() {
            let steps = self.code.entry().fix.iter();
            return steps.map(|step| command::filled(step, &known)).collect();
        }
        self.steps.clone()
    }

    /// Returns the steps of the fix in one line.
    pub fn remedy(&self) -> String {
        self.fix().join(" ")
    }
}

/// Returns the findings that no other one explains, and the others.
pub fn split_consequences(findings: Vec<Finding>) -> (Vec<Finding>, Vec<Finding>) {
    let all = findings.clone();
    let is_reported = |finding: &Finding| all.iter().all(|cause| !cause.explains(finding));
    findings.into_iter().partition(is_reported)
}

/// The findings that were reported last, each with its observations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known(BTreeMap<FindingKey, BTreeSet<String>>);

impl Known {
    /// Reports whether a finding or its observation is new.
    pub fn is_new(&self, finding: &Finding) -> bool {
        let is_same = |seen: &BTreeSet<String>| {
            seen.contains(&finding.seen) || finding.code.is(Flag::ErrorText)
        };
        !self.0.get(&finding.key()).is_some_and(is_same)
    }

    /// Replaces them with the present ones, and returns those that are resolved. While the host `is_unread`, a finding that requires
    /// it is neither new nor resolved.
    pub fn replace<'a>(
        &mut self,
        present: impl IntoIterator<Item = &'a Finding>,
        is_unread: bool,
    ) -> Vec<FindingKey> {
        let before = std::mem::take(&mut self.0);
        for finding in present {
            let seen = self.0.entry(finding.key()).or_default();
            seen.insert(finding.seen.clone());
        }
        let mut resolved = Vec::new();
        for (key, seen) in before {
            if is_unread && key.0.is(Flag::NeedsPlacement) {
                self.0.entry(key).or_insert(seen);
            } else if !self.0.contains_key(&key) {
                resolved.push(key);
            }
        }
        resolved
    }
}

impl Code {
    /// Returns the code with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// Reports whether this is true of the code.
    pub fn is(self, flag: Flag) -> bool {
        self.entry().flags.contains(&flag)
    }

    /// Returns the name in CamelCase, as the reason of a condition or an Event.
    pub fn reason(self) -> &'static str {
        self.entry().reason
    }

    /// Returns links to documentation and issue reports.
    pub fn links(self) -> Vec<&'static str> {
        let entry = self.entry();
        match entry.see {
            [] => vec![entry.group.link()],
            links => links.to_vec(),
        }
    }
}

/// Returns a CamelCase reason in kebab-case, as codes and states are shown: `VmNotFound` becomes `vm-not-found`.
pub fn kebab(reason: &str) -> String {
    let mut text = String::new();
    for letter in reason.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
