// SPDX-License-Identifier: Apache-2.0
//! Our own Node in the guest cluster: the part that the agent reads.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::names::{NodeName, NotAName};
use crate::few::Few;

/// What a providerID of Harvester's cloud provider begins with; the VirtualMachine's UID follows.
const HARVESTER_PROVIDER: &str = "harvester://";

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Wire")]
pub struct Node {
    /// Name.
    pub name: NodeName,
    /// UID; a new one means that the Node was made anew.
    pub uid: String,
    /// `metadata.resourceVersion`, for patches that remove something.
    pub resource_version: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.conditions`.
    pub conditions: Vec<NodeCondition>,
    /// Who wrote each label last, as `metadata.managedFields` tells.
    pub label_managers: BTreeMap<String, String>,
}

impl Node {
    /// The VirtualMachine's UID in `spec.providerID`, where Harvester's cloud provider set it.
    pub fn vm_uid(&self) -> Option<&str> {
        self.provider_id
            .as_deref()
            .and_then(|id| id.strip_prefix(HARVESTER_PROVIDER))
            .filter(|uid| !uid.is_empty())
    }

    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }
}

/// One entry of `status.conditions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// CamelCase reason.
    #[serde(default)]
    pub reason: Option<String>,
    /// Text for people.
    #[serde(default)]
    pub message: Option<String>,
}

/// An object that is not a usable Node.
#[derive(Debug, thiserror::Error)]
pub enum NotANode {
    /// A required field is missing.
    #[error("a Node without `{0}`")]
    Missing(&'static str),
    /// The name breaks the rules of names.
    #[error("a Node with an unusable `metadata.name`")]
    Name(#[source] NotAName),
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    managed_fields: Option<Vec<WireManagedFields>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireManagedFields {
    manager: Option<String>,
    time: Option<String>,
    fields_v1: Option<serde_json::Value>,
}

#[derive(Deserialize, Default)]
struct WireSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Deserialize, Default)]
struct WireStatus {
    conditions: Option<Vec<NodeCondition>>,
}

impl TryFrom<Wire> for Node {
    type Error = NotANode;

    fn try_from(wire: Wire) -> Result<Self, NotANode> {
        let Wire {
            metadata,
            spec,
            status,
        } = wire;
        let name = metadata.name.ok_or(NotANode::Missing("metadata.name"))?;
        Ok(Self {
            name: NodeName::parse(&name).map_err(NotANode::Name)?,
            uid: metadata.uid.ok_or(NotANode::Missing("metadata.uid"))?,
            resource_version: metadata.resource_version,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            provider_id: spec.provider_id.filter(|id| !id.is_empty()),
            conditions: status.conditions.unwrap_or_default(),
            label_managers: label_managers(metadata.managed_fields.unwrap_or_default()),
        })
    }
}

/// The newest manager of each label, by their RFC 3339 times, which compare as text. An object may hold ten thousands of
/// entries: they are looked at once and not sorted.
fn label_managers(entries: Vec<WireManagedFields>) -> BTreeMap<String, String> {
    let mut newest: BTreeMap<String, (Option<String>, String)> = BTreeMap::new();
    for entry in entries {
        let (Some(manager), Some(fields)) = (entry.manager, entry.fields_v1) else {
            continue;
        };
        let labels = fields
            .pointer("/f:metadata/f:labels")
            .and_then(serde_json::Value::as_object);
        for key in labels
            .into_iter()
            .flat_map(|labels| labels.keys())
            .filter_map(|key| key.strip_prefix("f:"))
        {
            let is_older = newest.get(key).is_some_and(|(time, _)| *time > entry.time);
            if !is_older {
                newest.insert(key.to_owned(), (entry.time.clone(), manager.clone()));
            }
        }
    }
    newest
        .into_iter()
        .map(|(key, (_, manager))| (key, manager))
        .into_map()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_manager_of_a_label_is_named() {
        let owns_zone =
            json!({"f:metadata": {"f:labels": {".": {}, "f:topology.kubernetes.io/zone": {}}}});
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "managedFields": [
                {"manager": "kubectl-label", "time": "2026-11-21T10:00:01Z", "fieldsV1": owns_zone},
                {"manager": "kubelet", "time": "2026-11-21T10:00:00Z", "fieldsV1": owns_zone}
            ]},
            "spec": {"providerID": "harvester://vm-uid"}
        }))
        .unwrap();
        assert_eq!(
            node.label_managers["topology.kubernetes.io/zone"],
            "kubectl-label"
        );
        assert_eq!(node.vm_uid(), Some("vm-uid"));
    }

    #[test]
    fn ten_thousands_of_managers_are_read_at_once() {
        let entry = |number: u32| {
            json!({
                "manager": format!("m{number}"), "time": format!("2026-11-21T10:{:02}:{:02}Z", number / 60 % 60, number % 60),
                "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
            })
        };
        // The newest first, which is the worst for a sort that is made for a few.
        let entries: Vec<serde_json::Value> = (0..20_000)
            .rev()
            .map(|number| entry(number % 3600))
            .collect();
        let object =
            json!({"metadata": {"name": "n", "uid": "u", "managedFields": entries}}).to_string();
        let began = std::time::Instant::now();
        let node: Node = serde_json::from_str(&object).unwrap();
        let took = began.elapsed();
        assert_eq!(node.label_managers["a"], "m3599");
        assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn a_provider_id_of_another_provider_names_no_vm() {
        for id in ["rke2://n", "harvester://", ""] {
            let node: Node = serde_json::from_value(
                json!({"metadata": {"name": "n", "uid": "u"}, "spec": {"providerID": id}}),
            )
            .unwrap();
            assert_eq!(node.vm_uid(), None, "{id}");
        }
    }
}
