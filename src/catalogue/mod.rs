// SPDX-License-Identifier: Apache-2.0
//! Everything the agent can report: one catalogue for the journal, the status, the command line and the manual pages.
//!
//! A code never changes once released. To add a finding: an entry in `entries.rs`, and one place in `decide/findings/`,
//! or in `commands/doctor/judge/` where only `doctor` knows it, that raises it; links to read on are in `links.rs`.

mod command;
mod declare;
mod entries;
mod group;
mod links;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::observation::Api;

pub use command::{CommandPlace, CommandWord, FixCommand, PRINT_KUBECONFIG};
pub use entries::Code;
pub use group::Group;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know; nothing is wrong.
    Notice,
    /// Something works less well than it could, or will stop.
    Warning,
    /// The main job is not done.
    Error,
}

impl Severity {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A finding: what the catalogue says of its code, and what was seen here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code.
    pub code: Code,
    /// What was seen, on which object.
    pub seen: String,
    /// Steps made for what was observed; empty for those of the catalogue.
    #[serde(skip)]
    steps: Vec<String>,
    /// Commands to paste, where the remedy is not the catalogue's.
    #[serde(skip)]
    commands: Vec<FixCommand>,
    /// What it is about here, where that is not the catalogue's group.
    #[serde(skip)]
    about: Option<Group>,
    /// What expires, where that is what it is about.
    #[serde(skip)]
    pub expiry: Option<Expiry>,
}

/// A token or certificate that expires: a row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// When, as a Unix timestamp.
    pub at: i64,
    /// What, such as ``CA `rke2-server-ca@1` ``.
    pub what: String,
    /// The file or server that has it.
    pub origin: String,
    /// How it is renewed, in a few words.
    pub renew: &'static str,
}

impl Finding {
    /// A finding with what was seen.
    pub fn new(code: Code, seen: impl Into<String>) -> Self {
        Self {
            code,
            seen: seen.into(),
            steps: Vec::new(),
            commands: Vec::new(),
            about: None,
            expiry: None,
        }
    }

    /// The same with commands for this VM that were made for what was seen.
    pub fn with_commands(self, commands: Vec<String>) -> Self {
        let here = |text| FixCommand {
            place: CommandPlace::Vm,
            text: Cow::Owned(text),
        };
        let commands = commands.into_iter().map(here).collect();
        Self { commands, ..self }
    }

    /// The same with one more command, after those that it has.
    pub fn and_command(mut self, place: CommandPlace, text: String) -> Self {
        self.commands = self.commands().to_vec();
        let text = Cow::Owned(text);
        self.commands.push(FixCommand { place, text });
        self
    }

    /// The same about another group than the catalogue's: what is wrong with either credential has one code.
    pub fn about(self, group: Group) -> Self {
        Self {
            about: Some(group),
            ..self
        }
    }

    /// Adds what expires.
    pub fn with_expiry(self, expiry: Expiry) -> Self {
        let expiry = Some(expiry);
        Self { expiry, ..self }
    }

    /// What it is about.
    pub fn group(&self) -> Group {
        self.about.unwrap_or(self.code.entry().group)
    }

    /// The API that it is about, where there is one.
    pub fn api(&self) -> Option<Api> {
        self.group().api()
    }

    /// Whether `other` is only its consequence. What is wrong with one API explains nothing at the other.
    pub fn explains(&self, other: &Self) -> bool {
        let is_elsewhere = self.api().zip(other.api()).is_some_and(|(a, b)| a != b);
        !is_elsewhere && self.code.entry().suppresses.contains(&other.code)
    }

    /// Replaces the steps of the catalogue by one step made for what was observed.
    pub fn with_remedy(self, step: impl Into<String>) -> Self {
        self.with_steps(vec![step.into()])
    }

    /// Replaces the steps of the catalogue by steps made for what was observed.
    pub fn with_steps(self, steps: Vec<String>) -> Self {
        Self { steps, ..self }
    }

    /// Commands to paste: those made for what was seen, or the catalogue's.
    pub fn commands(&self) -> &[FixCommand] {
        if self.commands.is_empty() {
            return self.code.entry().commands;
        }
        &self.commands
    }

    /// Returns what fixes it, in steps.
    pub fn fix(&self) -> Vec<&str> {
        if self.steps.is_empty() {
            return self.code.entry().fix.to_vec();
        }
        self.steps.iter().map(String::as_str).collect()
    }

    /// Returns what fixes it, in one line.
    pub fn remedy(&self) -> String {
        self.fix().join(" ")
    }
}

/// What is known about one code.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// Its name: kebab-case, never changed.
    pub name: &'static str,
    /// What it is about.
    pub group: Group,
    /// How bad it is.
    pub severity: Severity,
    /// One line: what it is.
    pub title: &'static str,
    /// What happens because of it, in sentences.
    pub impact: &'static str,
    /// What fixes it, in steps.
    pub fix: &'static [&'static str],
    /// Commands to paste, in their order.
    pub commands: &'static [FixCommand],
    /// Findings that are only its consequences and are not shown beside it.
    pub suppresses: &'static [Code],
}

/// Takes out of `findings` what another of them explains.
pub fn without_consequences(findings: &[Finding]) -> Vec<Finding> {
    let is_reported = |finding: &&Finding| findings.iter().all(|cause| !cause.explains(finding));
    findings.iter().filter(is_reported).cloned().collect()
}

impl Code {
    /// The code of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.entry().name == name)
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        self.entry().name
    }

    /// Whether it is judged on a VM and a host that were read. While these cannot be read, its silence says nothing.
    pub fn needs_placement(self) -> bool {
        matches!(
            self,
            Self::NameOfAnotherVm
                | Self::IdentityAmbiguous
                | Self::VmNotFound
                | Self::ProviderIdDiffers
                | Self::NoTopologySource
                | Self::AnnotationsStale
                | Self::HostWithoutTopology
                | Self::TopologyPartial
                | Self::LabelValueInvalid
                | Self::PinnedByConfig
                | Self::LabelNotManaged
                | Self::LabelConflict
                | Self::StaticNodeLabel
        )
    }

    /// Whether only the running service can find it: a single round remembers nothing, listens to nothing and writes nothing, and
    /// it is not in the service's sandbox.
    pub fn needs_memory(self) -> bool {
        matches!(
            self,
            Self::LabelConflict
                | Self::NodeWriteFailed
                | Self::LabelFileNotWritten
                | Self::CredentialReloadFailed
                | Self::ConfigReloadFailed
                | Self::StateDiscarded
                | Self::WatchUnavailable
                | Self::WatchInterrupted
                | Self::WatchProgressMissing
                | Self::MetricsUnavailable
                | Self::DownwardMetricsUnusable
                | Self::SignalUnavailable
                | Self::UnexpectedObject
                | Self::GuestAgentRestarting
        )
    }

    /// Whether it is about the names that this machine goes by.
    pub fn is_of_names(self) -> bool {
        matches!(
            self,
            Self::NameOfAnotherVm | Self::HostnameDiffers | Self::StaticHostnameDiffers
        )
    }

    /// Whether what was seen is the text of an error, which may differ at each try. Only its coming and going is news.
    pub fn is_error_text(self) -> bool {
        matches!(
            self,
            Self::HarvesterUnreachable
                | Self::HarvesterTlsError
                | Self::HarvesterBadResponse
                | Self::GuestApiUnreachable
                | Self::GuestApiTlsError
                | Self::GuestApiBadResponse
                | Self::NodeWriteFailed
                | Self::WatchUnavailable
                | Self::SignalUnavailable
                | Self::DownwardMetricsUnusable
                | Self::MetricsUnavailable
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
