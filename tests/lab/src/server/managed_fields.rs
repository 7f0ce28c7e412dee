// SPDX-License-Identifier: Apache-2.0
//! `metadata.managedFields` for the keys of labels and annotations: who wrote each of them last.

use serde_json::{Map, Value, json};

use super::resource::map_mut;

const MAPS: [&str; 2] = ["labels", "annotations"];

/// Gives each changed key to `manager` and takes it, and each removed key, from all others. The entries of `old` are
/// the starting point; what the request sent as `managedFields` is ignored.
pub(crate) fn record(old: Option<&Value>, new: &mut Value, manager: &str, now: &str) {
    let old = old.map_or(&Value::Null, |old| &old["metadata"]);
    let mut entries = old["managedFields"].as_array().cloned().unwrap_or_default();
    for map in MAPS {
        let empty = Map::new();
        let before = old[map].as_object().unwrap_or(&empty);
        let after = new["metadata"][map].as_object().unwrap_or(&empty);
        let is_same = |key: &str| after.contains_key(key) && before.get(key) == after.get(key);
        for entry in &mut entries {
            fields(entry, map).retain(|key, _| is_same(key.trim_start_matches("f:")));
        }
        let changed = after.keys().filter(|key| !is_same(key));
        let changed: Vec<String> = changed.map(|key| format!("f:{key}")).collect();
        if changed.is_empty() {
            continue;
        }
        let own = entries.iter().position(|entry| entry["manager"] == manager);
        let own = own.unwrap_or_else(|| {
            entries.push(json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            }));
            entries.len() - 1
        });
        entries[own]["time"] = json!(now);
        fields(&mut entries[own], map).extend(changed.into_iter().map(|key| (key, json!({}))));
    }
    entries.retain_mut(|entry| MAPS.iter().any(|map| !fields(entry, map).is_empty()));
    map_mut(new, "metadata").insert("managedFields".to_owned(), Value::Array(entries));
}

fn fields<'a>(entry: &'a mut Value, map: &str) -> &'a mut Map<String, Value> {
    map_mut(&mut entry["fieldsV1"]["f:metadata"], &format!("f:{map}"))
}
