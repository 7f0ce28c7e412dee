// SPDX-License-Identifier: Apache-2.0
//! The few fields that all Kubernetes objects share. Every one may be missing: the caller decides which ones are required.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::sys::document::json::{Capped, Identifier, StringMap, objects};

/// The maximum number of objects in a list. The agent does not search a namespace with more virtual machines.
pub const MAXIMUM_ITEMS: usize = 10_000;

/// The media type of an object or a list.
pub(super) const JSON: &str = "application/json";
/// The media type of an object of which only the metadata is requested.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// The media type of a list of such objects.
pub(super) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The kind of an object of which only the metadata was requested.
pub(super) const PARTIAL: &str = "PartialObjectMetadata";

objects! {
    /// An object of any kind, of which only the metadata was requested.
    pub struct PartialObjectMetadata {
        /// The metadata.
        pub metadata: ObjectMeta,
    }

    /// The part of `metadata` that is read from objects of any kind.
    pub struct ObjectMeta {
        /// Name, unique in its namespace.
        pub name: Option<Identifier>,
        /// Distinguishes objects that had the same name at different times.
        pub uid: Option<Identifier>,
        /// Labels.
        pub labels: StringMap,
    }

    /// `metav1.Status`: the description of a failure.
    pub struct ApiStatus {
        /// Always `Status` in a response of a Kubernetes API.
        pub kind: Option<String>,
        /// The description of the failure. Untrusted text.
        pub message: Option<String>,
        /// The reason of the failure, one word.
        pub reason: Option<String>,
        /// The corresponding HTTP status.
        pub code: Option<u16>,
        /// Additional details.
        pub details: Option<StatusDetails>,
    }

    /// Details of a [`ApiStatus`].
    pub struct StatusDetails {
        /// The plural of the kind of the object.
        pub kind: Option<String>,
        /// The time to wait before the next try.
        pub retry_after_seconds: Option<u64>,
    }
}

/// One page of a list, as the API sends it. The objects are parsed later, one at a time.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub(super) kind: Option<String>,
    pub(super) metadata: Option<ListMeta>,
    #[serde(default, borrow)]
    pub(super) items: Capped<&'a RawValue, MAXIMUM_ITEMS>,
}

#[derive(Deserialize)]
pub(super) struct ListMeta {
    #[serde(rename = "continue")]
    pub(super) continue_token: Option<String>,
}

/// The request to check with a `SelfSubjectAccessReview`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAttributes {
    /// Absent: all namespaces, or a resource without namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `get`, `list`, `watch`, `patch` and so on.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Plural, lower case.
    pub resource: String,
    /// A subresource, such as `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Absent: every object of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The result of a `SelfSubjectAccessReview`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessReview {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Whether an authorizer denied the request; without it, `allowed` false means that none allowed it.
    #[serde(default)]
    pub denied: bool,
    /// The reason, escaped by the client.
    pub reason: Option<String>,
    /// The error of the evaluation, escaped by the client.
    pub evaluation_error: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct AccessReviewObject {
    pub(super) status: AccessReview,
}

/// The frame of one watch event; the object stays unparsed until its type is known.
#[derive(Deserialize)]
pub(super) struct EventFrame<'a> {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The part of any object that a watch needs to continue after it.
#[derive(Deserialize)]
pub(super) struct EventObject {
    pub(super) metadata: VersionedMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionedMeta {
    pub(super) resource_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_nulls_and_an_empty_object_both_parse() {
        let nulls = r#"{"metadata":{"name":null,"uid":null,"labels":null}}"#;
        for text in ["{}", r#"{"metadata":{}}"#, nulls] {
            let object: PartialObjectMetadata = serde_json::from_str(text).unwrap();
            assert_eq!(object, PartialObjectMetadata::default(), "{text}");
        }
    }

    #[test]
    fn a_label_that_comes_twice_makes_the_object_unreadable() {
        let text = r#"{"metadata":{"labels":{"a":"1","a":"2"}}}"#;
        let error = serde_json::from_str::<PartialObjectMetadata>(text).unwrap_err();
        assert!(error.to_string().contains("duplicate key"), "{error}");
    }
}
