// SPDX-License-Identifier: Apache-2.0
//! Which VM this machine is, and names of it that are not that VM's.

use crate::catalogue::{Code, CommandPlace, Finding};
use crate::decide::identity::{EvidenceKind, Identity, JudgedName, NameKind, OwnVm};
use crate::decide::name_match::Verdict;
use crate::facts::names::{VmName, short};
use crate::facts::observation::Observation;
use crate::sys::escape::shell_word;

/// Names of this machine that are not its VM's.
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
            findings.push(match is_free {
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

/// The host name that this machine should have: the one under which its Node is registered, or else that of its VM. Another
/// one would make a second Node.
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

/// What speaks against there being exactly one VM that this machine is.
pub(super) fn identity(identity: &Identity, findings: &mut Vec<Finding>) {
    match &identity.vm {
        OwnVm::Ambiguous(vms) => {
            let text = format!("{} match by {}", vms.join(" and "), identity.proof());
            findings.push(Finding::new(Code::IdentityAmbiguous, text));
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
