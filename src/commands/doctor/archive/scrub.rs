// SPDX-License-Identifier: Apache-2.0
//! Takes out of a text whatever looks like a secret.
//!
//! None of our own texts holds one; this is for those of others, such as a unit with a password in a proxy's address, or a
//! record that a library wrote. It works by three signs: the name before a value (`named`: `password: ...`), a form that
//! only secrets have (`shapes`: PEM, `https://user:password@...`), and characters in no order, as random bytes have them in
//! base64, base64url, hexadecimal or any other alphabet (`random`). Rather too much is removed than too little, but nothing
//! of what we write ourselves: no setting of our units, no text of the catalogue.
//!
//! The texts may be anyone's, and large: each step takes time in proportion to the text.

mod forms;
mod named;
mod random;
mod shapes;

use serde_json::Value;

/// Stands for what was removed.
pub const REMOVED: &str = "[removed]";

/// Fields of a journal record that are kept, beside our own, which begin with `HNA_`. Others hold command lines, ids of this
/// machine, or what someone put there. Those with `_` in front are journald's own word of who sent it.
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

/// How our own fields begin.
const OWN_FIELDS: &str = "HNA_";

/// A text without its secrets. The same text comes out of a second pass.
pub fn text(text: &str) -> String {
    let text = named::without(&shapes::without_pem(text));
    let text = shapes::without_words(&shapes::without_users(&text));
    random::without(&forms::without(&text))
}

/// A JSON document without its secrets; its shape stays.
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

/// A journal record (`journalctl -o json`) with the fields that are of use, without their secrets. None for what is no record.
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

/// A field that is no UTF-8 comes as a list of bytes.
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
