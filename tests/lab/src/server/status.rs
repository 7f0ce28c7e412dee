// SPDX-License-Identifier: Apache-2.0
//! metav1.Status answers with the texts that kube-apiserver writes.

use serde_json::{Value, json};

use super::resource::{Kind, qualify};

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// The metav1.Status, or a string that is sent as plain text.
    pub body: Value,
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
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized", Value::Null)
    }

    /// 404 of a path that no handler has: plain text, not a Status.
    pub(crate) fn no_such_path() -> Self {
        Self {
            code: 404,
            body: json!("404 page not found\n"),
        }
    }

    /// 404 of an unknown resource in a group and version that exist.
    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message, json!({}))
    }

    /// 410 of a resource version that was compacted away.
    pub(crate) fn too_old(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(410, "Expired", &message, Value::Null)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::of_object(404, "NotFound", kind, name, |object| {
            format!("{object} not found")
        })
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::of_object(409, "AlreadyExists", kind, name, |object| {
            format!("{object} already exists")
        })
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::of_object(409, "Conflict", kind, name, |object| {
            format!(
                "Operation cannot be fulfilled on {object}: the object has been modified; please apply your changes to the latest version and try again"
            )
        })
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    fn of_object(
        code: u16,
        reason: &str,
        kind: &Kind,
        name: &str,
        message: impl FnOnce(&str) -> String,
    ) -> Self {
        let object = format!("{} {name:?}", qualify(kind.plural, kind.group));
        Self::new(
            code,
            reason,
            &message(&object),
            details(kind.plural, kind.group, name),
        )
    }
}

/// Of which object a Status speaks; neither group nor name are there when they are empty.
pub(crate) fn details(plural: &str, group: &str, name: &str) -> Value {
    let mut details = json!({"kind": plural, "group": group, "name": name});
    let map = details.as_object_mut().expect("just made a map");
    map.retain(|_, value| value != "");
    details
}
