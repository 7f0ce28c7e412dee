// SPDX-License-Identifier: Apache-2.0
//! Parses a YAML or JSON text into a tree of limited size, without any value of the text in an error.
//!
//! The messages of parsers quote the text, which may contain a token; so the tree is built here from the
//! parser's events, its users name keys instead of values, and an error has a kind and a position. Aliases are refused: they can make
//! a tree of any size, and no document that the agent reads needs them.
//!
//! JSON is parsed as YAML, of which it is a subset since YAML 1.2. Numbers keep their text. `yes` and `on`, which are
//! booleans in YAML 1.1, are text: a caller that needs them converts them.

use std::collections::BTreeSet;
use std::fmt;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag, options};
use zeroize::Zeroizing;

use crate::sys::escape::one_line;

/// The size of a tree that is allowed in addition to a multiple of its text, so that a short text may be dense.
const TREE_BASE: usize = 64 << 10;

/// The size of a tree that is allowed for each byte of its text. A vector that grows has up to twice the needed capacity, so that
/// the tree takes at most eight bytes for each.
const TREE_PER_BYTE: usize = 4;

/// The size of a value without its text, about the same as in memory.
const VALUE_COST: usize = 48;

/// The size of a mapping key without its text.
const KEY_COST: usize = 32;

/// The maximum depth of nested collections; a kubeconfig has fewer than ten. It also limits the stack.
const DEPTH_MAX: usize = 64;

/// The maximum number of characters of a key in an error: the longest key of a label.
const KEY_SHOWN: usize = 317;

/// One value.
pub enum YamlValue {
    /// `null`, `~` or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as in the text.
    Number(String),
    /// Text.
    Text(Zeroizing<String>),
    /// A sequence.
    List(Vec<Self>),
    /// A mapping, in the order of the text.
    Map(Vec<(String, Self)>),
}

impl YamlValue {
    /// Returns the value of a key in a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries
                .iter()
                .find_map(|(name, value)| (name == key).then_some(value)),
            _ => None,
        }
    }

    /// Returns the kind of the value, for messages.
    pub fn kind(&self) -> &'static str {
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

impl fmt::Debug for YamlValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind())
    }
}

/// The reason why a text cannot be parsed. Quotes no value of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The file is empty.
    #[error("is empty")]
    Empty,
    /// The bytes are not text.
    #[error("is not valid UTF-8")]
    NotText,
    /// The syntax is invalid.
    #[error("is neither YAML nor JSON, at line {line} column {column}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// There is more than one document.
    #[error("is not one YAML or JSON document")]
    NotOneDocument,
    /// The text is longer than its limit.
    #[error("is larger than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// Due to values of a few bytes each, the tree is much larger in memory than its text.
    #[error("expands to more than {limit} bytes in memory")]
    TooLarge {
        /// The limit for a text of this length.
        limit: usize,
    },
    /// Collections are nested too deep.
    #[error("nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// A mapping has a duplicate key.
    #[error("has the duplicate key `{key}` in a mapping")]
    DuplicateKey {
        /// The key, escaped.
        key: String,
    },
    /// A YAML feature that Kubernetes' own parsers handle differently.
    #[error("uses {what}, which is not supported, at line {line}")]
    Unsupported {
        /// The feature.
        what: &'static str,
        /// Counted from 1.
        line: usize,
    },
}

/// Parses a text.
pub fn parse(text: &[u8]) -> Result<YamlValue, DocumentError> {
    let text = std::str::from_utf8(text).map_err(|_| DocumentError::NotText)?;
    let limit = TREE_PER_BYTE
        .saturating_mul(text.len())
        .saturating_add(TREE_BASE);
    let mut tree = Tree {
        limit,
        left: limit,
        open: Vec::new(),
        root: None,
    };
    let options = options! {
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        tree.take(event, &span)?;
    }
    tree.root.ok_or(DocumentError::Empty)
}

fn syntax(error: &ScanError) -> DocumentError {
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => DocumentError::TooDeep,
        _ => DocumentError::Syntax {
            line: error.marker().line(),
            column: error.marker().col() + 1,
        },
    }
}

/// A tree under construction.
struct Tree {
    limit: usize,
    /// The rest of the limit.
    left: usize,
    /// The collections whose ends have not been reached.
    open: Vec<YamlContent>,
    root: Option<YamlValue>,
}

enum YamlContent {
    List(Vec<YamlValue>),
    /// The entries, and the key of the next value.
    Map(Vec<(String, YamlValue)>, Option<String>),
}

impl Tree {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), DocumentError> {
        let line = span.start.line();
        match event {
            Event::DocumentStart(..) if self.root.is_some() => Err(DocumentError::NotOneDocument),
            Event::Scalar(text, style, _, tag) => {
                self.charge(VALUE_COST.saturating_add(text.len()))?;
                let value = scalar(text.into_owned(), style, tag.as_deref(), line)?;
                self.place(value, line)
            }
            Event::SequenceStart(_, _, tag) => {
                known(tag.as_deref(), line)?;
                self.open(YamlContent::List(Vec::new()))
            }
            Event::MappingStart(_, _, tag) => {
                known(tag.as_deref(), line)?;
                self.open(YamlContent::Map(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let value = match self.open.pop() {
                    None => return Ok(()),
                    Some(YamlContent::List(list)) => YamlValue::List(list),
                    Some(YamlContent::Map(entries, _)) => {
                        refuse_duplicates(&entries)?;
                        YamlValue::Map(entries)
                    }
                };
                self.place(value, line)
            }
            Event::Alias(_) => unsupported("an alias", line),
            _ => Ok(()),
        }
    }

    fn charge(&mut self, cost: usize) -> Result<(), DocumentError> {
        let limit = self.limit;
        self.left = self
            .left
            .checked_sub(cost)
            .ok_or(DocumentError::TooLarge { limit })?;
        Ok(())
    }

    fn open(&mut self, content: YamlContent) -> Result<(), DocumentError> {
        self.charge(VALUE_COST)?;
        if self.open.len() == DEPTH_MAX {
            return Err(DocumentError::TooDeep);
        }
        self.open.push(content);
        Ok(())
    }

    /// Adds a value to the innermost open collection.
    fn place(&mut self, value: YamlValue, line: usize) -> Result<(), DocumentError> {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(YamlContent::List(list)) => list.push(value),
            Some(YamlContent::Map(entries, key)) => match key.take() {
                Some(key) => entries.push((key, value)),
                None => {
                    let name = key_of(value, line)?;
                    let cost = KEY_COST.saturating_add(name.len());
                    *key = Some(name);
                    return self.charge(cost);
                }
            },
        }
        Ok(())
    }
}

fn unsupported<T>(what: &'static str, line: usize) -> Result<T, DocumentError> {
    Err(DocumentError::Unsupported { what, line })
}

fn key_of(value: YamlValue, line: usize) -> Result<String, DocumentError> {
    match value {
        YamlValue::Text(text) if text.as_str() == "<<" => unsupported("the merge key `<<`", line),
        YamlValue::Text(text) => Ok(text.to_string()),
        YamlValue::Number(number) => Ok(number),
        YamlValue::Bool(value) => Ok(value.to_string()),
        YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => {
            unsupported("a key that is not a string", line)
        }
    }
}

fn refuse_duplicates(entries: &[(String, YamlValue)]) -> Result<(), DocumentError> {
    let mut keys = BTreeSet::new();
    match entries.iter().find(|(key, _)| !keys.insert(key)) {
        None => Ok(()),
        Some((key, _)) => Err(DocumentError::DuplicateKey {
            key: one_line(key, KEY_SHOWN).into_owned(),
        }),
    }
}

/// Returns the tag if it is of YAML's own types; other tags would require code that creates a value.
fn known(tag: Option<&Tag>, line: usize) -> Result<Option<&str>, DocumentError> {
    match tag {
        None => Ok(None),
        Some(tag) => match tag.core_suffix() {
            Some(kind) => Ok(Some(kind)),
            None => unsupported("a tag", line),
        },
    }
}

fn scalar(
    text: String,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<YamlValue, DocumentError> {
    let is_plain = match known(tag, line)? {
        Some("str") => false,
        Some(_) => true,
        None => matches!(style, ScalarStyle::Plain),
    };
    Ok(match text.as_str() {
        _ if !is_plain => YamlValue::Text(Zeroizing::new(text)),
        "" | "~" | "null" | "Null" | "NULL" => YamlValue::Null,
        "true" | "True" | "TRUE" => YamlValue::Bool(true),
        "false" | "False" | "FALSE" => YamlValue::Bool(false),
        number if is_number(number) => YamlValue::Number(text),
        _ => YamlValue::Text(Zeroizing::new(text)),
    })
}

/// Reports whether a plain text is a number in YAML 1.1 or 1.2.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = digits.to_ascii_lowercase();
    if matches!(lower.as_str(), ".inf" | ".nan") {
        return true;
    }
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return false;
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(rest) = lower.strip_prefix(prefix) {
            return !rest.is_empty() && rest.chars().all(|one| one == '_' || one.is_digit(radix));
        }
    }
    digits.replace('_', "").parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests;
