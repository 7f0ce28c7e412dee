// SPDX-License-Identifier: Apache-2.0
//! Everything the agent can complain about: one catalogue for the journal, the status, the command line and the README.
//!
//! A code never changes once released. To add a finding: an entry in `findings/catalogue.rs`, and one place in `decide`
//! that raises it; where people read more about it is in `findings/links.rs`.

mod catalogue;
mod declare;
mod links;

use crate::few::Few;
use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

pub use catalogue::Code;

/// What a finding is about: the groups of `doctor`, in its order, from this machine outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The machine itself, and this agent on it.
    Machine,
    /// QEMU's guest agent.
    GuestAgent,
    /// The kubeconfig for Harvester.
    HarvesterCredential,
    /// Harvester's API.
    HarvesterApi,
    /// Which VM this machine is, and whether its names say so.
    Identity,
    /// Which host runs it, and that host's region and zone.
    Placement,
    /// The kubelet's kubeconfig.
    KubeletCredential,
    /// The Node in the guest cluster, and the guest cluster's API.
    Node,
    /// Versions that do not go together.
    Versions,
    /// What the image brought that belongs to one machine.
    Image,
}

impl Group {
    /// All groups, in their order.
    pub const ALL: &[Self] = &[
        Self::Machine,
        Self::GuestAgent,
        Self::HarvesterCredential,
        Self::HarvesterApi,
        Self::Identity,
        Self::Placement,
        Self::KubeletCredential,
        Self::Node,
        Self::Versions,
        Self::Image,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Machine => "this machine",
            Self::GuestAgent => "guest agent",
            Self::HarvesterCredential => "Harvester credential",
            Self::HarvesterApi => "Harvester API",
            Self::Identity => "identity",
            Self::Placement => "placement",
            Self::KubeletCredential => "kubelet credential",
            Self::Node => "Node",
            Self::Versions => "versions",
            Self::Image => "image",
        }
    }

    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::GuestAgent => "guest-agent",
            Self::HarvesterCredential => "harvester-credential",
            Self::HarvesterApi => "harvester-api",
            Self::Identity => "identity",
            Self::Placement => "placement",
            Self::KubeletCredential => "kubelet-credential",
            Self::Node => "node",
            Self::Versions => "versions",
            Self::Image => "image",
        }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// A complaint: what the catalogue says of its code, and what was seen here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code.
    pub code: Code,
    /// What was seen, on which object.
    pub seen: String,
    /// What to do here, where that is more than the catalogue's remedy.
    #[serde(skip)]
    pub remedy: Option<String>,
    /// Commands to paste, where the remedy is not the catalogue's.
    #[serde(skip)]
    commands: Vec<String>,
    /// What it is about here, where that is not the catalogue's group.
    #[serde(skip)]
    about: Option<Group>,
}

impl Finding {
    /// A finding with what was seen.
    pub fn new(code: Code, seen: impl Into<String>) -> Self {
        Self {
            code,
            seen: seen.into(),
            remedy: None,
            commands: Vec::new(),
            about: None,
        }
    }

    /// The same with commands to paste that were made for what was seen.
    pub fn with_commands(self, commands: Vec<String>) -> Self {
        Self { commands, ..self }
    }

    /// The same about another group than the catalogue's: what is wrong with either credential has one code.
    pub fn about(self, group: Group) -> Self {
        Self {
            about: Some(group),
            ..self
        }
    }

    /// What it is about.
    pub fn group(&self) -> Group {
        self.about.unwrap_or(self.code.entry().group)
    }

    /// The same with a remedy made for what was seen.
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// Commands to paste: those made for what was seen, or the catalogue's.
    pub fn commands(&self) -> Vec<&str> {
        if self.commands.is_empty() {
            return self.code.entry().commands.to_vec();
        }
        self.commands.iter().map(String::as_str).collect()
    }

    /// What to do.
    pub fn remedy(&self) -> &str {
        self.remedy.as_deref().unwrap_or(self.code.entry().remedy)
    }
}

/// Words in commands that stand for a name: of our Node, of our VM, of its namespace, of the host that runs it, and
/// `SERVER` for the address of Harvester's API.
pub const PLACEHOLDERS: [&str; 5] = ["NODE", "VM", "NAMESPACE", "HOST", "SERVER"];

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
    /// Why it matters.
    pub consequence: &'static str,
    /// What to do, commands to type included.
    pub remedy: &'static str,
    /// Commands to paste, in their order. The words in [`PLACEHOLDERS`] stand for what only the machine knows.
    pub commands: &'static [&'static str],
    /// Findings that are only its consequences and are not shown beside it.
    pub silences: &'static [Code],
}

/// Takes out of `findings` what another of them explains.
pub fn without_consequences(findings: &[Finding]) -> Vec<Finding> {
    let silenced: BTreeSet<Code> = findings
        .iter()
        .flat_map(|finding| finding.code.entry().silences.iter().copied())
        .into_set();
    findings
        .iter()
        .filter(|finding| !silenced.contains(&finding.code))
        .cloned()
        .collect()
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
            Self::HostnameOfAnotherVm
                | Self::IdentityAmbiguous
                | Self::IdentityNotFound
                | Self::ProviderIdDiffers
                | Self::TopologyUnknown
                | Self::AnnotationsStale
                | Self::HostWithoutTopology
                | Self::TopologyPartial
                | Self::LabelValueIllegal
                | Self::LabelHeld
                | Self::LabelForeign
                | Self::LabelFight
                | Self::StaticNodeLabel
        )
    }

    /// Whether only an agent that runs for a while can find it: a single look remembers nothing, listens to nothing and
    /// writes nothing.
    pub fn needs_memory(self) -> bool {
        matches!(
            self,
            Self::LabelFight
                | Self::NodeWriteFailed
                | Self::LabelFileNotWritten
                | Self::CredentialKept
                | Self::ConfigurationKept
                | Self::StateDiscarded
                | Self::WatchUnavailable
                | Self::MetricsUnavailable
                | Self::SignalUnavailable
                | Self::WrongObject
                | Self::GuestAgentRestarting
        )
    }

    /// Whether it is about the names that this machine goes by.
    pub fn is_of_names(self) -> bool {
        matches!(
            self,
            Self::HostnameOfAnotherVm | Self::HostnameDiffers | Self::StaticHostnameDiffers
        )
    }

    /// Whether what was seen is the text of an error, which may differ at each try. Only its coming and going is news.
    pub fn is_error_text(self) -> bool {
        matches!(
            self,
            Self::HarvesterUnreachable
                | Self::HarvesterTls
                | Self::HarvesterRefused
                | Self::GuestApiUnreachable
                | Self::GuestApiTls
                | Self::GuestApiRefused
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_all_its_parts_and_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for entry in Code::ALL.iter().map(|code| code.entry()) {
            assert!(names.insert(entry.name), "{} twice", entry.name);
            assert!(
                entry
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{}",
                entry.name
            );
            assert_eq!(Code::parse(entry.name), Some(entry.code));
            assert_eq!(entry.code.as_str(), entry.name);
            for text in [entry.title, entry.consequence, entry.remedy] {
                assert!(
                    text.len() > 5 && !text.ends_with('.') && !text.contains('\n'),
                    "{}: {text}",
                    entry.name
                );
            }
            assert!(
                !entry.silences.contains(&entry.code),
                "{} silences itself",
                entry.name
            );
        }
    }

    #[test]
    fn every_group_is_listed_once_and_in_order() {
        assert!(Group::ALL.is_sorted());
        for entry in Code::ALL.iter().map(|code| code.entry()) {
            assert!(Group::ALL.contains(&entry.group), "{}", entry.name);
        }
    }

    #[test]
    fn every_code_has_a_page_to_read_on_and_no_page_twice() {
        for code in Code::ALL {
            let links = code.links();
            assert!(!links.is_empty(), "{code}");
            let pages: BTreeSet<&str> = links.iter().copied().collect();
            assert_eq!(pages.len(), links.len(), "{code}");
            assert!(
                pages.iter().all(|page| page.starts_with("https://")),
                "{code}"
            );
        }
    }

    #[test]
    fn a_known_cause_silences_its_consequences() {
        let cause = Finding::new(Code::HarvesterUnreachable, "timeout");
        let consequence = Finding::new(Code::TopologyUnknown, "no source");
        let other = Finding::new(Code::CredentialExposed, "0644");
        assert_eq!(
            without_consequences(&[consequence, cause.clone(), other.clone()]),
            [cause, other]
        );
    }
}
