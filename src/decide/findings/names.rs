// SPDX-License-Identifier: Apache-2.0
//! Findings for the identity of this machine, and for names that differ from its VM.

use crate::catalog::{
    Code, CommandPlace, Finding, FixCommand, Flag, REJOIN, REJOIN_COMMANDS, REJOIN_KUBEADM,
    REJOIN_SERVERS,
};
use crate::decide::guest_agent::GuestAgentHealth;
use crate::decide::identity::{EvidenceKind, Identity, JudgedName, OwnVm};
use crate::decide::name_match::Verdict;
use crate::decide::node_ownership::is_same_uuid;
use crate::facts::names::{NameKind, VmName, is_hostname_template, is_made_from, short};
use crate::facts::observation::{Coverage, Observation};
use crate::facts::vmi::Vmi;
use crate::sys::escape::shell_word;

/// Adds findings for names of this machine that differ from its VM.
pub(super) fn names(identity: &Identity, observation: &Observation, findings: &mut Vec<Finding>) {
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
            let name = judged.name.escape_debug();
            let verdict = judged.verdict.as_str();
            format!("{} `{name}` ({verdict})", judged.kind.as_str())
        })
        .collect();
    if !texts.is_empty() {
        let seen = format!("{}, {}", identity.reference(), texts.join(", "));
        findings.push(differs(identity, observation, seen));
    }
    let machine = &observation.machine;
    if let (Some(kernel), Some(fixed)) = (
        machine.kernel_hostname.known(),
        machine.static_hostname.known(),
    ) && short(kernel) != short(fixed)
        && !is_made_from(kernel, fixed)
    {
        let text = format!(
            "kernel `{}`, /etc/hostname `{}`",
            kernel.escape_debug(),
            fixed.escape_debug()
        );
        let finding = Finding::new(Code::StaticHostnameDiffers, text);
        // With another hostname than the name of a registered Node, the kubelet would register a second one.
        let node = observation.kubelet.known();
        let node = node.map(|kubelet| kubelet.node_name.as_str());
        findings.push(match node.or(identity.expected.as_ref().map(VmName::as_str)) {
            _ if is_hostname_template(fixed) => finding.with_remedy(
                "/etc/hostname is a template (hostname(5)), which this systemd does not support, or another program set the hostname. Do \
                 not replace the template; set `node-name:` in the RKE2/K3s configuration if the Node must keep its name.",
            ),
            Some(name) => set_hostname(finding, observation, name),
            None => finding,
        });
    }
}

/// Returns the finding for names that differ from the VM, with the fix for this case: a Node is only ever deleted if its own name is
/// wrong and was not chosen.
fn differs(identity: &Identity, observation: &Observation, seen: String) -> Finding {
    let code = identity.verdict.code();
    let code = code.filter(|code| code.is(Flag::OfNames));
    let code = code.unwrap_or(Code::HostnameDiffers);
    let finding = Finding::new(code, seen);
    if code != Code::HostnameDiffers {
        return finding;
    }
    let vm = identity.expected.as_ref().map_or("", VmName::as_str);
    let is_registered = observation.kubelet.known().is_some();
    let node = identity.node_name();
    let right = match node.map(|judged| (judged.verdict, judged.name.as_str())) {
        Some((verdict, _)) if verdict.is_match() => Some(("matches the VM", vm)),
        Some((Verdict::ConfiguredOverride, name)) => Some(("is configured", name)),
        _ => None,
    };
    if let Some((how, name)) = right {
        let steps = vec![format!(
            "The Node name {how}; only the hostname differs. Set the hostname, and `hostname:` in the cloud-init user data, to `{name}`. \
             Do not delete the Node."
        )];
        return set_hostname(finding.with_steps(steps), observation, name);
    }
    if identity.vm_name().is_none() {
        return finding.with_remedy(
            "Find out with `harvester-node-agent whoami` why the VM is not identified. Then this finding names the hostname to set.",
        );
    }
    match identity.node_verdict() {
        Verdict::PlatformHostname | Verdict::RancherTruncated | Verdict::NodeIdSuffix if is_registered => {
            finding.with_steps(vec![
                "KubeVirt, Rancher or `with-node-id` made this name from the VM name, so a Node that is deleted registers with it again. \
                 Keep qemu-guest-agent running: cloud provider 0.2.1 and later finds the VM through it."
                    .to_owned(),
                "For new VMs, use VM names without dots that fit into the hostname, or set `node-name:` to the VM name before the Node \
                 registers."
                    .to_owned(),
            ])
        }
        Verdict::Fqdn => fqdn(finding, observation, vm, is_registered),
        _ if !is_registered => set_hostname(
            finding.with_steps(vec![
                "Find where the name comes from: `hostname:` in the VM's cloud-init user data, DHCP, or the image.".to_owned(),
                format!("Set the hostname to `{vm}` before the kubelet starts: a Node keeps its name."),
            ]),
            observation,
            vm,
        ),
        Verdict::Differs => replacing(finding, observation, &RENAME, &[]),
        _ => finding,
    }
}

/// The steps that replace a Node whose name is wrong.
const RENAME: [&str; 3] = [
    REJOIN_SERVERS,
    "Drain the Node, stop the Kubernetes service, delete the Node, set the hostname to the VM name, and start the service.",
    REJOIN_KUBEADM,
];

const WITHOUT_AGENT: &str = "If qemu-guest-agent cannot run in this VM, replace the Node; otherwise leave out the next steps.";

/// Adds the steps and commands that replace the Node if the kubelet of this VM reports it. Any other Node may be that of a VM with a
/// copy of this disk.
fn replacing(
    finding: Finding,
    observation: &Observation,
    steps: &[&str],
    commands: &[FixCommand],
) -> Finding {
    let reported = observation.node.known().and_then(|node| node.system_uuid);
    let uuids = reported.zip(observation.machine.product_uuid.known().copied());
    if !uuids.is_some_and(|(theirs, ours)| is_same_uuid(ours, theirs)) {
        return finding;
    }
    let all = finding.fix().into_iter().chain(steps.iter().copied());
    let all = all.map(str::to_owned).collect();
    finding.with_steps(all).and_commands(commands)
}

/// Adds what replaces a Node whose providerID cannot be corrected, if the kubelet of this VM reports it. Unless the other VMs of the
/// namespace were compared, the VM that the providerID names may be this one.
pub fn replacing_provider_id(finding: Finding, observation: &Observation) -> Finding {
    let candidates = observation.candidates.known();
    if candidates.is_some_and(|known| known.coverage == Coverage::Named) {
        return finding;
    }
    let steps = [REJOIN_SERVERS, REJOIN];
    replacing(finding, observation, &steps, &REJOIN_COMMANDS)
}

/// Adds the fix for a name with a domain.
fn fqdn(finding: Finding, observation: &Observation, vm: &str, is_registered: bool) -> Finding {
    let cloud_init = "In the cloud-init user data of new VMs, set `prefer_fqdn_over_hostname: false`, and do not run `hostnamectl \
                      set-hostname` with a domain."
        .to_owned();
    if is_registered {
        let keep = "The registered Node cannot be renamed. With cloud provider 0.2.1 or later, keep qemu-guest-agent running: it finds \
                    the VM through it."
            .to_owned();
        let replace = format!(
            "To replace the Node: set `node-name: {vm}` in the RKE2/K3s configuration, drain the Node, stop the Kubernetes service, \
             delete the Node, and start the service."
        );
        let steps = [REJOIN_SERVERS, &replace, REJOIN_KUBEADM];
        return replacing(
            finding.with_steps(vec![keep, cloud_init]),
            observation,
            &steps,
            &[],
        );
    }
    let steps = vec![
        format!(
            "Before the kubelet starts, remove the domain from the hostname, or set `node-name: {vm}` in the RKE2/K3s configuration. With \
             kubeadm: `nodeRegistration.name`."
        ),
        cloud_init,
    ];
    set_hostname(finding.with_steps(steps), observation, vm)
}

/// Returns a finding if Harvester's cloud provider manages the Node and cannot find its VM: by the Node name, or by the hostname that
/// the guest agent reports. It then calls the Node one "that does not exist in the cloud provider" (harvester/harvester#11683).
pub(super) fn deletion(
    identity: &Identity,
    observation: &Observation,
    agent: GuestAgentHealth,
) -> Option<Finding> {
    if !agent.is_silent() {
        return None;
    }
    // Proven: the name that the platform gave to an unknown VM may not be the VM's.
    let vm = identity.vm_name()?;
    observation.node_vm_uid()?;
    let name = identity.node_name()?;
    let is_unjudged = matches!(name.verdict, Verdict::Unknown | Verdict::AnotherVm);
    if is_unjudged || name.name == vm.as_str() {
        return None;
    }
    let text = format!(
        "Node `{}`, VM `{vm}`, qemu-guest-agent: {}",
        name.name.escape_debug(),
        agent.name()
    );
    let finding = Finding::new(Code::NodeMayBeDeleted, text);
    Some(match name.verdict {
        Verdict::Differs | Verdict::Fqdn => {
            let [servers, rename, kubeadm] = RENAME;
            let steps = [WITHOUT_AGENT, servers, rename, kubeadm];
            replacing(finding, observation, &steps, &[])
        }
        // A name that was chosen stays, and one that was made from the name of the VM comes again.
        _ => finding,
    })
}

/// Adds the command that sets the hostname, unless it would replace a template that names other VMs, too.
fn set_hostname(finding: Finding, observation: &Observation, name: &str) -> Finding {
    let present = observation.machine.static_hostname.known();
    if present.is_some_and(|present| is_hostname_template(present)) {
        return finding;
    }
    let command = format!("hostnamectl set-hostname {}", shell_word(name));
    finding.and_command(CommandPlace::Vm, command)
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
    let gone = last.filter(|last| is_gone(last, observation));
    match (&identity.vm, gone) {
        (OwnVm::Ambiguous(vms), _) => {
            let text = format!("{} match by {}", vms.join(" and "), identity.proof());
            findings.push(Finding::new(Code::IdentityAmbiguous, text));
        }
        (OwnVm::NotFound(_), Some(last)) => {
            let text = format!("VM {} was here until now", last.reference());
            findings.push(Finding::new(Code::VmMovedAway, text));
        }
        (OwnVm::NotFound(text), None) => {
            let details = |agrees: bool| {
                let evidence = identity.evidence.iter();
                let evidence = evidence.filter(|item| item.agrees == agrees);
                let details: Vec<&str> = evidence.map(|item| item.detail.as_str()).collect();
                details.join("; ")
            };
            let text = match (details(true).as_str(), details(false).as_str()) {
                (_, "") => text.clone(),
                ("", against) => format!("{text}; differs: {against}"),
                (speaks, against) => format!("{text}; differs: {against}; matches: {speaks}"),
            };
            findings.push(Finding::new(Code::VmNotFound, text));
        }
        _ => {}
    }
    let provider = identity
        .evidence
        .iter()
        .find(|item| item.kind == EvidenceKind::ProviderId && !item.agrees);
    if let (Some(item), OwnVm::Identified(_)) = (provider, &identity.vm) {
        let finding = Finding::new(Code::ProviderIdDiffers, item.detail.clone());
        findings.push(replacing_provider_id(finding, observation));
    }
}
