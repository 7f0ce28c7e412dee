// SPDX-License-Identifier: Apache-2.0
//! JSON from a source that is not trusted: its depth is known before it is parsed, and a map of strings has each key once.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Deeper nesting is refused. A VMI is about 12 deep and `managedFields` about 20; the parser's own limit of 128 guards the stack.
pub const MAXIMUM_DEPTH: usize = 64;

/// Whether the text nests arrays and objects deeper than `limit`. Reads bytes only and never fails: a malformed text is the parser's to refuse.
pub(super) fn is_deeper_than(text: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth = depth.saturating_add(1);
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Labels, annotations, and their like: `null` is empty, a key that comes twice is an error.
///
/// A second value for one key means that two readers of the same text can disagree on it, so neither value is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StringMap(pub BTreeMap<String, String>);

impl Deref for StringMap {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<(String, String)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(StringMapVisitor)
    }
}

struct StringMapVisitor;

impl<'de> Visitor<'de> for StringMapVisitor {
    type Value = StringMap;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of strings or null")
    }

    fn visit_none<E>(self) -> Result<StringMap, E> {
        Ok(StringMap::default())
    }

    fn visit_unit<E>(self) -> Result<StringMap, E> {
        Ok(StringMap::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<StringMap, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<StringMap, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = access.next_entry::<String, String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key {key:?} comes twice"
                )));
            }
            map.insert(key, value);
        }
        Ok(StringMap(map))
    }
}

/// For fields that Go's encoder writes as `null` when they are empty.
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StringMap, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn depth_is_counted_exactly_and_across_both_kinds_of_bracket() {
        let nested = |pairs: usize| "[{\"a\":".repeat(pairs) + "1";
        assert!(!is_deeper_than(nested(32).as_bytes(), 64));
        assert!(is_deeper_than(nested(33).as_bytes(), 64));
        assert!(is_deeper_than(b"[[[", 2));
        assert!(!is_deeper_than(b"[[],[],[[]]]", 3));
    }

    #[test]
    fn brackets_and_quotes_inside_of_strings_do_not_count() {
        assert!(!is_deeper_than(br#"["[[[[", "\"[[[", "\\"]"#, 1));
        assert!(is_deeper_than(br#"["\\", [[1]]]"#, 2));
    }

    #[test]
    fn closing_brackets_alone_cannot_buy_depth() {
        assert!(is_deeper_than(b"]]]]]][[[", 2));
    }

    #[test]
    fn a_key_that_comes_twice_is_refused_even_in_another_spelling() {
        let error = parse(r#"{"zone":"a","z\u006fne":"b"}"#).unwrap_err();
        assert!(error.to_string().contains("the key \"zone\" comes twice"));
    }

    #[test]
    fn null_is_an_empty_map_and_other_values_are_errors() {
        assert!(parse("null").unwrap().is_empty());
        assert_eq!(
            parse(r#"{"a":"1"}"#).unwrap().get("a").map(String::as_str),
            Some("1")
        );
        for wrong in [r#"{"a":1}"#, r#"["a"]"#, r#""a""#, r#"{"a":"\ud800"}"#] {
            assert!(parse(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
