// SPDX-License-Identifier: Apache-2.0
//! The values of a kubeconfig with their key names, so that every error can name the location.

use std::fmt::Display;
use std::path::Path;

use crate::access::error::CredentialError;
use crate::sys::document::yaml::YamlValue;

/// A location in the kubeconfig, with its name for messages. The value may be missing.
pub(super) struct KubeconfigKey<'a> {
    file: &'a Path,
    pub(super) name: String,
    value: Option<&'a YamlValue>,
}

impl<'a> KubeconfigKey<'a> {
    /// Returns the location of the whole document.
    pub(super) fn whole(file: &'a Path, document: &'a YamlValue) -> Self {
        Self {
            file,
            name: String::new(),
            value: Some(document),
        }
    }

    pub(super) fn child(&self, key: &str) -> Result<Self, CredentialError> {
        let name = match self.name.as_str() {
            "" => key.to_owned(),
            parent => format!("{parent}.{key}"),
        };
        let value = match self.value {
            None | Some(YamlValue::Null) => None,
            Some(mapping @ YamlValue::Map(_)) => mapping.get(key),
            Some(other) => return Err(self.wrong_kind(other, "a mapping")),
        };
        Ok(Self {
            file: self.file,
            name,
            value,
        })
    }

    /// Returns the text; an empty one counts as missing, as in Kubernetes' own clients.
    pub(super) fn text(&self) -> Result<Option<&'a str>, CredentialError> {
        match self.value {
            None | Some(YamlValue::Null) => Ok(None),
            Some(YamlValue::Text(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(other) => Err(self.wrong_kind(other, "text")),
        }
    }

    pub(super) fn needed(&self, needed: impl Display) -> Result<&'a str, CredentialError> {
        self.text()?.ok_or_else(|| self.missing(needed))
    }

    pub(super) fn is_true(&self) -> Result<bool, CredentialError> {
        match self.value {
            None | Some(YamlValue::Null) => Ok(false),
            Some(YamlValue::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong_kind(other, "`true` or `false`")),
        }
    }

    pub(super) fn entries(&self) -> Result<Vec<Self>, CredentialError> {
        match self.value {
            None | Some(YamlValue::Null) => Ok(Vec::new()),
            Some(YamlValue::List(list)) => Ok(list
                .iter()
                .enumerate()
                .map(|(index, value)| Self {
                    file: self.file,
                    name: format!("{}[{index}]", self.name),
                    value: Some(value),
                })
                .collect()),
            Some(other) => Err(self.wrong_kind(other, "a list")),
        }
    }

    /// Reports whether the key has a value.
    pub(super) fn is_set(&self) -> bool {
        match self.value {
            None | Some(YamlValue::Null) => false,
            Some(YamlValue::Text(text)) => !text.is_empty(),
            Some(YamlValue::List(list)) => !list.is_empty(),
            Some(_) => true,
        }
    }

    /// Returns the parsed text, or `problem`.
    pub(super) fn parsed<T>(
        &self,
        parse: fn(&str) -> Option<T>,
        problem: &'static str,
    ) -> Result<Option<T>, CredentialError> {
        let parsed = self.text()?.map(parse);
        let parsed = parsed.map(|value| value.ok_or_else(|| self.invalid(problem)));
        parsed.transpose()
    }

    pub(super) fn missing(&self, needed: impl Display) -> CredentialError {
        let path = self.file.display();
        CredentialError::Unusable(format!("`{}` is missing in `{path}`: {needed}", self.name))
    }

    pub(super) fn invalid(&self, problem: &'static str) -> CredentialError {
        CredentialError::at(self.file, &self.name, format_args!("is {problem}"))
    }

    pub(super) fn refused(&self, reason: &'static str) -> CredentialError {
        CredentialError::at(
            self.file,
            &self.name,
            format_args!("is not supported: {reason}"),
        )
    }

    fn wrong_kind(&self, found: &YamlValue, expected: &'static str) -> CredentialError {
        let problem = format!("is {}, expected {expected}", found.kind());
        match self.name.as_str() {
            "" => CredentialError::Unusable(format!("`{}` {problem}", self.file.display())),
            name => CredentialError::at(self.file, name, problem),
        }
    }
}
