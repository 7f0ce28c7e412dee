// SPDX-License-Identifier: Apache-2.0
//! The output of `doctor`: human-readable ([`text()`]) and machine-readable ([`document()`]).

pub mod document;
mod skipped;
mod summary;
#[cfg(test)]
mod tests;
pub mod text;

use time::UtcDateTime;

use crate::access::search::CLOUD_CONFIG;
use crate::catalog::{Code, CommandPlace, Finding, Group};
use crate::commands::doctor::address::Address;
use crate::commands::doctor::diagnosis::{Diagnosis, DoctorOutcome, Section, Service};
use crate::commands::doctor::facts::credentials::CredentialContent;
use crate::commands::doctor::facts::{Examination, Gap};
use crate::facts::observation::Api;
use crate::facts::{Fact, UnavailableKind};
use crate::report::layout::Mark;
use crate::report::status::Status;

pub use document::document;
pub use text::text;

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

impl View<'_> {
    /// Returns the state of a group: that of its worst finding, or whether everything was checked. Findings that are consequences
    /// of others count as skipped checks.
    pub fn state(&self, section: &Section) -> Mark {
        let findings = section.findings.iter();
        let is_looked_at = self.status.is_some() || section.group == Group::Machine;
        let is_whole = section.suppressed.is_empty() && section.gaps.is_empty();
        match findings.map(|finding| finding.code.entry().severity).max() {
            Some(severity) => Mark::Found(severity),
            None if is_looked_at && is_whole => Mark::Ok,
            None => Mark::Skipped,
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
    fn name(&self, placeholder: &str, api: Option<Api>) -> Option<&str> {
        let status = self.status?;
        let vm = status.identity.vm.as_ref();
        let harvester = &status.credentials.harvester;
        let credential = match api {
            Some(Api::Guest) => &status.credentials.kubelet,
            Some(Api::Harvester) | None => harvester,
        };
        match placeholder {
            "<NODE>" => status.labels.node.as_deref(),
            "<VM>" => vm.map(|vm| vm.name.as_str()),
            "<NAMESPACE>" => vm
                .and_then(|vm| vm.namespace.as_deref())
                .or(harvester.namespace.as_deref()),
            "<HOST>" => status
                .placement
                .as_ref()
                .map(|placement| placement.host.as_str()),
            "<SERVER>" => credential.server.as_deref(),
            "<HARVESTER_API>" => harvester
                .server
                .as_deref()
                .filter(|server| Address::parse(server).is_some_and(|address| address.is_api())),
            "<KUBECONFIG>" => credential.kubeconfig.as_deref().or_else(|| {
                let is_harvester = api != Some(Api::Guest);
                is_harvester.then(|| self.path_to_write())
            }),
            // Only the user knows it.
            _ => None,
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
        self.diagnosis.cause(gap.why.prerequisite?)
    }

    /// Returns the first check that could not be done for the same reason, if this one was skipped because of it.
    fn first(&self, gap: &Gap) -> Option<&Gap> {
        let is_skipped = |gap: &Gap| gap.why.kind == UnavailableKind::NotAsked;
        let prerequisite = gap.why.prerequisite.filter(|_| is_skipped(gap))?;
        let mut gaps = self.diagnosis.gaps();
        gaps.find(|first| !is_skipped(first) && first.why.prerequisite == Some(prerequisite))
    }
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
