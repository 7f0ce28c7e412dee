// SPDX-License-Identifier: Apache-2.0
//! One line for each group: its observations, with or without a problem.

use super::View;
use crate::catalog::Group;
use crate::commands::doctor::facts::Examination;
use crate::commands::doctor::facts::pods::Component;
use crate::commands::doctor::judge::maintenance::outlook;
use crate::facts::Fact;
use crate::facts::names::ServiceAccount;
use crate::report::layout::Mark;
use crate::report::relative::{relative, span};
use crate::report::show::lifetime;
use crate::report::status::{CredentialStatus, Status};

const NOT_CHECKED: &str = "not checked";

impl View<'_> {
    /// Returns the observations of a group, in about one line.
    pub fn brief(&self, group: Group) -> String {
        match (group, self.status, self.examination) {
            (Group::HarvesterCredential, Some(status), _) => {
                self.credential(&status.credentials.harvester)
            }
            (Group::KubeletCredential, Some(status), _) => {
                self.credential(&status.credentials.kubelet)
            }
            (Group::Placement, Some(status), _) => placement(status),
            (Group::Versions, _, Some(_)) => {
                let parts = ["Harvester", "kubelet", "cloud provider", "CSI driver"];
                let versions = self.versions(&parts);
                versions.unwrap_or_else(|| "unknown".to_owned())
            }
            _ => self.summary(group),
        }
    }

    /// Returns all observations of a group.
    pub fn summary(&self, group: Group) -> String {
        if group == Group::Machine {
            return self.agent();
        }
        let Some(status) = self.status else {
            return NOT_CHECKED.to_owned();
        };
        match group {
            Group::Machine => self.agent(),
            Group::GuestAgent => {
                let agent = &status.qemu_guest_agent;
                match &agent.unit {
                    Some(unit) => format!("{} ({unit})", agent.state),
                    None => agent.state.clone(),
                }
            }
            Group::HarvesterCredential => self.kubeconfig(&status.credentials.harvester),
            Group::HarvesterApi => self.server(&status.credentials.harvester),
            Group::Identity => identity(status),
            Group::Placement => {
                let placed = status.placement.as_ref();
                let source = placed.and_then(|placement| placement.topology_source.as_deref());
                let instance = self.examination.map(|seen| &seen.conflicts.instance);
                let next = instance.and_then(Fact::known).map(outlook);
                let next = next.map_or_else(String::new, |next| format!("; {next}"));
                format!(
                    "{} ({}){next}",
                    placement(status),
                    source.unwrap_or("no source")
                )
            }
            Group::KubeletCredential => self.kubeconfig(&status.credentials.kubelet),
            Group::Node => match &status.labels.node {
                Some(node) => format!("{node}, labels {}", status.labels.state),
                None => "unknown".to_owned(),
            },
            Group::Versions => {
                let unknown = self.examination.map_or(NOT_CHECKED, |_| "unknown");
                self.versions(&[]).unwrap_or_else(|| unknown.to_owned())
            }
            Group::Image => self.image().to_owned(),
        }
    }

    /// Returns the versions of these components, or of all; `None` if none is known.
    pub(super) fn versions(&self, parts: &[&str]) -> Option<String> {
        let versions = known_versions(self.examination?, parts).join(", ");
        (!versions.is_empty()).then_some(versions)
    }

    /// Returns the name of the Node, or the hostname if there is no Node.
    pub(super) fn node_name(&self) -> String {
        let Some(status) = self.status else {
            return "this node".to_owned();
        };
        let mut names = status.identity.names.iter();
        let hostname = || names.next().map(|name| name.name.clone());
        let name = status.labels.node.clone().or_else(hostname);
        name.unwrap_or_else(|| "this node".to_owned())
    }

    /// Returns the VM, its host, and the state of the labels; `None` if the VM is unknown.
    pub(super) fn place(&self) -> Option<String> {
        let status = self.status?;
        let vm = status.identity.vm.as_ref()?;
        let name = match &vm.namespace {
            Some(namespace) => format!("{namespace}/{}", vm.name),
            None => vm.name.clone(),
        };
        let host = match &status.placement {
            Some(_) => placement(status),
            None => "an unknown host".to_owned(),
        };
        let labels = match status.labels.state.as_str() {
            "synced" => "labels in sync".to_owned(),
            state => format!("labels {state}"),
        };
        Some(format!("VM {name} on {host}, {labels}"))
    }

    pub(super) fn image(&self) -> &'static str {
        let mut sections = self.diagnosis.sections.iter();
        let section = sections.find(|section| section.group == Group::Image);
        match section.map(|section| self.state(section)) {
            Some(Mark::Ok) => "no machine-specific state from the image",
            Some(Mark::Skipped) | None => "not everything was checked",
            Some(Mark::Found(_)) => "has problems",
        }
    }

    fn agent(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        match (&self.service.holder, &self.service.updated_at) {
            (Some(holder), Some(at)) => {
                let ago = relative(self.now, at);
                format!("{version}, active ({holder}), last change {ago}")
            }
            (Some(holder), None) => format!("{version}, active ({holder}), no status yet"),
            (None, _) if self.service.is_unknown => {
                format!("{version}, only root can see whether it runs")
            }
            (None, _) => format!("{version}, not running"),
        }
    }

    fn credential(&self, credential: &CredentialStatus) -> String {
        if credential.kubeconfig.is_none() {
            return "none in use".to_owned();
        }
        let user = credential.user.as_deref().unwrap_or("user unknown");
        let user = match ServiceAccount::of_user(user) {
            Some(account) => format!("{}/{}", account.namespace, account.name),
            None => user.to_owned(),
        };
        format!("{user}, {}", lifetime(credential, self.now))
    }

    fn kubeconfig(&self, credential: &CredentialStatus) -> String {
        let text = self.credential(credential);
        match &credential.kubeconfig {
            Some(kubeconfig) => format!("{text} ({kubeconfig})"),
            None => text,
        }
    }

    fn server(&self, credential: &CredentialStatus) -> String {
        let Some(server) = &credential.server else {
            return NOT_CHECKED.to_owned();
        };
        let shown = self.examination.map(|all| &all.servers.harvester);
        let shown = shown.and_then(|shown| shown.known());
        let certificate = shown.and_then(|shown| shown.certificate.as_ref());
        match certificate {
            Some(certificate) => {
                let left = certificate.ends.saturating_sub(self.now.unix_timestamp());
                let verb = if left > 0 {
                    "expires in"
                } else {
                    "expired since"
                };
                format!("{server}, certificate {verb} {}", span(left))
            }
            None => server.clone(),
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
    let wrong: Vec<String> = wrong
        .iter()
        .map(|name| {
            format!(
                "{} `{}` {}",
                name.kind.as_str(),
                name.name,
                name.verdict.name()
            )
        })
        .collect();
    if wrong.is_empty() {
        let kinds: Vec<&str> = right.iter().map(|name| name.kind.as_str()).collect();
        format!("{} match the VM", kinds.join(", "))
    } else {
        wrong.join(", ")
    }
}

fn placement(status: &Status) -> String {
    let Some(placement) = &status.placement else {
        return "host unknown".to_owned();
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let (region, zone) = (text(&placement.region), text(&placement.zone));
    format!("host {}, region {region}, zone {zone}", placement.host)
}

fn known_versions(examination: &Examination, parts: &[&str]) -> Vec<String> {
    let (versions, pods) = (&examination.versions, &examination.pods);
    let component = |seen: &Fact<Component>| seen.clone().map(|component| component.release);
    let known = [
        ("Harvester", versions.harvester.clone()),
        ("KubeVirt", versions.kubevirt.clone()),
        ("host", versions.host_kubernetes.clone()),
        ("kubelet", examination.node.kubelet.clone()),
        ("cluster", versions.guest_kubernetes.clone()),
        ("cloud provider", component(&pods.cloud_provider)),
        ("CSI driver", component(&pods.csi_driver)),
    ];
    let is_shown = |name: &str| parts.is_empty() || parts.contains(&name);
    let known = known.iter().filter(|(name, _)| is_shown(name));
    let known = known.filter_map(|(name, seen)| Some(format!("{name} {}", seen.known()?)));
    known.collect()
}
