// SPDX-License-Identifier: Apache-2.0
//! Decides which labels of our own Node to change: compares wanted, present and owned labels.
//!
//! All changes that belong together are in one plan and therefore in one patch: region, zone, their deprecated beta keys and the
//! host label never belong to two different hosts, unless `on_change = "hold"` keeps region and zone of an earlier one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::placement::{Placement, PlacementOutcome};
use crate::config::{EXTRA_MAX, LabelKey, OnChange, Settings};
use crate::facts::node::Node;
use crate::facts::topology::{LabelValue, TWINS, is_topology_key};

/// The changes, and the labels that are skipped with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelPlan {
    /// Keys with their new values; `None` removes the label.
    pub changes: BTreeMap<String, Option<LabelValue>>,
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
    /// annotation, so it counts only for labels that the agent may write: region and zone under both keys, and as many others as the
    /// host and the extra labels can be.
    pub fn parse(text: Option<&String>) -> Self {
        let read = text.and_then(|text| serde_json::from_slice(text.as_bytes()).ok());
        let Self(mut labels) = read.unwrap_or_default();
        let may_be_ours =
            |key: &str| LabelKey::parse(key).is_ok_and(|key| key.check_writable().is_ok());
        let mut others = 0..=EXTRA_MAX;
        labels.retain(|key, _| is_topology_key(key) || may_be_ours(key) && others.next().is_some());
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
    /// Unknown: the labels of the host cannot be read.
    HostNotRead,
    /// Not possible: the name of the host is not a valid label value. A label with that of an earlier host is removed.
    HostNameInvalid,
    /// Not possible: the value of the host is not a valid label value.
    ValueInvalid,
}

/// A label that may be changed.
struct Row<'a> {
    key: &'a str,
    /// Its deprecated key, if the Node has it: both always change together.
    twin: Option<&'a str>,
    /// The value of the host, or a text of the host that cannot be a value.
    wanted: Option<Result<LabelValue, String>>,
    rule: Rule,
}

/// When a label is changed.
#[derive(PartialEq, Eq)]
enum Rule {
    /// Never.
    Report,
    /// Never: it is the region or zone of the host on which the labels are held.
    Hold,
    /// Always: it is the region or zone of the host. It is removed if the host provably has none and `may_remove` is set.
    Follow { may_remove: bool },
    /// Always: it is the name of the host. It is removed if it is ours and that name is not a label value.
    Host,
    /// If no other writer set it: it is a label of the allow-list. It is removed if it is ours and the host has none.
    Extra,
    /// Never: it is a label of the allow-list that is not read, and that of an earlier host may stay, or none be set.
    Unread,
    /// It is owned, but not configured any more: an earlier host label, an extra label.
    Drop,
}

/// What happens to a label.
#[derive(PartialEq, Eq)]
enum Verdict {
    /// It gets this value, and is ours.
    Set(LabelValue),
    /// It is removed.
    Remove,
    /// It stays, but is not ours any more.
    Disown,
    /// It stays.
    Keep,
    /// It stays, and differs or could not be decided.
    Leave(SkipReason),
}

impl<'a> Row<'a> {
    fn new(key: &'a str, wanted: Option<Result<LabelValue, String>>, rule: Rule) -> Self {
        Self {
            key,
            twin: None,
            wanted,
            rule,
        }
    }

    /// Returns what the host has.
    fn text(&self) -> Option<&str> {
        let wanted = self.wanted.as_ref()?.as_ref();
        Some(wanted.map_or_else(String::as_str, LabelValue::as_str))
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        [Some(self.key), self.twin].into_iter().flatten()
    }

    fn present<'n>(&self, node: &'n Node) -> Option<&'n str> {
        let mut values = self.keys().filter_map(|key| node.labels.get(key));
        values.next().map(String::as_str)
    }

    /// Decides about this label of the Node.
    fn verdict(&self, node: &Node, owned: &Owned) -> Verdict {
        let present = self.present(node);
        let is_same = self.text() == present;
        // Whether the label is as we wrote it, if it is ours.
        let owned = owned.0.get(self.key);
        let owned = owned.map(|ours| node.labels.get(self.key) == Some(ours));
        match (&self.rule, &self.wanted) {
            (Rule::Report | Rule::Hold, wanted) if wanted.is_none() || is_same => Verdict::Keep,
            (Rule::Report, _) => Verdict::Leave(SkipReason::ReportOnly),
            (Rule::Hold, _) => Verdict::Leave(SkipReason::Pinned),
            (Rule::Follow { .. } | Rule::Host, Some(Ok(wanted))) => Verdict::Set(wanted.clone()),
            (Rule::Follow { .. }, _) if present.is_none() => Verdict::Keep,
            (Rule::Follow { may_remove: true }, _) if owned == Some(true) => Verdict::Remove,
            (Rule::Follow { .. }, _) => Verdict::Leave(SkipReason::HostHasNone),
            // The name of a host may be longer than a label value. A truncated name could be the name of another host.
            (Rule::Host, _) if owned == Some(true) => Verdict::Remove,
            (Rule::Host, _) => Verdict::Leave(SkipReason::HostNameInvalid),
            (Rule::Extra, Some(Ok(wanted))) if owned.is_some() || present.is_none() || is_same => {
                Verdict::Set(wanted.clone())
            }
            (Rule::Extra, Some(Ok(_))) => Verdict::Leave(SkipReason::NotManaged),
            (Rule::Extra, Some(Err(_))) => Verdict::Leave(SkipReason::ValueInvalid),
            (Rule::Unread, _) => Verdict::Leave(SkipReason::HostNotRead),
            (Rule::Extra | Rule::Drop, _) if owned == Some(true) => Verdict::Remove,
            (Rule::Extra | Rule::Drop, _) => Verdict::Disown,
        }
    }

    fn left(&self, node: &Node, reason: SkipReason) -> Left {
        Left {
            key: self.key.to_owned(),
            present: self.present(node).map(str::to_owned),
            wanted: self.text().map(str::to_owned),
            reason,
        }
    }
}

/// Plans the labels. `unknown`: why extra labels stay unknown, as was last seen.
pub fn plan_labels(
    settings: &Settings,
    node: &Node,
    placement: &Placement,
    owned: &Owned,
    unknown: Option<PlacementOutcome>,
) -> LabelPlan {
    // The host for which the labels on the Node were written.
    let is_moved = node.labeled_host() != Some(placement.host.as_str());
    let rows = rows(settings, node, placement, owned, unknown, is_moved);
    let mut plan = LabelPlan {
        owned: owned.clone(),
        ..LabelPlan::default()
    };
    // If one of region and zone must stay while the other or the host label would change, the labels of two hosts would be mixed.
    let stays = |row: &Row<'_>| {
        let is_topology = matches!(row.rule, Rule::Follow { .. });
        is_topology && row.verdict(node, owned) == Verdict::Leave(SkipReason::HostHasNone)
    };
    let is_undecided = placement.known.is_none() && carries_topology(node);
    let is_written = settings.topology.on_change != OnChange::Report;
    if is_written && is_moved && (is_undecided || rows.iter().any(stays)) {
        let rows = TWINS.map(|(key, _)| {
            let wanted = placement.value(key).cloned();
            Row::new(key, wanted.map(Ok), Rule::Report)
        });
        let present = rows.iter().filter(|row| row.present(node).is_some());
        let left = present.map(|row| row.left(node, SkipReason::WouldMix));
        plan.left = left.collect();
        return plan;
    }
    for row in rows {
        plan.apply(node, &row, &row.verdict(node, owned));
    }
    plan
}

fn carries_topology(node: &Node) -> bool {
    node.labels.keys().any(|key| is_topology_key(key))
}

/// Returns the labels that may be changed: region and zone if they are known, then the host, then all others.
fn rows<'a>(
    settings: &'a Settings,
    node: &Node,
    placement: &'a Placement,
    owned: &'a Owned,
    unknown: Option<PlacementOutcome>,
    is_moved: bool,
) -> Vec<Row<'a>> {
    let topology = &settings.topology;
    let is_report = topology.on_change == OnChange::Report;
    let mut rows = Vec::new();
    if let Some(known) = &placement.known {
        let rule = || match topology.on_change {
            OnChange::Report => Rule::Report,
            // Region and zone are held together, because both must belong to one host.
            OnChange::Hold if carries_topology(node) => Rule::Hold,
            OnChange::Hold | OnChange::Follow => Rule::Follow {
                may_remove: topology.remove_stale && known.is_complete,
            },
        };
        rows.extend(TWINS.map(|(key, twin)| {
            let wanted = known.topology.value(key).cloned();
            let twin = Some(twin).filter(|twin| !is_report && node.labels.contains_key(*twin));
            Row {
                twin,
                ..Row::new(key, wanted.map(Ok), rule())
            }
        }));
    }
    let host = placement.host.as_str();
    rows.extend(topology.host_label.iter().map(|key| {
        let wanted = LabelValue::parse(host).map_err(|_| host.to_owned());
        let rule = if is_report { Rule::Report } else { Rule::Host };
        Row::new(key.as_str(), Some(wanted), rule)
    }));
    if is_report {
        return rows;
    }
    let extra = &settings.labels.extra;
    let is_configured = |key: &str| {
        let mut keys = topology.host_label.iter().chain(extra.keys());
        is_topology_key(key) || keys.any(|configured| configured.as_str() == key)
    };
    let dropped = owned.0.keys().filter(|key| !is_configured(key));
    rows.extend(dropped.map(|key| Row::new(key, None, Rule::Drop)));
    let of_host = placement.extra.as_ref();
    let is_complete = of_host.is_some_and(|of_host| of_host.is_complete);
    // After a refusal for good, nothing else shows that the label may be that of an earlier host, or is never set.
    let is_never_set = of_host.is_none() && unknown == Some(PlacementOutcome::Failed);
    let is_unread = |key: &str| match owned.0.contains_key(key) {
        true => is_moved || unknown.is_some(),
        false => is_never_set && !node.labels.contains_key(key),
    };
    rows.extend(extra.keys().filter_map(|key| {
        let value = of_host.and_then(|of_host| of_host.values.get(key).cloned());
        let wanted = value.map(|value| value.map_err(|illegal| illegal.value));
        let rule = match wanted.is_some() || is_complete {
            true => Rule::Extra,
            false => is_unread(key.as_str()).then_some(Rule::Unread)?,
        };
        Some(Row::new(key.as_str(), wanted, rule))
    }));
    rows
}

impl LabelPlan {
    fn apply(&mut self, node: &Node, row: &Row<'_>, verdict: &Verdict) {
        for key in row.keys() {
            let present = node.labels.get(key).map(String::as_str);
            match verdict {
                Verdict::Set(value) => {
                    if present != Some(value.as_str()) {
                        self.changes.insert(key.to_owned(), Some(value.clone()));
                    }
                    self.owned.0.insert(key.to_owned(), value.to_string());
                }
                Verdict::Remove => {
                    self.changes.insert(key.to_owned(), None);
                    self.owned.0.remove(key);
                }
                Verdict::Disown => {
                    self.owned.0.remove(key);
                }
                Verdict::Keep | Verdict::Leave(_) => {
                    // A held label that has the value of the host is ours.
                    let held = row.text().filter(|_| row.rule == Rule::Hold);
                    if let Some(value) = held.filter(|value| Some(*value) == present) {
                        self.owned.0.insert(key.to_owned(), value.to_owned());
                    }
                }
            }
        }
        if let Verdict::Leave(reason) = verdict {
            self.left.push(row.left(node, *reason));
        }
    }
}

#[cfg(test)]
mod tests;
