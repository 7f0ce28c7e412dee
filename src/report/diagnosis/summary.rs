// SPDX-License-Identifier: Apache-2.0
//! One line for each group: what was seen there, whether or not something is wrong with it.

use super::{State, View};
use crate::facts::Seen;
use crate::facts::examination::Examination;
use crate::facts::examination::pods::Component;
use crate::findings::Group;
use crate::report::status::{CredentialStatus, Status};

impl View<'_> {
    /// What was seen of a group; nothing where it was not looked at.
    pub fn summary(&self, group: Group) -> String {
        if group == Group::Machine {
            return self.machine();
        }
        let Some(status) = self.status else {
            return "not looked at".to_owned();
        };
        match group {
            Group::Machine => self.machine(),
            Group::GuestAgent => {
                let agent = &status.guest_agent;
                let unit = agent.unit.as_deref().unwrap_or("no unit is known");
                format!("{} ({unit})", agent.health)
            }
            Group::HarvesterCredential => credential(&status.credentials.harvester),
            Group::HarvesterApi => server(&status.credentials.harvester),
            Group::Identity => identity(status),
            Group::Placement => placement(status),
            Group::KubeletCredential => credential(&status.credentials.kubelet),
            Group::Node => match &status.labels.node {
                Some(node) => format!("{node}, labels: {}", status.labels.state),
                None => "unknown".to_owned(),
            },
            Group::Versions => self
                .examination
                .map_or_else(|| "not looked at".to_owned(), versions),
            Group::Image => self.image().to_owned(),
        }
    }

    pub(super) fn image(&self) -> &'static str {
        let mut sections = self.diagnosis.sections.iter();
        let section = sections.find(|section| section.group == Group::Image);
        match section.map(|section| self.state(section)) {
            Some(State::Well) => "nothing of another machine was found",
            Some(State::Unseen) | None => "not all of it was looked at",
            Some(State::Found(_)) => "not as it should be",
        }
    }

    fn machine(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        match (&self.service.holder, &self.service.updated_at) {
            (Some(holder), Some(at)) => {
                format!("harvester-node-agent {version} runs as {holder}; last change {at}")
            }
            (Some(holder), None) => {
                format!("harvester-node-agent {version} runs as {holder} and has not looked yet")
            }
            (None, _) if self.service.is_unknown => {
                format!("harvester-node-agent {version}; only root can see whether it runs")
            }
            (None, _) => format!("harvester-node-agent {version}, not running"),
        }
    }
}

fn credential(credential: &CredentialStatus) -> String {
    let Some(kubeconfig) = &credential.kubeconfig else {
        return "none in use".to_owned();
    };
    let user = credential
        .user
        .as_deref()
        .unwrap_or("a user that it does not tell");
    let end = match &credential.expires {
        Some(date) => format!(", ends {date}"),
        None => String::new(),
    };
    format!("{kubeconfig}, for {user}{end}")
}

fn server(credential: &CredentialStatus) -> String {
    match &credential.server {
        Some(server) => server.clone(),
        None => "not asked".to_owned(),
    }
}

fn identity(status: &Status) -> String {
    let identity = &status.identity;
    let Some(vm) = &identity.vm else {
        return "the VM is not known".to_owned();
    };
    let name = match &vm.namespace {
        Some(namespace) => format!("VM {namespace}/{}", vm.name),
        None => format!("VM {}", vm.name),
    };
    let proof = identity.evidence.iter().filter(|item| item.agrees);
    let proof: Vec<&str> = proof.map(|item| item.kind.as_str()).collect();
    format!(
        "{name}, by {}; names: {}",
        proof.join(", "),
        identity.verdict
    )
}

fn placement(status: &Status) -> String {
    let Some(placement) = &status.placement else {
        return "the host is not known".to_owned();
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    format!(
        "host {}, region {}, zone {}",
        placement.host,
        text(&placement.region),
        text(&placement.zone)
    )
}

fn versions(examination: &Examination) -> String {
    let (versions, pods) = (&examination.versions, &examination.pods);
    let component = |seen: &Seen<Component>| seen.clone().map(|component| component.release);
    let known = [
        ("Harvester", versions.harvester.clone()),
        ("KubeVirt", versions.kubevirt.clone()),
        ("host", versions.host_kubernetes.clone()),
        ("kubelet", examination.node.kubelet.clone()),
        ("cluster", versions.guest_kubernetes.clone()),
        ("cloud provider", component(&pods.cloud_provider)),
        ("CSI driver", component(&pods.csi_driver)),
    ];
    let known = known.into_iter().filter_map(|(name, seen)| {
        let version = seen.known()?;
        Some(format!("{name} {version}"))
    });
    let known: Vec<String> = known.collect();
    if known.is_empty() {
        "unknown".to_owned()
    } else {
        known.join(", ")
    }
}
