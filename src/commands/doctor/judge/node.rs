// SPDX-License-Identifier: Apache-2.0
//! Checks whether the right cloud provider has initialized our Node, and if not, why not.

use super::{Case, date};
use crate::catalog::{Code, CommandPlace, Finding};
use crate::commands::doctor::facts::node::Uninitialized;
use crate::commands::doctor::facts::pods::{PodOrigin, Restarts};
use crate::decide::findings::replacing_provider_id;
use crate::decide::rfc3339;
use crate::facts::release::Rank;
use crate::facts::topology::ZONE;
use crate::sys::escape::shell_word;

/// The time in which the taint is not reported: a running cloud provider initializes a Node within seconds, but its image may have
/// to be pulled first.
const GRACE_SECONDS: i64 = 120;

/// The minimum number of restarts that are reported; each upgrade causes some.
const RESTARTS_LEAST: u64 = 3;

/// The maximum age of a termination that is reported: the kubelet waits at most five minutes between two starts.
const RECENT_SECONDS: i64 = 3600;

/// The reason in the status of a container that was terminated by a reboot.
const OF_REBOOT: &str = "Unknown";

/// The first release of the cloud provider that finds a VM by the name from its guest agent (harvester/harvester#4947).
const BY_GUEST_AGENT: Rank = Rank::of(0, 2, 1);

/// The prefix of Harvester's providerID; the UID of the VM follows.
const HARVESTER: &str = "harvester://";

/// The maximum number of pods that one finding names.
const NAMED_MAX: usize = 3;

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    [
        uninitialized(case),
        restarting(case),
        foreign(case),
        kubevirt(case),
        other_zone(case),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn uninitialized(case: &Case<'_>) -> Option<Finding> {
    let taint = case.examination.node.uninitialized.known()?;
    let age = taint
        .since
        .map(|since| case.now.wall.unix_timestamp().saturating_sub(since));
    // A time in the future is a clock problem, and has no grace period.
    if age.is_some_and(|age| (-GRACE_SECONDS..GRACE_SECONDS).contains(&age)) {
        return None;
    }
    let since = match (age, since(taint)) {
        (Some(age), Some(since)) if age < 0 => {
            format!("since {since}, which is in the future on this node")
        }
        (Some(age), Some(since)) => format!("since {since} ({} min)", age / 60),
        _ => "since an unknown time".to_owned(),
    };
    let node = case.observation.node.known();
    let id = match node.and_then(|node| node.provider_id.as_ref()) {
        Some(_) => "",
        None => ", no providerID",
    };
    let text = format!(
        "effect {}, {since}{id}; likely cause: {}",
        taint.effect.escape_debug(),
        cause(case, taint)
    );
    Some(Finding::new(Code::NodeUninitialized, text))
}

fn since(taint: &Uninitialized) -> Option<String> {
    let time = time::UtcDateTime::from_unix_timestamp(taint.since?).ok()?;
    Some(rfc3339(time))
}

/// Returns the first cause between the kubelet and the cloud provider.
fn cause(case: &Case<'_>, taint: &Uninitialized) -> String {
    if let Some(cause) = other_name(case) {
        return cause;
    }
    if taint.effect == "PreferNoSchedule" {
        return "the Harvester cloud provider did not finish updating region and zone".to_owned();
    }
    let mut names = case.observation.distributions.iter();
    let asked_for = names.find_map(|distribution| distribution.cloud_provider_name.as_deref());
    let running = case.examination.pods.cloud_provider.known();
    match (asked_for, running.map(|component| &component.origin)) {
        (Some(other), _) if !case.asks_for_cloud_provider() => format!(
            "RKE2/K3s is configured for cloud provider `{}`, which is not running",
            other.escape_debug()
        ),
        (_, Some(PodOrigin::Pod(pod))) => {
            format!(
                "Harvester cloud provider, pod {pod}, has no credential or cannot read the VM: see its log"
            )
        }
        _ => "Harvester cloud provider is not running, has no credential, or cannot read the VM"
            .to_owned(),
    }
}

/// Returns the cause if the names differ: the cloud provider searches by Node name, and since 0.2.1 also by the guest agent's
/// name.
fn other_name(case: &Case<'_>) -> Option<String> {
    let (node, vm) = case.node_and_vm().filter(|(node, vm)| node != vm)?;
    let release = case.examination.pods.cloud_provider.known();
    let release = release.map(|component| &component.release);
    let by_agent = release.map(|release| release.rank() >= BY_GUEST_AGENT);
    let heard = case.examination.conflicts.instance.known();
    let heard = heard.map(|instance| instance.agent_connected);
    let why = match (by_agent, heard) {
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

/// Returns a finding if the cloud provider or the CSI driver restarts repeatedly on this Node.
fn restarting(case: &Case<'_>) -> Option<Finding> {
    let now = case.now.wall.unix_timestamp();
    let is_now = |restarts: &&Restarts| {
        let is_recent = restarts
            .ended
            .is_some_and(|ended| now.saturating_sub(ended) < RECENT_SECONDS);
        restarts.count >= RESTARTS_LEAST && is_recent && restarts.reason != OF_REBOOT
    };
    let pods = case.examination.pods.here.known()?.iter();
    let pods = pods.filter(|pod| pod.is_of_harvester());
    let mut ending = pods.filter_map(|pod| Some((pod, pod.restarts.iter().find(is_now)?)));
    let (pod, restarts) = ending.next()?;
    let code = restarts
        .exit_code
        .map_or_else(String::new, |code| format!(", exit code {code}"));
    let text = format!(
        "pod {}, container {}: restarted {} times, last terminated at {} ({}{code})",
        pod.reference().escape_debug(),
        restarts.container.escape_debug(),
        restarts.count,
        restarts.ended.map(date).unwrap_or_default(),
        restarts.reason.escape_debug(),
    );
    let [namespace, name, container] =
        [&pod.namespace, &pod.name, &restarts.container].map(|name| shell_word(name));
    let logs = format!("kubectl -n {namespace} logs {name} -c {container} --previous --tail=50");
    let finding = Finding::new(Code::ComponentRestarting, text);
    Some(finding.and_command(CommandPlace::GuestCluster, logs))
}

/// Returns a finding about pods that were created while the Node had another zone.
fn other_zone(case: &Case<'_>) -> Option<Finding> {
    let zone = case.observation.node.known()?.labels.get(ZONE)?;
    let pods = case.examination.pods.here.known()?.iter();
    let others = pods.filter_map(|pod| {
        let other = pod.zone.as_ref().filter(|other| other.as_str() != zone)?;
        Some(format!("{} ({other})", pod.reference()))
    });
    let others: Vec<String> = others.collect();
    let (count, pods) = match others.len() {
        0 => return None,
        1 => (1, "pod"),
        count => (count, "pods"),
    };
    let named: Vec<&str> = others.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = match count - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!(
        "the Node has zone {}, {count} {pods} another: {}{more}",
        zone.escape_debug(),
        named.join(", ")
    );
    Some(Finding::new(Code::PodsInOtherZone, text))
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

fn kubevirt(case: &Case<'_>) -> Option<Finding> {
    let id = case
        .observation
        .node
        .known()
        .and_then(|node| node.provider_id.as_deref());
    let id = id.filter(|id| id.starts_with("kubevirt://"));
    let pod = case.examination.pods.kubevirt_cloud_provider();
    let text = match (pod, id) {
        (Some(pod), _) => format!("pod {}", pod.reference()),
        (None, Some(id)) => format!("providerID `{}`", id.escape_debug()),
        (None, None) => return None,
    };
    Some(Finding::new(Code::KubevirtCloudProvider, text))
}
