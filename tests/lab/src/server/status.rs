// SPDX-License-Identifier: Apache-2.0
//! metav1.Status answers with the texts that kube-apiserver writes.

use serde_json::{Value, json};

use super::resource::Kind;
use crate::kubernetes::Kubernetes;

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// The metav1.Status, or a string that is sent as plain text.
    pub body: Value,
}

/// One entry of `details.causes` of a 422.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub reason: &'static str,
    pub field: String,
    pub message: String,
}

impl Cause {
    pub(crate) fn required(field: &str, hint: &str) -> Self {
        let message = if hint.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {hint}")
        };
        Self::new("FieldValueRequired", field, message)
    }

    pub(crate) fn invalid(field: &str, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: {value:?}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(crate) fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self {
            reason,
            field: field.to_owned(),
            message,
        }
    }
}

impl Failure {
    /// Any failure; an empty reason is left out, as are null details.
    #[must_use]
    pub fn new(code: u16, reason: &str, message: &str, details: Value) -> Self {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "code": code,
        });
        if !reason.is_empty() {
            body["reason"] = json!(reason);
        }
        if !details.is_null() {
            body["details"] = details;
        }
        Self { code, body }
    }

    /// 401 for a token or certificate that is unknown.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized", Value::Null)
    }

    /// 404 of a path that no handler has: plain text, not a Status.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self {
            code: 404,
            body: json!("404 page not found\n"),
        }
    }

    /// 404 of an unknown resource in a group and version that exist.
    #[must_use]
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message, json!({}))
    }

    /// 410 of a resource version that was compacted away.
    #[must_use]
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(410, "Expired", &message, Value::Null)
    }

    /// 500 of kube-apiserver 1.36 to a watch with bookmarks on an etcd before 3.4.31, in the stream.
    pub(crate) fn without_watch_progress() -> Self {
        let message = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
        Self::new(500, "InternalError", message, Value::Null)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified_plural());
        Self::new(404, "NotFound", &message, details(kind, name))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified_plural());
        Self::new(409, "AlreadyExists", &message, details(kind, name))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            kind.qualified_plural()
        );
        Self::new(409, "Conflict", &message, details(kind, name))
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403 of an admission plugin.
    pub(crate) fn not_admitted(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified_plural());
        Self::new(403, "Forbidden", &message, details(kind, name))
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    /// 422 of a PUT without a resource version, where that is not allowed.
    pub(crate) fn needs_resource_version(kind: &Kind, name: &str, server: Kubernetes) -> Self {
        let field = "metadata.resourceVersion";
        let why = match server {
            Kubernetes::V1_20 => "Invalid value: 0x0: must be specified for an update",
            Kubernetes::V1_36 => "Invalid value: 0: must be specified for an update",
        };
        let plural = kind.qualified_plural();
        let message = format!("{plural} {name:?} is invalid: {field}: {why}");
        let mut details = details(kind, name);
        details["causes"] =
            json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]);
        Self::new(422, "Invalid", &message, details)
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let text = match texts.as_slice() {
            [only] => only.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind_name = super::resource::qualify(&kind.kind, kind.storage_group());
        let mut details = details(kind, name);
        details["kind"] = json!(kind.kind);
        if kind.storage_group().is_empty() {
            details.as_object_mut().map(|map| map.remove("group"));
        }
        details["causes"] = causes
            .iter()
            .map(|cause| {
                json!({"reason": cause.reason, "message": cause.message, "field": cause.field})
            })
            .collect();
        let message = format!("{kind_name} {name:?} is invalid: {text}");
        Self::new(422, "Invalid", &message, details)
    }
}

pub(crate) fn details(kind: &Kind, name: &str) -> Value {
    let mut details = json!({"kind": kind.plural});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}
