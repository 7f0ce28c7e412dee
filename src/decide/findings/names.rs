// SPDX-License-Identifier: Apache-2.0
//! Findings for the identity of this machine, and for names that differ from its VM.

use crate::catalog::{Code, CommandPlace, Finding};
use crate::decide::guest_agent::GuestAgentHealth;
use crate::decide::identity::{EvidenceKind, Identity, JudgedName, NameKind, OwnVm};
use crate::decide::name_match::Verdict;
use crate::facts::names::{VmName, short};
use crate::facts::observation::Observation;
use crate::facts::vmi::Vmi;
use crate::sys::escape::shell_word;

/// Adds findings for names of this machine that differ from its VM.
pub(super) fn names(identity: &Identity, observation: &Observation, findings: &mut Vec<Finding>) {
    if let Some(vm) = &identity.expected {
        let differing = |judged: &&JudgedName| {
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
                    judged.verdict.name()
                )
            })
            .collect();
        if !texts.is_empty() {
            let code = if identity.verdict == Verdict::AnotherVm {
                Code::NameOfAnotherVm
            } else {
                Code::HostnameDiffers
            };
            let finding = Finding::new(code, format!("VM `{vm}`, {}", texts.join(", ")));
            let is_free = code == Code::HostnameDiffers
                && lasting_name(observation, identity) == Some(vm.as_str());
            let is_node_right = identity
                .names
                .iter()
                .any(|judged| judged.kind == NameKind::NodeName && judged.verdict.is_match());
            findings.push(match is_free {
                // Whatever the hostname is, this Node must stay.
                _ if is_node_right => finding
                    .with_remedy(format!(
                        "The Node name matches the VM; only the hostname differs. Set the hostname, and `hostname:` in the cloud-init user \
                         data, to `{vm}`. Do not delete the Node."
                    ))
                    .and_command(CommandPlace::Vm, set_hostname(vm.as_str())),
                true => finding.and_command(CommandPlace::Vm, set_hostname(vm.as_str())),
                false => finding,
            });
        }
    }
    let machine = &observation.machine;
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
        findings.push(match lasting_name(observation, identity) {
            Some(name) => finding.and_command(CommandPlace::Vm, set_hostname(name)),
            None => finding,
        });
    }
}

/// Returns a finding if Harvester's cloud provider manages the Node and cannot find its VM: by the Node name, or by the hostname that
/// the guest agent reports. It then calls the Node one "that does not exist in the cloud provider" (harvester/harvester#11683).
pub(super) fn deletion(
    identity: &Identity,
    observation: &Observation,
    agent: GuestAgentHealth,
) -> Option<Finding> {
    // Proven: the name that the platform gave to an unknown VM may not be the VM's.
    let vm = identity.vm_name()?;
    let is_managed = observation.node.known()?.vm_uid().is_some();
    let is_other = |judged: &&JudgedName| {
        judged.kind == NameKind::NodeName
            && judged.verdict != Verdict::Unknown
            && judged.verdict != Verdict::AnotherVm
            && judged.name != vm.as_str()
    };
    let name = identity.names.iter().find(is_other)?;
    (is_managed && agent.is_silent()).then(|| {
        let text = format!(
            "Node `{}`, VM `{vm}`, qemu-guest-agent: {}",
            name.name.escape_debug(),
            agent.name()
        );
        Finding::new(Code::NodeMayBeDeleted, text)
    })
}

/// Returns the host name that this machine should have: the name of its registered Node, or else the name of its VM. With another
/// host name, the kubelet would register a second Node.
fn lasting_name<'a>(observation: &'a Observation, identity: &'a Identity) -> Option<&'a str> {
    let node = observation
        .kubelet
        .known()
        .map(|kubelet| kubelet.node_name.as_str());
    node.or_else(|| identity.expected.as_ref().map(VmName::as_str))
}

fn set_hostname(name: &str) -> String {
    format!("hostnamectl set-hostname {}", shell_word(name))
}

/// Reports whether the instance of this VM does not exist any more, although this VM runs: another cluster or namespace runs it
/// (decentralized live migration of KubeVirt).
fn is_gone(last: &Vmi, observation: &Observation) -> bool {
    let namespace = observation.harvester.known().map(|known| &known.namespace);
    let candidates = observation.candidates.known();
    let exists = |vmi: &Vmi| vmi.name == last.name;
    namespace == Some(&last.namespace)
        && candidates.is_some_and(|candidates| !candidates.vmis.iter().any(exists))
}

/// Adds findings if this machine does not match exactly one VM.
///
/// `last` is the VM that was found before.
pub(super) fn identity(
    identity: &Identity,
    observation: &Observation,
    last: Option<&Vmi>,
    findings: &mut Vec<Finding>,
) {
    match &identity.vm {
        OwnVm::Ambiguous(vms) => {
            let text = format!("{} match by {}", vms.join(" and "), identity.proof());
            findings.push(Finding::new(Code::IdentityAmbiguous, text));
        }
        OwnVm::NotFound(_) if let Some(last) = last.filter(|last| is_gone(last, observation)) => {
            let text = format!("VM {} was here until now", last.reference());
            findings.push(Finding::new(Code::VmMovedAway, text));
        }
        OwnVm::NotFound(text) => {
            let details = |agrees: bool| -> Vec<&str> {
                let evidence = identity.evidence.iter();
                evidence
                    .filter(|item| item.agrees == agrees)
                    .map(|item| item.detail.as_str())
                    .collect()
            };
            let (speaks, against) = (details(true), details(false));
            let mut text = text.clone();
            if !against.is_empty() {
                text = format!("{text}: {}", against.join("; "));
            }
            if !speaks.is_empty() && !against.is_empty() {
                text = format!("{text}; although {}", speaks.join("; "));
            }
            findings.push(Finding::new(Code::VmNotFound, text));
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
