// SPDX-License-Identifier: Apache-2.0
//! Which kind a path is about, and the discovery documents.

use serde_json::{Value, json};

use super::resource::{Kind, ResourcePath, StatusSubresource};
use super::status::Failure;

/// The kind of a path, or the 404 that kube-apiserver has for it.
pub(crate) fn find_kind(kinds: &[Kind], path: &ResourcePath) -> Result<Kind, Failure> {
    let served: Vec<&Kind> = kinds
        .iter()
        .filter(|kind| kind.group == path.group && kind.version == path.version)
        .collect();
    // Groups that kube-apiserver itself serves answer with a Status, all others with a plain page.
    let unknown = || {
        if served.iter().any(|kind| !kind.custom) {
            Failure::no_such_resource()
        } else {
            Failure::no_such_path()
        }
    };
    let kind = served
        .iter()
        .find(|kind| kind.plural == path.plural)
        .ok_or_else(unknown)?;
    // The namespace object itself is addressed inside its own namespace.
    if path.namespace.is_some() && !kind.namespaced && kind.plural != "namespaces" {
        return Err(unknown());
    }
    match path.subresource.as_deref() {
        None => Ok((*kind).clone()),
        Some("status") if kind.status != StatusSubresource::None => Ok((*kind).clone()),
        Some(_) if kind.custom => {
            let name = path.name.as_deref().unwrap_or_default();
            Err(Failure::not_found(kind, name))
        }
        Some(_) => Err(unknown()),
    }
}

/// The document at `/apis`.
pub(crate) fn groups(kinds: &[Kind]) -> Value {
    let mut names: Vec<(&str, &str)> = kinds
        .iter()
        .filter(|kind| !kind.group.is_empty())
        .map(|kind| (kind.group.as_str(), kind.version.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    let groups: Vec<Value> = names
        .into_iter()
        .map(|(group, version)| {
            let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
            json!({"name": group, "versions": [version], "preferredVersion": version})
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The discovery document at `/api/v1` or `/apis/GROUP/VERSION`.
pub(crate) fn resources(kinds: &[Kind], path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version) = match parts.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let resources: Vec<Value> = kinds
        .iter()
        .filter(|kind| kind.group == group && kind.version == version)
        .map(|kind| {
            json!({
                "name": kind.plural, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
                "namespaced": kind.namespaced,
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            })
        })
        .collect();
    let name = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources,
        })
    })
}
