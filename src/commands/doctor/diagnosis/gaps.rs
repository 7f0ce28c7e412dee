// SPDX-License-Identifier: Apache-2.0
//! The gaps of an ordinary round. The running agent does not report them if they have no consequence.

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::facts::{Gap, Need};
use crate::decide::identity::{Identity, OwnVm};
use crate::decide::placement::Placement;
use crate::facts::observation::{Observation, ObservationIssue};
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The privileges of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Root: a file that it cannot read is not readable for the agent either.
    All,
    /// Another user, who cannot read the credentials.
    Unprivileged,
}

/// Returns the checks that the round could not do.
pub fn gaps(
    observation: &Observation,
    identity: &Identity,
    placement: Option<&Placement>,
    privileges: Privileges,
) -> Vec<Gap> {
    let machine = &observation.machine;
    let names = Group::Identity;
    let agent = observation.guest_agent.known();
    let gaps = [
        Gap::of(Group::Machine, "the SMBIOS vendor", &machine.vendor),
        Gap::of(Group::Machine, "its network interfaces", &machine.nics),
        agent.map_or_else(
            || {
                Gap::of(
                    Group::GuestAgent,
                    "qemu-guest-agent",
                    &observation.guest_agent,
                )
            },
            |agent| {
                Gap::of(
                    Group::GuestAgent,
                    "the unit of qemu-guest-agent",
                    &agent.unit,
                )
            },
        ),
        hidden(
            Group::HarvesterCredential,
            "the Harvester kubeconfig",
            &observation.harvester,
            privileges,
        ),
        unknown_vm(identity),
        unknown_host(observation, identity, placement),
        hidden(
            Group::Placement,
            "the downward metrics of the host",
            &observation.host_metrics,
            privileges,
        ),
        unasked(Group::HarvesterApi, "the VM", &observation.candidates),
        Gap::of(names, "the kernel hostname", &machine.kernel_hostname),
        Gap::of(names, "/etc/hostname", &machine.static_hostname),
        Gap::of(
            names,
            "the hostname from the platform",
            &machine.platform_hostname,
        ),
        Gap::of(names, "the firmware UUID", &machine.product_uuid),
        Gap::of(names, "the firmware serial number", &machine.product_serial),
        hidden(
            Group::KubeletCredential,
            "the kubelet kubeconfig",
            &observation.kubelet,
            privileges,
        ),
        unasked(Group::Node, "the Node", &observation.node),
    ];
    let files = denied_files(observation, privileges).map(|problem| Gap {
        group: Group::Machine,
        what: "the RKE2/K3s configuration",
        why: Unavailable::new(UnavailableKind::Forbidden, problem.clone()),
        need: Need::Usual,
    });
    gaps.into_iter().flatten().chain(files).collect()
}

/// Returns the errors about files of the distribution that this user is not allowed to read.
fn denied_files(
    observation: &Observation,
    privileges: Privileges,
) -> impl Iterator<Item = &String> {
    let issues = observation
        .issues
        .iter()
        .filter(move |_| privileges == Privileges::Unprivileged);
    issues.filter_map(|issue| match issue {
        ObservationIssue::DistributionFile {
            problem,
            is_denied: true,
        } => Some(problem),
        _ => None,
    })
}

/// Returns the gap if Harvester's API did not identify the VM. A search with no result or several results is a finding instead.
fn unknown_vm(identity: &Identity) -> Option<Gap> {
    let (OwnVm::Unknown(why) | OwnVm::Remembered(_, why)) = &identity.vm else {
        return None;
    };
    Some(Gap {
        group: Group::Identity,
        what: "the VM of this node",
        why: why.clone(),
        need: Need::Usual,
    })
}

/// Returns the gap if no source has the host of the VM. A VM that was read but is not running is a finding instead.
fn unknown_host(
    observation: &Observation,
    identity: &Identity,
    placement: Option<&Placement>,
) -> Option<Gap> {
    if placement.is_some() || identity.vmi().is_some() {
        return None;
    }
    let unknown = || Unavailable::new(UnavailableKind::NotAsked, "the VM is unknown");
    Some(Gap {
        group: Group::Placement,
        what: "the host of the VM",
        why: observation
            .candidates
            .why()
            .cloned()
            .unwrap_or_else(unknown),
        need: Need::Usual,
    })
}

/// Reports whether a finding exists only because this user lacks the permissions of the agent, which runs as root.
pub fn is_hidden(finding: &Finding, observation: &Observation, privileges: Privileges) -> bool {
    match finding.code {
        Code::HarvesterCredentialInvalid => forbidden(&observation.harvester, privileges).is_some(),
        Code::KubeletCredentialInvalid => forbidden(&observation.kubelet, privileges).is_some(),
        Code::DownwardMetricsUnusable => forbidden(&observation.host_metrics, privileges).is_some(),
        Code::DistributionFileBroken => {
            denied_files(observation, privileges).any(|problem| *problem == finding.seen)
        }
        _ => false,
    }
}

fn forbidden<T>(seen: &Fact<T>, privileges: Privileges) -> Option<&Unavailable> {
    let is_few = privileges == Privileges::Unprivileged;
    seen.why()
        .filter(|why| is_few && why.kind == UnavailableKind::Forbidden)
}

/// Returns the gap for a credential that this user is not allowed to read. Any other read error is a finding instead.
fn hidden<T>(
    group: Group,
    what: &'static str,
    seen: &Fact<T>,
    privileges: Privileges,
) -> Option<Gap> {
    let why = forbidden(seen, privileges)?.clone();
    Some(Gap {
        group,
        what,
        why,
        need: Need::Usual,
    })
}

/// Returns the gap for a request that was skipped because of an earlier failure. A failed request is a finding instead.
fn unasked<T>(group: Group, what: &'static str, seen: &Fact<T>) -> Option<Gap> {
    let why = seen
        .why()
        .filter(|why| why.kind == UnavailableKind::NotAsked)?;
    Some(Gap {
        group,
        what,
        why: why.clone(),
        need: Need::Usual,
    })
}
