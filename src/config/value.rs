// SPDX-License-Identifier: Apache-2.0
//! A value as a file states it, and the checks that turn it into a real type.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::duration;
use super::errors::{escaped, quoted};
use super::label::NameError;
use super::settings::Choice;
use super::suggest;
use crate::sys::escape::is_plain;

/// The kinds of value that some key takes; every other kind is kept for the error only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConfigValue {
    /// A string.
    Text(String),
    /// A boolean.
    Switch(bool),
    /// An array.
    List(Vec<ConfigValue>),
    /// Anything else: TOML's word for its type, and its text in the file.
    Other {
        /// TOML's word for the type.
        kind: &'static str,
        /// As written.
        written: String,
    },
}

/// What is wrong with a value, or with one element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The index of the element, when the value is an array and only one element is wrong.
    pub(super) element: Option<usize>,
    /// The value or element, escaped.
    pub(super) shown: String,
    /// What is wrong with it.
    pub(super) why: ValueProblem,
}

/// The ways of being wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueProblem {
    /// Another type is needed.
    Type {
        /// What the key takes.
        expected: &'static str,
        /// What the file has.
        found: &'static str,
    },
    /// The type is right and the value is not.
    Content(String),
}

impl From<Wrong> for Vec<Wrong> {
    fn from(wrong: Wrong) -> Self {
        vec![wrong]
    }
}

impl ConfigValue {
    /// Takes a parsed value out of the file whose text is `source`.
    pub(super) fn new(value: &toml::Spanned<DeValue<'_>>, source: &str) -> Self {
        match value.get_ref() {
            DeValue::String(text) => Self::Text(text.clone().into_owned()),
            DeValue::Boolean(switch) => Self::Switch(*switch),
            DeValue::Array(items) => {
                Self::List(items.iter().map(|item| Self::new(item, source)).collect())
            }
            // The span of a table may be that of its header, or of half a dotted key.
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

    /// TOML's word for the type.
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Switch(_) => "boolean",
            Self::List(_) => "array",
            Self::Other { kind, .. } => kind,
        }
    }

    /// The value for an error: escaped, cut when long.
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Switch(_) | Self::List(_) => escaped(&self.to_string()),
            Self::Other { written, .. } => escaped(written),
        }
    }

    /// Says that the content is wrong.
    pub(super) fn refuse(&self, why: impl fmt::Display) -> Wrong {
        Wrong {
            element: None,
            shown: self.shown(),
            why: ValueProblem::Content(why.to_string()),
        }
    }

    /// Says that the name before the equals sign is wrong.
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

    /// A string.
    pub(super) fn text(&self) -> Result<&str, Wrong> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(self.expect("string")),
        }
    }

    /// A boolean.
    pub(super) fn switch(&self) -> Result<bool, Wrong> {
        match self {
            Self::Switch(switch) => Ok(*switch),
            _ => Err(self.expect("boolean")),
        }
    }

    /// A Kubernetes name of some kind.
    pub(super) fn name<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<T, Wrong> {
        parse(self.text()?).map_err(|error| self.refuse(error))
    }

    /// As `read` says, or nothing when the string is empty.
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

    /// An absolute path that can be printed as it is.
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

    /// A span of time between two bounds, both included.
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

    /// One of the names of an enumeration.
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

    /// Names of an enumeration, none of them twice.
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

    /// Names of an enumeration in the order of the enumeration.
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

/// The value as TOML text.
impl fmt::Display for ConfigValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => toml::Value::String(text.clone()).fmt(formatter),
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
