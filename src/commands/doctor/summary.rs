// SPDX-License-Identifier: Apache-2.0
//! The names of this machine, and one line for each group: its observations, with or without a problem.

use std::path::Path;

use time::UtcDateTime;

use super::address::Address;
use super::found::Found;
use super::service::IDLE;
use crate::catalog::{Api, Code, DOCTOR_REPLACES, Finding, Group};
use crate::report::problem::Problem;
use crate::report::relative::relative;
use crate::report::show::credential;
use crate::report::status::Status;
use crate::report::text::Mark;
use crate::sys::lock::Presence;

const NOT_CHECKED: &str = "not checked";

/// The findings by which the server of a credential is not the right one.
#[rustfmt::skip]
const WRONG: [Code; 3] = [Code::ServerNotInCertificate, Code::HarvesterIsOwnApi, Code::HarvesterBadResponse];

/// What a step of the catalog contains that refers to this command.
const DOCTOR: &str = "`harvester-node-agent doctor`";

/// What replaces the step that refers to this command if no step that replaces the Node follows it.
const UNPROVEN: &str = "Do not delete the Node yet: nothing proves that it is the Node of this VM and has to be replaced.";

impl Found {
    /// Returns the observations of a group, in about one line.
    pub(super) fn summary(&self, group: Group, mark: Mark, now: UtcDateTime) -> String {
        let shown = |one| credential(one, now).1;
        let own = match (group, &self.status) {
            (Group::Machine, _) => self.agent(now),
            (_, None) => NOT_CHECKED.to_owned(),
            (Group::GuestAgent, Some(status)) => {
                let agent = &status.qemu_guest_agent;
                let unit = agent.unit.as_ref().map(|unit| format!(" ({unit})"));
                format!("{}{}", agent.state, unit.unwrap_or_default())
            }
            (Group::HarvesterCredential, Some(status)) => shown(&status.credentials.harvester),
            (Group::HarvesterApi, Some(status)) => {
                let server = status.credentials.harvester.server.as_deref();
                server.unwrap_or(NOT_CHECKED).to_owned()
            }
            (Group::Identity, Some(status)) => identity(status),
            (Group::Placement, Some(status)) => placement(status),
            (Group::KubeletCredential, Some(status)) => shown(&status.credentials.kubelet),
            (Group::Node, Some(status)) => match &status.labels.node {
                Some(node) => format!("{node}, labels {}", status.labels.state),
                None => "unknown".to_owned(),
            },
            (Group::Versions, Some(_)) => String::new(),
            (Group::Image, Some(_)) => match mark {
                Mark::Ok => "no machine-specific state from the image",
                Mark::Skipped => "not everything was checked",
                Mark::Found(_) => "has problems",
            }
            .to_owned(),
        };
        let notes = self.checked.notes.iter();
        let notes = notes.filter(|(about, _)| *about == group);
        let parts = [own].into_iter();
        let parts = parts.chain(notes.map(|(_, note)| note.clone()));
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        match group {
            _ if parts.is_empty() => "unknown".to_owned(),
            Group::Placement => parts.join("; "),
            _ => parts.join(", "),
        }
    }

    /// Returns the name of the Node, or the hostname if there is no Node.
    pub(super) fn node(&self) -> String {
        let status = self.status.as_ref();
        let node = status.and_then(|status| status.labels.node.as_ref());
        let hostname = || Some(&status?.identity.names.first()?.name);
        let name = node.or_else(hostname);
        name.cloned().unwrap_or_else(|| "this node".to_owned())
    }

    /// Returns the VM, its host, and the state of the labels; `None` if the VM is unknown.
    pub(super) fn place(&self) -> Option<String> {
        let status = self.status.as_ref()?;
        let vm = status.identity.vm.as_ref()?.full_name();
        let host = match &status.placement {
            Some(_) => placement(status),
            None => "an unknown host".to_owned(),
        };
        let labels = &status.labels.state;
        Some(format!("VM {vm} on {host}, labels {labels}"))
    }

    /// Returns a finding as it is shown.
    pub(super) fn problem(&self, finding: &Finding) -> Problem {
        let since = self.service.since(finding.code);
        let mut problem = Problem::new(finding, |word| self.word(word, finding.api()));
        problem.first_observed_time = since.map(str::to_owned);
        // This command is the one that the step names: what replaces a Node comes after it, if it is right.
        let last = problem.fix.last();
        let is_unproven = last.is_some_and(|step| step == DOCTOR_REPLACES);
        problem.fix.retain(|step| !step.contains(DOCTOR));
        if is_unproven {
            problem.fix.push(UNPROVEN.to_owned());
        }
        problem
    }

    /// Returns what stands for a placeholder in a command on this machine, for a finding about an API.
    fn word(&self, word: &str, api: Option<Api>) -> Option<&str> {
        let status = self.status.as_ref()?;
        // Another one may be the mistake in the file that a command replaces.
        let is_api = |server: &&str| Address::parse(server).is_some_and(|one| one.is_api());
        match word {
            "<HARVESTER_API>" => {
                let mut findings = self.checked.findings.iter();
                let is_wrong = |one: &Finding| one.api() == api && WRONG.contains(&one.code);
                let server = status.credentials.harvester.server.as_deref();
                server.filter(|server| is_api(server) && !findings.any(is_wrong))
            }
            "<KUBECONFIG>" if api != Some(Api::Guest) => {
                let path = self.checked.kubeconfig.as_deref();
                path.and_then(Path::to_str)
                    .or_else(|| status.word(word, api))
            }
            _ => status.word(word, api),
        }
    }

    fn agent(&self, now: UtcDateTime) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let service = &self.service;
        match (&service.presence, &service.updated_at) {
            (Presence::Running(holder), Some(at)) => {
                let ago = relative(now, at);
                format!("{version}, active ({holder}), last change {ago}")
            }
            (Presence::Running(holder), None) => {
                format!("{version}, active ({holder}), no status that can be read")
            }
            (Presence::Unknown, _) => format!("{version}, it is unknown whether it is running"),
            (Presence::Absent, _) if service.is_invalid => format!("{version}, {IDLE}"),
            (Presence::Absent, _) => format!("{version}, not running"),
        }
    }
}

fn identity(status: &Status) -> String {
    let identity = &status.identity;
    if identity.vm.is_none() {
        return "VM unknown".to_owned();
    }
    let names = identity.names.iter();
    let (right, wrong): (Vec<_>, Vec<_>) = names.partition(|name| name.verdict.is_match());
    if wrong.is_empty() {
        let kinds: Vec<&str> = right.iter().map(|name| name.kind.as_str()).collect();
        let verb = if kinds.len() == 1 { "matches" } else { "match" };
        return format!("{} {verb} the VM", kinds.join(", "));
    }
    let wrong = wrong.iter().map(|name| {
        let (kind, state) = (name.kind.as_str(), name.verdict.as_str());
        format!("{kind} `{}` {state}", name.name)
    });
    wrong.collect::<Vec<_>>().join(", ")
}

fn placement(status: &Status) -> String {
    let Some(placement) = &status.placement else {
        return "host unknown".to_owned();
    };
    let (region, zone) = placement.topology("unknown");
    format!("host {}, region {region}, zone {zone}", placement.host)
}
