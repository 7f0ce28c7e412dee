// SPDX-License-Identifier: Apache-2.0
//! The gaps of an ordinary round. The running agent does not report them if they have no consequence.

use crate::agent::Round;
use crate::catalog::{Api, Group};
use crate::commands::doctor::case::Gap;
use crate::decide::failure_code;
use crate::decide::identity::OwnVm;
use crate::facts::{Unavailable, UnavailableKind};

/// Returns the checks that the round could not do. Any other error of a kubeconfig or of a request is a finding instead.
pub(super) fn gaps(round: &Round) -> Vec<Gap> {
    let observation = &round.observation;
    let machine = &observation.machine;
    let (agent, agent_error) = match observation.guest_agent.known() {
        Some(agent) => ("the unit of qemu-guest-agent", agent.unit.why()),
        None => ("qemu-guest-agent", observation.guest_agent.why()),
    };
    // A search with no result or several results is a finding instead.
    let unknown_vm = match &round.identity.vm {
        OwnVm::Unknown(why) | OwnVm::Remembered(_, why) => Some(why),
        _ => None,
    };
    // A VM that was read but is not running is a finding instead.
    let is_located = round.placement.is_some() || round.identity.vmi().is_some();
    let unknown = Unavailable::new(UnavailableKind::NotAsked, "the VM is unknown");
    let vm = observation.candidates.why();
    let unknown_host = (!is_located).then(|| vm.unwrap_or(&unknown));
    let is_skipped = |why: &&Unavailable| why.kind == UnavailableKind::NotAsked;
    let [harvester, guest] =
        [Api::Harvester, Api::Guest].map(|api| failure_code::api(observation, api));
    #[rustfmt::skip]
    let checks = [
        (Group::Machine, "the SMBIOS vendor", machine.vendor.why(), None),
        (Group::Machine, "its network interfaces", machine.nics.why(), None),
        (Group::GuestAgent, agent, agent_error, None),
        (Group::Identity, "the VM of this node", unknown_vm, harvester),
        (Group::Placement, "the host of the VM", unknown_host, harvester),
        (Group::HarvesterApi, "the VM", vm.filter(is_skipped), harvester),
        (Group::Identity, "the kernel hostname", machine.kernel_hostname.why(), None),
        (Group::Identity, "/etc/hostname", machine.static_hostname.why(), None),
        (Group::Identity, "the hostname from the platform", machine.platform_hostname.why(), None),
        (Group::Identity, "the firmware UUID", machine.product_uuid.why(), None),
        (Group::Identity, "the firmware serial number", machine.product_serial.why(), None),
        (Group::Node, "the Node", observation.node.why().filter(is_skipped), guest),
    ];
    let checks = checks.into_iter();
    let gaps = checks.filter_map(|(group, check, why, due_to)| {
        let gap = Gap::new(group, check, why?);
        Some(Gap { due_to, ..gap })
    });
    gaps.collect()
}
