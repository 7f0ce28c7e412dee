// SPDX-License-Identifier: Apache-2.0
//! JSON merge patch, and the part of strategic merge patch that Nodes meet.

use serde_json::{Map, Value};

/// RFC 7396.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    apply(target, patch, false);
}

/// Strategic merge patch: lists of elements with a `type`, such as conditions and addresses, are merged by it. Other lists are replaced.
pub(crate) fn strategic(target: &mut Value, patch: &Value) {
    apply(target, patch, true);
}

fn apply(target: &mut Value, patch: &Value, by_type: bool) {
    match patch {
        Value::Object(patch) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let map = target.as_object_mut().expect("just made a map");
            for (key, value) in patch {
                if value.is_null() {
                    map.remove(key);
                } else {
                    apply(map.entry(key).or_insert(Value::Null), value, by_type);
                }
            }
        }
        Value::Array(items) if by_type && items.iter().all(|item| item["type"].is_string()) => {
            if !target.is_array() {
                *target = Value::Array(Vec::new());
            }
            let list = target.as_array_mut().expect("just made a list");
            for item in items {
                let same = |other: &&mut Value| other["type"] == item["type"];
                match list.iter_mut().find(same) {
                    Some(other) => apply(other, item, by_type),
                    None => list.push(item.clone()),
                }
            }
        }
        plain => plain.clone_into(target),
    }
}
