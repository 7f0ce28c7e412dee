// SPDX-License-Identifier: Apache-2.0
//! Values that are strings in a file, with the rules that serde does not know.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Error, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::duration;
use crate::facts::placement::Source;
use crate::sys::escape::is_plain;

/// The absolute path of a file, without characters that are not printable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct FilePath(pub(super) PathBuf);

impl TryFrom<String> for FilePath {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        if !text.starts_with('/') {
            Err("is not an absolute path")
        } else if text.ends_with('/') {
            Err("is a directory, not a file")
        } else if !text.chars().all(is_plain) {
            Err("contains characters that are not printable")
        } else {
            Ok(Self(PathBuf::from(text)))
        }
    }
}

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// A value that can be absent: the word in the file is "" or "off".
pub(super) struct OrWord<const IS_OFF: bool>;

/// With "", the agent chooses.
pub(super) type OrEmpty = OrWord<false>;
/// With "off", there is none.
pub(super) type OrOff = OrWord<true>;

impl<const IS_OFF: bool> OrWord<IS_OFF> {
    const ABSENT: &'static str = if IS_OFF { "off" } else { "" };

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(Self::ABSENT),
        }
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        match String::deserialize(deserializer)? {
            word if word == Self::ABSENT => Ok(None),
            word if word.is_empty() => Err(D::Error::custom("is empty, write \"off\" for none")),
            text => T::deserialize(text.into_deserializer()).map(Some),
        }
    }
}

/// A duration between two bounds in seconds, both inclusive.
pub(super) struct Bounded<const LEAST: u64, const MOST: u64>;

impl<const LEAST: u64, const MOST: u64> Bounded<LEAST, MOST> {
    pub(super) fn serialize<S: Serializer>(
        value: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&duration::text(*value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let value = duration::parse(&String::deserialize(deserializer)?);
        let value = value.map_err(D::Error::custom)?;
        let [least, most] = [LEAST, MOST].map(Duration::from_secs);
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        let [least, most] = [least, most].map(duration::text);
        let why = format!("is not between \"{least}\" and \"{most}\"");
        Err(D::Error::custom(why))
    }
}

/// Reads sources that are in the order of their precedence.
pub(super) fn in_order<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Source>, D::Error> {
    let listed = Vec::<Source>::deserialize(deserializer)?;
    if listed.is_sorted_by(|earlier, later| earlier < later) {
        Ok(listed)
    } else {
        let why =
            "is out of order or has an entry twice: entries can be omitted, but not reordered";
        Err(D::Error::custom(why))
    }
}
