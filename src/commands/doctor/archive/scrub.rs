// SPDX-License-Identifier: Apache-2.0
//! Removes everything that resembles a secret from a text.
//!
//! Texts of the agent have no secrets. This is for other texts, such as a unit with a password in a proxy URL, or a record from a
//! library. Three signs identify a secret: the name before a value (`named`: `password: ...`), a form that only secrets have
//! (`shapes`: PEM, `https://user:password@...`), and random characters in base64, base64url, hexadecimal or any other alphabet
//! (`random`). When in doubt, the text is removed, but never a text of the agent: no setting of our units, no text of the catalog.
//!
//! The texts are untrusted and may be large: each step takes linear time.

mod forms;
mod named;
mod random;
mod shapes;

use serde_json::Value;

/// The placeholder for removed text.
pub const REMOVED: &str = "[removed]";

/// The fields of a journal record that are kept, in addition to our own with the prefix `HNA_`. Other fields contain command
/// lines, IDs of this machine, or arbitrary data. Fields with the prefix `_` are trusted: journald adds them.
const FIELDS: [&str; 12] = [
    "__REALTIME_TIMESTAMP",
    "PRIORITY",
    "MESSAGE",
    "SYSLOG_IDENTIFIER",
    "UNIT",
    "UNIT_RESULT",
    "JOB_RESULT",
    "EXIT_STATUS",
    "_PID",
    "_UID",
    "_SYSTEMD_UNIT",
    "_TRANSPORT",
];

/// The prefix of our own fields.
const OWN_FIELDS: &str = "HNA_";

/// How often a text is passed over at most; two or three times are enough for all inputs that fuzzing found.
const PASSES_MAX: usize = 8;

/// Returns a text without its secrets. A second call does not change the result.
pub fn text(text: &str) -> String {
    let mut text = pass(text);
    // Where one secret was removed, another one can become visible.
    for _ in 1..PASSES_MAX {
        let next = pass(&text);
        if next == text {
            break;
        }
        text = next;
    }
    text
}

fn pass(text: &str) -> String {
    let text = named::without(&shapes::without_pem(text));
    let text = shapes::without_words(&shapes::without_users(&text));
    random::without(&forms::without(&text))
}

/// Removes the secrets from a JSON document; its structure does not change.
pub fn value(value: &mut Value) {
    match value {
        Value::String(string) => *string = text(string),
        Value::Array(items) => items.iter_mut().for_each(self::value),
        Value::Object(entries) => {
            let kept = std::mem::take(entries).into_iter().map(|(key, mut entry)| {
                match &mut entry {
                    Value::Null | Value::Bool(_) => {}
                    entry if named::is_secret(&key) => *entry = Value::from(REMOVED),
                    entry => self::value(entry),
                }
                (text(&key), entry)
            });
            *entries = kept.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the useful fields of a journal record (`journalctl -o json`) without their secrets, or `None` for any other line.
pub fn record(line: &str) -> Option<Value> {
    let Value::Object(fields) = serde_json::from_str(line).ok()? else {
        return None;
    };
    let is_kept = |name: &str| FIELDS.contains(&name) || name.starts_with(OWN_FIELDS);
    let fields = fields.into_iter().filter(|(name, _)| is_kept(name));
    let mut record = fields
        .map(|(name, content)| (name, readable(content)))
        .collect();
    value(&mut record);
    Some(record)
}

/// Converts a field that is not valid UTF-8, which is a list of bytes.
fn readable(content: Value) -> Value {
    let bytes: Option<Vec<u8>> = content.as_array().and_then(|numbers| {
        let bytes = numbers
            .iter()
            .map(|number| u8::try_from(number.as_u64()?).ok());
        bytes.collect()
    });
    match bytes {
        Some(bytes) => Value::from(String::from_utf8_lossy(&bytes)),
        None => content,
    }
}

#[cfg(test)]
mod tests;
