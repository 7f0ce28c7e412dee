// SPDX-License-Identifier: Apache-2.0
//! The output of the effective configuration, human-readable and machine-readable.

use serde_json::{Value, json};
use toml_writer::ToTomlValue;

use super::errors::FileLine;
use super::leaves::{DEFAULTS, dotted, values};
use super::settings::Settings;
use super::tree::Leaf;

/// The width of the keys and of most values, in characters.
const KEYS: usize = 30;
const VALUES: usize = 30;

/// One key with its effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The whole key in TOML syntax.
    pub key: String,
    /// The value.
    pub value: Value,
    /// The line of the file that sets it; `None` for a key that no file sets.
    pub origin: Option<FileLine>,
    /// Whether the value is the default, even if a file sets it.
    pub is_default: bool,
}

/// Returns every key with its value and origin, sorted by key. `leaves` are those of the settings, sorted by path.
pub(super) fn effective(settings: &Settings, leaves: &[Leaf<'_>]) -> Vec<Effective> {
    let effective = values(settings).into_iter().map(|(path, value)| {
        let stated = leaves.binary_search_by(|leaf| leaf.path.cmp(&path)).ok();
        let stated = stated.and_then(|index| leaves.get(index));
        Effective {
            key: dotted(&path),
            origin: stated.map(|leaf| leaf.place.clone()),
            is_default: DEFAULTS.get(&path) == Some(&value),
            value,
        }
    });
    effective.collect()
}

/// Returns one line for each key: valid TOML that is equivalent to the files that were read.
pub fn text(values: &[Effective]) -> String {
    let line = |row: &Effective| {
        let origin = row.origin.as_ref().map(ToString::to_string);
        let origin = origin.unwrap_or_else(|| "default".to_owned());
        let (key, value) = (&row.key, toml(&row.value));
        format!("{key:KEYS$} = {value:VALUES$}  # {origin}\n")
    };
    values.iter().map(line).collect()
}

/// Returns an array of objects; `value` has its JSON type, `origin` is `null` for a default.
pub fn json(values: &[Effective]) -> Value {
    values
        .iter()
        .map(|row| {
            let origin = row.origin.as_ref();
            let origin = origin.map(
                |FileLine { path, line }| json!({"file": path.to_string_lossy(), "line": line}),
            );
            json!({"key": row.key, "value": row.value, "origin": origin})
        })
        .collect()
}

/// Returns a value in TOML syntax. The only table is an empty one.
pub(super) fn toml(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_toml_value(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}
