// SPDX-License-Identifier: Apache-2.0
//! One entry of the ConfigMap with the topology of the hosts: a YAML or JSON mapping of labels to values.

use crate::facts::placement::HostLabels;
use crate::sys::document::DocumentError;
use crate::sys::document::yaml::{YamlValue, parse};
use crate::sys::escape::one_line;

/// The maximum size of an entry, in bytes. A host has some dozens of labels of less than 400 bytes each.
const ENTRY_MAX: usize = 64 << 10;

/// The maximum length of a key in an error, in characters: that of the longest label key.
const KEY_SHOWN: usize = 317;

/// Parses the labels of one host.
///
/// # Errors
///
/// Returns one escaped line if the entry is invalid.
pub fn labels(text: &str) -> Result<HostLabels, String> {
    let limit = ENTRY_MAX;
    let invalid = |error: DocumentError| format!("the text {error}");
    if text.len() > limit {
        return Err(invalid(DocumentError::TooLong { limit }));
    }
    let entries = match parse(text.as_bytes()).map_err(invalid)? {
        YamlValue::Map(entries) => entries,
        other => {
            let found = other.kind();
            return Err(format!("the text is {found}, expected a mapping of labels"));
        }
    };
    let mut labels = Vec::new();
    for (key, value) in entries {
        match value {
            YamlValue::Text(text) => labels.push((key, text.to_string())),
            YamlValue::Number(number) => labels.push((key, number)),
            other => {
                let (key, found) = (one_line(&key, KEY_SHOWN), other.kind());
                return Err(format!("`{key}` is {found}, expected quoted text"));
            }
        }
    }
    Ok(labels.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn refused(text: &str) -> String {
        labels(text).unwrap_err()
    }

    #[test]
    fn labels_are_read_as_they_are_written() {
        let found = labels("a: b\nzone: 010\nregion: no\n\"c/d\": 'true'").unwrap();
        let expected = [
            ("a", "b"),
            ("zone", "010"),
            ("region", "no"),
            ("c/d", "true"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found, HostLabels::from_iter(expected));
        let json = labels(r#"{"zone": "a"}"#).unwrap();
        assert_eq!(json, labels("zone: a").unwrap());
    }

    #[test]
    fn what_is_no_mapping_of_texts_is_named() {
        for (text, error) in [
            ("", "the text is empty"),
            ("- a", "the text is a list, expected a mapping of labels"),
            ("zone: true", "`zone` is a boolean, expected quoted text"),
            ("zone:", "`zone` is nothing, expected quoted text"),
            (
                "zone: a\nzone: b",
                "the text has the duplicate key `zone` in a mapping",
            ),
        ] {
            assert_eq!(refused(text), error);
        }
    }

    #[test]
    fn an_entry_of_aliases_or_of_more_than_64_kb_is_refused() {
        // 61 kB that expand to 170 MB if the parser expands aliases.
        let mut bomb = format!("a: &a \"{}\"\nb: [", "x".repeat(10_000));
        for _ in 0..17_000 {
            write!(bomb, "*a,").unwrap();
        }
        bomb.push(']');
        assert_eq!(refused(&bomb[..0]), "the text is empty");
        assert!(bomb.len() < ENTRY_MAX, "{}", bomb.len());
        let error = refused(&bomb);
        assert!(error.contains("an alias"), "{error}");
        let error = refused(&"a".repeat(ENTRY_MAX + 1));
        assert_eq!(error, "the text is larger than 65536 bytes");
    }
}
