// SPDX-License-Identifier: Apache-2.0
//! Checks that only the VM itself can make: what the kubelet counts, how long a stop may take, and what the kernel lacks.

use super::Case;
use crate::catalog::{Code, CommandPlace, Finding};
use crate::facts::release::Rank;
use crate::sys::escape::shell_word;

/// The first release of KubeVirt that stops a VM through the guest agent (kubevirt/kubevirt#18721).
const STOPS_BY_GUEST_AGENT: Rank = Rank::of(1, 5, 0);

/// The time in seconds for which KubeVirt waits for a guest agent that is not connected.
const GUEST_AGENT_WAIT: u64 = 60;

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    [capacity(case), stop(case), macvlan(case), mtu(case)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns a finding if the VM has more CPUs or memory than the kubelet counted when it started.
fn capacity(case: &Case<'_>) -> Option<Finding> {
    let (system, node) = (&case.examination.system, &case.examination.node);
    let mut texts = Vec::new();
    if let (Some(here), Some(counted)) = (system.cpus_online.known(), node.cpus.known())
        && here > counted
    {
        texts.push(format!("{here} CPUs are online, the Node has {counted}"));
    }
    if let (Some(online), Some(all)) = (system.cpus_online.known(), system.cpus_present.known())
        && online < all
    {
        texts.push(format!("{} of {all} CPUs are offline", all - online));
    }
    if let (Some(here), Some(counted)) = (system.memory_kib.known(), node.memory_kib.known())
        && here > counted
    {
        texts.push(format!(
            "the VM has {here} KiB of memory, the Node has {counted} KiB"
        ));
    }
    (!texts.is_empty()).then(|| Finding::new(Code::CapacityStale, texts.join("; ")))
}

/// Returns a finding if Harvester powers the VM off before systemd-logind lets a shutdown proceed.
fn stop(case: &Case<'_>) -> Option<Finding> {
    let instance = case.examination.conflicts.instance.known()?;
    let grace = instance.grace_period?;
    let delay = *case.examination.system.inhibit_delay.known()?;
    let kubevirt = instance.launcher.known();
    let is_waiting = !instance.agent_connected
        && kubevirt.is_some_and(|release| release.rank() >= STOPS_BY_GUEST_AGENT);
    let (left, lost) = match is_waiting {
        true => (
            grace.saturating_sub(GUEST_AGENT_WAIT),
            format!(", of which KubeVirt waits {GUEST_AGENT_WAIT} s for qemu-guest-agent"),
        ),
        false => (grace, String::new()),
    };
    (left < delay).then(|| {
        let text = format!(
            "terminationGracePeriodSeconds of the VM is {grace}{lost}; InhibitDelayMaxSec of systemd-logind is {delay}"
        );
        Finding::new(Code::StopGraceTooShort, text)
    })
}

/// Returns a finding if Harvester's cloud provider cannot create load balancers with DHCP.
fn macvlan(case: &Case<'_>) -> Option<Finding> {
    let has_module = *case.examination.system.macvlan.known()?;
    (!has_module && case.asks_for_cloud_provider()).then(|| {
        let text = "neither a module nor built in";
        Finding::new(Code::MacvlanMissing, text)
    })
}

/// Returns a finding if packets of the pod network do not fit the NIC. The kernel refuses such an MTU, but does not reduce it after
/// that of the NIC.
fn mtu(case: &Case<'_>) -> Option<Finding> {
    let overlays = case.examination.system.overlays.known()?.iter();
    let too_large = overlays.filter(|one| one.mtu.saturating_add(one.overhead) > one.nic_mtu);
    let mut texts = Vec::new();
    let mut commands = Vec::new();
    for one in too_large {
        let (name, nic) = (one.name.escape_debug(), one.nic.escape_debug());
        let fitting = one.nic_mtu.saturating_sub(one.overhead);
        texts.push(format!(
            "{name} has MTU {}, its NIC {nic} has {}: at most {fitting} fits",
            one.mtu, one.nic_mtu
        ));
        let name = shell_word(&one.name);
        commands.push(format!("ip link set dev {name} mtu {fitting}"));
    }
    let finding = Finding::new(Code::OverlayMtu, texts.join("; "));
    let with = |finding: Finding, command| finding.and_command(CommandPlace::Vm, command);
    (!texts.is_empty()).then(|| commands.into_iter().fold(finding, with))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::facts::system::Overlay;
    use crate::commands::doctor::judge::fixtures::{Bench, release};
    use crate::facts::Fact;

    #[test]
    fn hotplugged_cpus_and_memory_are_named_and_equal_ones_are_not() {
        let mut bench = Bench::new();
        bench.examination.system.cpus_online = Fact::Known(4);
        bench.examination.system.cpus_present = Fact::Known(4);
        bench.examination.system.memory_kib = Fact::Known(8_000_000);
        bench.examination.node.cpus = Fact::Known(4);
        bench.examination.node.memory_kib = Fact::Known(8_000_000);
        assert_eq!(bench.found(findings), []);
        bench.examination.system.cpus_present = Fact::Known(8);
        bench.examination.system.cpus_online = Fact::Known(6);
        bench.examination.system.memory_kib = Fact::Known(9_000_000);
        let text = "6 CPUs are online, the Node has 4; 2 of 8 CPUs are offline; \
                    the VM has 9000000 KiB of memory, the Node has 8000000 KiB";
        assert_eq!(bench.found(findings), [("capacity-stale", text.to_owned())]);
    }

    #[test]
    fn the_grace_period_must_outlast_the_shutdown_and_the_wait_for_the_guest_agent() {
        let mut bench = Bench::new();
        bench.examination.system.inhibit_delay = Fact::Known(30);
        for (grace, kubevirt, connected, is_short) in [
            (120, "v1.5.2", true, false),
            (30, "v1.5.2", true, false),
            (20, "v1.5.2", true, true),
            (120, "v1.5.2", false, false),
            (80, "v1.5.2", false, true),
            (80, "v1.4.0", false, false),
        ] {
            let instance = bench.instance();
            instance.grace_period = Some(grace);
            instance.launcher = release(kubevirt);
            instance.agent_connected = connected;
            let codes = bench.codes(findings);
            assert_eq!(
                codes == ["stop-grace-too-short"],
                is_short,
                "{grace} {codes:?}"
            );
        }
        bench.instance().grace_period = None;
        assert_eq!(bench.found(findings), []);
    }

    #[test]
    fn a_kernel_without_macvlan_matters_with_harvesters_cloud_provider() {
        let mut bench = Bench::new();
        bench.examination.system.macvlan = Fact::Known(false);
        assert_eq!(bench.codes(findings), ["macvlan-missing"]);
        bench.world.observation.distributions.clear();
        assert_eq!(bench.found(findings), []);
    }

    #[test]
    fn an_overlay_must_fit_its_nic() {
        let mut bench = Bench::new();
        let overlay = |mtu| Overlay {
            name: "flannel.1".to_owned(),
            mtu,
            overhead: 50,
            nic: "eth0".to_owned(),
            nic_mtu: 1400,
        };
        bench.examination.system.overlays = Fact::Known(vec![overlay(1350)]);
        assert_eq!(bench.found(findings), []);
        bench.examination.system.overlays = Fact::Known(vec![overlay(1351)]);
        let text = "flannel.1 has MTU 1351, its NIC eth0 has 1400: at most 1350 fits";
        assert_eq!(
            bench.found(findings),
            [("overlay-mtu-too-large", text.to_owned())]
        );
    }
}
