// SPDX-License-Identifier: Apache-2.0
//! Decides which labels a kubelet that starts gets.
//!
//! These are the labels that our Node has by policy, not the labels of the host: the kubelet, and RKE2 and K3s before it, set their
//! labels again at each start. `gate --labels` passes them on.

use serde::{Deserialize, Serialize};

use super::input::Scene;
use super::labels::LabelPlan;
use crate::config::{LabelKey, OnChange, Settings};
use crate::facts::registration::Labels;
use crate::facts::topology::{LabelValue, REGION, ZONE};
use crate::facts::{self, UnavailableKind};

/// The labels for a kubelet that starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The labels; missing while they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
}

/// Reports whether a kubelet that starts gets labels. With `on_change = "report"`, we register no labels.
pub fn is_wanted(settings: &Settings) -> bool {
    settings.registration.node_labels && settings.topology.on_change != OnChange::Report
}

/// Returns the labels, if it gets any. `plan` contains the changes of our Node in this round; it is empty if there are none.
pub fn decide(seen: Scene<'_>, plan: &LabelPlan) -> Option<Registration> {
    is_wanted(seen.settings).then(|| Registration {
        labels: labels(seen, plan),
    })
}

/// Returns the labels of our Node after the plan, or those of a new Node if it does not exist yet.
fn labels(seen: Scene<'_>, plan: &LabelPlan) -> Option<Labels> {
    // A kubelet with the name of another VM must not change the labels of that VM's Node.
    let placement = seen
        .placement
        .filter(|_| !seen.identity.is_named_as_another())?;
    let host_label = &seen.settings.topology.host_label;
    let keys = [REGION, ZONE]
        .into_iter()
        .chain(host_label.as_ref().map(LabelKey::as_str));
    if let facts::Fact::Known(node) = &seen.observation.node {
        let after = |key: &str| match plan.changes.get(key) {
            Some(change) => change.clone(),
            None => LabelValue::parse(node.labels.get(key)?).ok(),
        };
        let labels = keys.filter_map(|key| Some((key.to_owned(), after(key)?)));
        return Some(labels.collect());
    }
    let has_no_kubelet =
        matches!(seen.observation.kubelet.why(), Some(why) if why.kind == UnavailableKind::Missing);
    // If the Node cannot be read at present, its labels are unknown.
    if !has_no_kubelet && seen.observation.node != facts::Fact::Absent {
        return None;
    }
    let topology = &placement.known.as_ref()?.topology;
    let value = |key: &str| match key {
        REGION | ZONE => topology.value(key).cloned(),
        _ => LabelValue::parse(placement.host.as_str()).ok(),
    };
    let labels = keys.filter_map(|key| Some((key.to_owned(), value(key)?)));
    Some(labels.collect())
}

#[cfg(test)]
mod tests;
