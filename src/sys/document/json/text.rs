// SPDX-License-Identifier: Apache-2.0
//! Strings of JSON objects: each has a maximum length. A name or UID that is longer is an error; any other text is cut, because an object must not become unreadable for a text that is only shown or that is not valid anyway.

use std::fmt;
use std::ops::Deref;

use serde::de::{DeserializeSeed, Error, Visitor};
use serde::{Deserialize, Deserializer};

/// The maximum length in bytes of a name of an object, of a host and of most other identifiers.
pub(crate) const NAME_BYTES: usize = 253;

/// The maximum length in bytes of `message` of a condition (`metav1.Condition`).
pub(crate) const MESSAGE_BYTES: usize = 32_768;

/// The mark at the end of a text that was cut. With it, no part of a name, a time or an address is taken for a valid one.
const CUT: char = '…';

/// Reads one string of at most this many bytes; a longer one is cut if `IS_CUT`, and otherwise an error. The string is not copied
/// before its length is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limited<const IS_CUT: bool>(pub(super) usize);

impl<'de, const IS_CUT: bool> DeserializeSeed<'de> for Limited<IS_CUT> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<const IS_CUT: bool> Visitor<'_> for Limited<IS_CUT> {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        let Self(limit) = self;
        if text.len() <= limit {
            return Ok(text.to_owned());
        }
        if !IS_CUT {
            return Err(E::custom(format_args!("longer than {limit} bytes")));
        }
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end));
        let start = text.get(..end.unwrap_or_default()).unwrap_or_default();
        Ok(format!("{start}{CUT}"))
    }
}

/// A string of at most `MAX` bytes. A longer one is cut if `IS_CUT`, and otherwise an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text<const MAX: usize, const IS_CUT: bool>(pub String);

/// The start of a string, at most `MAX` bytes.
pub type Cut<const MAX: usize = NAME_BYTES> = Text<MAX, true>;

/// A name or UID.
pub type Identifier = Text<NAME_BYTES, false>;

impl<const MAX: usize, const IS_CUT: bool> Deref for Text<MAX, IS_CUT> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de, const MAX: usize, const IS_CUT: bool> Deserialize<'de> for Text<MAX, IS_CUT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Limited::<IS_CUT>(MAX).deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Object {
        uid: Option<Identifier>,
        #[serde(default)]
        kind: Cut<317>,
    }

    #[test]
    fn a_string_that_is_too_long_is_refused_however_it_is_written() {
        for letter in ["x", "\\u0078"] {
            let object = |count: usize| format!(r#"{{"uid":"{}"}}"#, letter.repeat(count));
            let read = serde_json::from_str::<Object>(&object(NAME_BYTES)).unwrap();
            assert_eq!(read.uid.unwrap().len(), NAME_BYTES);
            let error = serde_json::from_str::<Object>(&object(NAME_BYTES + 1)).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("longer than 253 bytes"), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_only_shown_is_cut_between_characters_and_never_refused() {
        let read = |kind: &str| {
            let object = serde_json::json!({ "kind": kind }).to_string();
            serde_json::from_str::<Object>(&object).unwrap().kind.0
        };
        assert_eq!(read(&"x".repeat(317)).len(), 317);
        assert_eq!(read(&"x".repeat(318)), "x".repeat(317) + "…");
        assert_eq!(read(&"ü".repeat(200)), "ü".repeat(158) + "…");
    }

    #[test]
    fn null_and_nothing_are_no_string_and_other_values_are_errors() {
        for text in ["{}", r#"{"uid":null}"#] {
            let object: Object = serde_json::from_str(text).unwrap();
            assert_eq!((object.uid, object.kind.0.as_str()), (None, ""), "{text}");
        }
        for text in [r#"{"uid":1}"#, r#"{"uid":[]}"#, r#"{"kind":null}"#] {
            serde_json::from_str::<Object>(text).unwrap_err();
        }
    }
}
