// SPDX-License-Identifier: Apache-2.0
//! The gaps of an ordinary round. The running agent does not report them if they have no consequence.

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::facts::Gap;
use crate::decide::identity::{Identity, OwnVm};
use crate::decide::placement::Placement;
use crate::facts::observation::{Api, Observation, ObservationIssue};
use crate::facts::{Prerequisite, Unavailable, UnavailableKind};

/// The privileges of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Root: a file that it cannot read is not readable for the agent either.
    All,
    /// Another user, who cannot read the credentials.
    Unprivileged,
}

impl Privileges {
    /// Returns the error of a read that root may be able to do.
    fn denied(self, why: Option<&Unavailable>) -> Option<Unavailable> {
        let is_denied = |why: &&Unavailable| why.kind == UnavailableKind::Forbidden;
        why.filter(|_| self == Self::Unprivileged)
            .filter(is_denied)
            .cloned()
    }
}

/// Returns the checks that the round could not do. Any other error of a kubeconfig or of a request is a finding instead.
pub fn gaps(
    observation: &Observation,
    identity: &Identity,
    placement: Option<&Placement>,
    privileges: Privileges,
) -> Vec<Gap> {
    let machine = &observation.machine;
    let (agent, agent_error) = match observation.guest_agent.known() {
        Some(agent) => ("the unit of qemu-guest-agent", agent.unit.why()),
        None => ("qemu-guest-agent", observation.guest_agent.why()),
    };
    let denied = |why: Option<&Unavailable>| privileges.denied(why);
    let kubeconfig = |api, why| Some(denied(why)?.due_to(Prerequisite::Kubeconfig(api)));
    let skipped = |why: Option<&Unavailable>| {
        why.filter(|why| why.kind == UnavailableKind::NotAsked)
            .cloned()
    };
    let vm = observation.candidates.why();
    let checks = [
        (
            Group::Machine,
            "the SMBIOS vendor",
            machine.vendor.why().cloned(),
        ),
        (
            Group::Machine,
            "its network interfaces",
            machine.nics.why().cloned(),
        ),
        (Group::GuestAgent, agent, agent_error.cloned()),
        (
            Group::HarvesterCredential,
            "the Harvester kubeconfig",
            kubeconfig(Api::Harvester, observation.harvester.why()),
        ),
        (Group::Identity, "the VM of this node", unknown_vm(identity)),
        (
            Group::Placement,
            "the host of the VM",
            unknown_host(vm, identity, placement),
        ),
        (
            Group::Placement,
            "the downward metrics of the host",
            denied(observation.host_metrics.why()),
        ),
        (
            Group::Placement,
            "the files about the virt-launcher pod",
            denied(observation.pod_info.why()),
        ),
        (Group::HarvesterApi, "the VM", skipped(vm)),
        (
            Group::Identity,
            "the kernel hostname",
            machine.kernel_hostname.why().cloned(),
        ),
        (
            Group::Identity,
            "/etc/hostname",
            machine.static_hostname.why().cloned(),
        ),
        (
            Group::Identity,
            "the hostname from the platform",
            machine.platform_hostname.why().cloned(),
        ),
        (
            Group::Identity,
            "the firmware UUID",
            machine.product_uuid.why().cloned(),
        ),
        (
            Group::Identity,
            "the firmware serial number",
            machine.product_serial.why().cloned(),
        ),
        (
            Group::KubeletCredential,
            "the kubelet kubeconfig",
            kubeconfig(Api::Guest, observation.kubelet.why()),
        ),
        (Group::Node, "the Node", skipped(observation.node.why())),
    ];
    let files = observation.issues.iter().filter_map(|issue| match issue {
        ObservationIssue::DistributionFile {
            problem,
            is_denied: true,
        } => {
            let why = Unavailable::new(UnavailableKind::Forbidden, problem.clone());
            Some((
                Group::Machine,
                "the RKE2/K3s configuration",
                denied(Some(&why)),
            ))
        }
        _ => None,
    });
    let checks = checks.into_iter().chain(files);
    checks
        .filter_map(|(group, what, why)| Some(Gap::new(group, what, why?)))
        .collect()
}

/// Sets the request for the VM as the reason, unless it was skipped itself.
fn of_request(why: &Unavailable) -> Unavailable {
    let request = Prerequisite::Request(Api::Harvester);
    why.clone().due_to(why.prerequisite.unwrap_or(request))
}

/// Returns the error if Harvester's API did not identify the VM. A search with no result or several results is a finding instead.
fn unknown_vm(identity: &Identity) -> Option<Unavailable> {
    match &identity.vm {
        OwnVm::Unknown(why) | OwnVm::Remembered(_, why) => Some(of_request(why)),
        _ => None,
    }
}

/// Returns the error if no source has the host of the VM. A VM that was read but is not running is a finding instead.
fn unknown_host(
    vm: Option<&Unavailable>,
    identity: &Identity,
    placement: Option<&Placement>,
) -> Option<Unavailable> {
    if placement.is_some() || identity.vmi().is_some() {
        return None;
    }
    let unknown = || Unavailable::new(UnavailableKind::NotAsked, "the VM is unknown");
    Some(vm.map_or_else(unknown, of_request))
}

/// Reports whether a finding exists only because this user lacks the permissions of the agent, which runs as root.
pub fn is_hidden(finding: &Finding, observation: &Observation, privileges: Privileges) -> bool {
    let why = match finding.code {
        Code::HarvesterCredentialInvalid => observation.harvester.why(),
        Code::KubeletCredentialInvalid => observation.kubelet.why(),
        Code::DownwardMetricsUnusable => observation.host_metrics.why(),
        Code::PodInfoUnusable => observation.pod_info.why(),
        _ => return finding.is_denied && privileges == Privileges::Unprivileged,
    };
    privileges.denied(why).is_some()
}
