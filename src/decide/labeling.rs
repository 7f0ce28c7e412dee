// SPDX-License-Identifier: Apache-2.0
//! Decides about the labels of our Node: which changes are wanted, and whether their patch is sent now, later, or not at all.
//! `doing.rs` has the types of the result.

use std::time::Duration;

use super::action::{Action, NodePatch};
use super::doing::{Doing, Labeling};
use super::input::Scene;
use super::labels::{LabelPlan, Owned, plan_labels};
use super::memory::Memory;
use super::patches::node_patch;
use super::placement::Known;
use crate::facts::Fact;
use crate::facts::node::ANNOTATION_OWNED;

/// Decides what to do about the labels.
pub(super) fn labeling(seen: Scene<'_>, memory: &mut Memory) -> Labeling {
    let mut labels = LabelPlan::default();
    let mut conflict = None;
    let settling = settling(seen, memory);
    let is_of_another = seen.identity.is_named_as_another();
    let doing = match (settling, seen.observation.node.known(), seen.placement) {
        (Some(left), ..) => {
            conflict = memory.conflicts.known().cloned();
            Doing::Settling(seen.now.uptime + left)
        }
        (None, Some(node), Some(placement)) if !is_of_another => {
            let owned = Owned::parse(node.annotations.get(ANNOTATION_OWNED));
            let mut sources = seen.settings.topology.sources.iter();
            let is_asked = sources.any(|source| source.has_all());
            if placement.extra.is_some() || placement.extra_unknown.is_some() || !is_asked {
                memory.extra_unknown = placement.extra_unknown;
            }
            labels = plan_labels(seen.settings, node, placement, &owned, memory.extra_unknown);
            let patch = node_patch(seen, node, placement, &labels, memory);
            let tracker = &mut memory.conflicts;
            let writer = tracker.judge(node, &placement.host, patch.as_ref(), seen.now.uptime);
            let until = writer.map(|stand| stand.until);
            conflict = tracker.known().cloned();
            let patch = patch.or_else(|| memory.lost(node));
            doing(patch, until, seen, memory)
        }
        (None, None, Some(_)) if !is_of_another => {
            let is_unread = seen.observation.node != Fact::Absent;
            conflict = memory.conflicts.known().filter(|_| is_unread).cloned();
            Doing::Undecided
        }
        (None, Some(_), Some(_)) => Doing::NotOurs,
        (None, ..) => Doing::Undecided,
    };
    Labeling {
        labels,
        doing,
        conflict,
    }
}

/// Returns what to do about a patch; it must not be sent before `until`, because of another writer.
fn doing(
    patch: Option<NodePatch>,
    until: Option<Duration>,
    seen: Scene<'_>,
    memory: &Memory,
) -> Doing {
    let Some(patch) = patch else {
        return match memory.window {
            Some(_) => Doing::WindowOpen,
            None => Doing::Settled,
        };
    };
    // A source that changes constantly must not cause constant writes.
    let is_held = || memory.is_held(&Action::PatchNode(patch.clone()), seen);
    match (memory.writes.left(seen.now.uptime), until) {
        (Some(left), _) => Doing::Withheld(seen.now.uptime + left),
        (None, Some(until)) => Doing::BackingOff(until),
        (None, None) if is_held() => Doing::Rejected,
        (None, None) => Doing::Writing(patch),
    }
}

/// Returns how long to wait for Harvester's own annotations.
///
/// Harvester's cloud provider compares annotations and labels at each event of the VM. Labels that are newer than the annotations
/// would make it taint the Node and write the old values again, so on its Nodes Harvester writes first.
fn settling(seen: Scene<'_>, memory: &Memory) -> Option<Duration> {
    let vmi = seen.identity.vmi();
    let vmi = vmi.filter(|_| seen.is_daemon)?;
    let by_cloud_provider = seen.observation.node_vm_uid().is_some();
    let (_, since) = memory.host.as_ref()?;
    let waited = seen.now.uptime.saturating_sub(*since);
    let expected = vmi.annotated_by_harvester && vmi.annotations_of_host().is_none();
    let only_source = !matches!(
        seen.placement.and_then(|placement| placement.known.as_ref()),
        Some(Known { topology, .. }) if !topology.is_empty()
    );
    (expected && (by_cloud_provider || only_source))
        .then(|| seen.settings.timing.settle.saturating_sub(waited))
        .filter(|left| !left.is_zero())
}
