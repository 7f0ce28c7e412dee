// SPDX-License-Identifier: Apache-2.0
//! Has the right cloud provider initialized our Node, and if not, why not?

use crate::catalog::{Code, Finding};
use crate::commands::doctor::case::{Case, Checked};
use crate::commands::doctor::objects::{
    CLOUD_PROVIDER, Component, Instance, KUBEVIRT_CLOUD_PROVIDER, NodeObject, Uninitialized,
};
use crate::commands::doctor::reads::Reads;
use crate::commands::doctor::release::Rank;
use crate::decide::findings::replacing_provider_id;
use crate::facts::clock::date;

/// The time in which the taint is not reported: a running cloud provider initializes a Node within seconds, but its image may have
/// to be pulled first.
const GRACE_SECONDS: i64 = 120;

/// The first release of the cloud provider that finds a VM by the name from its guest agent (harvester/harvester#4947).
const BY_GUEST_AGENT: Rank = Rank::of(0, 2, 1);

/// The prefix of Harvester's providerID; the UID of the VM follows.
const HARVESTER: &str = "harvester://";

/// What helps to explain the taint.
#[derive(Debug, Default)]
struct Signs {
    /// Harvester's cloud provider on this Node.
    cloud_provider: Option<Component>,
    /// The pod of KubeVirt's own cloud provider on this Node.
    kubevirt: Option<String>,
    /// Whether the host is connected to the QEMU guest agent.
    is_agent_connected: Option<bool>,
}

/// Judges the Node by its pods and by the VM.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let case = &reads.case;
    let mut signs = Signs::default();
    if let Some(pods) = reads.pods.known() {
        signs.cloud_provider = pods.component(CLOUD_PROVIDER).known().cloned();
        let mut pods = pods.list.iter();
        let pod = pods.find(|pod| pod.tag(KUBEVIRT_CLOUD_PROVIDER).is_some());
        signs.kubevirt = pod.map(|pod| pod.reference.clone());
    }
    let instance = reads.instance.known();
    signs.is_agent_connected = instance.map(Instance::is_agent_connected);
    let taint = reads.node.known().and_then(NodeObject::uninitialized);
    let findings = [
        taint.and_then(|taint| uninitialized(case, &signs, &taint)),
        foreign(case),
        kubevirt(case, &signs),
    ];
    checked.findings.extend(findings.into_iter().flatten());
}

fn uninitialized(case: &Case<'_>, signs: &Signs, taint: &Uninitialized) -> Option<Finding> {
    let since = taint.since.map(|since| {
        let age = case.seconds().saturating_sub(since);
        (age, date(since))
    });
    let since = match since {
        // A time in the future is a clock problem, and has no grace period.
        Some((age, _)) if (-GRACE_SECONDS..GRACE_SECONDS).contains(&age) => return None,
        Some((..0, since)) => format!("since {since}, which is in the future on this node"),
        Some((age, since)) => format!("since {since} ({} min)", age / 60),
        None => "since an unknown time".to_owned(),
    };
    let node = case.observation.node.known();
    let id = match node.and_then(|node| node.provider_id.as_ref()) {
        Some(_) => "",
        None => ", no providerID",
    };
    let text = format!(
        "effect {}, {since}{id}; likely cause: {}",
        taint.effect.escape_debug(),
        cause(case, signs, taint)
    );
    Some(Finding::new(Code::NodeUninitialized, text))
}

/// Returns the first cause between the kubelet and the cloud provider.
fn cause(case: &Case<'_>, signs: &Signs, taint: &Uninitialized) -> String {
    if let Some(cause) = other_name(case, signs) {
        return cause;
    }
    if taint.effect == "PreferNoSchedule" {
        return "the Harvester cloud provider did not finish updating region and zone".to_owned();
    }
    let mut names = case.observation.distributions.iter();
    let asked_for = names.find_map(|distribution| distribution.cloud_provider_name.as_deref());
    match (asked_for, &signs.cloud_provider) {
        (Some(other), _) if !case.asks_for_cloud_provider() => format!(
            "RKE2/K3s is configured for cloud provider `{}`, which is not running",
            other.escape_debug()
        ),
        (_, Some(Component { pod, .. })) => format!(
            "Harvester cloud provider, pod {pod}, has no credential or cannot read the VM: see its log"
        ),
        _ => "Harvester cloud provider is not running, has no credential, or cannot read the VM"
            .to_owned(),
    }
}

/// Returns the cause if the names differ: the cloud provider searches by Node name, and since 0.2.1 also by the guest agent's
/// name.
fn other_name(case: &Case<'_>, signs: &Signs) -> Option<String> {
    let (node, vm) = case.node_and_vm().filter(|(node, vm)| node != vm)?;
    let release = signs.cloud_provider.as_ref();
    let by_agent = release.map(|one| one.release.rank() >= BY_GUEST_AGENT);
    let why = match (by_agent, signs.is_agent_connected) {
        (Some(true), Some(true)) => return None,
        (Some(true), _) => {
            "finds a VM with another name only through qemu-guest-agent, which is not connected"
        }
        (Some(false), _) => "is too old to find a VM with another name",
        (None, _) => "finds a VM with another name only since v0.2.1, through qemu-guest-agent",
    };
    Some(format!(
        "the Node is `{node}`, its VM is `{vm}`, and the Harvester cloud provider {why}"
    ))
}

/// Returns a finding for a foreign providerID. It is immutable, so Harvester's cloud provider cannot replace it.
fn foreign(case: &Case<'_>) -> Option<Finding> {
    let id = case.observation.node.known()?.provider_id.as_deref()?;
    if id.starts_with(HARVESTER) || !case.asks_for_cloud_provider() {
        return None;
    }
    let text = format!("`{}`, expected {HARVESTER}UID", id.escape_debug());
    let finding = Finding::new(Code::ProviderIdNotHarvester, text);
    Some(replacing_provider_id(finding, case.observation))
}

fn kubevirt(case: &Case<'_>, signs: &Signs) -> Option<Finding> {
    let node = case.observation.node.known();
    let id = node.and_then(|node| node.provider_id.as_deref());
    let id = id.filter(|id| id.starts_with("kubevirt://"));
    let text = match (&signs.kubevirt, id) {
        (Some(pod), _) => format!("pod {pod}"),
        (None, Some(id)) => format!("providerID `{}`", id.escape_debug()),
        (None, None) => return None,
    };
    Some(Finding::new(Code::KubevirtCloudProvider, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::testing::{Bench, NOW, release};

    /// The file has Nodes with the taint and its age in seconds, with a providerID, a distribution and pods, and what is found.
    #[test]
    fn the_likely_cause_is_the_first_on_the_way() {
        let file = "src/commands/doctor/checks/cloud_provider.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let (mut bench, mut signs, mut taint) = (Bench::new(), Signs::default(), None);
            for line in case.lines() {
                let observation = &mut bench.world.observation;
                match line.split(' ').collect::<Vec<_>>()[..] {
                    ["renamed"] => bench.rename_node(),
                    ["providerID"] => bench.world.node().provider_id = None,
                    ["providerID", id] => bench.world.node().provider_id = Some(id.to_owned()),
                    ["distribution"] => observation.distributions.clear(),
                    ["distribution", name] => {
                        let distribution = &mut observation.distributions[0];
                        distribution.cloud_provider_name = Some(name.to_owned());
                    }
                    ["provider", version] => {
                        signs.cloud_provider = Some(Component {
                            release: release(version),
                            pod: "kube-system/p".to_owned(),
                        });
                    }
                    ["kubevirt", pod] => signs.kubevirt = Some(pod.to_owned()),
                    ["connected", state] => signs.is_agent_connected = Some(state == "yes"),
                    _ => {
                        let (effect, age) = line.split_once(' ').unwrap();
                        taint = Some(Uninitialized {
                            effect: effect.to_owned(),
                            since: age.parse::<i64>().ok().map(|age| NOW - age),
                        });
                    }
                }
            }
            let judge = |case: &Case<'_>| {
                let uninitialized = taint.and_then(|taint| uninitialized(case, &signs, &taint));
                let found = [uninitialized, foreign(case), kubevirt(case, &signs)];
                found.into_iter().flatten().collect()
            };
            bench.texts(judge).join("\n")
        });
    }
}
