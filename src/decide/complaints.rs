// SPDX-License-Identifier: Apache-2.0
//! What is wrong, as findings of the catalogue.

mod remark;

use std::path::Path;

use super::access;
use super::guest_agent;
use super::identity::{EvidenceKind, Identity, NameKind, OwnVm};
use super::labels::{LabelPlan, Left, LeftReason};
use super::placement::{Outcome, Placement};
use super::registration;
use super::rival::StandDown;
use super::sync::Sync;
use super::verdict::Verdict;
use super::{Memory, Now, Seen};
use crate::config::Settings;
use crate::escape::shell_word;
use crate::facts::names::{ServiceAccount, short};
use crate::facts::placement::Source;
use crate::facts::topology::TWINS;
use crate::facts::who::Who;
use crate::facts::{self, Why, WhyKind};
use crate::few;
use crate::findings::{Code, Finding, Group, Place, without_consequences};

/// Days before its end at which a credential is complained about; the text names the nearest, so that it changes rarely.
pub(super) const EXPIRY_STEPS_DAYS: [i64; 4] = [1, 7, 14, 30];

/// All findings, worst first.
pub fn raise(
    settings: &Settings,
    seen: Seen<'_>,
    labels: &LabelPlan,
    sync: &Sync,
    stand_down: Option<&StandDown>,
    memory: &Memory,
    now: Now,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    credentials(seen, now, &mut findings);
    reads(seen.who, &mut findings);
    let mut about_names = Vec::new();
    names(seen.identity, seen.who, &mut about_names);
    about_names.retain(|finding| memory.may_complain(finding.code));
    findings.append(&mut about_names);
    identity(seen.identity, &mut findings);
    placement(seen, sync, &mut findings);
    for left in &labels.left {
        findings.extend(label_left(left));
    }
    if let Some(stand) = stand_down {
        let text = format!(
            "`{}` changed {} back 3 times in 10 minutes",
            stand.rival.escape_debug(),
            stand.key
        );
        findings.push(Finding::new(Code::LabelFight, text));
    }
    if let Some(refusal) = &memory.refusal {
        findings.push(Finding::new(Code::NodeWriteFailed, refusal.text.clone()));
    }
    static_labels(settings, seen, &mut findings);
    let unwritten = memory.unwritten_file.as_deref();
    let files = &seen.who.label_files;
    findings.extend(registration::findings(settings, files, unwritten));
    let agent = &seen.who.guest_agent;
    let health = guest_agent::judge(agent, &memory.guest_agent, now.uptime);
    findings.extend(guest_agent::findings(agent, health));
    findings.extend(remark::findings(seen.who));
    let mut findings = without_consequences(&findings);
    few::sort_by_key(&mut findings, |finding| {
        std::cmp::Reverse(finding.code.entry().severity)
    });
    findings.dedup();
    findings
}

fn credentials(seen: Seen<'_>, now: Now, findings: &mut Vec<Finding>) {
    let who = seen.who;
    if let facts::Seen::Failed(why) = &who.harvester {
        let code = match why.kind {
            WhyKind::Missing if needs_no_credential(seen) => None,
            WhyKind::Missing => Some(Code::HarvesterCredentialMissing),
            WhyKind::OwnApi => Some(Code::HarvesterIsOwnApi),
            _ => Some(Code::HarvesterCredentialInvalid),
        };
        findings.extend(code.map(|code| Finding::new(code, why.text.clone())));
    }
    if let facts::Seen::Failed(why) = &who.kubelet {
        let code = match why.kind {
            WhyKind::Missing => Code::KubeletCredentialMissing,
            _ => Code::KubeletCredentialInvalid,
        };
        findings.push(Finding::new(code, why.text.clone()));
    }
    let ends = [
        (
            "Harvester token",
            Group::HarvesterCredential,
            who.harvester.known().map(|h| (&h.kubeconfig, h.expires)),
        ),
        (
            "kubelet certificate",
            Group::KubeletCredential,
            who.kubelet.known().map(|k| (&k.kubeconfig, k.expires)),
        ),
    ];
    for (what, group, credential) in ends {
        let Some((kubeconfig, Some(end))) = credential else {
            continue;
        };
        let left = end.saturating_sub(now.wall.unix_timestamp());
        let date = time::UtcDateTime::from_unix_timestamp(end)
            .map(super::rfc3339)
            .unwrap_or_default();
        let file = kubeconfig.display();
        if left <= 0 {
            let text = format!("the {what} of {file} ended at {date}");
            findings.push(Finding::new(Code::CredentialExpires, text).about(group));
        } else if let Some(days) = EXPIRY_STEPS_DAYS
            .into_iter()
            .find(|days| left < days * 86_400)
        {
            let text = format!("the {what} of {file} ends at {date}, in less than {days} days");
            findings.push(Finding::new(Code::CredentialExpires, text).about(group));
        }
    }
}

/// Whether the host tells its name and our configuration its place, as it is meant to be without a credential.
fn needs_no_credential(seen: Seen<'_>) -> bool {
    let known = seen
        .placement
        .and_then(|placement| placement.known.as_ref());
    known.is_some_and(|known| known.source == Source::HostsTable)
}

/// Failed answers of the two APIs.
fn reads(who: &Who, findings: &mut Vec<Finding>) {
    if let (facts::Seen::Known(_), Some(why)) = (&who.harvester, who.candidates.why()) {
        let code = match why.kind {
            WhyKind::Unreachable => Some(Code::HarvesterUnreachable),
            WhyKind::Credential => Some(Code::HarvesterUnauthorized),
            WhyKind::Forbidden => Some(Code::HarvesterForbidden),
            WhyKind::Tls => Some(Code::HarvesterTls),
            WhyKind::Refused | WhyKind::Malformed => Some(Code::HarvesterRefused),
            WhyKind::NotAsked | WhyKind::Missing | WhyKind::OwnApi => None,
        };
        let finding = code.map(|code| Finding::new(code, why.text.clone()));
        findings.extend(finding.map(|finding| match finding.code {
            Code::HarvesterForbidden => finding.with_remedy(vmi_rbac(who)),
            _ => finding,
        }));
    }
    // What was not needed was not asked.
    if let Some(why) = who
        .host_metrics
        .why()
        .filter(|why| why.kind != WhyKind::NotAsked)
    {
        findings.push(Finding::new(
            Code::DownwardMetricsUnusable,
            why.text.clone(),
        ));
    }
    if let (Some(kubelet), facts::Seen::Absent) = (who.kubelet.known(), &who.node) {
        findings.push(Finding::new(
            Code::NodeMissing,
            format!("no Node `{}` at {}", kubelet.node_name, kubelet.server),
        ));
    }
    if let (facts::Seen::Known(_), Some(Why { kind, text, .. })) = (&who.kubelet, who.node.why()) {
        let code = match kind {
            WhyKind::Unreachable => Some(Code::GuestApiUnreachable),
            WhyKind::Credential => Some(Code::GuestApiUnauthorized),
            WhyKind::Forbidden => Some(Code::GuestApiForbidden),
            WhyKind::Tls => Some(Code::GuestApiTls),
            WhyKind::Refused | WhyKind::Malformed => Some(Code::GuestApiRefused),
            WhyKind::NotAsked | WhyKind::Missing | WhyKind::OwnApi => None,
        };
        findings.extend(code.map(|code| Finding::new(code, text.clone())));
    }
}

fn identity(identity: &Identity, findings: &mut Vec<Finding>) {
    match &identity.vm {
        OwnVm::Ambiguous(vms) => {
            let text = format!("{} fit by {}", vms.join(" and "), identity.proof());
            findings.push(Finding::new(Code::IdentityAmbiguous, text));
        }
        OwnVm::NotFound(text) => {
            let against: Vec<&str> = identity
                .evidence
                .iter()
                .filter(|item| !item.agrees)
                .map(|item| item.detail.as_str())
                .collect();
            let text = if against.is_empty() {
                text.clone()
            } else {
                format!("{text}: {}", against.join("; "))
            };
            findings.push(Finding::new(Code::IdentityNotFound, text));
        }
        OwnVm::Identified(_)
        | OwnVm::Remembered(..)
        | OwnVm::ProvenOffline(_)
        | OwnVm::Unknown(_) => {}
    }
    let provider = identity
        .evidence
        .iter()
        .find(|item| item.kind == EvidenceKind::ProviderId && !item.agrees);
    if let (Some(item), OwnVm::Identified(_)) = (provider, &identity.vm) {
        findings.push(Finding::new(Code::ProviderIdDiffers, item.detail.clone()));
    }
}

/// Names of this machine that are not its VM's.
fn names(identity: &Identity, who: &Who, findings: &mut Vec<Finding>) {
    if let Some(vm) = &identity.expected {
        let differing = |judged: &&super::identity::JudgedName| {
            judged.kind != NameKind::StaticHostname
                && !judged.verdict.is_match()
                && judged.verdict != Verdict::Unknown
        };
        let texts: Vec<String> = identity
            .names
            .iter()
            .filter(differing)
            .map(|judged| {
                format!(
                    "{} `{}` ({})",
                    judged.kind.as_str(),
                    judged.name.escape_debug(),
                    judged.verdict.as_str()
                )
            })
            .collect();
        if !texts.is_empty() {
            let code = if identity.verdict == Verdict::AnotherVm {
                Code::HostnameOfAnotherVm
            } else {
                Code::HostnameDiffers
            };
            let finding = Finding::new(code, format!("VM `{vm}`, {}", texts.join(", ")));
            let is_free =
                code == Code::HostnameDiffers && lasting_name(who, identity) == Some(vm.as_str());
            findings.push(match is_free {
                true => finding.and_command(Place::Vm, set_hostname(vm.as_str())),
                false => finding,
            });
        }
    }
    let machine = &who.machine;
    if let (Some(kernel), Some(fixed)) = (
        machine.kernel_hostname.known(),
        machine.static_hostname.known(),
    ) && short(kernel) != short(fixed)
    {
        let text = format!(
            "kernel `{}`, /etc/hostname `{}`",
            kernel.escape_debug(),
            fixed.escape_debug()
        );
        let finding = Finding::new(Code::StaticHostnameDiffers, text);
        findings.push(match lasting_name(who, identity) {
            Some(name) => finding.and_command(Place::Vm, set_hostname(name)),
            None => finding,
        });
    }
}

/// The host name that this machine should have: the one under which its Node is registered, or else that of its VM. Another
/// one would make a second Node.
fn lasting_name<'a>(who: &'a Who, identity: &'a Identity) -> Option<&'a str> {
    let node = who
        .kubelet
        .known()
        .map(|kubelet| kubelet.node_name.as_str());
    node.or_else(|| identity.expected.as_ref().map(|vm| vm.as_str()))
}

fn set_hostname(name: &str) -> String {
    format!("hostnamectl set-hostname {}", shell_word(name))
}

fn placement(seen: Seen<'_>, sync: &Sync, findings: &mut Vec<Finding>) {
    let Some(placement) = seen.placement else {
        if seen.identity.vmi().is_some() {
            findings.push(Finding::new(
                Code::TopologyUnknown,
                "status.nodeName of the VM is empty: it runs nowhere",
            ));
        }
        return;
    };
    let tried = |wanted| {
        placement
            .tried
            .iter()
            .find(|tried| tried.outcome == wanted)
            .map(|tried| tried.detail.clone())
    };
    match sync {
        Sync::Illegal => {
            findings.push(Finding::new(
                Code::LabelValueIllegal,
                tried(Outcome::Illegal).unwrap_or_default(),
            ));
        }
        Sync::NoSource | Sync::Stale if placement.trouble.is_some() => {
            let text = placement
                .trouble
                .as_ref()
                .map(|why| why.text.clone())
                .unwrap_or_default();
            findings.push(Finding::new(Code::HarvesterUnreachable, text));
        }
        Sync::Stale => findings.push(Finding::new(
            Code::AnnotationsStale,
            tried(Outcome::Stale).unwrap_or_default(),
        )),
        Sync::NoSource => {
            let finding = Finding::new(Code::TopologyUnknown, sources(placement));
            findings.push(finding.with_remedy(host_rbac(seen.who)));
        }
        Sync::HostWithoutTopology => {
            findings.push(Finding::new(
                Code::HostWithoutTopology,
                format!("host {}", placement.host),
            ));
        }
        _ => {}
    }
}

/// What each source said, in one line.
pub fn sources(placement: &Placement) -> String {
    let texts: Vec<String> = placement
        .tried
        .iter()
        .map(|tried| format!("{}: {}", tried.source, tried.detail))
        .collect();
    format!("host {}; {}", placement.host, texts.join("; "))
}

/// The service account of the Harvester credential, where its token tells.
fn service_account(who: &Who) -> Option<ServiceAccount> {
    ServiceAccount::of_user(who.harvester.known()?.account.as_deref()?)
}

/// What lets our credential read its host. The commands make what `rbac` prints for it, so that either can follow the other.
pub fn host_rbac(who: &Who) -> String {
    let label = "label the VM harvesterhci.io/creator=docker-machine-driver-harvester and restart it, so that Harvester \
                 annotates it";
    let Some(account) = service_account(who) else {
        return format!("{}; or {label}", print_rbac());
    };
    let name = access::name(&account);
    format!(
        "{}; or only what reads hosts: kubectl create clusterrole {name} --verb=get --resource=nodes; \
         kubectl create clusterrolebinding {name} --clusterrole={name} --serviceaccount={account}; or {label}",
        print_rbac()
    )
}

/// What lets our credential read its VM.
pub fn vmi_rbac(who: &Who) -> String {
    let (Some(account), Some(harvester)) = (service_account(who), who.harvester.known()) else {
        return print_rbac();
    };
    let (name, namespace) = (access::name(&account), &harvester.namespace);
    format!(
        "{}; or only what reads VMs: kubectl -n {namespace} create role {name} --verb=get,list,watch \
         --resource=virtualmachineinstances.kubevirt.io; kubectl -n {namespace} create rolebinding {name} --role={name} \
         --serviceaccount={account}",
        print_rbac()
    )
}

fn print_rbac() -> String {
    "on Harvester, as an administrator, pass to `kubectl apply -f -` what `harvester-node-agent rbac` prints on this machine"
        .to_owned()
}

fn label_left(left: &Left) -> Option<Finding> {
    let value = |value: &Option<String>| {
        value
            .as_deref()
            .unwrap_or("none")
            .escape_debug()
            .to_string()
    };
    let text = format!(
        "{}: {} on the Node, {} on the host",
        left.key,
        value(&left.present),
        value(&left.wanted)
    );
    let code = match left.reason {
        LeftReason::Held | LeftReason::ReportOnly => Code::LabelHeld,
        LeftReason::Foreign => Code::LabelForeign,
        LeftReason::HostHasNone | LeftReason::HostNotRead => Code::TopologyPartial,
        // While no source answers, the missing answer is the finding.
        LeftReason::WouldMix if left.wanted.is_none() => return None,
        LeftReason::WouldMix => Code::TopologyPartial,
    };
    Some(Finding::new(code, text))
}

/// Labels that the distribution sets at each start of the kubelet, where they are not what the host says. Our own file says what
/// the Node has.
fn static_labels(settings: &Settings, seen: Seen<'_>, findings: &mut Vec<Finding>) {
    let is_ours = |origin: &Path| {
        let mut files = seen.who.label_files.iter();
        files.any(|file| file.is_ours() && file.kind.path() == origin)
    };
    let labels = seen.who.distributions.iter();
    let labels = labels.flat_map(|distribution| &distribution.node_labels);
    for label in labels.filter(|label| !is_ours(&label.origin)) {
        let topology = TWINS
            .iter()
            .find(|(key, twin)| label.key == *key || label.key == *twin);
        let is_host = settings
            .topology
            .host_label
            .as_ref()
            .is_some_and(|key| key.as_str() == label.key);
        let wanted = match (topology, seen.placement) {
            (Some((key, _)), Some(placement)) => placement
                .known
                .as_ref()
                .and_then(|known| known.topology.value(key))
                .map(ToString::to_string),
            (None, Some(placement)) if is_host => Some(placement.host.to_string()),
            (Some(_) | None, _) => continue,
        };
        if wanted.as_deref() != Some(label.value.as_str()) {
            let file = label.origin.display();
            let text = format!("{}={} in {file}", label.key, label.value.escape_debug());
            findings.push(Finding::new(Code::StaticNodeLabel, text));
        }
    }
}
