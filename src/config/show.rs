// SPDX-License-Identifier: Apache-2.0
//! The output of the effective configuration, human-readable and machine-readable.

use serde_json::{Value, json};

use super::errors::printable;
use super::merge::{Effective, Origin};
use super::value::ConfigValue;

/// The maximum length of values that are aligned; longer ones do not move the origins of the others to the right.
const MAX_ALIGNED: usize = 40;

/// The maximum length of an aligned line, in characters.
const LINE_MAX: usize = 120;

/// Returns the values to print: all, or with `changed` those that differ from the default. A file that sets the default changes
/// nothing.
pub fn selected(values: &[Effective], changed: bool) -> Vec<Effective> {
    let values = values.iter();
    values
        .filter(|value| !changed || !value.is_default())
        .cloned()
        .collect()
}

/// Returns one line for each key: valid TOML that is equivalent to the files that were read.
pub fn text(values: &[Effective]) -> String {
    let width = |texts: &mut dyn Iterator<Item = &String>| {
        texts
            .map(|text| text.chars().count())
            .filter(|length| *length <= MAX_ALIGNED)
            .max()
            .unwrap_or_default()
    };
    let keys = width(&mut values.iter().map(|value| &value.key));
    let contents = width(&mut values.iter().map(|value| &value.value));
    values
        .iter()
        .map(
            |Effective {
                 key, value, origin, ..
             }| {
                let origin = describe(origin);
                let line = format!("{key:keys$} = {value:contents$}  # {origin}\n");
                match line.chars().count() > LINE_MAX {
                    true => format!("{key} = {value}  # {origin}\n"),
                    false => line,
                }
            },
        )
        .collect()
}

/// Returns an array of objects; `value` has its JSON type, `origin` is `null` for a default.
pub fn json(values: &[Effective]) -> Value {
    values
        .iter()
        .map(|effective| {
            let origin = match &effective.origin {
                Origin::Default => Value::Null,
                Origin::File { path, line } => {
                    json!({ "file": path.to_string_lossy(), "line": line })
                }
            };
            json!({
                "key": effective.key,
                "value": native(&effective.value),
                "origin": origin,
                "help": effective.help,
            })
        })
        .collect()
}

fn describe(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { path, line } => {
            format!("{}:{line}", printable(&path.to_string_lossy()))
        }
    }
}

/// Converts a TOML value to JSON; text that is not TOML stays a string.
fn native(text: &str) -> Value {
    match ConfigValue::parse(text) {
        Some(value) => value.to_json(),
        None => Value::String(text.to_owned()),
    }
}
