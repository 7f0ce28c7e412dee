// SPDX-License-Identifier: Apache-2.0
//! JSON merge patch and the part of strategic merge patch that Nodes, Pods and Events meet.

use std::collections::VecDeque;

use serde_json::{Map, Value};

/// RFC 7396.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// How a list is merged.
enum ListRule {
    /// Replaced as a whole.
    Atomic,
    /// Elements with the same value of this field are merged.
    ByKey(&'static str),
    /// A set of plain values.
    Set,
}

fn list_rule(path: &[String]) -> ListRule {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["status", "conditions" | "addresses"] => ListRule::ByKey("type"),
        ["metadata", "ownerReferences"] => ListRule::ByKey("uid"),
        ["metadata", "finalizers"] => ListRule::Set,
        _ => ListRule::Atomic,
    }
}

/// Strategic merge patch.
pub(crate) fn strategic(target: &mut Value, patch: &Value) {
    strategic_at(&mut Vec::new(), target, patch);
}

fn strategic_at(path: &mut Vec<String>, target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(patch) => strategic_map(path, target, patch),
        Value::Array(items) => strategic_list(path, target, items),
        plain => *target = plain.clone(),
    }
}

fn strategic_map(path: &mut Vec<String>, target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() || patch.get("$patch").is_some_and(|verb| verb == "replace") {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let unwanted = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = map.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !unwanted.contains(item));
            }
        } else if key.starts_with('$') {
            // Directives about order and retained keys say nothing about content.
        } else if value.is_null() {
            map.remove(key);
        } else {
            path.push(key.clone());
            strategic_at(path, map.entry(key).or_insert(Value::Null), value);
            path.pop();
        }
    }
}

fn strategic_list(path: &mut Vec<String>, target: &mut Value, items: &[Value]) {
    let old = match target.take() {
        Value::Array(old) if !items.iter().any(|item| item["$patch"] == "replace") => old,
        _ => Vec::new(),
    };
    *target = Value::Array(match list_rule(path) {
        ListRule::Atomic => items.to_vec(),
        ListRule::Set => {
            let new = items.iter().filter(|item| !old.contains(item));
            old.iter().chain(new).cloned().collect()
        }
        ListRule::ByKey(key) => merge_elements(path, key, old, items),
    });
}

fn merge_elements(
    path: &mut Vec<String>,
    key: &str,
    old: Vec<Value>,
    items: &[Value],
) -> Vec<Value> {
    let place = |element: &Value| old.iter().position(|other| other[key] == element[key]);
    let wanted = items.iter().filter(|item| item["$patch"].is_null());
    let mut patched: VecDeque<(Option<usize>, Value)> = wanted
        .map(|item| {
            let place = place(item);
            let mut element = place.map_or(Value::Null, |index| old[index].clone());
            // An element is patched like any map; its own lists are below no known path.
            path.push("[]".to_owned());
            strategic_at(path, &mut element, item);
            path.pop();
            (place, element)
        })
        .collect();
    // The patched elements keep the order of the patch; the others come before those that they preceded, and before new ones.
    let mut merged = Vec::new();
    for (index, element) in old.iter().enumerate() {
        if items.iter().any(|item| item[key] == element[key]) {
            continue;
        }
        while patched
            .front()
            .is_some_and(|(place, _)| place.is_some_and(|place| place < index))
        {
            merged.extend(patched.pop_front().map(|(_, element)| element));
        }
        merged.push(element.clone());
    }
    merged.extend(patched.into_iter().map(|(_, element)| element));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_removes_with_null_and_replaces_lists() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "list": [1, 2]});
        merge(
            &mut object,
            &json!({"a": {"b": null, "d": {"e": null}}, "list": [3]}),
        );
        assert_eq!(object, json!({"a": {"c": 2, "d": {}}, "list": [3]}));
    }

    #[test]
    fn strategic_merge_keeps_the_conditions_of_others() {
        let mut node = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            {"type": "Mine", "status": "False", "message": "old"},
        ]}});
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "Mine"}],
            "conditions": [{"type": "Mine", "status": "True"}, {"type": "New", "status": "True"}],
        }});
        strategic(&mut node, &patch);
        assert_eq!(
            node["status"]["conditions"],
            json!([
                {"type": "Ready", "status": "True", "reason": "KubeletReady"},
                {"type": "Mine", "status": "True", "message": "old"},
                {"type": "New", "status": "True"},
            ])
        );
        let patch = json!({"status": {"conditions": [{"type": "Mine", "$patch": "delete"}]}});
        strategic(&mut node, &patch);
        assert_eq!(
            node["status"]["conditions"].as_array().map(Vec::len),
            Some(2)
        );
    }

    #[test]
    fn strategic_merge_replaces_taints_as_a_whole() {
        let mut node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
        strategic(
            &mut node,
            &json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
        );
        assert_eq!(
            node["spec"]["taints"],
            json!([{"key": "b", "effect": "NoExecute"}])
        );
    }
}
