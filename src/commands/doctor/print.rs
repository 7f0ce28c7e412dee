// SPDX-License-Identifier: Apache-2.0
//! The output of `doctor`: human-readable ([`text()`]), for tickets ([`short()`]) and machine-readable ([`document()`]).

pub mod document;
mod skipped;
mod summary;
#[cfg(test)]
mod tests;
pub mod text;
pub mod ticket;

use time::UtcDateTime;

use crate::access::search::CLOUD_CONFIG;
use crate::catalog::{Code, CommandPlace, CommandWord, Finding, Group, Severity};
use crate::commands::doctor::diagnosis::{Diagnosis, DoctorOutcome, Section, Service};
use crate::commands::doctor::facts::credentials::CredentialContent;
use crate::commands::doctor::facts::{Examination, Gap, Need};
use crate::facts::observation::Api;
use crate::facts::{Fact, UnavailableKind};
use crate::report::layout::Mark;
use crate::report::status::Status;

pub use document::document;
pub use text::text;
pub use ticket::short;

/// The maximum length of one displayed text, in characters.
const SHOWN_MAX: usize = 1000;

/// The data to print.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The diagnosis.
    pub diagnosis: &'a Diagnosis,
    /// Its outcome.
    pub outcome: DoctorOutcome,
    /// The time, RFC 3339.
    pub at: &'a str,
    /// The same time, as the base of relative times.
    pub now: UtcDateTime,
    /// The running agent.
    pub service: &'a Service,
    /// The status of the round, if there was one.
    pub status: Option<&'a Status>,
    /// The facts that only `doctor` reads, if they were read.
    pub examination: Option<&'a Examination>,
}

/// The state of the checks of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// Everything was checked, without findings.
    Ok,
    /// No findings, but some checks were skipped, or the findings are consequences of others.
    Skipped,
    /// The highest severity of its findings.
    Found(Severity),
}

impl CheckState {
    /// Returns the name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Found(severity) => severity.as_str(),
        }
    }
}

impl CheckState {
    /// Returns the symbol of the state.
    pub fn mark(self) -> Mark {
        match self {
            Self::Ok => Mark::Ok,
            Self::Skipped => Mark::Skipped,
            Self::Found(severity) => Mark::Found(severity),
        }
    }
}

impl View<'_> {
    /// Returns the state of a group.
    pub fn state(&self, section: &Section) -> CheckState {
        let findings = section.findings.iter();
        let is_looked_at = self.status.is_some() || section.group == Group::Machine;
        let is_missed = |gap: &Gap| gap.need == Need::Usual;
        let is_whole = section.suppressed.is_empty() && !section.gaps.iter().any(is_missed);
        match findings.map(|finding| finding.code.entry().severity).max() {
            Some(severity) => CheckState::Found(severity),
            None if is_looked_at && is_whole => CheckState::Ok,
            None => CheckState::Skipped,
        }
    }

    /// Returns the commands of a finding, each with its place, and with the names of this machine if known.
    fn commands(&self, finding: &Finding) -> Vec<(CommandPlace, String)> {
        let commands = finding.commands().iter();
        let filled = commands.map(|command| {
            let text = command.filled(|name| self.name(name, finding.api()));
            (command.place, text)
        });
        filled.collect()
    }

    /// Returns the value of a placeholder in a command on this machine.
    fn name(&self, name: CommandWord, api: Option<Api>) -> Option<&str> {
        let status = self.status?;
        let vm = status.identity.vm.as_ref();
        let harvester = &status.credentials.harvester;
        let credential = match api {
            Some(Api::Guest) => &status.credentials.kubelet,
            Some(Api::Harvester) | None => harvester,
        };
        match name {
            CommandWord::Node => status.labels.node.as_deref(),
            CommandWord::Vm => vm.map(|vm| vm.name.as_str()),
            CommandWord::Namespace => vm
                .and_then(|vm| vm.namespace.as_deref())
                .or(harvester.namespace.as_deref()),
            CommandWord::Host => status
                .placement
                .as_ref()
                .map(|placement| placement.host.as_str()),
            CommandWord::Server => credential.server.as_deref(),
            CommandWord::HarvesterApi => {
                harvester.server.as_deref().filter(|server| is_api(server))
            }
            CommandWord::Kubeconfig => credential.kubeconfig.as_deref().or_else(|| {
                let is_harvester = api != Some(Api::Guest);
                is_harvester.then(|| self.path_to_write())
            }),
            CommandWord::NodeAddress | CommandWord::Region | CommandWord::Zone => None,
        }
    }

    /// Returns the path for a new Harvester kubeconfig: that of the unusable one, which ends the search, or the one that the
    /// distribution's configuration names, since the cloud provider and the CSI driver mount it.
    fn path_to_write(&self) -> &str {
        let examination = self.examination.map(|seen| &seen.credentials.places);
        let places = examination.and_then(Fact::known).map(Vec::as_slice);
        let places = places.unwrap_or_default();
        let unusable = places
            .iter()
            .find(|place| place.content != CredentialContent::Nothing);
        let named = || places.iter().find(|place| place.named_in.is_some());
        let place = unusable.or_else(named);
        place
            .and_then(|place| place.path.to_str())
            .unwrap_or(CLOUD_CONFIG)
    }

    /// Returns the finding that is the reason why a check was skipped.
    fn cause(&self, gap: &Gap) -> Option<Code> {
        let mut findings = self.diagnosis.findings();
        if let Some(cause) = findings.find(|finding| finding.seen == gap.why.text) {
            return Some(cause.code);
        }
        // A finding that is not displayed is explained by one that is.
        let suppressed = || {
            let sections = self.diagnosis.sections.iter();
            sections.flat_map(|section| &section.suppressed)
        };
        let mut cause = suppressed()
            .find(|one| one.finding.seen == gap.why.text)?
            .by;
        for _ in suppressed() {
            match suppressed().find(|one| one.finding.code == cause) {
                Some(next) => cause = next.by,
                None => break,
            }
        }
        Some(cause)
    }

    /// Returns the first gap with the same reason, if there is another one: the later checks were skipped because of it.
    fn first(&self, gap: &Gap) -> Option<&Gap> {
        let is_unasked = |gap: &Gap| gap.why.kind == UnavailableKind::NotAsked;
        let mut gaps = self.diagnosis.gaps();
        gaps.find(|first| is_unasked(gap) && !is_unasked(first) && first.why.text == gap.why.text)
    }
}

/// Reports whether an address is that of an API server: with a port and without a path, unlike the UI and Rancher.
fn is_api(server: &str) -> bool {
    let authority = server
        .strip_prefix("https://")
        .map(|rest| rest.trim_end_matches('/'));
    authority.is_some_and(|authority| {
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        !authority.contains('/') && port.is_some_and(|port| port.parse::<u16>().is_ok())
    })
}

/// Groups gaps by their reason: the names, and the first gap.
fn by_reason(gaps: &[Gap]) -> Vec<(Vec<&'static str>, &Gap)> {
    let mut reasons: Vec<(Vec<&'static str>, &Gap)> = Vec::new();
    for gap in gaps {
        match reasons.iter_mut().find(|(_, first)| first.why == gap.why) {
            Some((what, _)) => what.push(gap.what),
            None => reasons.push((vec![gap.what], gap)),
        }
    }
    reasons
}
