// SPDX-License-Identifier: Apache-2.0
//! One file as leaves: each key with its value and line. Each leaf is checked alone, so that every mistake has its own error.

use std::collections::BTreeMap;
use std::path::Path;
use std::slice::from_ref;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use toml::de::{DeArray, DeTable, DeValue};
use toml_writer::ToTomlKey;

use super::errors::{ConfigError, FileLine};
use super::settings::Settings;
use super::suggest;
use super::tree::{Leaf, Node, Refusal};
use crate::sys::escape::one_line;

/// The maximum length of a displayed key, in characters: the longest label key and its table.
const MAX_KEY: usize = 340;

/// A name that is valid wherever a user chooses one.
const ANY: &str = "x";

/// Returns the leaves of one file whose tables exist, and adds its other mistakes to `errors`.
pub(super) fn parse<'s>(
    file: &Path,
    source: &'s str,
    errors: &mut Vec<ConfigError>,
) -> Vec<Leaf<'s>> {
    let (table, syntax) = DeTable::parse_recoverable(source);
    // Computed once: to count for every key would take minutes on a malicious file.
    let ends: Vec<usize> = source.match_indices('\n').map(|(end, _)| end).collect();
    let place = |offset: usize| FileLine {
        path: file.to_owned(),
        line: ends.partition_point(|end| *end < offset) + 1,
    };
    for error in &syntax {
        let start = error.span().map_or(0, |span| span.start);
        let before = source.get(..start).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let column = line.chars().count() + 1;
        let text = format!("column {column}: not valid TOML: {}", error.message());
        errors.push(ConfigError::new(Some(place(start)), &text));
    }
    let mut leaves = Vec::new();
    let mut tables = Vec::new();
    if syntax.is_empty() {
        tables.push((Vec::new(), Vec::new(), table.get_ref()));
    }
    while let Some((path, names, table)) = tables.pop() {
        for (name, value) in table {
            let inner = value.get_ref().as_table();
            let below = |above: &[String], name: String| [above, &[name]].concat();
            // A longer name is not valid, and would be copied for each key below it.
            let cut = name.get_ref().chars().take(MAX_KEY + 1).collect();
            let leaf = Leaf {
                path: below(&path, cut),
                names: below(&names, name.get_ref().to_string()),
                // A table is checked without its keys: a mistake in its name is one mistake.
                value: match inner {
                    Some(_) => DeValue::Table(DeTable::new()),
                    None => value.get_ref().clone(),
                },
                place: place(name.span().start),
            };
            let Some(inner) = inner else {
                leaves.push(leaf);
                continue;
            };
            let found = leaf.errors();
            let renamed = leaf.renamed();
            if found.is_empty() {
                tables.push((leaf.path, leaf.names, inner));
            } else if renamed.refusal().is_none() {
                tables.push((renamed.path, renamed.names, inner));
            }
            errors.extend(found);
        }
    }
    leaves
}

impl Leaf<'_> {
    /// Returns the key in TOML syntax.
    pub(super) fn key(&self) -> String {
        dotted(&self.path)
    }

    /// Returns every mistake in the leaf alone: in its name, and in its value or each entry of it.
    pub(super) fn errors(&self) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let mut right = Vec::new();
        for (number, entry) in (1..).zip(self.entries()) {
            match (entry.refusal(), entry.value) {
                (Some(Refusal::Value(why)), _) => {
                    errors.push(self.wrong(&format!("entry {number}"), &why));
                }
                (_, DeValue::Array(item)) => right.extend(item),
                _ => {}
            }
        }
        // The other entries may have a mistake together.
        let rest = match errors.is_empty() {
            true => self.refusal(),
            false => self
                .with(DeValue::Array(right.into_iter().collect()))
                .refusal(),
        };
        match rest {
            None => {}
            Some(Refusal::Unknown(siblings)) => errors.push(self.unknown(siblings)),
            Some(Refusal::Value(why)) => errors.push(self.wrong("the value", &why)),
            Some(Refusal::Name(why)) => {
                errors.push(self.wrong("the key", &why));
                if let Some(Refusal::Value(why)) = self.renamed().refusal() {
                    errors.push(self.wrong("the value", &why));
                }
            }
        }
        errors
    }

    /// Returns the leaf as if its last name were valid.
    fn renamed(&self) -> Self {
        let mut renamed = self.clone();
        renamed.names.pop();
        renamed.names.push(ANY.to_owned());
        renamed
    }

    /// Returns a leaf for each entry of the array, if the key takes an array.
    fn entries(&self) -> impl Iterator<Item = Leaf<'_>> {
        let items = self.value.as_array();
        let none = self.with(DeValue::Array(DeArray::new()));
        let items = items.filter(|_| none.refusal().is_none());
        let items = items.into_iter().flat_map(|items| items.iter().cloned());
        items.map(|item| self.with(DeValue::Array(DeArray::from_iter([item]))))
    }

    /// Returns the leaf with another value.
    fn with<'v>(&self, value: DeValue<'v>) -> Leaf<'v> {
        Leaf {
            path: self.path.clone(),
            names: self.names.clone(),
            value,
            place: self.place.clone(),
        }
    }

    fn refusal(&self) -> Option<Refusal> {
        Settings::deserialize(Node::of(from_ref(self))).err()
    }

    /// Returns the error that a part of this leaf is wrong. No value is quoted: it may be a secret at the wrong key.
    pub(super) fn wrong(&self, part: &str, why: &str) -> ConfigError {
        let key = self.key();
        let text = format!("`{}`: {part} {why}", one_line(&key, MAX_KEY));
        ConfigError::new(Some(self.place.clone()), &text)
    }

    /// Returns the error that the key or table does not exist, with a suggestion: a similar name in the same table, else the same
    /// name in another table, else all names in the table.
    fn unknown(&self, siblings: &[&str]) -> ConfigError {
        let what = if self.value.is_table() {
            "table"
        } else {
            "key"
        };
        let key = self.key();
        let name = self.path.last().map(String::as_str).unwrap_or_default();
        let meant = suggest::closest(name, siblings.iter().copied());
        let meant = meant.map(|meant| {
            let mut path = self.path.clone();
            path.pop();
            path.push(meant.to_owned());
            path
        });
        let elsewhere = || {
            let mut known = DEFAULTS.keys();
            known.find(|path| path.last().is_some_and(|last| last == name))
        };
        let hint = match meant.or_else(|| elsewhere().cloned()) {
            Some(path) => format!("did you mean `{}`?", dotted(&path)),
            None => format!("allowed here: {}", siblings.join(", ")),
        };
        let text = format!("unknown {what} `{}`; {hint}", one_line(&key, MAX_KEY));
        ConfigError::new(Some(self.place.clone()), &text)
    }
}

/// Every key with its default, as [`values`] returns them.
pub(super) static DEFAULTS: LazyLock<BTreeMap<Vec<String>, Value>> =
    LazyLock::new(|| values(&Settings::default()));

/// Returns every key with its value; a table for any names that has none is a key too.
pub(super) fn values(settings: &Settings) -> BTreeMap<Vec<String>, Value> {
    let mut values = BTreeMap::new();
    let settings = serde_json::to_value(settings).unwrap_or_default();
    let mut rest = vec![(Vec::new(), settings)];
    while let Some((path, value)) = rest.pop() {
        match value {
            Value::Object(table) if !table.is_empty() => {
                let below = |name| [path.as_slice(), &[name]].concat();
                let table = table.into_iter();
                rest.extend(table.map(|(name, value)| (below(name), value)));
            }
            Value::Null => {}
            value => drop(values.insert(path, value)),
        }
    }
    values
}

/// Returns the names as a key in TOML syntax.
pub(super) fn dotted(path: &[String]) -> String {
    let names = path.iter().map(ToTomlKey::to_toml_key);
    names.collect::<Vec<_>>().join(".")
}
