// SPDX-License-Identifier: Apache-2.0
//! Parts of JSON objects from an untrusted source: the depth is checked before a text is parsed, a map of strings has
//! each key once, and no list or map has more entries than any real one.
//!
//! Objects are parsed into structs of these parts. Unused fields are skipped without being kept.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use crate::sys::escape::one_line;

mod text;

use text::Limited;
pub use text::*;

/// The maximum number of keys of a map. The largest objects in Kubernetes have some hundreds.
pub const MAXIMUM_KEYS: usize = 10_000;

/// The maximum length of a key in bytes: the longest key of a label or annotation, with a prefix of 253, a slash and a name of 63.
pub(crate) const KEY_BYTES: usize = 317;

/// The maximum length in bytes of all keys and values of a map: the limit of Kubernetes for annotations
/// (`TotalAnnotationSizeLimitB`).
pub const MAP_BYTES: usize = 256 << 10;

/// The maximum length in bytes of the data of a ConfigMap (`MaxSecretSize` in `pkg/apis/core`) and of its keys.
pub(crate) const DATA_BYTES: usize = (1 << 20) + MAP_BYTES;

/// The maximum nesting depth. A VMI has about 12 levels and `managedFields` about 20; the parser's own limit of 128 protects the
/// stack.
pub const MAXIMUM_DEPTH: usize = 64;

/// Returns why a JSON text of a file cannot be parsed, in words for users.
pub fn damage(error: &serde_json::Error) -> String {
    let line = error.line();
    match error.classify() {
        Category::Eof => format!("it ends too early, in line {line}"),
        Category::Syntax => format!("line {line} is not JSON"),
        // It names the field.
        Category::Data | Category::Io => without_list(&error.to_string()).to_owned(),
    }
}

/// Returns an error without the list of what the value may be, such as all codes.
pub fn without_list(error: &str) -> &str {
    error.split(", expected one of ").next().unwrap_or(error)
}

/// The nesting at a place of a JSON text. It never fails: the parser rejects an invalid text.
#[derive(Debug, Default)]
struct Nesting {
    /// The number of open arrays and objects.
    depth: usize,
    /// Whether a string is open.
    is_in_string: bool,
    is_escaped: bool,
}

impl Nesting {
    /// Goes on to the place after the next byte.
    fn add(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.is_in_string => self.is_escaped = true,
            b'"' => self.is_in_string = !self.is_in_string,
            _ if self.is_in_string => {}
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// Reports whether the text nests arrays and objects deeper than `limit`.
pub(crate) fn is_deeper_than(text: &[u8], limit: usize) -> bool {
    let mut nesting = Nesting::default();
    text.iter().any(|byte| {
        nesting.add(*byte);
        nesting.depth > limit
    })
}

/// A map of strings, such as labels or annotations, of at most `BYTES` bytes: `null` is empty, a duplicate key is an error.
///
/// With two values for one key, two readers of the same text can get different values, so neither value is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringMap<const BYTES: usize = MAP_BYTES>(pub BTreeMap<String, String>);

impl<const BYTES: usize> Deref for StringMap<BYTES> {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de, const BYTES: usize> Deserialize<'de> for StringMap<BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StringMapVisitor::<BYTES>)
    }
}

struct StringMapVisitor<const BYTES: usize>;

impl<'de, const BYTES: usize> Visitor<'de> for StringMapVisitor<BYTES> {
    type Value = StringMap<BYTES>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of strings or null")
    }

    /// `null`.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(StringMap::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        let mut left = BYTES;
        while let Some(key) = access.next_key_seed(Limited::<false>(KEY_BYTES))? {
            // Due to the limit of one string, the remaining limit cannot be exceeded by more than that.
            let value = access.next_value_seed(Limited::<false>(BYTES))?;
            left = left
                .checked_sub(key.len() + value.len())
                .ok_or_else(|| A::Error::custom(format_args!("more than {BYTES} bytes")))?;
            if map.contains_key(&key) {
                let key = one_line(&key, KEY_BYTES);
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            if map.len() == MAXIMUM_KEYS {
                return Err(too_many(MAXIMUM_KEYS));
            }
            map.insert(key, value);
        }
        Ok(StringMap(map))
    }
}

/// A list of at most `MAX` elements; `null` is empty. Further ones are skipped if `IS_CUT`, and otherwise an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit<T, const MAX: usize, const IS_CUT: bool>(pub Vec<T>);

/// A list of at most `MAX` elements.
pub type Capped<T, const MAX: usize> = Limit<T, MAX, false>;

/// The first elements of a list, at most `MAX`.
pub type Leading<T, const MAX: usize> = Limit<T, MAX, true>;

impl<T, const MAX: usize, const IS_CUT: bool> Default for Limit<T, MAX, IS_CUT> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize, const IS_CUT: bool> Deserialize<'de>
    for Limit<T, MAX, IS_CUT>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor(PhantomData))
    }
}

struct LimitVisitor<T, const MAX: usize, const IS_CUT: bool>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize, const IS_CUT: bool> Visitor<'de>
    for LimitVisitor<T, MAX, IS_CUT>
{
    type Value = Limit<T, MAX, IS_CUT>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list or null")
    }

    /// `null`.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Limit::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while list.len() < MAX {
            let Some(element) = access.next_element()? else {
                return Ok(Limit(list));
            };
            list.push(element);
        }
        while access.next_element::<IgnoredAny>()?.is_some() {
            if !IS_CUT {
                return Err(too_many(MAX));
            }
        }
        Ok(Limit(list))
    }
}

/// At most `MAX` keys of a map, whose values are ignored; `null` is empty. Further keys are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys<const MAX: usize>(pub Vec<String>);

impl<'de, const MAX: usize> Deserialize<'de> for Keys<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeysVisitor::<MAX>)
    }
}

struct KeysVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for KeysVisitor<MAX> {
    type Value = Keys<MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map or null")
    }

    /// `null`.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Keys::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut keys = Vec::new();
        while keys.len() < MAX
            && let Some((key, IgnoredAny)) = access.next_entry::<String, IgnoredAny>()?
        {
            keys.push(key);
        }
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Keys(keys))
    }
}

fn too_many<E: serde::de::Error>(limit: usize) -> E {
    E::custom(format_args!("more than {limit} entries"))
}

/// Declares parts of objects. Each has its fields in camelCase, and may lack any of them.
macro_rules! objects {
    ($($(#[$doc:meta])* $shown:vis struct $name:ident { $($(#[$meta:meta])* $visible:vis $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        $shown struct $name { $($(#[$meta])* $visible $field: $type,)* }
    )*};
}

pub(crate) use objects;

/// The maximum length of the name of a field in an error.
const FIELD_SHOWN: usize = 63;

/// Returns an error of a JSON text, with the field of its value: the names of the outermost two.
pub(crate) fn in_field(text: &[u8], error: &serde_json::Error) -> String {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let before = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len);
    let end = before.sum::<usize>().saturating_add(error.column());
    let (mut nesting, mut fields, mut string) = (Nesting::default(), Vec::new(), Vec::new());
    for byte in text.iter().take(end) {
        let was_in_string = nesting.is_in_string;
        nesting.add(*byte);
        // Of deeper fields no name is shown.
        fields.resize(nesting.depth.min(3), Vec::new());
        match (byte, fields.last_mut()) {
            // Of a value, which may be large, no more than shows that it is no name.
            _ if was_in_string && nesting.is_in_string && string.len() > FIELD_SHOWN => {}
            _ if was_in_string && nesting.is_in_string => string.push(*byte),
            _ if nesting.is_in_string => string.clear(),
            (b':', Some(field)) => field.clone_from(&string),
            (b',', Some(field)) => field.clear(),
            _ => {}
        }
    }
    // Any other key is no name of a field: in an escaped form, a secret is not recognized.
    let is_shown = |field: &&Vec<u8>| {
        let is_name = field.iter().all(u8::is_ascii_alphanumeric);
        is_name && (1..=FIELD_SHOWN).contains(&field.len())
    };
    let shown = fields.iter().take(2).take_while(is_shown);
    let shown: Vec<_> = shown.map(|field| String::from_utf8_lossy(field)).collect();
    match shown.is_empty() || !error.is_data() {
        true => error.to_string(),
        false => format!("`{}`: {error}", shown.join(".")),
    }
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
        assert!(error.to_string().contains("duplicate key `zone`"));
    }

    #[test]
    fn an_entry_beyond_the_cap_is_refused_or_passed_over() {
        let entries = |number: usize| {
            let entries: Vec<String> = (0..number).map(|key| format!("\"{key}\":\"\"")).collect();
            format!("{{{}}}", entries.join(","))
        };
        assert_eq!(parse(&entries(MAXIMUM_KEYS)).unwrap().len(), MAXIMUM_KEYS);
        let error = parse(&entries(MAXIMUM_KEYS + 1)).unwrap_err().to_string();
        assert!(error.contains("more than 10000 entries"), "{error}");
        let keys: Keys<3> = serde_json::from_str(&entries(5)).unwrap();
        assert_eq!(keys.0, ["0", "1", "2"]);
        let list = serde_json::from_str::<Capped<u8, 2>>;
        assert_eq!(list("[1,2]").unwrap().0, [1, 2]);
        assert_eq!(list("null").unwrap().0, [0; 0]);
        let error = list("[1,2,3]").unwrap_err().to_string();
        assert!(error.contains("more than 2 entries"), "{error}");
        let list = serde_json::from_str::<Leading<u8, 2>>;
        assert_eq!(list("[1,2,3]").unwrap().0, [1, 2]);
        assert_eq!(list("null").unwrap().0, [0; 0]);
    }

    #[test]
    fn a_map_that_is_too_large_is_refused_by_its_keys_and_by_its_bytes() {
        let read = |text: &str| serde_json::from_str::<StringMap<100>>(text);
        let entry = |key: usize, value: usize| {
            let (key, value) = ("k".repeat(key), "v".repeat(value));
            format!(r#"{{"{key}":"{value}"}}"#)
        };
        assert_eq!(read(&entry(10, 90)).unwrap().len(), 1);
        for (text, said) in [
            (entry(10, 91), "more than 100 bytes"),
            (entry(1, 101), "longer than 100 bytes"),
            (entry(KEY_BYTES + 1, 0), "longer than 317 bytes"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_error_is_named_with_the_field_of_its_value() {
        objects! {
            struct Object {
                kind: Option<String>,
                meta: Meta,
            }
            struct Meta {
                name: Option<Identifier>,
                map: StringMap<20>,
                list: Capped<u8, 2>,
            }
        }
        let long = "x".repeat(NAME_BYTES + 1);
        for (text, said) in [
            (
                r#"{"meta":{"map":{"a":"1","a":"2"}}}"#,
                "`meta.map`: duplicate key `a` at line 1 column 32",
            ),
            (
                r#"{"meta":{"map":{"a":"1","a":"2","b":"3"}}}"#,
                "`meta.map`: duplicate key `a`",
            ),
            (
                r#"{"x":{"name":"}]:,\""},"meta":{"map":{"a":1}}}"#,
                "`meta.map`: invalid type: integer",
            ),
            (
                "{\"x\":[{\"y\":1}],\n\n  \"meta\": {\n\"list\": [1, 2,\n3]}}",
                "`meta.list`: more than 2 entries at line 5",
            ),
            (
                &format!(r#"{{"meta":{{"map":null,"name":"{long}"}}}}"#),
                "`meta.name`: longer than 253 bytes",
            ),
            (r#"{"kind":[]}"#, "`kind`: invalid type: sequence"),
            (
                r#"{"meta":{"list":[],"list":[]}}"#,
                "`meta`: duplicate field `list`",
            ),
            ("[1,2,3,4,5]", "invalid type: integer"),
            (r#"{"meta":{"map":{"#, "EOF while parsing"),
            ("x", "expected value"),
        ] {
            let error = serde_json::from_slice::<Object>(text.as_bytes()).unwrap_err();
            let named = in_field(text.as_bytes(), &error);
            assert!(named.starts_with(said), "{text}: {named}");
        }
        let (most, more) = ("k".repeat(FIELD_SHOWN), "k".repeat(FIELD_SHOWN + 1));
        let text = format!(r#"{{"{most}":{{}}}}"#);
        let error = serde_json::from_slice::<StringMap>(text.as_bytes()).unwrap_err();
        assert!(in_field(text.as_bytes(), &error).starts_with(&format!("`{most}`: ")));
        for key in [&long, &more, "a.b", "a-b", "é", "\\u0061"] {
            let text = format!(r#"{{"{key}":{{}},"kind":{{}}}}"#);
            let error = serde_json::from_slice::<StringMap>(text.as_bytes()).unwrap_err();
            assert_eq!(in_field(text.as_bytes(), &error), error.to_string());
        }
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
