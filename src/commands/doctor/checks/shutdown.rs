// SPDX-License-Identifier: Apache-2.0
//! Does Harvester power the VM off before systemd-logind lets a shutdown proceed?

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::objects::Instance;
use crate::commands::doctor::reads::{Reads, briefly};
use crate::commands::doctor::release::Rank;
use crate::facts::Fact;

use crate::observe::guest_agent::why;
use crate::wire::dbus::{Bus, BusError, Peer};

/// The first release of KubeVirt that stops a VM through the guest agent (kubevirt/kubevirt#18721).
const STOPS_BY_GUEST_AGENT: Rank = Rank::of(1, 5, 0);

/// The time in seconds for which KubeVirt waits for a guest agent that is not connected.
const GUEST_AGENT_WAIT: u64 = 60;

/// The D-Bus service of systemd-logind.
const LOGIND: Peer<'_> = Peer {
    name: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};

const NOT_HERE: [&str; 3] = [
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.UnknownProperty",
];

/// Compares the time that KubeVirt gives the VM with the delay of systemd-logind.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let delay = briefly(inhibit_delay(reads.observer.bus())).await;
    let delay = checked.need(Group::Node, "the settings of systemd-logind", &delay);
    if let (Some(instance), Some(delay)) = (reads.instance.known(), delay) {
        checked.findings.extend(judge(instance, *delay));
    }
}

/// Asks systemd-logind for the setting in force, `InhibitDelayMaxSec`, in seconds. Absent if it does not run here.
async fn inhibit_delay(bus: &Bus) -> Fact<u64> {
    let delay = bus.property(LOGIND, "InhibitDelayMaxUSec").await;
    match delay.map(|microseconds: u64| microseconds / 1_000_000) {
        Ok(seconds) => Fact::Known(seconds),
        Err(BusError::Absent(_)) => Fact::Absent,
        // Without logind, or with one that has no such setting.
        Err(error)
            if error
                .name()
                .is_some_and(|name| NOT_HERE.contains(&name.as_str())) =>
        {
            Fact::Absent
        }
        Err(error) => Fact::Failed(why(&error)),
    }
}

fn judge(instance: &Instance, delay: u64) -> Option<Finding> {
    let grace = instance.spec.grace_period?;
    let kubevirt = instance.launcher();
    let kubevirt = kubevirt.known();
    let is_waiting = !instance.is_agent_connected()
        && kubevirt.is_some_and(|release| release.rank() >= STOPS_BY_GUEST_AGENT);
    let (left, lost) = match is_waiting {
        true => (
            grace.saturating_sub(GUEST_AGENT_WAIT),
            format!(", of which KubeVirt waits {GUEST_AGENT_WAIT} s for qemu-guest-agent"),
        ),
        false => (grace, String::new()),
    };
    let text = format!(
        "terminationGracePeriodSeconds of the VM is {grace}{lost}; InhibitDelayMaxSec of systemd-logind is {delay}"
    );
    (left < delay).then(|| Finding::new(Code::StopGraceTooShort, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::doctor::testing::object;

    /// The file has the grace period of a VM, the release of KubeVirt and whether the guest agent is connected. Below is what is found.
    #[test]
    fn the_grace_period_must_outlast_the_shutdown_and_the_wait_for_the_guest_agent() {
        let file = "src/commands/doctor/checks/shutdown.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let words: Vec<&str> = case.split(' ').collect();
            let image = format!("r.example/virt-launcher:{}-150600.5.1", words[1]);
            let instance = object(json!({
                "spec": {"terminationGracePeriodSeconds": words[0].parse::<u64>().ok()},
                "status": {
                    "launcherContainerImageVersion": image,
                    "conditions": [{"type": "AgentConnected", "status": words[2]}],
                },
            }));
            judge(&instance, 30).map_or_else(String::new, |found| found.seen)
        });
    }
}
