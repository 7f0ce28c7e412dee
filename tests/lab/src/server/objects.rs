// SPDX-License-Identifier: Apache-2.0
//! The verbs on stored objects: get, list, create, update, patch, delete.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Shared;
use super::access::User;
use super::admission::restrict_node;
use super::life::{begin, check_strings, has_finalizers, key_of, timestamp};
use super::managed_fields::Manager;
use super::patch;
use super::resource::{Kind, Query, ResourcePath, StatusSubresource, map_mut};
use super::selector::Selector;
use super::status::{Cause, Failure, details};
use super::store::{Key, Step};
use super::validate::validate;
use crate::kubernetes::Kubernetes;

/// A request about objects, authenticated, authorized and with its kind known.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub shared: &'a Arc<Shared>,
    pub kind: Kind,
    pub path: ResourcePath,
    pub query: Query,
    pub user: User,
    pub user_agent: &'a str,
    pub content_type: &'a str,
    pub raw_path: &'a str,
    pub raw_query: &'a str,
    pub body: &'a [u8],
}

impl Call<'_> {
    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    fn key(&self, name: &str) -> Key {
        key_of(&self.kind, self.path.namespace.as_deref(), name)
    }

    pub(crate) fn is_status(&self) -> bool {
        self.path.subresource.is_some()
    }

    pub(crate) fn manager(&self) -> Manager {
        Manager::of_request(
            self.query.get("fieldManager"),
            self.user_agent,
            self.path.subresource.as_deref(),
        )
    }

    pub(crate) fn selector(&self) -> Result<Selector, Failure> {
        Selector::parse(
            &self.kind,
            self.query.get("fieldSelector").unwrap_or_default(),
            self.query.get("labelSelector").unwrap_or_default(),
        )
    }

    /// The namespace of a list or watch; none for all.
    pub(crate) fn list_namespace(&self) -> Option<&str> {
        let namespace = self.path.namespace.as_deref();
        namespace.filter(|_| self.kind.namespaced)
    }

    /// The `resourceVersion` parameter; none and `0` are the same.
    pub(crate) fn asked_revision(&self) -> Result<u64, Failure> {
        let text = self.query.get("resourceVersion").unwrap_or_default();
        if text.is_empty() {
            return Ok(0);
        }
        text.parse().map_err(|_| {
            let message = format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            );
            match self.shared.options.kubernetes {
                Kubernetes::V1_20 => Failure::new(500, "", &message, Value::Null),
                Kubernetes::V1_36 => {
                    Failure::bad_request(&format!("invalid resource version: {message}"))
                }
            }
        })
    }

    pub(crate) fn get(&self) -> Result<Value, Failure> {
        let stored = self.shared.store.get(&self.key(self.name()));
        let stored = stored.ok_or_else(|| Failure::not_found(&self.kind, self.name()))?;
        Ok(self.kind.present(&stored))
    }

    pub(crate) fn list(&self) -> Result<Value, Failure> {
        let selector = self.selector()?;
        let asked = self.asked_revision()?;
        let limit: usize = self.query.get("limit").unwrap_or("0").parse().unwrap_or(0);
        let (current, objects) = self.shared.store.list(
            self.kind.storage_group(),
            &self.kind.plural,
            self.list_namespace(),
        );
        if asked > current {
            let message =
                format!("Timeout: Too large resource version: {asked}, current: {current}");
            let details = json!({"causes": [{"reason": "ResourceVersionTooLarge",
                "message": "Too large resource version"}], "retryAfterSeconds": 1});
            return Err(Failure::new(504, "Timeout", &message, details));
        }
        let (revision, after) = match self.query.get("continue") {
            Some(token) if !token.is_empty() => self.read_continue(token)?,
            _ => (current, String::new()),
        };
        let place = |key: &Key| format!("{}/{}", key.namespace, key.name);
        let mut items: Vec<_> = objects
            .iter()
            .filter(|(key, object)| place(key) > after && selector.matches(object))
            .collect();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if limit > 0 && items.len() > limit {
            if selector == Selector::default() {
                metadata["remainingItemCount"] = json!(items.len() - limit);
            }
            items.truncate(limit);
            let last = items.last().map(|(key, _)| place(key)).unwrap_or_default();
            let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": last});
            metadata["continue"] = json!(URL_SAFE_NO_PAD.encode(token.to_string()));
        }
        let items: Vec<Value> = items
            .into_iter()
            .map(|(_, object)| {
                let mut item = self.kind.present(object);
                // Items of kube-apiserver's own kinds do not repeat what the list says.
                if !self.kind.custom {
                    let map = item.as_object_mut().expect("objects are maps");
                    map.remove("apiVersion");
                    map.remove("kind");
                }
                item
            })
            .collect();
        Ok(json!({
            "kind": format!("{}List", self.kind.kind), "apiVersion": self.kind.api_version(),
            "metadata": metadata, "items": items,
        }))
    }

    fn read_continue(&self, token: &str) -> Result<(u64, String), Failure> {
        let invalid = || {
            Failure::bad_request(
                "invalid continue token: continue key is not valid: invalid character looking for beginning of value",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        let revision = token["rv"].as_u64().ok_or_else(invalid)?;
        let start = token["start"].as_str().ok_or_else(invalid)?;
        if revision < self.shared.store.compacted() {
            let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";
            return Err(Failure::new(410, "Expired", message, Value::Null));
        }
        Ok((revision, start.to_owned()))
    }

    pub(crate) fn create(&self) -> Result<Value, Failure> {
        let mut object = self.kind.absorb(self.read_object()?);
        let namespace = self.list_namespace().unwrap_or_default().to_owned();
        self.adopt_namespace(&mut object, &namespace)?;
        if !namespace.is_empty() {
            let parent = Kind::built_in("", "v1", "namespaces", "Namespace").cluster_scoped();
            if self
                .shared
                .store
                .get(&key_of(&parent, None, &namespace))
                .is_none()
            {
                return Err(Failure::not_found(&parent, &namespace));
            }
        }
        let metadata = map_mut(&mut object, "metadata");
        let prefix = metadata.get("generateName").and_then(Value::as_str);
        let name = match (metadata.get("name").and_then(Value::as_str), prefix) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, Some(prefix)) if !prefix.is_empty() => {
                let random = uuid::Uuid::new_v4().simple().to_string();
                format!("{prefix}{}", &random[..5])
            }
            _ => String::new(),
        };
        metadata.insert("name".to_owned(), json!(name));
        if self.kind.custom && self.kind.status == StatusSubresource::Separate {
            object
                .as_object_mut()
                .expect("objects are maps")
                .remove("status");
        }
        if let ("nodes", Some(node)) = (self.kind.plural.as_str(), self.restricted_node()) {
            restrict_node(&self.kind, node, &name, None, &object)?;
        }
        check_strings(&self.kind, &mut object)?;
        validate(self.shared.options.kubernetes, &self.kind, None, &object)?;
        begin(&self.kind, &mut object, &self.manager());
        let stored = self
            .shared
            .store
            .transact(&self.key(&name), |old| match old {
                Some(_) => Err(Failure::already_exists(&self.kind, &name)),
                None => Ok(Step::Put(object)),
            })?;
        if self.kind.plural == "customresourcedefinitions" {
            self.establish(&stored)?;
        }
        Ok(self.kind.present(&stored))
    }

    /// What the API extensions controller does with a new definition.
    fn establish(&self, definition: &Value) -> Result<(), Failure> {
        self.shared.register(Kind::of_definition(definition));
        let mut definition = definition.clone();
        definition["status"] = json!({"conditions": [
            {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"},
        ]});
        let key = self.key(definition["metadata"]["name"].as_str().unwrap_or_default());
        self.shared
            .store
            .transact(&key, |_| Ok(Step::Put(definition)))?;
        Ok(())
    }

    pub(crate) fn update(&self) -> Result<Value, Failure> {
        let mut object = self.kind.absorb(self.read_object()?);
        self.adopt_namespace(&mut object, self.list_namespace().unwrap_or_default())?;
        let name = self.name().to_owned();
        let version = self.shared.options.kubernetes;
        let stored = self.shared.store.transact(&self.key(&name), |old| {
            let old = old.ok_or_else(|| Failure::not_found(&self.kind, &name))?;
            if self.kind.custom
                && object["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .is_empty()
            {
                return Err(Failure::needs_resource_version(&self.kind, &name, version));
            }
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            if !uid.is_empty() && old["metadata"]["uid"] != uid {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    old["metadata"]["uid"].as_str().unwrap_or_default()
                );
                return Err(Failure::conflict(&self.kind, &name, &why));
            }
            self.evolve(old, object)
        })?;
        Ok(self.kind.present(&stored))
    }

    pub(crate) fn patch(&self) -> Result<Value, Failure> {
        let media = self
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        let apply = match media {
            "application/merge-patch+json" => patch::merge,
            "application/strategic-merge-patch+json" if !self.kind.custom => patch::strategic,
            _ => return Err(self.unsupported_media_type()),
        };
        let patch: Value = serde_json::from_slice(self.body)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| Failure::bad_request("error decoding patch: invalid JSON"))?;
        let name = self.name().to_owned();
        let stored = self.shared.store.transact(&self.key(&name), |old| {
            let old = old.ok_or_else(|| Failure::not_found(&self.kind, &name))?;
            let mut object = self.kind.present(old);
            apply(&mut object, &patch);
            let metadata = map_mut(&mut object, "metadata");
            metadata.entry("name").or_insert(json!(name));
            if metadata
                .get("uid")
                .is_some_and(|uid| *uid != old["metadata"]["uid"])
            {
                let uid = metadata["uid"].as_str().unwrap_or_default();
                let cause = Cause::invalid("metadata.uid", uid, "field is immutable");
                return Err(Failure::invalid(&self.kind, &name, &[cause]));
            }
            self.evolve(old, self.kind.absorb(object))
        })?;
        Ok(self.kind.present(&stored))
    }

    pub(crate) fn delete(&self) -> Result<Value, Failure> {
        let options: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let name = self.name().to_owned();
        let mut removed = false;
        let stored = self.shared.store.transact(&self.key(&name), |old| {
            let old = old.ok_or_else(|| Failure::not_found(&self.kind, &name))?;
            for field in ["uid", "resourceVersion"] {
                let wanted = &options["preconditions"][field];
                if wanted.is_string() && *wanted != old["metadata"][field] {
                    let why = format!("Precondition failed: {field} differs");
                    return Err(Failure::conflict(&self.kind, &name, &why));
                }
            }
            if has_finalizers(old) {
                if old["metadata"]["deletionTimestamp"].is_string() {
                    return Ok(Step::Keep);
                }
                let mut object = old.as_ref().clone();
                object["metadata"]["deletionTimestamp"] = json!(timestamp());
                object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                return Ok(Step::Put(object));
            }
            removed = true;
            Ok(Step::Remove)
        })?;
        if !removed {
            return Ok(self.kind.present(&stored));
        }
        let mut details = details(&self.kind, &name);
        details["uid"] = stored["metadata"]["uid"].clone();
        Ok(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        }))
    }

    /// The node whose kubelet asks, when NodeRestriction is on.
    pub(crate) fn restricted_node(&self) -> Option<&str> {
        let on = self.shared.options.node_restriction;
        self.user.node_name().filter(|_| on)
    }

    fn read_object(&self) -> Result<Value, Failure> {
        let unrecognized = |why: String| {
            Failure::bad_request(&format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why}",
                self.kind.kind
            ))
        };
        let object: Value =
            serde_json::from_slice(self.body).map_err(|error| unrecognized(error.to_string()))?;
        if !object.is_object() {
            return Err(unrecognized("not an object".to_owned()));
        }
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let fits = |given: &str, own: &str| given.is_empty() || given == own;
        if !fits(&version, &self.kind.api_version()) || !fits(&kind, &self.kind.kind) {
            let message = format!(
                "{kind} in version {version:?} cannot be handled as a {}",
                self.kind.kind
            );
            return Err(Failure::bad_request(&message));
        }
        let mut object = object;
        object["apiVersion"] = json!(self.kind.api_version());
        object["kind"] = json!(self.kind.kind);
        Ok(object)
    }

    fn adopt_namespace(&self, object: &mut Value, namespace: &str) -> Result<(), Failure> {
        let metadata = map_mut(object, "metadata");
        let given = metadata
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !given.is_empty() && given != namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        Ok(())
    }

    fn unsupported_media_type(&self) -> Failure {
        let strategic = if self.kind.custom {
            ""
        } else {
            "application/strategic-merge-patch+json, "
        };
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, {strategic}application/apply-patch+yaml"
        );
        Failure::new(415, "UnsupportedMediaType", &message, Value::Null)
    }
}
