// SPDX-License-Identifier: Apache-2.0
//! The request bodies of writes to our own Node. Fields that are not in these types cannot be written.

use serde_json::{Map, Value, json};

use crate::decide::{ConditionsPatch, NodePatch, Now};
use crate::facts::clock::rfc3339;

/// Returns a merge patch of labels and annotations. With `uid`, the API refuses it if the Node was re-created after it was read.
pub fn node_body(patch: &NodePatch) -> Value {
    let mut metadata = Map::from_iter([("uid".to_owned(), json!(patch.uid))]);
    if !patch.labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(patch.labels));
    }
    if !patch.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(patch.annotations));
    }
    if let Some(version) = &patch.resource_version {
        metadata.insert("resourceVersion".to_owned(), json!(version));
    }
    json!({ "metadata": metadata })
}

/// Returns a strategic merge patch of the status. Entries are merged by `type`, so the kubelet's own conditions stay.
pub fn conditions_body(patch: &ConditionsPatch, now: Now) -> Value {
    let time = rfc3339(now.wall);
    let conditions: Vec<Value> = patch
        .conditions
        .iter()
        .map(|(wanted, is_new_status)| {
            let mut condition = json!({
                "type": wanted.kind,
                "status": wanted.status,
                "reason": wanted.reason,
                "message": wanted.message,
                "lastHeartbeatTime": time,
            });
            if let (true, Some(fields)) = (is_new_status, condition.as_object_mut()) {
                fields.insert("lastTransitionTime".to_owned(), json!(time));
            }
            condition
        })
        .collect();
    json!({ "status": { "conditions": conditions } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::action::DesiredCondition;
    use crate::decide::schedule::Random;
    use crate::facts::names::NodeName;
    use crate::facts::topology::LabelValue;
    use std::collections::BTreeMap;
    use std::time::Duration;
    use time::UtcDateTime;

    #[test]
    fn a_node_patch_holds_labels_and_annotations_and_nothing_else() {
        let patch = NodePatch {
            node: NodeName::parse("n").unwrap(),
            uid: "u".to_owned(),
            resource_version: None,
            labels: BTreeMap::from([
                ("a".to_owned(), LabelValue::parse("1").ok()),
                ("b".to_owned(), None),
            ]),
            annotations: BTreeMap::from([("c".to_owned(), "2".to_owned())]),
            announce: None,
        };
        let expected = json!({"metadata": {"uid": "u", "labels": {"a": "1", "b": null}, "annotations": {"c": "2"}}});
        assert_eq!(node_body(&patch), expected);
    }

    #[test]
    fn a_condition_says_when_its_status_changed_only_when_it_did() {
        let wanted = DesiredCondition {
            kind: "K",
            status: "True",
            reason: "R",
            finding: None,
            message: "m".to_owned(),
        };
        let patch = ConditionsPatch {
            node: NodeName::parse("n").unwrap(),
            conditions: vec![(wanted.clone(), true), (wanted, false)],
            announce: Vec::new(),
        };
        let wall = UtcDateTime::from_unix_timestamp(0).unwrap();
        let body = conditions_body(
            &patch,
            Now {
                uptime: Duration::ZERO,
                wall,
                random: Random::from_bits(0),
            },
        );
        let conditions = body["status"]["conditions"].as_array().unwrap();
        assert_eq!(body.as_object().unwrap().len(), 1);
        assert_eq!(conditions[0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert!(conditions[1].get("lastTransitionTime").is_none());
    }
}
