// SPDX-License-Identifier: Apache-2.0
//! The life of an object: what an update may change, and the metadata that the server itself keeps.

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::admission::restrict_node;
use super::managed_fields::{self, Manager};
use super::objects::Call;
use super::resource::{Kind, StatusSubresource, map_mut};
use super::status::{Cause, Failure};
use super::store::{Key, Step};
use super::validate::validate;

/// Metadata that no update changes.
const FIXED: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "namespace",
    "generateName",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// The current time as object metadata writes it.
pub(crate) fn timestamp() -> String {
    OffsetDateTime::now_utc()
        .replace_nanosecond(0)
        .expect("0 is a nanosecond")
        .format(&Rfc3339)
        .expect("the present has a year of four digits")
}

impl Call<'_> {
    /// What becomes of `old` when a client wants `new`.
    pub(crate) fn evolve(&self, old: &Value, mut new: Value) -> Result<Step, Failure> {
        let name = self.name();
        let kind = &self.kind;
        let metadata = map_mut(&mut new, "metadata");
        let given = metadata
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if given != name {
            let message = format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            );
            return Err(Failure::bad_request(&message));
        }
        let revision = metadata.get("resourceVersion").and_then(Value::as_str);
        if revision
            .is_some_and(|asked| !asked.is_empty() && old["metadata"]["resourceVersion"] != asked)
        {
            return Err(Failure::modified(kind, name));
        }
        for field in FIXED {
            match old["metadata"].get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
        let keep = |new: &mut Value, field: &str| {
            let map = new.as_object_mut().expect("objects are maps");
            match old.get(field) {
                Some(value) => map.insert(field.to_owned(), value.clone()),
                None => map.remove(field),
            };
        };
        if self.is_status() && kind.custom {
            let status = new["status"].take();
            new = old.clone();
            if !status.is_null() {
                new["status"] = status;
            }
        } else if self.is_status() {
            keep(&mut new, "spec");
        } else if kind.status == StatusSubresource::Separate {
            keep(&mut new, "status");
        }
        keep(&mut new, "apiVersion");
        keep(&mut new, "kind");
        check_strings(kind, &mut new)?;
        if same(old, &new) {
            return Ok(Step::Keep);
        }
        if let ("nodes", Some(node)) = (kind.plural.as_str(), self.restricted_node()) {
            restrict_node(kind, node, name, Some(old), &new)?;
        }
        validate(self.shared.options.kubernetes, kind, Some(old), &new)?;
        if new["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&new) {
            return Ok(Step::Remove);
        }
        succeed(kind, old, &mut new, &self.manager(), self.is_status());
        Ok(Step::Put(new))
    }
}

pub(crate) fn key_of(kind: &Kind, namespace: Option<&str>, name: &str) -> Key {
    let namespace = namespace.filter(|_| kind.namespaced);
    Key {
        group: kind.storage_group().to_owned(),
        plural: kind.plural.clone(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name: name.to_owned(),
    }
}

/// Fills in the metadata of a new object.
pub(crate) fn begin(kind: &Kind, object: &mut Value, manager: &Manager) {
    let now = timestamp();
    let metadata = map_mut(object, "metadata");
    for field in [
        "resourceVersion",
        "managedFields",
        "deletionTimestamp",
        "generation",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".to_owned(), json!(now));
    if kind.counts_generations() {
        metadata.insert("generation".to_owned(), json!(1));
    }
    managed_fields::record(None, object, manager, &now);
}

/// Brings the metadata of a changed object up to date.
pub(crate) fn succeed(kind: &Kind, old: &Value, new: &mut Value, manager: &Manager, status: bool) {
    if kind.counts_generations() && !status {
        let content = |object: &Value| {
            let mut object = object.clone();
            let map = object.as_object_mut().expect("objects are maps");
            map.remove("metadata");
            if kind.status == StatusSubresource::Separate {
                map.remove("status");
            }
            object
        };
        if content(old) != content(new) {
            let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
            new["metadata"]["generation"] = json!(generation + 1);
        }
    }
    managed_fields::record(Some(old), new, manager, &timestamp());
}

/// Whether two states differ in nothing that a client asked for.
pub(crate) fn same(old: &Value, new: &Value) -> bool {
    let content = |object: &Value| {
        let mut object = object.clone();
        let metadata = map_mut(&mut object, "metadata");
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        for map in ["labels", "annotations"] {
            if metadata
                .get(map)
                .and_then(Value::as_object)
                .is_some_and(serde_json::Map::is_empty)
            {
                metadata.remove(map);
            }
        }
        object
    };
    content(old) == content(new)
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|list| !list.is_empty())
}

/// Labels and annotations are maps of strings; null is read as the empty string, as Go does.
pub(crate) fn check_strings(kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    let name = object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    for map in ["labels", "annotations"] {
        let Some(values) = object["metadata"]
            .get_mut(map)
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        for value in values.values_mut() {
            if value.is_null() {
                *value = json!("");
            } else if !value.is_string() {
                let why = format!("{map}: ReadString: expects \" or n");
                let cause = Cause::invalid("patch", &value.to_string(), &why);
                return Err(Failure::invalid(kind, &name, &[cause]));
            }
        }
    }
    Ok(())
}
