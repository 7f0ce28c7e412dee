// SPDX-License-Identifier: Apache-2.0
//! Converts decisions to the two patches, or to none if nothing would change.

use std::collections::BTreeMap;

use super::action::{ConditionsPatch, DesiredCondition, NodePatch};
use super::events;
use super::input::Scene;
use super::labels::{LabelPlan, SkipReason};
use super::memory::Memory;
use super::placement::Placement;
use crate::config::OnChange;
use crate::facts::node::{
    ANNOTATION_HOST, ANNOTATION_MIGRATION, ANNOTATION_OWNED, ANNOTATION_SOURCE, ANNOTATION_VM, Node,
};

/// Returns the patch of labels and annotations, if there is a change.
pub fn node_patch(
    seen: Scene<'_>,
    node: &Node,
    placement: &Placement,
    labels: &LabelPlan,
    memory: &Memory,
) -> Option<NodePatch> {
    let settings = seen.settings;
    if settings.topology.on_change == OnChange::Report {
        return None;
    }
    let mut annotations = BTreeMap::new();
    let mut want = |key: &str, value: String| {
        if node.annotations.get(key) != Some(&value) {
            annotations.insert(key.to_owned(), value);
        }
    };
    // The next decision needs the owned labels and the host that the labels belong to, so these two are always written. The host
    // annotation changes together with the labels.
    want(
        ANNOTATION_OWNED,
        serde_json::to_string(&labels.owned).unwrap_or_default(),
    );
    // A source with all labels of the host may still be read.
    let is_unread = placement.extra_unknown.is_none()
        && settings.topology.sources.iter().any(|one| one.has_all());
    let stays = labels.left.iter().any(|left| match left.reason {
        SkipReason::WouldMix | SkipReason::Pinned => true,
        SkipReason::HostNotRead => is_unread,
        _ => false,
    });
    if !stays && placement.known.is_some() {
        want(ANNOTATION_HOST, placement.host.to_string());
    }
    if settings.report.annotations {
        if let Some(vmi) = seen.identity.vmi() {
            want(ANNOTATION_VM, vmi.reference());
        }
        // The other annotations are only written with another change: a source that becomes available and unavailable must not
        // cause writes.
        if !annotations.is_empty() || !labels.changes.is_empty() {
            if let Some(known) = &placement.known {
                annotations.insert(ANNOTATION_SOURCE.to_owned(), known.source.to_string());
            }
            if let Some(migration) = &memory.last_migration {
                let text = serde_json::to_string(migration).unwrap_or_default();
                annotations.insert(ANNOTATION_MIGRATION.to_owned(), text);
            }
            annotations.retain(|key, value| node.annotations.get(key) != Some(value));
        }
    }
    if labels.changes.is_empty() && annotations.is_empty() {
        return None;
    }
    // Not from the annotation: it has the host of the labels, which may be held, and other writers can change it.
    let is_relabeled =
        annotations.contains_key(ANNOTATION_HOST) && node.annotations.contains_key(ANNOTATION_HOST);
    let is_announced = is_relabeled && memory.is_unannounced && settings.report.events;
    let announce = memory
        .last_migration
        .as_ref()
        .filter(|migration| is_announced && migration.to == placement.host.as_str())
        .map(|migration| events::moved(&migration.from, placement, labels));
    let removes = labels.changes.values().any(Option::is_none);
    Some(NodePatch {
        node: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone().filter(|_| removes),
        labels: labels.changes.clone(),
        annotations,
        announce,
    })
}

/// Returns the patch of conditions, if one of them changes.
pub fn conditions_patch(
    seen: Scene<'_>,
    node: &Node,
    wanted: Vec<DesiredCondition>,
) -> Option<ConditionsPatch> {
    let report = &seen.settings.report;
    let changed = wanted.into_iter().filter(|wanted| wanted.is_change(node));
    let conditions: Vec<_> = changed
        .map(|wanted| {
            let present = node.condition(wanted.kind);
            let is_new = present.is_none_or(|present| *present.status != *wanted.status);
            (wanted, is_new)
        })
        .collect();
    let announced = conditions.iter().filter(|_| report.events);
    let announce = announced.filter_map(|(wanted, _)| events::transition(wanted, node));
    let announce = announce.collect();
    (report.node_conditions && !conditions.is_empty()).then(|| ConditionsPatch {
        node: node.name.clone(),
        conditions,
        announce,
    })
}
