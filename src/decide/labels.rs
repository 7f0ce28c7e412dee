// SPDX-License-Identifier: Apache-2.0
//! Decides which labels of our own Node to change: compares wanted, present and owned labels.
//!
//! All changes that belong together are in one plan and therefore in one patch: region, zone, their deprecated beta keys and the
//! host label never belong to two different hosts, unless `on_change = "hold"` keeps region and zone of an earlier one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::placement::Placement;
use crate::config::{LabelKey, OnChange, Settings};
use crate::facts::node::Node;
use crate::facts::topology::{LabelValue, TWINS, is_topology_key};

/// The maximum number of owned labels: region and zone under both keys, the host, and the extra labels.
const OWNED_MAX: usize = 64;

/// The changes, and the labels that are skipped with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelPlan {
    /// Keys with their new values; `None` removes the label.
    pub changes: BTreeMap<String, Option<String>>,
    /// The owned labels after the changes: keys with the value that we wrote or adopted.
    pub owned: Owned,
    /// The skipped labels.
    pub left: Vec<Left>,
}

/// The labels that we own, with the values that we wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned(pub BTreeMap<String, String>);

impl Owned {
    /// Parses the annotation. Text that is not valid owns nothing, so that no label is removed. Other writers can change the
    /// annotation, so it counts only for labels that the agent may write, and for at most 64 of them.
    pub fn parse(text: Option<&String>) -> Self {
        let read = text.and_then(|text| serde_json::from_slice(text.as_bytes()).ok());
        let Self(mut labels) = read.unwrap_or_default();
        let may_be_ours = |key: &str| {
            is_topology_key(key)
                || LabelKey::parse(key).is_ok_and(|key| key.check_writable().is_ok())
        };
        labels.retain(|key, _| may_be_ours(key));
        while labels.len() > OWNED_MAX {
            labels.pop_last();
        }
        Self(labels)
    }
}

/// A label that differs from the wanted value, or could not be decided, and was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The key.
    pub key: String,
    /// The value on the Node.
    #[serde(rename = "current", skip_serializing_if = "Option::is_none")]
    pub present: Option<String>,
    /// The value of the host.
    #[serde(rename = "desired", skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// The reason why it was not changed.
    pub reason: SkipReason,
}

impl Left {
    fn new(node: &Node, key: &str, wanted: Option<&str>, reason: SkipReason) -> Self {
        Self {
            key: key.to_owned(),
            present: node.labels.get(key).cloned(),
            wanted: wanted.map(str::to_owned),
            reason,
        }
    }
}

/// The reason why a label was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// Configured with `topology.on_change = "hold"`.
    Pinned,
    /// Configured with `topology.on_change = "report"`.
    ReportOnly,
    /// Set by another writer.
    NotManaged,
    /// Missing on the host, and `topology.remove_stale` is off or the label is not ours.
    HostHasNone,
    /// Skipped because changing it alone would mix the labels of two hosts.
    WouldMix,
    /// Unknown: the labels of the host cannot be read at present.
    HostNotRead,
}

/// Plans the labels. `labeled_host` is the host for which the labels on the Node were written, according to our annotation.
pub fn plan_labels(
    settings: &Settings,
    node: &Node,
    placement: &Placement,
    labeled_host: Option<&str>,
    owned: &Owned,
) -> LabelPlan {
    let mut plan = LabelPlan {
        owned: owned.clone(),
        ..LabelPlan::default()
    };
    if settings.topology.on_change == OnChange::Report {
        report_only(settings, node, placement, &mut plan);
        return plan;
    }
    let moved = labeled_host != Some(placement.host.as_str());
    let (topology, left) = plan_topology(settings, node, placement, owned);
    // If one of region and zone must stay while the other or the host label would change, the labels of two hosts would be mixed.
    let stays = left
        .iter()
        .any(|left| left.reason == SkipReason::HostHasNone);
    let undecided = placement.known.is_none() && carries_topology(node);
    if moved && (stays || undecided) {
        let present = TWINS
            .iter()
            .filter(|(key, _)| node.labels.contains_key(*key));
        let reason = SkipReason::WouldMix;
        let left = present.map(|(key, _)| Left::new(node, key, placement.value(key), reason));
        plan.left = left.collect();
        return plan;
    }
    plan.left = left;
    for (key, value) in topology {
        plan.change(node, &key, value);
    }
    for (key, twin) in TWINS {
        plan.adopt(node, key, placement.value(key));
        plan.adopt(node, twin, placement.value(key));
    }
    plan_host_label(settings, node, placement, owned, &mut plan);
    plan_extra(settings, node, placement, owned, moved, &mut plan);
    plan
}

fn carries_topology(node: &Node) -> bool {
    TWINS
        .iter()
        .any(|(key, twin)| node.labels.contains_key(*key) || node.labels.contains_key(*twin))
}

impl LabelPlan {
    fn change(&mut self, node: &Node, key: &str, value: Option<String>) {
        if node.labels.get(key) != value.as_ref() {
            self.changes.insert(key.to_owned(), value.clone());
        }
        match value {
            Some(value) => self.owned.0.insert(key.to_owned(), value),
            None => self.owned.0.remove(key),
        };
    }

    /// Removes a label that still has the value that we wrote. If another writer changed it, we only stop owning it.
    fn drop(&mut self, node: &Node, owned: &Owned, key: &str) {
        if node
            .labels
            .get(key)
            .is_some_and(|present| owned.0.get(key) == Some(present))
        {
            self.change(node, key, None);
        } else {
            self.owned.0.remove(key);
        }
    }

    /// Takes ownership of a label that already has the wanted value.
    fn adopt(&mut self, node: &Node, key: &str, wanted: Option<&str>) {
        if let (Some(present), Some(wanted)) = (node.labels.get(key), wanted)
            && present == wanted
        {
            self.owned.0.insert(key.to_owned(), present.clone());
        }
    }
}

type Changes = Vec<(String, Option<String>)>;

/// Plans region and zone with their beta keys: returns the values to set or remove, and the skipped labels.
fn plan_topology(
    settings: &Settings,
    node: &Node,
    placement: &Placement,
    owned: &Owned,
) -> (Changes, Vec<Left>) {
    let mut changes = Vec::new();
    let mut left = Vec::new();
    let Some(known) = &placement.known else {
        return (changes, left);
    };
    for (key, twin) in TWINS {
        let present = node.labels.get(key).or_else(|| node.labels.get(twin));
        let wanted = placement.value(key);
        let mut leave = |reason| {
            let present = present.cloned();
            left.push(Left {
                present,
                ..Left::new(node, key, wanted, reason)
            });
        };
        let with_twin = |value: Option<&str>| {
            let twin = node.labels.contains_key(twin).then_some(twin);
            let keys = [Some(key), twin].into_iter().flatten();
            keys.map(|key| (key.to_owned(), value.map(str::to_owned)))
                .collect::<Vec<_>>()
        };
        match (wanted, present) {
            // Region and zone are held together, because both must belong to one host.
            (wanted, present)
                if settings.topology.on_change == OnChange::Hold && carries_topology(node) =>
            {
                if wanted.is_some() && wanted != present.map(String::as_str) {
                    leave(SkipReason::Pinned);
                }
            }
            (Some(wanted), _) => changes.extend(with_twin(Some(wanted))),
            (None, None) => {}
            (None, Some(_)) => {
                let removable = settings.topology.remove_stale
                    && settings.topology.on_change == OnChange::Follow
                    && known.is_complete
                    && owned
                        .0
                        .get(key)
                        .is_some_and(|ours| node.labels.get(key) == Some(ours));
                if removable {
                    changes.extend(with_twin(None));
                } else {
                    leave(SkipReason::HostHasNone);
                }
            }
        }
    }
    (changes, left)
}

fn plan_host_label(
    settings: &Settings,
    node: &Node,
    placement: &Placement,
    owned: &Owned,
    plan: &mut LabelPlan,
) {
    if let Some(key) = settings.topology.host_label.as_ref().map(LabelKey::as_str) {
        let host = placement.host.as_str();
        match LabelValue::parse(host) {
            Ok(_) => plan.change(node, key, Some(host.to_owned())),
            // A host name may be longer than a label value. A truncated name could be the name of another host.
            Err(_) => {
                let left = Left::new(node, key, Some(host), SkipReason::HostHasNone);
                plan.left.push(left);
            }
        }
    }
    // Labels that we own and that are no longer configured: an earlier host label, removed extra labels.
    for key in owned.0.keys() {
        let mut wanted = settings
            .topology
            .host_label
            .iter()
            .chain(settings.labels.extra.keys());
        let is_wanted = wanted.any(|wanted| wanted.as_str() == key);
        if !is_topology_key(key) && !is_wanted {
            plan.drop(node, owned, key);
        }
    }
}

/// Plans the labels of the allow-list. Unlike topology labels, a label that another writer set is never changed.
fn plan_extra(
    settings: &Settings,
    node: &Node,
    placement: &Placement,
    owned: &Owned,
    moved: bool,
    plan: &mut LabelPlan,
) {
    // Labels of the previous host stay until those of the new host can be read. This is reported and retried.
    let unread = |plan: &mut LabelPlan, key: &str| {
        if moved && owned.0.contains_key(key) {
            let left = Left::new(node, key, None, SkipReason::HostNotRead);
            plan.left.push(left);
        }
    };
    let Some(extra) = &placement.extra else {
        let keys = settings.labels.extra.keys();
        keys.for_each(|key| unread(plan, key.as_str()));
        return;
    };
    for label in settings.labels.extra.keys() {
        let key = label.as_str();
        let present = node.labels.get(key).map(String::as_str);
        let value = extra.values.get(label);
        let wanted = value.map(|value| match value {
            Ok(value) => value.as_str(),
            Err(illegal) => illegal.value.as_str(),
        });
        let ours = owned.0.contains_key(key) || present.is_none() || present == wanted;
        match wanted {
            Some(wanted) if value.is_some_and(Result::is_ok) && ours => {
                plan.change(node, key, Some(wanted.to_owned()));
            }
            None if !extra.is_complete => unread(plan, key),
            None if owned.0.contains_key(key) => plan.drop(node, owned, key),
            None => {}
            Some(wanted) => {
                let left = Left::new(node, key, Some(wanted), SkipReason::NotManaged);
                plan.left.push(left);
            }
        }
    }
}

/// Reports the differences without changes.
fn report_only(settings: &Settings, node: &Node, placement: &Placement, plan: &mut LabelPlan) {
    let topology = TWINS.map(|(key, _)| (key, placement.value(key)));
    let host = settings.topology.host_label.iter();
    let host = host.map(|key| (key.as_str(), Some(placement.host.as_str())));
    for (key, wanted) in topology.into_iter().chain(host) {
        let present = node.labels.get(key).map(String::as_str);
        if present != wanted && wanted.is_some() {
            let left = Left::new(node, key, wanted, SkipReason::ReportOnly);
            plan.left.push(left);
        }
    }
}

#[cfg(test)]
mod tests;
