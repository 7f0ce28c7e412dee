// SPDX-License-Identifier: Apache-2.0
//! A YAML or JSON text as a tree of bounded size, without a word of the text in any error.
//!
//! Parser and `serde` messages quote what they found, and what they found may be a token; so the tree is built here, its
//! users name keys instead of values, and a failure is a kind and a position. Aliases are expanded while the tree is built,
//! on a budget: the parser's own limit counts aliases, not what they expand to.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use zeroize::Zeroizing;

/// Bytes of text, plus [`NODE_COST`] for each value, that one tree may hold: four times the largest file that is read.
const TREE_MAX: usize = 4 << 20;

/// What a value costs besides its text, about its size in memory.
const NODE_COST: usize = 32;

/// Brackets that may stand open at once. The YAML scanner takes time in the square of that number; a kubeconfig in JSON
/// has fewer than ten.
const OPEN_BRACKETS_MAX: usize = 256;

/// One value.
pub(crate) enum Value {
    /// `null`, `~` or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any number, as this machine writes it.
    Number(String),
    /// Text.
    Text(Zeroizing<String>),
    /// A sequence.
    List(Vec<Self>),
    /// A mapping, in the order of the text.
    Map(Vec<(String, Self)>),
}

impl Value {
    /// The entry of a mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries
                .iter()
                .find_map(|(name, value)| (name == key).then_some(value)),
            _ => None,
        }
    }

    /// What kind of value it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind())
    }
}

/// Why a text is no tree. Never quotes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The file holds nothing.
    #[error("is empty")]
    Empty,
    /// The syntax is broken.
    #[error("is neither YAML nor JSON, at line {line} column {column}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// The syntax is broken, at no place in particular, or there is more than one document.
    #[error("is not one YAML or JSON document")]
    NotOneDocument,
    /// Aliases, or plain size, make it larger than is read.
    #[error("is too large when its aliases are expanded")]
    TooLarge,
    /// Brackets within brackets without end.
    #[error("nests too deep")]
    TooDeep,
    /// A mapping has the same key twice.
    #[error("has the same key twice in one mapping")]
    DuplicateKey,
    /// `<<`, which Kubernetes' own readers treat in different ways.
    #[error("uses the merge key `<<`, which is not supported")]
    MergeKey,
}

/// Reads a text. JSON is read by a JSON parser, because YAML lacks some of JSON's escapes.
pub(crate) fn parse(text: &[u8]) -> Result<Value, DocumentError> {
    let budget = Budget {
        left: Cell::new(TREE_MAX),
        failure: RefCell::new(None),
    };
    let start = text.trim_ascii_start();
    if start.is_empty() {
        return Err(DocumentError::Empty);
    }
    if nests_too_deep(text) {
        return Err(DocumentError::TooDeep);
    }
    if start.starts_with(b"{") {
        let mut json = serde_json::Deserializer::from_slice(text);
        if let Ok(value) = Node(&budget).deserialize(&mut json)
            && json.end().is_ok()
        {
            return Ok(value);
        }
        if let Some(failure) = budget.failure.take() {
            return Err(failure);
        }
        budget.left.set(TREE_MAX);
    }
    let value = Node(&budget).deserialize(yaml_serde::Deserializer::from_slice(text));
    match (value, budget.failure.take()) {
        (_, Some(failure)) => Err(failure),
        (Ok(value), None) => Ok(value),
        (Err(error), None) => Err(match error.location() {
            Some(place) => DocumentError::Syntax {
                line: place.line(),
                column: place.column(),
            },
            // The only text of the parser that is looked at; it is a constant of its own.
            None if error.to_string() == "repetition limit exceeded" => DocumentError::TooLarge,
            None => DocumentError::NotOneDocument,
        }),
    }
}

/// Counts brackets wherever they stand, in quotes too: what is refused is far from anything that is written by hand.
fn nests_too_deep(text: &[u8]) -> bool {
    let mut open = 0_usize;
    text.iter().any(|byte| {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > OPEN_BRACKETS_MAX
    })
}

struct Budget {
    left: Cell<usize>,
    failure: RefCell<Option<DocumentError>>,
}

impl Budget {
    fn charge<E: serde::de::Error>(&self, text: usize) -> Result<(), E> {
        match self.left.get().checked_sub(text.saturating_add(NODE_COST)) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(self.fail(DocumentError::TooLarge)),
        }
    }

    fn fail<E: serde::de::Error>(&self, failure: DocumentError) -> E {
        self.failure.replace(Some(failure));
        E::custom("")
    }
}

#[derive(Clone, Copy)]
struct Node<'budget>(&'budget Budget);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Node<'_> {
    fn number<E: serde::de::Error>(self, number: &impl ToString) -> Result<Value, E> {
        self.0.charge(0)?;
        Ok(Value::Number(number.to_string()))
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a plain value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.0.charge(0)?;
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.0.charge(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.number(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.number(&value)
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Value, E> {
        self.number(&value)
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Value, E> {
        self.number(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.number(&value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.charge(value.len())?;
        Ok(Value::Text(Zeroizing::new(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        self.0.charge(0)?;
        let mut list = Vec::new();
        while let Some(value) = sequence.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Value, A::Error> {
        self.0.charge(0)?;
        let mut entries: Vec<(String, Value)> = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        while let Some(key) = mapping.next_key_seed(self)? {
            let key = match key {
                Value::Text(text) => text.to_string(),
                Value::Number(number) => number,
                Value::Bool(value) => value.to_string(),
                Value::Null | Value::List(_) | Value::Map(_) => {
                    return Err(A::Error::custom("key"));
                }
            };
            if key == "<<" {
                return Err(self.0.fail(DocumentError::MergeKey));
            }
            if !names.insert(key.clone()) {
                return Err(self.0.fail(DocumentError::DuplicateKey));
            }
            entries.push((key, mapping.next_value_seed(self)?));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn json_escapes_that_yaml_lacks_are_read() {
        let value = parse(br#"{"a": "\ud83d\ude00\/", "b": [1, null, true]}"#).unwrap();
        assert!(matches!(value.get("a"), Some(Value::Text(text)) if text.as_str() == "\u{1f600}/"));
        assert!(matches!(value.get("b"), Some(Value::List(list)) if list.len() == 3));
    }

    #[test]
    fn a_mapping_in_braces_that_is_yaml_and_not_json_is_read() {
        let value = parse(b"{a: b}").unwrap();
        assert!(matches!(value.get("a"), Some(Value::Text(text)) if text.as_str() == "b"));
    }

    #[test]
    fn an_exponential_alias_bomb_is_refused_at_once() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..30 {
            let alias = format!("*a{}", level - 1);
            let list = vec![alias; 9].join(", ");
            writeln!(bomb, "a{level}: &a{level} [{list}]").unwrap();
        }
        assert_eq!(parse(bomb.as_bytes()).unwrap_err(), DocumentError::TooLarge);
    }

    #[test]
    fn a_quadratic_alias_bomb_is_refused_at_once() {
        let bomb = format!(
            "a: &a \"{}\"\nb: [{}]",
            "x".repeat(400_000),
            "*a,".repeat(150_000)
        );
        let started = std::time::Instant::now();
        assert_eq!(parse(bomb.as_bytes()).unwrap_err(), DocumentError::TooLarge);
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }

    #[test]
    fn an_alias_of_itself_and_endless_nesting_end() {
        parse(b"a: &a [*a]").unwrap_err();
        for nested in ["[", "{a: ", "- ", "? ", "a:\n ", "!a ", "&a ", "'", "[]"] {
            let started = std::time::Instant::now();
            drop(parse(nested.repeat((1 << 20) / nested.len()).as_bytes()));
            assert!(
                started.elapsed() < std::time::Duration::from_secs(20),
                "{nested}"
            );
        }
        assert_eq!(
            parse("[".repeat(1000).as_bytes()).unwrap_err(),
            DocumentError::TooDeep
        );
    }

    #[test]
    fn a_plain_alias_is_expanded() {
        let value = parse(b"a: &a one\nb: *a").unwrap();
        assert!(matches!(value.get("b"), Some(Value::Text(text)) if text.as_str() == "one"));
    }

    #[test]
    fn broken_texts_are_told_apart_without_a_quotation() {
        for (text, error) in [
            ("", DocumentError::Empty),
            (" \n", DocumentError::Empty),
            ("a: 1\na: 2", DocumentError::DuplicateKey),
            ("a: &a {b: c}\nd:\n  <<: *a", DocumentError::MergeKey),
            ("a: b\n---\nc: d", DocumentError::NotOneDocument),
            ("a: [CANARY", DocumentError::Syntax { line: 2, column: 1 }),
            ("a: *CANARY", DocumentError::Syntax { line: 1, column: 4 }),
            (
                "{\"a\": \"CANARY",
                DocumentError::Syntax {
                    line: 1,
                    column: 14,
                },
            ),
        ] {
            let found = parse(text.as_bytes()).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!format!("{found} {found:?}").contains("CANARY"));
        }
    }

    #[test]
    fn no_value_prints_itself() {
        let value = parse(b"token: CANARY").unwrap();
        assert!(!format!("{value:?} {:?}", value.get("token")).contains("CANARY"));
    }
}
