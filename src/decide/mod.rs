// SPDX-License-Identifier: Apache-2.0
//! Decisions: pure functions of what was seen, what is configured, what is remembered, and the time.
//!
//! One file is one question. [`plan`] asks them in order and gathers the answers; it does no I/O, reads no clock and logs
//! nothing, so a test can put any world before it.
//!
//! To add a decision: a file with its question, its answer as a type, and a line in [`plan`].

pub mod complaints;
pub mod conditions;
pub mod events;
pub mod guest_agent;
pub mod identity;
pub mod labels;
pub mod patches;
pub mod placement;
pub mod rival;
pub mod schedule;
pub mod sync;
pub mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::UtcDateTime;

use crate::config::Settings;
use crate::facts::Why;
use crate::facts::names::{HostName, NodeName, VmName};
use crate::facts::vmi::Vmi;
use crate::facts::who::Who;
use crate::findings::Finding;
use events::EventDraft;
use identity::Identity;
use labels::{LabelPlan, Owned, plan_labels};
use patches::{conditions_patch, node_patch};
use placement::{Known, Placement};
use rival::Rivalry;
use schedule::Random;
use sync::Sync;

/// Prefix of our annotations on the Node.
pub const ANNOTATION_PREFIX: &str = "node-agent.harvesterhci.io/";

/// The VM, as `namespace/name`.
pub const ANNOTATION_VM: &str = "node-agent.harvesterhci.io/vm";
/// The host for which the labels were written.
pub const ANNOTATION_HOST: &str = "node-agent.harvesterhci.io/host";
/// The source of region and zone.
pub const ANNOTATION_SOURCE: &str = "node-agent.harvesterhci.io/source";
/// The labels that we own, as a JSON object of key to the value that we wrote.
pub const ANNOTATION_OWNED: &str = "node-agent.harvesterhci.io/owned-labels";
/// The last migration that was seen, as a JSON object of `from`, `to` and `at`.
pub const ANNOTATION_MIGRATION: &str = "node-agent.harvesterhci.io/last-migration";

/// How long reads may fail before a condition that was true says that it is not known any more. A failover of Harvester's
/// VIP or a restart of an API server is shorter.
const CONDITION_PATIENCE: Duration = Duration::from_secs(60);

/// The moment of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// Since the start of the process, on a clock that never jumps.
    pub uptime: Duration,
    /// The wall clock, for texts and expiry only.
    pub wall: UtcDateTime,
    /// Fresh randomness.
    pub random: Random,
}

/// What is remembered from one decision to the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Our own instance when it was last read; names are judged against it while the API is away.
    pub last_vmi: Option<Vmi>,
    /// The other instances of that time: a name of theirs stays dangerous while the API is away.
    pub last_others: Vec<VmName>,
    /// The host that ran us when it was last read, and since when we know of it.
    pub host: Option<(HostName, Duration)>,
    /// Since when Harvester cannot be read.
    pub unread_since: Option<Duration>,
    /// Decisions in a row that wait for something passing.
    pub failures: u32,
    /// Why our last change of the Node was refused, until it is accepted or not wanted any more.
    pub refusal: Option<Refused>,
    /// The last migration.
    pub last_migration: Option<Migration>,
    /// Who writes the same labels.
    pub rivalry: Rivalry,
}

/// A change of our Node that the API refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Which change.
    pub write: Write,
    /// One line for people.
    pub text: String,
    /// Whether the same change may be accepted later, with nothing changed here.
    pub passing: bool,
    /// How long the server asked us to stay away.
    pub retry_after: Option<Duration>,
}

/// The kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Labels and annotations.
    Node,
    /// Conditions.
    Conditions,
}

/// A move from one host to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// The host before.
    pub from: String,
    /// The host after.
    pub to: String,
    /// When the agent saw it, RFC 3339.
    pub at: String,
}

/// How patient a decision is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The daemon: short troubles change no condition, and Harvester gets a moment to write its annotations.
    Daemon,
    /// One look, now.
    Once,
}

/// What to do, and what to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Writes, in order.
    pub actions: Vec<Action>,
    /// Complaints, worst first, without those that another explains.
    pub findings: Vec<Finding>,
    /// How the labels stand.
    pub sync: Sync,
    /// The label changes and what was left alone.
    pub labels: LabelPlan,
    /// A move that this decision is the first to see.
    pub moved: Option<Migration>,
    /// When to look again if nothing happens.
    pub next: Duration,
    /// What to remember.
    pub memory: Memory,
}

/// One write. There are no others: never taints, `spec`, `ownerReferences`, or any other Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Labels and annotations of our own Node, in one merge patch.
    PatchNode(NodePatch),
    /// Conditions of our own Node, in one strategic merge patch of its status.
    PatchConditions(ConditionsPatch),
}

impl Action {
    /// Which kind of change it is.
    pub fn write(&self) -> Write {
        match self {
            Self::PatchNode(_) => Write::Node,
            Self::PatchConditions(_) => Write::Conditions,
        }
    }
}

/// A change of labels and annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePatch {
    /// Our own Node.
    pub node: NodeName,
    /// Its UID; the API refuses the patch when the Node was made anew since.
    pub uid: String,
    /// Sent when something is removed, so that a newer change by somebody else is not lost.
    pub resource_version: Option<String>,
    /// Label to new value; `None` removes.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotation to new value.
    pub annotations: BTreeMap<String, String>,
    /// Sent once the patch is accepted.
    pub announce: Option<EventDraft>,
}

/// A change of conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionsPatch {
    /// Our own Node.
    pub node: NodeName,
    /// Its UID, for the Events.
    pub uid: String,
    /// The conditions, each with whether its status changes, which is what `lastTransitionTime` tells.
    pub conditions: Vec<(conditions::Wanted, Transition)>,
    /// Sent once the patch is accepted.
    pub announce: Vec<EventDraft>,
}

/// Whether the status of a condition changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Another status than before.
    NewStatus,
    /// Only reason or message.
    SameStatus,
}

/// The most that one observation knows.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Who we are.
    pub who: &'a Who,
    /// The judgement of that.
    pub identity: &'a Identity,
    /// Where we are.
    pub placement: Option<&'a Placement>,
}

/// Decides.
pub fn plan(
    settings: &Settings,
    seen: Seen<'_>,
    memory: &Memory,
    patience: Patience,
    now: Now,
) -> Plan {
    let Seen {
        who,
        identity,
        placement,
    } = seen;
    let mut memory = memory.clone();
    let moved = remember(&mut memory, seen, now);
    let node = who.node.known();
    let settling = match patience {
        Patience::Daemon => settling(settings, seen, &memory, now),
        Patience::Once => None,
    };
    let mut labels = LabelPlan::default();
    if let (Some(node), Some(placement), None) = (node, placement, settling) {
        let labelled_host = node.annotations.get(ANNOTATION_HOST).map(String::as_str);
        let owned = Owned::parse(node.annotations.get(ANNOTATION_OWNED));
        labels = plan_labels(settings, node, placement, labelled_host, &owned);
    }
    let stand_down = node.and_then(|node| {
        memory
            .rivalry
            .judge(node, &labels.changes, now.uptime)
            .cloned()
    });
    let inputs = sync::Inputs {
        identity,
        placement,
        labels: &labels,
        settling: settling.is_some(),
        stand_down: stand_down.as_ref(),
        // A refusal that may pass changes no condition.
        refusal: memory
            .refusal
            .as_ref()
            .filter(|refused| !refused.passing)
            .map(|refused| refused.text.as_str()),
    };
    let sync = sync::state(&inputs);
    let mut actions = Vec::new();
    if let (Some(node), Some(vmi), Some(placement), None, None) =
        (node, identity.vmi(), placement, &stand_down, settling)
    {
        actions.extend(
            node_patch(settings, node, vmi, placement, &labels, &memory).map(Action::PatchNode),
        );
    }
    if let Some(node) = node {
        let patient = patience == Patience::Daemon
            && memory
                .unread_since
                .is_some_and(|since| now.uptime.saturating_sub(since) < CONDITION_PATIENCE);
        actions.extend(
            conditions_patch(settings, node, identity, &sync, patient).map(Action::PatchConditions),
        );
    }
    let wanted = |refused: &Refused| actions.iter().any(|action| action.write() == refused.write);
    if !memory.refusal.as_ref().is_some_and(wanted) {
        memory.refusal = None;
    }
    let findings = complaints::raise(
        settings,
        seen,
        &labels,
        &sync,
        stand_down.as_ref(),
        &memory,
        now,
    );
    let next = next_look(settings, seen, &mut memory, settling, now);
    Plan {
        actions,
        findings,
        sync,
        labels,
        moved,
        next,
        memory,
    }
}

/// Takes note of where we are and how long reads have failed. Answers a move that was not known before.
fn remember(memory: &mut Memory, seen: Seen<'_>, now: Now) -> Option<Migration> {
    if trouble(seen).is_empty() {
        memory.unread_since = None;
    } else {
        memory.unread_since.get_or_insert(now.uptime);
    }
    if let Some(vmi) = seen.identity.vmi() {
        memory.last_vmi = Some(vmi.clone());
        let others = seen
            .who
            .candidates
            .known()
            .map(|candidates| candidates.vmis.as_slice())
            .unwrap_or_default();
        memory.last_others = others
            .iter()
            .map(|other| other.name.clone())
            .filter(|name| *name != vmi.name)
            .collect();
    }
    let host = seen.placement.map(|placement| placement.host.clone())?;
    let labelled = seen
        .who
        .node
        .known()
        .and_then(|node| node.annotations.get(ANNOTATION_HOST))
        .cloned();
    let before = memory.host.as_ref().map(|(host, _)| host.to_string());
    let first = before.is_none();
    if before.as_deref() != Some(host.as_str()) {
        memory.host = Some((host.clone(), now.uptime));
    }
    // After a restart the annotation tells where we were: a move while the agent was down is a move as well.
    let from = before.or(labelled).filter(|from| *from != host.as_str())?;
    let known = |last: &Migration| last.from == from && last.to == host.as_str();
    if first && memory.last_migration.as_ref().is_some_and(known) {
        return None;
    }
    let migration = Migration {
        from,
        to: host.to_string(),
        at: rfc3339(now.wall),
    };
    memory.last_migration = Some(migration.clone());
    Some(migration)
}

/// Reads that failed and may go well soon.
fn trouble(seen: Seen<'_>) -> Vec<&Why> {
    let reads = [seen.who.candidates.why(), seen.who.node.why()];
    let of_host = seen
        .placement
        .filter(|placement| placement.known.is_none() || placement.host_labels.is_none());
    let of_host = of_host.and_then(|placement| placement.trouble.as_ref());
    reads
        .into_iter()
        .flatten()
        .chain(of_host)
        .filter(|why| why.kind.is_passing())
        .collect()
}

/// How much longer to wait for Harvester's own annotations.
///
/// Harvester's cloud provider compares annotations and labels at each event of the VM. Labels that are newer than the
/// annotations would make it taint the Node and write the old values again, so on its Nodes we let Harvester go first.
fn settling(settings: &Settings, seen: Seen<'_>, memory: &Memory, now: Now) -> Option<Duration> {
    let vmi = seen.identity.vmi()?;
    let by_cloud_provider = seen
        .who
        .node
        .known()
        .is_some_and(|node| node.vm_uid().is_some());
    let (_, since) = memory.host.as_ref()?;
    let waited = now.uptime.saturating_sub(*since);
    let expected = vmi.annotated_by_harvester && !vmi.annotations_are_fresh();
    let only_source = !matches!(
        seen.placement.and_then(|placement| placement.known.as_ref()),
        Some(Known { topology, .. }) if !topology.is_empty()
    );
    (expected && (by_cloud_provider || only_source))
        .then(|| settings.timing.settle.saturating_sub(waited))
        .filter(|left| !left.is_zero())
}

/// When to look again if nothing happens.
fn next_look(
    settings: &Settings,
    seen: Seen<'_>,
    memory: &mut Memory,
    settling: Option<Duration>,
    now: Now,
) -> Duration {
    let passing = trouble(seen);
    let refused = memory.refusal.as_ref();
    let asked = passing
        .iter()
        .filter_map(|why| why.retry_after)
        .chain(refused.and_then(|r| r.retry_after))
        .max();
    let trouble =
        !passing.is_empty() || refused.is_some() || seen.who.node == crate::facts::Seen::Absent;
    memory.failures = if trouble {
        memory.failures.saturating_add(1)
    } else {
        0
    };
    let usual = if trouble {
        schedule::retry(memory.failures, asked, now.random)
    } else {
        let machine = seen.who.machine.phase();
        schedule::poll(settings.timing.poll, machine, now.uptime, now.random)
    };
    settling.map_or(usual, |left| left.min(usual))
}

/// RFC 3339 with seconds, as Kubernetes writes times.
pub fn rfc3339(time: UtcDateTime) -> String {
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.as_hms();
    format!(
        "{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z",
        u8::from(month)
    )
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
