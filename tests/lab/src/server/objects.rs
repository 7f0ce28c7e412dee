// SPDX-License-Identifier: Apache-2.0
//! The verbs on stored objects: get, list, create, update, patch, delete.

use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Shared;
use super::managed_fields;
use super::patch;
use super::resource::{Kind, Query, ResourcePath, map_mut};
use super::status::{Failure, details};
use super::store::{Key, Step};

/// Metadata that no update changes.
const FIXED: [&str; 4] = ["uid", "creationTimestamp", "namespace", "deletionTimestamp"];

/// A request about objects, authenticated, authorized and with its kind known.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub shared: &'a Arc<Shared>,
    pub kind: Kind,
    pub path: ResourcePath,
    pub query: Query,
    pub user_agent: &'a str,
    pub content_type: &'a str,
    pub raw_path: &'a str,
    pub raw_query: &'a str,
    pub body: &'a [u8],
}

impl Call<'_> {
    fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    fn key(&self, name: &str) -> Key {
        Key {
            group: self.kind.storage_group(),
            plural: self.kind.plural,
            namespace: self.namespace().unwrap_or_default().to_owned(),
            name: name.to_owned(),
        }
    }

    /// The namespace of the request; none for all of a list or watch.
    pub(crate) fn namespace(&self) -> Option<&str> {
        let namespace = self.path.namespace.as_deref();
        namespace.filter(|_| self.kind.namespaced)
    }

    /// All objects of a list or watch, and the revision.
    pub(crate) fn selected(&self) -> (u64, Vec<Arc<Value>>) {
        let kind = &self.kind;
        let (revision, mut objects) =
            self.shared
                .store
                .list(kind.storage_group(), kind.plural, self.namespace());
        objects.retain(|object| self.query.selects(object));
        (revision, objects)
    }

    pub(crate) fn get(&self) -> Result<Value, Failure> {
        let stored = self.shared.store.get(&self.key(self.name()));
        let stored = stored.ok_or_else(|| Failure::not_found(&self.kind, self.name()))?;
        Ok(self.kind.present(&stored))
    }

    /// All in one page, whatever the limit.
    pub(crate) fn list(&self) -> Value {
        let (revision, objects) = self.selected();
        let items = objects.iter().map(|object| {
            let mut item = self.kind.present(object);
            // Items of kube-apiserver's own kinds do not repeat what the list says.
            if !self.kind.is_custom() {
                let map = item.as_object_mut().expect("objects are maps");
                map.remove("apiVersion");
                map.remove("kind");
            }
            item
        });
        json!({
            "kind": format!("{}List", self.kind.kind), "apiVersion": self.kind.api_version(),
            "metadata": {"resourceVersion": revision.to_string()}, "items": items.collect::<Value>(),
        })
    }

    pub(crate) fn create(&self) -> Result<Value, Failure> {
        let mut object = self.read_object()?;
        let metadata = map_mut(&mut object, "metadata");
        let name = metadata.get("name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        if let Some(namespace) = self.namespace() {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        metadata.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
        metadata.insert("creationTimestamp".to_owned(), json!(timestamp()));
        managed_fields::record(None, &mut object, &self.manager(), &timestamp());
        let stored = self
            .shared
            .store
            .transact(&self.key(&name), |old| match old {
                Some(_) => Err(Failure::already_exists(&self.kind, &name)),
                None => Ok(Step::Put(object)),
            })?;
        Ok(self.kind.present(&stored))
    }

    pub(crate) fn update(&self) -> Result<Value, Failure> {
        let object = self.read_object()?;
        self.change(|_| object)
    }

    pub(crate) fn patch(&self) -> Result<Value, Failure> {
        let is_strategic = self.content_type.contains("strategic");
        let apply = match is_strategic {
            true => patch::strategic,
            false => patch::merge,
        };
        let patch: Value = serde_json::from_slice(self.body)
            .map_err(|_| Failure::bad_request("error decoding patch: invalid JSON"))?;
        self.change(|old| {
            let mut object = self.kind.present(old);
            apply(&mut object, &patch);
            self.kind.absorb(object)
        })
    }

    /// Puts what `change` makes of the object in its place.
    fn change(&self, change: impl FnOnce(&Value) -> Value) -> Result<Value, Failure> {
        let name = self.name();
        let stored = self.shared.store.transact(&self.key(name), |old| {
            let old = old.ok_or_else(|| Failure::not_found(&self.kind, name))?;
            self.evolve(old, change(old))
        })?;
        Ok(self.kind.present(&stored))
    }

    /// What becomes of `old` when a client wants `new`.
    fn evolve(&self, old: &Value, mut new: Value) -> Result<Step, Failure> {
        let name = self.name();
        let metadata = map_mut(&mut new, "metadata");
        let revision = metadata.get("resourceVersion").and_then(Value::as_str);
        if revision.is_some_and(|asked| old["metadata"]["resourceVersion"] != asked) {
            return Err(Failure::modified(&self.kind, name));
        }
        for field in FIXED {
            keep(metadata, &old["metadata"], field);
        }
        let map = new.as_object_mut().expect("objects are maps");
        match (self.kind.has_status, &self.path.subresource) {
            (true, None) => keep(map, old, "status"),
            (true, Some(_)) => keep(map, old, "spec"),
            (false, _) => {}
        }
        keep(map, old, "apiVersion");
        keep(map, old, "kind");
        if same(old, &new) {
            return Ok(Step::Keep);
        }
        if new["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&new) {
            return Ok(Step::Remove);
        }
        managed_fields::record(Some(old), &mut new, &self.manager(), &timestamp());
        Ok(Step::Put(new))
    }

    pub(crate) fn delete(&self) -> Result<Value, Failure> {
        let name = self.name();
        let stored = self.shared.store.transact(&self.key(name), |old| {
            let old = old.ok_or_else(|| Failure::not_found(&self.kind, name))?;
            if !has_finalizers(old) {
                return Ok(Step::Remove);
            }
            let mut object = old.as_ref().clone();
            object["metadata"]["deletionTimestamp"] = json!(timestamp());
            Ok(Step::Put(object))
        })?;
        if has_finalizers(&stored) {
            return Ok(self.kind.present(&stored));
        }
        Ok(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details(self.kind.plural, self.kind.group, name),
        }))
    }

    /// The first token of the User-Agent up to its slash.
    fn manager(&self) -> String {
        let token = self.user_agent.split('/').next();
        token.unwrap_or_default().to_owned()
    }

    fn read_object(&self) -> Result<Value, Failure> {
        let object: Value = serde_json::from_slice(self.body)
            .map_err(|error| Failure::bad_request(&format!("json parse error: {error}")))?;
        Ok(self.kind.absorb(object))
    }
}

fn keep(new: &mut serde_json::Map<String, Value>, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => new.insert(field.to_owned(), value.clone()),
        None => new.remove(field),
    };
}

/// The current time as object metadata writes it.
fn timestamp() -> String {
    OffsetDateTime::now_utc()
        .replace_nanosecond(0)
        .expect("0 is a nanosecond")
        .format(&Rfc3339)
        .expect("the present has a year of four digits")
}

/// Whether two states differ in nothing that a client asked for.
fn same(old: &Value, new: &Value) -> bool {
    let content = |object: &Value| {
        let mut object = object.clone();
        let metadata = map_mut(&mut object, "metadata");
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        for map in ["labels", "annotations"] {
            if metadata.get(map).is_some_and(|map| *map == json!({})) {
                metadata.remove(map);
            }
        }
        object
    };
    content(old) == content(new)
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|list| !list.is_empty())
}
