// SPDX-License-Identifier: Apache-2.0
//! Leaves as a document for serde. A refusal has no text of the document, except in suggestions that are our own words.

use std::fmt::Display;

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;
use toml::de::DeValue;

use super::errors::FileLine;
use super::suggest;

/// One key of one file.
#[derive(Debug, Clone)]
pub(super) struct Leaf<'s> {
    /// The names of the tables and of the key.
    pub(super) path: Vec<String>,
    /// The same with a valid name for each one above that is not allowed.
    pub(super) names: Vec<String>,
    /// The value.
    pub(super) value: DeValue<'s>,
    /// The file and line.
    pub(super) place: FileLine,
}

/// The reason why serde refuses a document with one leaf. A text follows the name or value that it is about.
#[derive(Debug, thiserror::Error)]
#[error("{self:?}")]
pub(super) enum Refusal {
    /// The last name is not one of these.
    Unknown(&'static [&'static str]),
    /// The last name, which the user chooses, is not allowed.
    Name(String),
    /// The value is not allowed.
    Value(String),
}

impl Error for Refusal {
    fn custom<T: Display>(why: T) -> Self {
        Self::Value(why.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        // The words of TOML.
        let expected = expected.replace("a sequence", "an array");
        Self::Value(format!("is not {}", expected.replace("a map", "a table")))
    }

    fn unknown_field(_: &str, fields: &'static [&'static str]) -> Self {
        Self::Unknown(fields)
    }

    fn unknown_variant(word: &str, words: &'static [&'static str]) -> Self {
        let meant = suggest::closest(word, words.iter().copied());
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"));
        Self::Value(format!("is none of \"{}\"{meant}", words.join("\", \"")))
    }
}

/// A value, or a table.
#[derive(Debug, Clone, Copy)]
pub(super) enum Node<'a> {
    Value(&'a DeValue<'a>),
    /// The table with these leaves, sorted by names, and the number of names of its own path.
    Table(&'a [Leaf<'a>], usize),
}

impl<'a> Node<'a> {
    /// Returns the document with these leaves, sorted by names.
    pub(super) fn of(leaves: &'a [Leaf<'a>]) -> Self {
        Self::Table(leaves, 0)
    }

    /// Returns the value of a leaf; a table in it is not looked into.
    fn value(value: &'a DeValue<'a>) -> Self {
        match value {
            DeValue::Table(_) => Self::Table(&[], 0),
            other => Self::Value(other),
        }
    }

    fn refuse<T>(expected: &dyn Expected) -> Result<T, Refusal> {
        Err(Refusal::invalid_type(Unexpected::Other(""), expected))
    }
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self {
            Self::Table(leaves, depth) => visitor.visit_map(Entries {
                leaves,
                entry: &[],
                depth,
            }),
            Self::Value(DeValue::Array(items)) => {
                let items = items.iter().map(|item| Node::value(item.get_ref()));
                visitor.visit_seq(SeqDeserializer::new(items))
            }
            Self::Value(DeValue::String(text)) => visitor.visit_str(text),
            Self::Value(DeValue::Boolean(switch)) => visitor.visit_bool(*switch),
            Self::Value(_) => Self::refuse(&visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self {
            Self::Value(DeValue::String(text)) => visitor.visit_enum(StrDeserializer::new(text)),
            _ => Self::refuse(&"a string"),
        }
    }

    /// Rejects an array, which a struct would take for its fields.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self {
            Self::Table(..) => self.deserialize_any(visitor),
            Self::Value(_) => Self::refuse(&"a table"),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Refusal> for Node<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The entries of a table that are left, and the leaves of the current one.
struct Entries<'a> {
    leaves: &'a [Leaf<'a>],
    entry: &'a [Leaf<'a>],
    depth: usize,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refusal> {
        let name_of = |leaf: &Leaf<'_>| leaf.names.get(self.depth).cloned();
        let Some(name) = self.leaves.first().and_then(name_of) else {
            return Ok(None);
        };
        let count = self
            .leaves
            .partition_point(|leaf| leaf.names.get(self.depth) == Some(&name));
        (self.entry, self.leaves) = self.leaves.split_at(count);
        let key: Result<_, Refusal> = seed.deserialize(name.into_deserializer());
        key.map(Some).map_err(|refusal| match refusal {
            Refusal::Value(why) => Refusal::Name(why),
            other => other,
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refusal> {
        let below = self.depth + 1;
        seed.deserialize(match self.entry {
            [leaf] if leaf.names.len() == below => Node::value(&leaf.value),
            leaves => Node::Table(leaves, below),
        })
    }
}
