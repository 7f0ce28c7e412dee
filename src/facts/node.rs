// SPDX-License-Identifier: Apache-2.0
//! The fields of our own Node in the guest cluster that the agent uses.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use super::names::NodeName;
use crate::sys::document::json::{
    Cut, Identifier, KEY_BYTES, Keys, Leading, MESSAGE_BYTES, StringMap, objects,
};

/// The prefix of our annotations on the Node.
pub const ANNOTATION_PREFIX: &str = "node-agent.harvesterhci.io/";

/// The VM, as `namespace/name`.
pub const ANNOTATION_VM: &str = "node-agent.harvesterhci.io/vm";
/// The host for which the labels were written.
pub const ANNOTATION_HOST: &str = "node-agent.harvesterhci.io/host";
/// The source of the region and zone.
pub const ANNOTATION_SOURCE: &str = "node-agent.harvesterhci.io/source";
/// The labels that we own, as a JSON object of keys with the value that we wrote.
pub const ANNOTATION_OWNED: &str = "node-agent.harvesterhci.io/owned-labels";
/// The last migration, as a JSON object with `from`, `to` and `time`.
pub const ANNOTATION_MIGRATION: &str = "node-agent.harvesterhci.io/last-migration";

/// The prefix of a providerID of Harvester's cloud provider. The UID of the VirtualMachine follows.
const HARVESTER_PROVIDER: &str = "harvester://";

/// The maximum number of conditions of a Node that are kept; usually there are about ten.
const CONDITIONS_MAX: usize = 1000;

/// The maximum number of labels and annotations of a Node whose field managers are kept.
const MANAGED_MAX: usize = 2000;

/// The maximum length of a field manager's name, in characters, as in Kubernetes.
const MANAGER_MAX: usize = 128;

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WireNode")]
pub struct Node {
    /// The name.
    pub name: NodeName,
    /// The UID. It changes if the Node is re-created.
    pub uid: String,
    /// `metadata.resourceVersion`, for patches that remove labels.
    pub resource_version: Option<String>,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`, if it has the format of a UUID. A kubelet that cannot read the firmware UUID reports another
    /// identifier, such as the machine ID.
    pub system_uuid: Option<Uuid>,
    /// `status.conditions`.
    pub conditions: Vec<NodeCondition>,
    /// The last field manager of each label and annotation, according to `metadata.managedFields`.
    pub managers: BTreeMap<String, String>,
}

impl Node {
    /// Returns the UID of the VirtualMachine in `spec.providerID`, if Harvester's cloud provider set it.
    pub fn vm_uid(&self) -> Option<&str> {
        self.provider_id
            .as_deref()
            .and_then(|id| id.strip_prefix(HARVESTER_PROVIDER))
            .filter(|uid| !uid.is_empty())
    }

    /// Returns the host for which the labels were written, according to our annotation. Other writers can change it.
    pub fn labeled_host(&self) -> Option<&str> {
        self.annotations.get(ANNOTATION_HOST).map(String::as_str)
    }

    /// Returns the condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions
            .iter()
            .find(|condition| *condition.kind == *kind)
    }
}

objects! {
    struct WireNode {
        metadata: WireNodeMetadata,
        spec: WireNodeSpec,
        status: WireNodeStatus,
    }

    struct WireNodeMetadata {
        name: Option<Identifier>,
        uid: Option<Identifier>,
        resource_version: Option<Identifier>,
        labels: StringMap,
        annotations: StringMap,
        managed_fields: Managers,
    }

    /// An entry of `metadata.managedFields`. Of its fields, only labels and annotations are parsed.
    struct WireNodeManagedFields {
        manager: Option<String>,
        time: Option<String>,
        fields_v1: Option<WireNodeFields>,
    }

    struct WireNodeFields {
        #[serde(rename = "f:metadata")]
        metadata: Option<WireNodeMetadataFields>,
    }

    struct WireNodeMetadataFields {
        #[serde(rename = "f:labels")]
        labels: Keys<MANAGED_MAX>,
        #[serde(rename = "f:annotations")]
        annotations: Keys<MANAGED_MAX>,
    }

    struct WireNodeSpec {
        #[serde(rename = "providerID")]
        provider_id: Option<Cut<1024>>,
    }

    struct WireNodeStatus {
        conditions: Leading<NodeCondition, CONDITIONS_MAX>,
        node_info: Option<WireNodeInfo>,
    }

    struct WireNodeInfo {
        #[serde(rename = "systemUUID")]
        system_uuid: Option<Cut>,
    }

    /// An entry of `status.conditions`.
    #[derive(Clone, Eq)]
    pub struct NodeCondition {
        /// The type.
        #[serde(rename = "type")]
        pub(crate) kind: Cut<317>,
        /// `True`, `False` or `Unknown`.
        pub(crate) status: Cut,
        /// The reason, in CamelCase.
        pub(crate) reason: Option<Cut<1024>>,
        /// The human-readable message.
        pub(crate) message: Option<Cut<MESSAGE_BYTES>>,
    }
}

/// The latest field manager of each label and annotation, with the RFC 3339 timestamp, which is compared as text. An object may have
/// tens of thousands of entries: each is read once and not kept.
#[derive(Debug, Default, PartialEq)]
struct Managers(BTreeMap<String, (Option<String>, String)>);

impl Managers {
    fn add(&mut self, entry: WireNodeManagedFields) {
        let fields = entry.fields_v1.and_then(|fields| fields.metadata);
        let (Some(manager), Some(metadata)) = (entry.manager, fields) else {
            return;
        };
        let manager: String = manager.chars().take(MANAGER_MAX).collect();
        // A longer text is not a timestamp.
        let time = entry.time.filter(|time| time.len() <= 64);
        let keys = metadata.labels.0.into_iter().chain(metadata.annotations.0);
        for mut key in keys {
            if !key.starts_with("f:") || key.len() > KEY_BYTES + 2 {
                continue;
            }
            key.drain(..2);
            let is_full = self.0.len() == MANAGED_MAX;
            match self.0.get_mut(&key) {
                Some(newest) if newest.0 > time => {}
                Some(newest) => *newest = (time.clone(), manager.clone()),
                None if is_full => {}
                None => {
                    self.0.insert(key, (time.clone(), manager.clone()));
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Managers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ManagersVisitor)
    }
}

struct ManagersVisitor;

impl<'de> Visitor<'de> for ManagersVisitor {
    type Value = Managers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list or null")
    }

    /// `null`.
    fn visit_unit<E>(self) -> Result<Managers, E> {
        Ok(Managers::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Managers, A::Error> {
        let mut managers = Managers::default();
        while let Some(entry) = entries.next_element()? {
            managers.add(entry);
        }
        Ok(managers)
    }
}

/// Returns a required field of `object`, which is a name or any text.
pub(crate) fn required<T: TryFrom<String>>(
    object: &str,
    field: &str,
    text: Option<Identifier>,
) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("{object} without `{field}`"))?;
    T::try_from(text.0).map_err(|_| format!("{object} with an invalid `{field}`"))
}

/// Returns a text, unless it is empty.
pub(super) fn text<const MAX: usize>(text: Option<Cut<MAX>>) -> Option<String> {
    text.map(|text| text.0).filter(|text| !text.is_empty())
}

/// Parses a UUID in its hyphenated form. Values that identify nothing are rejected.
fn hyphenated(text: &str) -> Option<Uuid> {
    let uuid = Uuid::parse_str(text).ok()?;
    let identifies = text.len() == 36 && !uuid.is_nil() && !uuid.is_max();
    identifies.then_some(uuid)
}

impl TryFrom<WireNode> for Node {
    type Error = String;

    fn try_from(wire: WireNode) -> Result<Self, String> {
        let WireNode {
            metadata,
            spec,
            status,
        } = wire;
        let managers = metadata.managed_fields.0.into_iter();
        Ok(Self {
            name: required("a Node", "metadata.name", metadata.name)?,
            uid: required("a Node", "metadata.uid", metadata.uid)?,
            resource_version: metadata.resource_version.map(|version| version.0),
            labels: metadata.labels.0,
            annotations: metadata.annotations.0,
            provider_id: text(spec.provider_id),
            system_uuid: status
                .node_info
                .and_then(|info| info.system_uuid)
                .and_then(|text| hyphenated(text.trim())),
            conditions: status.conditions.0,
            managers: managers.map(|(key, (_, name))| (key, name)).collect(),
        })
    }
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
            node.managers["topology.kubernetes.io/zone"],
            "kubectl-label"
        );
        assert_eq!(node.vm_uid(), Some("vm-uid"));
    }

    #[test]
    fn only_the_form_with_hyphens_is_a_system_uuid() {
        let read = |uuid: &str| {
            let node = json!({
                "metadata": {"name": "n", "uid": "u"}, "status": {"nodeInfo": {"systemUUID": uuid}},
            });
            serde_json::from_value::<Node>(node).unwrap().system_uuid
        };
        assert!(read("6CEA024F-F050-5571-B0E3-4262BD19B153").is_some());
        for other in [
            "",
            "0123456789abcdef0123456789abcdef",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "not-a-uuid",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn ten_thousands_of_managers_are_read() {
        let entry = |number: u32| {
            json!({
                "manager": format!("m{number}"), "time": format!("2026-11-21T10:{:02}:{:02}Z", number / 60 % 60, number % 60),
                "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
            })
        };
        // Latest first: the worst order for an insertion sort.
        let entries: Vec<serde_json::Value> = (0..20_000)
            .rev()
            .map(|number| entry(number % 3600))
            .collect();
        let object =
            json!({"metadata": {"name": "n", "uid": "u", "managedFields": entries}}).to_string();
        let node: Node = serde_json::from_str(&object).unwrap();
        assert_eq!(node.managers["a"], "m3599");
    }

    #[test]
    fn of_the_managed_fields_little_is_kept_however_much_they_hold() {
        let labels: BTreeMap<String, serde_json::Value> = (0..2 * MANAGED_MAX)
            .map(|number| (format!("f:l{number}"), json!({})))
            .collect();
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "managedFields": [
                {"manager": "ü".repeat(1000), "time": "x".repeat(1000), "fieldsV1": {"f:metadata": {"f:labels": labels}}},
                {"manager": null, "fieldsV1": {"f:metadata": {"f:labels": {"f:none": {}}}}},
                {"manager": "m", "fieldsV1": {"f:metadata": null}},
            ]},
        }))
        .unwrap();
        assert_eq!(node.managers.len(), MANAGED_MAX);
        let is_short = |manager: &String| manager.chars().count() == MANAGER_MAX;
        assert!(node.managers.values().all(is_short));
    }

    #[test]
    fn a_label_or_annotation_that_comes_twice_is_refused() {
        for field in ["labels", "annotations"] {
            let text =
                format!(r#"{{"metadata":{{"name":"n","uid":"u","{field}":{{"a":"1","a":"2"}}}}}}"#);
            let error = serde_json::from_str::<Node>(&text).unwrap_err().to_string();
            assert!(error.contains("duplicate key `a`"), "{error}");
        }
    }

    #[test]
    fn what_other_components_write_into_conditions_makes_no_node_unreadable() {
        let long = |count: usize| "x".repeat(count);
        for others in [
            vec![json!({"type": "A", "status": "True", "message": long(40_000)})],
            vec![json!({"type": "A", "status": "True", "reason": long(2000)})],
            vec![json!({"type": long(400), "status": long(400)})],
            vec![json!({"type": "A", "status": "True"}); 300],
            vec![json!({"type": "A", "status": "True"}); 3000],
        ] {
            let mut conditions = vec![json!({"type": "Ready", "status": "True", "message": "ok"})];
            conditions.extend(others);
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": "n", "uid": "u", "labels": {"zone": "a"}},
                "spec": {"providerID": "harvester://vm-uid"},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            assert_eq!(
                (node.labels["zone"].as_str(), node.vm_uid()),
                ("a", Some("vm-uid"))
            );
            let ready = node.condition("Ready").unwrap();
            assert_eq!(ready.message.as_deref(), Some("ok"));
            assert!(node.conditions.len() <= CONDITIONS_MAX);
        }
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
