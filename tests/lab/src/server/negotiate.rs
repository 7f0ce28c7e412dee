// SPDX-License-Identifier: Apache-2.0
//! Which form of an object the Accept header asks for.

use serde_json::{Value, json};

use super::status::Failure;

const META_VERSION: &str = "meta.k8s.io/v1";

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The whole object.
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
}

impl Form {
    /// The first clause of the header that this server can serve.
    pub(crate) fn of_accept(accept: &str) -> Result<Self, Failure> {
        let clauses = accept
            .split(',')
            .map(str::trim)
            .filter(|clause| !clause.is_empty());
        let mut none = true;
        for clause in clauses {
            none = false;
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "application/*" | "*/*") {
                continue;
            }
            let parameters: Vec<(&str, &str)> =
                parts.filter_map(|part| part.split_once('=')).collect();
            let parameter = |name: &str| {
                let found = parameters.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| *value)
            };
            let meta = parameter("g") == Some("meta.k8s.io") && parameter("v") == Some("v1");
            match parameter("as") {
                None => return Ok(Self::Full),
                Some("PartialObjectMetadata") if meta => return Ok(Self::Metadata),
                Some("PartialObjectMetadataList") if meta => return Ok(Self::MetadataList),
                // Tables and other versions are not served here; the next clause may do.
                Some(_) => {}
            }
        }
        if none {
            return Ok(Self::Full);
        }
        Err(not_acceptable(
            "only the following media types are accepted: application/json",
        ))
    }

    /// One object in this form.
    pub(crate) fn of_object(self, object: Value) -> Value {
        match self {
            Self::Full => object,
            Self::Metadata | Self::MetadataList => metadata_of(&object),
        }
    }

    /// A whole answer of get, list or a write in this form.
    pub(crate) fn of_answer(self, answer: Value) -> Result<Value, Failure> {
        let kind = answer["kind"].as_str().unwrap_or_default().to_owned();
        let is_list = answer["items"].is_array() && kind.ends_with("List");
        match (self, is_list) {
            (Self::Full, _) => Ok(answer),
            (Self::Metadata, false) => Ok(metadata_of(&answer)),
            (Self::MetadataList, true) => {
                let items = answer["items"].as_array().into_iter().flatten();
                let items: Vec<Value> = items.map(metadata_of).collect();
                Ok(json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": META_VERSION,
                    "metadata": answer["metadata"], "items": items,
                }))
            }
            (Self::Metadata, true) => Err(not_acceptable(&format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*core.{kind})"
            ))),
            (Self::MetadataList, false) => Err(not_acceptable(&format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*core.{kind})"
            ))),
        }
    }
}

fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": META_VERSION, "metadata": object["metadata"],
    })
}

fn not_acceptable(message: &str) -> Failure {
    Failure::new(406, "NotAcceptable", message, Value::Null)
}
