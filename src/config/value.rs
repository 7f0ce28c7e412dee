// SPDX-License-Identifier: Apache-2.0
//! A value in a file, and the checks that convert it to a type.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use toml::de::DeValue;
use toml_writer::ToTomlValue;

use super::duration;
use super::errors::{escaped, quoted};
use super::label::NameError;
use super::settings::Choice;
use super::suggest;
use crate::sys::escape::is_plain;

/// A value in a file. Types that no key uses are kept for the error message only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConfigValue {
    /// A string.
    Text(String),
    /// A boolean.
    Switch(bool),
    /// An array.
    List(Vec<ConfigValue>),
    /// Any other type: its name in TOML, and its text in the file.
    Other {
        /// The name of the type in TOML.
        kind: &'static str,
        /// The text in the file.
        written: String,
    },
}

/// An error in a value, or in one element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The index of the element, if the value is an array and only one element is wrong.
    pub(super) element: Option<usize>,
    /// The value or element, escaped.
    pub(super) shown: String,
    /// The kind of error.
    pub(super) why: ValueProblem,
}

/// The kinds of errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueProblem {
    /// The type is wrong.
    Type {
        /// The expected type.
        expected: &'static str,
        /// The type in the file.
        found: &'static str,
    },
    /// The type is right, but the value is not allowed.
    Content(String),
}

impl From<Wrong> for Vec<Wrong> {
    fn from(wrong: Wrong) -> Self {
        vec![wrong]
    }
}

impl ConfigValue {
    /// Converts a parsed value of the file with the text `source`.
    pub(super) fn new(value: &toml::Spanned<DeValue<'_>>, source: &str) -> Self {
        match value.get_ref() {
            DeValue::String(text) => Self::Text(text.clone().into_owned()),
            DeValue::Boolean(switch) => Self::Switch(*switch),
            DeValue::Array(items) => {
                Self::List(items.iter().map(|item| Self::new(item, source)).collect())
            }
            // The span of a table may be that of its header, or of a part of a dotted key.
            DeValue::Table(_) => Self::Other {
                kind: "table",
                written: "{…}".to_owned(),
            },
            other => Self::Other {
                kind: other.type_str(),
                written: source.get(value.span()).unwrap_or_default().to_owned(),
            },
        }
    }

    /// Parses a value in TOML syntax.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value = DeValue::parse(text).ok()?;
        Some(Self::new(&value, text))
    }

    /// Converts a value of a type that a key uses; any other is the default of a table, which is empty.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Switch(switch) => Value::from(*switch),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Other { .. } => json!({}),
        }
    }

    /// Returns the name of the type in TOML.
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Switch(_) => "boolean",
            Self::List(_) => "array",
            Self::Other { kind, .. } => kind,
        }
    }

    /// Returns the value for an error message, escaped and truncated.
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Switch(_) | Self::List(_) => escaped(&self.to_string()),
            Self::Other { written, .. } => escaped(written),
        }
    }

    /// Returns an error for the value.
    pub(super) fn refuse(&self, why: impl fmt::Display) -> Wrong {
        Wrong {
            element: None,
            shown: self.shown(),
            why: ValueProblem::Content(why.to_string()),
        }
    }

    /// Returns an error for the name before the equals sign.
    pub(super) fn refuse_name(&self, name: &str, why: impl fmt::Display) -> Wrong {
        Wrong {
            shown: quoted(name),
            ..self.refuse(why)
        }
    }

    fn expect(&self, expected: &'static str) -> Wrong {
        Wrong {
            element: None,
            shown: self.shown(),
            why: ValueProblem::Type {
                expected,
                found: self.kind(),
            },
        }
    }

    /// Returns the string.
    pub(super) fn text(&self) -> Result<&str, Wrong> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(self.expect("string")),
        }
    }

    /// Returns the boolean.
    pub(super) fn switch(&self) -> Result<bool, Wrong> {
        match self {
            Self::Switch(switch) => Ok(*switch),
            _ => Err(self.expect("boolean")),
        }
    }

    /// Parses a Kubernetes name.
    pub(super) fn name<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<T, Wrong> {
        parse(self.text()?).map_err(|error| self.refuse(error))
    }

    /// Returns what `read` returns, or nothing if the string is empty.
    pub(super) fn optional<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Wrong>,
    ) -> Result<Option<T>, Wrong> {
        match self.text()? {
            "" => Ok(None),
            _ => read(self).map(Some),
        }
    }

    /// Returns what `read` returns, or nothing if the value is "off".
    pub(super) fn unless_off<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Wrong>,
    ) -> Result<Option<T>, Wrong> {
        match self.text()? {
            "off" => Ok(None),
            "" => Err(self.refuse("is empty, write \"off\" for none")),
            _ => read(self).map(Some),
        }
    }

    /// Returns an absolute path without unprintable characters.
    pub(super) fn path(&self) -> Result<PathBuf, Wrong> {
        let text = self.text()?;
        if !text.starts_with('/') {
            Err(self.refuse("is not an absolute path"))
        } else if text.ends_with('/') {
            Err(self.refuse("is a directory, not a file"))
        } else if !text.chars().all(is_plain) {
            Err(self.refuse("contains characters that are not printable"))
        } else {
            Ok(PathBuf::from(text))
        }
    }

    /// Returns a duration between two bounds, both inclusive.
    pub(super) fn duration(&self, least: Duration, most: Duration) -> Result<Duration, Wrong> {
        let duration = duration::parse(self.text()?).map_err(|error| self.refuse(error))?;
        if duration < least {
            Err(self.refuse("is too short"))
        } else if duration > most {
            Err(self.refuse("is too long"))
        } else {
            Ok(duration)
        }
    }

    /// Parses a name of an enumeration.
    pub(super) fn choice<T: Choice>(&self) -> Result<T, Wrong> {
        let text = self.text()?;
        let found = T::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let names = T::NAMES.iter().map(|(name, _)| *name);
            match suggest::closest(text, names) {
                Some(name) => self.refuse(format_args!(
                    "is not a valid value, did you mean \"{name}\"?"
                )),
                None => self.refuse("is not a valid value"),
            }
        })
    }

    /// Parses a list of names of an enumeration, without duplicates.
    pub(super) fn choices<T: Choice>(&self) -> Result<Vec<T>, Vec<Wrong>> {
        let Self::List(items) = self else {
            return Err(self.expect("array of strings").into());
        };
        let mut choices = Vec::new();
        let mut wrongs = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let checked = match item.choice::<T>() {
                Ok(choice) if choices.contains(&choice) => Err(item.refuse("is listed twice")),
                other => other,
            };
            match checked {
                Ok(choice) => choices.push(choice),
                Err(wrong) => wrongs.push(Wrong {
                    element: Some(index),
                    ..wrong
                }),
            }
        }
        if wrongs.is_empty() {
            Ok(choices)
        } else {
            Err(wrongs)
        }
    }

    /// Parses a list of names of an enumeration, in the order of the enumeration.
    pub(super) fn ordered_choices<T: Choice>(&self) -> Result<Vec<T>, Vec<Wrong>> {
        let choices = self.choices::<T>()?;
        let in_order = T::NAMES
            .iter()
            .map(|(_, choice)| *choice)
            .filter(|choice| choices.contains(choice));
        if choices.iter().copied().eq(in_order) {
            Ok(choices)
        } else {
            let wrong = self.refuse("is out of order: entries can be omitted, but not reordered");
            Err(wrong.into())
        }
    }
}

/// Prints the value in TOML syntax.
impl fmt::Display for ConfigValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(&text.to_toml_value()),
            Self::Switch(switch) => switch.fmt(formatter),
            Self::List(items) => {
                formatter.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(formatter, "{separator}{item}")?;
                }
                formatter.write_str("]")
            }
            Self::Other { written, .. } => formatter.write_str(written),
        }
    }
}
