// SPDX-License-Identifier: Apache-2.0
//! `metadata.managedFields` for the keys of labels and annotations: who wrote each of them last.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::resource::map_mut;

const MAPS: [&str; 2] = ["labels", "annotations"];

/// Who makes a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    pub name: String,
    /// `status` for a write through that subresource.
    pub subresource: Option<String>,
}

impl Manager {
    /// The `fieldManager` parameter, else the first token of the User-Agent up to its slash.
    pub(crate) fn of_request(
        parameter: Option<&str>,
        user_agent: &str,
        subresource: Option<&str>,
    ) -> Self {
        let token = user_agent.split('/').next().unwrap_or_default();
        let name = match parameter {
            Some(name) if !name.is_empty() => name,
            _ => token,
        };
        Self {
            name: name.chars().filter(|c| !c.is_control()).take(128).collect(),
            subresource: subresource.map(str::to_owned),
        }
    }
}

/// Gives each changed key to `manager` and takes it, and each removed key, from all others. The entries of `old` are
/// the starting point; what the request sent as `managedFields` is ignored.
pub(crate) fn record(old: Option<&Value>, new: &mut Value, manager: &Manager, now: &str) {
    let mut entries = old
        .and_then(|old| old["metadata"]["managedFields"].as_array().cloned())
        .unwrap_or_default();
    let mut touched = false;
    for map in MAPS {
        let before = old.and_then(|old| old["metadata"][map].as_object());
        let after = new["metadata"][map].as_object();
        let (changed, removed) = difference(before, after);
        for entry in &mut entries {
            let pointer = format!("/fieldsV1/f:metadata/f:{map}");
            if let Some(Value::Object(keys)) = entry.pointer_mut(&pointer) {
                keys.retain(|key, _| {
                    let key = key.trim_start_matches("f:");
                    !changed.contains(key) && !removed.contains(key)
                });
            }
        }
        if changed.is_empty() {
            touched |= !removed.is_empty();
            continue;
        }
        touched = true;
        let entry = entry_of(&mut entries, manager, new);
        let fields = map_mut(&mut entry["fieldsV1"]["f:metadata"], &format!("f:{map}"));
        fields.insert(".".to_owned(), json!({}));
        for key in changed {
            fields.insert(format!("f:{key}"), json!({}));
        }
        entry["time"] = json!(now);
    }
    if touched {
        entries.iter_mut().for_each(drop_empty);
        entries.retain(|entry| entry["fieldsV1"].as_object().is_some_and(|f| !f.is_empty()));
    }
    let metadata = map_mut(new, "metadata");
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn entry_of<'a>(entries: &'a mut Vec<Value>, manager: &Manager, object: &Value) -> &'a mut Value {
    let subresource = manager.subresource.as_deref().unwrap_or_default();
    let found = entries.iter().position(|entry| {
        entry["manager"] == manager.name.as_str()
            && entry["subresource"].as_str().unwrap_or_default() == subresource
    });
    let index = found.unwrap_or_else(|| {
        let mut entry = json!({
            "manager": manager.name, "operation": "Update", "apiVersion": object["apiVersion"],
            "fieldsType": "FieldsV1", "fieldsV1": {},
        });
        if !subresource.is_empty() {
            entry["subresource"] = json!(subresource);
        }
        entries.push(entry);
        entries.len() - 1
    });
    &mut entries[index]
}

/// Keys that are new or have a new value, and keys that are gone.
fn difference(
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let empty = Map::new();
    let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    let changed = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
        .map(|(key, _)| key.clone())
        .collect();
    let removed = before
        .keys()
        .filter(|key| !after.contains_key(*key))
        .cloned()
        .collect();
    (changed, removed)
}

fn drop_empty(entry: &mut Value) {
    let Some(Value::Object(metadata)) = entry.pointer_mut("/fieldsV1/f:metadata") else {
        return;
    };
    metadata.retain(|_, keys| {
        keys.as_object()
            .is_some_and(|keys| keys.keys().any(|key| key != "."))
    });
    if metadata.is_empty() {
        map_mut(entry, "fieldsV1").remove("f:metadata");
    }
}
