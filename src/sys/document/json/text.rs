// SPDX-License-Identifier: Apache-2.0
//! Strings of JSON objects: each has a maximum length. A name or UID that is longer is an error that names its field; any other text
//! is cut, because an object must not become unreadable for a text that is only shown or that is not valid anyway.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, Visitor};

/// The maximum length in bytes of a name of an object, of a host and of most other identifiers.
pub(crate) const NAME_BYTES: usize = 253;

/// The maximum length in bytes of `message` of a condition (`metav1.Condition`).
pub(crate) const MESSAGE_BYTES: usize = 32_768;

/// The mark at the end of a text that was cut. With it, no part of a name, a time or an address is taken for a valid one.
const CUT: char = '…';

/// What becomes of a longer string.
#[derive(Debug, Clone, Copy)]
enum Beyond {
    /// It is an error.
    Refused,
    /// Its first bytes are kept.
    Cut,
}

/// Reads one string of at most this many bytes. The string is not copied before its length is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limited(usize, Beyond);

impl Limited {
    /// Refuses a longer string.
    pub(super) fn refused(limit: usize) -> Self {
        Self(limit, Beyond::Refused)
    }

    /// Cuts a longer string.
    fn cut(limit: usize) -> Self {
        Self(limit, Beyond::Cut)
    }
}

impl<'de> DeserializeSeed<'de> for Limited {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Limited {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        let Self(limit, beyond) = self;
        if text.len() <= limit {
            return Ok(text.to_owned());
        }
        match beyond {
            Beyond::Refused => Err(E::custom(format_args!("longer than {limit} bytes"))),
            Beyond::Cut => {
                let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end));
                let start = text.get(..end.unwrap_or_default()).unwrap_or_default();
                Ok(format!("{start}{CUT}"))
            }
        }
    }
}

/// Reads such a string, or `null`.
struct Optionally<S>(S);

impl<'de, S: DeserializeSeed<'de, Value = String>> Visitor<'de> for Optionally<S> {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or null")
    }

    fn visit_none<E>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// A type that a string can be parsed into.
trait Text: Sized {
    fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        how: impl DeserializeSeed<'de, Value = String>,
    ) -> Result<Self, D::Error>;
}

impl Text for String {
    fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        how: impl DeserializeSeed<'de, Value = String>,
    ) -> Result<Self, D::Error> {
        how.deserialize(deserializer)
    }
}

impl Text for Option<String> {
    fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        how: impl DeserializeSeed<'de, Value = String>,
    ) -> Result<Self, D::Error> {
        deserializer.deserialize_option(Optionally(how))
    }
}

/// Adds the path of the field to an error in its value.
pub(super) fn in_field<E: serde::de::Error>(path: &str, error: &E) -> E {
    E::custom(format_args!("`{path}`: {error}"))
}

/// Defines functions for `deserialize_with`: what happens with a longer text, the type of the field, its path for errors, and its
/// maximum length in bytes.
macro_rules! text_fields {
    ($how:ident: $($function:ident: $type:ty = $path:literal, $limit:expr;)*) => {$(
        #[doc = concat!("Reads `", $path, "`.")]
        pub(crate) fn $function<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<$type, D::Error> {
            <$type as Text>::read(deserializer, Limited::$how($limit)).map_err(|error| in_field($path, &error))
        }
    )*};
}

text_fields! {
    refused:
    name: Option<String> = "metadata.name", NAME_BYTES;
    namespace: Option<String> = "metadata.namespace", NAME_BYTES;
    uid: Option<String> = "metadata.uid", NAME_BYTES;
    resource_version: Option<String> = "metadata.resourceVersion", NAME_BYTES;
    pod_uid: String = "metadata.uid", NAME_BYTES;
    pod_node_name: String = "spec.nodeName", NAME_BYTES;
    node_name: Option<String> = "status.nodeName", NAME_BYTES;
}

text_fields! {
    cut:
    deletion_timestamp: Option<String> = "metadata.deletionTimestamp", NAME_BYTES;
    owner_kind: Option<String> = "metadata.ownerReferences[].kind", NAME_BYTES;
    owner_uid: Option<String> = "metadata.ownerReferences[].uid", NAME_BYTES;
    provider_id: Option<String> = "spec.providerID", 1024;
    hostname: Option<String> = "spec.hostname", NAME_BYTES;
    firmware_uuid: Option<String> = "spec.domain.firmware.uuid", NAME_BYTES;
    system_uuid: Option<String> = "status.nodeInfo.systemUUID", NAME_BYTES;
    firmware_serial: Option<String> = "spec.domain.firmware.serial", 1024;
    spec_interface_mac: Option<String> = "spec.domain.devices.interfaces[].macAddress", NAME_BYTES;
    condition_type: String = "status.conditions[].type", 317;
    condition_status: String = "status.conditions[].status", NAME_BYTES;
    condition_reason: Option<String> = "status.conditions[].reason", 1024;
    condition_message: Option<String> = "status.conditions[].message", MESSAGE_BYTES;
    evacuation_node_name: Option<String> = "status.evacuationNodeName", NAME_BYTES;
    migration_uid: Option<String> = "status.migrationState.migrationUid", NAME_BYTES;
    migration_source: Option<String> = "status.migrationState.sourceNode", NAME_BYTES;
    migration_target: Option<String> = "status.migrationState.targetNode", NAME_BYTES;
    migration_start: Option<String> = "status.migrationState.startTimestamp", NAME_BYTES;
    migration_end: Option<String> = "status.migrationState.endTimestamp", NAME_BYTES;
    migration_failure: Option<String> = "status.migrationState.failureReason", MESSAGE_BYTES;
    run_strategy: Option<String> = "spec.runStrategy", NAME_BYTES;
    status_interface_name: Option<String> = "status.interfaces[].name", NAME_BYTES;
    status_interface_mac: Option<String> = "status.interfaces[].mac", NAME_BYTES;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Object {
        #[serde(default, deserialize_with = "uid")]
        uid: Option<String>,
        #[serde(default, deserialize_with = "condition_type")]
        kind: String,
    }

    #[test]
    fn a_string_that_is_too_long_is_refused_with_its_field_however_it_is_written() {
        for letter in ["x", "\\u0078"] {
            let object = |count: usize| format!(r#"{{"uid":"{}"}}"#, letter.repeat(count));
            let read = serde_json::from_str::<Object>(&object(NAME_BYTES)).unwrap();
            assert_eq!(read.uid.unwrap().len(), NAME_BYTES);
            let error = serde_json::from_str::<Object>(&object(NAME_BYTES + 1)).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with("`metadata.uid`: longer than 253 bytes"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_is_only_shown_is_cut_between_characters_and_never_refused() {
        let read = |kind: &str| {
            let object = serde_json::json!({ "kind": kind }).to_string();
            serde_json::from_str::<Object>(&object).unwrap().kind
        };
        assert_eq!(read(&"x".repeat(317)).len(), 317);
        assert_eq!(read(&"x".repeat(318)), "x".repeat(317) + "…");
        assert_eq!(read(&"ü".repeat(200)), "ü".repeat(158) + "…");
    }

    #[test]
    fn null_and_nothing_are_no_string_and_other_values_are_errors() {
        for text in ["{}", r#"{"uid":null}"#] {
            let object: Object = serde_json::from_str(text).unwrap();
            assert_eq!((object.uid, object.kind.as_str()), (None, ""), "{text}");
        }
        for text in [r#"{"uid":1}"#, r#"{"uid":[]}"#, r#"{"kind":null}"#] {
            serde_json::from_str::<Object>(text).unwrap_err();
        }
    }
}
