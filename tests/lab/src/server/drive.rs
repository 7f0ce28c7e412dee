// SPDX-License-Identifier: Apache-2.0
//! Driving a server without HTTP: objects, accounts, watches and the log.

use serde_json::Value;

use super::access::{Grant, User};
use super::life::{begin, key_of, same, succeed};
use super::log::{RequestRecord, WatchWrite};
use super::managed_fields::Manager;
use super::resource::{Kind, Target, map_mut, object_path, parse_path};
use super::store::{Key, Step};
use super::watch::{Command, GoneForm};
use super::{Server, StatusSubresource};
use crate::pki::Identity;

/// The field manager of changes that come from here.
const MANAGER: &str = "lab";

impl Server {
    /// Stores a new object, found by its `apiVersion` and `kind`; returns its path. Neither authorized nor validated.
    ///
    /// # Panics
    /// When the kind is unknown or the object exists.
    pub fn create(&self, mut object: Value) -> String {
        let kinds = self.shared.kinds();
        let kind = kinds
            .iter()
            .find(|kind| object["apiVersion"] == kind.api_version() && object["kind"] == kind.kind)
            .unwrap_or_else(|| panic!("no such kind: {} {}", object["apiVersion"], object["kind"]));
        let namespace = if kind.namespaced { "default" } else { "" };
        let metadata = map_mut(&mut object, "metadata");
        let given = metadata.get("namespace").and_then(Value::as_str);
        let namespace = given
            .filter(|_| kind.namespaced)
            .unwrap_or(namespace)
            .to_owned();
        let name = metadata["name"]
            .as_str()
            .expect("an object has a name")
            .to_owned();
        if kind.namespaced {
            metadata.insert("namespace".to_owned(), Value::from(namespace.clone()));
        }
        let uid = metadata.get("uid").cloned();
        let mut object = kind.absorb(object);
        begin(kind, &mut object, &manager());
        if let Some(uid) = uid {
            // Stories of a recreated or restored cluster choose uids.
            object["metadata"]["uid"] = uid;
        }
        let key = key_of(kind, Some(&namespace), &name);
        self.shared
            .store
            .transact(&key, |old| {
                assert!(old.is_none(), "{} {name} exists", kind.plural);
                Ok(Step::Put(object))
            })
            .expect("creation is not refused");
        object_path(kind, &namespace, &name)
    }

    /// The object at a path such as `/api/v1/nodes/a`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        let (kind, key) = self.locate(path);
        Some(kind.present(&*self.shared.store.get(&key)?))
    }

    /// Changes the object at a path; spec and status alike. No change, no event.
    ///
    /// # Panics
    /// When there is no such object.
    pub fn update(&self, path: &str, change: impl FnOnce(&mut Value)) -> Value {
        let (kind, key) = self.locate(path);
        let stored = self.shared.store.transact(&key, |old| {
            let old = old.unwrap_or_else(|| panic!("no object at {path}"));
            let mut object = kind.present(old);
            change(&mut object);
            let mut object = kind.absorb(object);
            if same(old, &object) {
                return Ok(Step::Keep);
            }
            let separate = kind.status == StatusSubresource::Separate;
            let only_status = separate && {
                let mut plain = object.clone();
                plain["status"] = old["status"].clone();
                same(old, &plain)
            };
            succeed(&kind, old, &mut object, &manager(), only_status);
            Ok(Step::Put(object))
        });
        kind.present(&stored.expect("an update is not refused"))
    }

    /// Removes the object at a path at once, finalizers or not.
    ///
    /// # Panics
    /// When there is no such object.
    pub fn delete(&self, path: &str) {
        let (_, key) = self.locate(path);
        self.shared
            .store
            .transact(&key, |old| {
                assert!(old.is_some(), "no object at {path}");
                Ok(Step::Remove)
            })
            .expect("a removal is not refused");
    }

    /// The resource version of the newest change of any object.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.store.revision()
    }

    /// Serves one more kind.
    pub fn register(&self, kind: Kind) {
        self.shared.register(vec![kind]);
    }

    /// Accepts a bearer token for a user.
    pub fn add_token(&self, token: &str, user: User) {
        self.shared
            .lock_access()
            .tokens
            .insert(token.to_owned(), user);
    }

    /// Accepts a bearer token no longer.
    pub fn remove_token(&self, token: &str) {
        self.shared.lock_access().tokens.remove(token);
    }

    /// Grants rights, beside those of the RBAC objects in the store.
    pub fn grant(&self, grant: Grant) {
        self.shared.lock_access().grants.push(grant);
    }

    /// Takes back all that was granted by [`Server::grant`].
    pub fn revoke_all(&self) {
        self.shared.lock_access().grants.clear();
    }

    /// A client certificate of a kubelet.
    #[must_use]
    pub fn kubelet_identity(&self, node: &str) -> Identity {
        self.authority
            .client_identity(&format!("system:node:{node}"), &["system:nodes"])
    }

    /// How many watches are open.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.shared.watches.count()
    }

    /// Ends all open watches cleanly, as kube-apiserver does after their time.
    pub fn end_watches(&self) {
        self.shared.watches.tell_all(&Command::End);
    }

    /// Cuts the connections of all open watches.
    pub fn drop_watches(&self) {
        self.shared.watches.tell_all(&Command::Abort);
    }

    /// All watches that are open stay open and say nothing more, as over a path that has been lost. New ones work.
    pub fn hush_watches(&self) {
        self.shared.watches.tell_all(&Command::Hush);
    }

    /// Sends bytes into all open watches as they are.
    pub fn write_to_watches(&self, bytes: &[u8]) {
        let bytes = bytes::Bytes::copy_from_slice(bytes);
        self.shared.watches.tell_all(&Command::Bytes(bytes));
    }

    /// Forgets the history. Open watches get 410 as an `ERROR` event and end; watches and continued lists from a
    /// resource version before now are refused with 410 in this form.
    pub fn compact(&self, form: GoneForm) {
        *self
            .shared
            .gone_form
            .lock()
            .expect("no holder of the form panics") = form;
        self.shared.store.compact();
    }

    /// All requests since the start or the last [`Server::clear_requests`], in the order of their arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.log.requests()
    }

    /// The requests of clients whose User-Agent begins so.
    #[must_use]
    pub fn requests_of(&self, user_agent_prefix: &str) -> Vec<RequestRecord> {
        let mut requests = self.requests();
        requests.retain(|request| request.user_agent.starts_with(user_agent_prefix));
        requests
    }

    /// The requests that asked for a change, refused ones too.
    #[must_use]
    pub fn writes(&self) -> Vec<RequestRecord> {
        let mut requests = self.requests();
        requests.retain(RequestRecord::is_write);
        requests
    }

    /// The watch events that were written, with their times.
    #[must_use]
    pub fn watch_writes(&self) -> Vec<WatchWrite> {
        self.shared.log.watch_writes()
    }

    /// Forgets the requests and watch writes so far.
    pub fn clear_requests(&self) {
        self.shared.log.clear();
    }

    fn locate(&self, path: &str) -> (Kind, Key) {
        let Target::Resource(parts) = parse_path(path) else {
            panic!("{path} is no path of an object");
        };
        let kinds = self.shared.kinds();
        let kind = kinds
            .into_iter()
            .find(|kind| {
                (&kind.group, &kind.version, &kind.plural)
                    == (&parts.group, &parts.version, &parts.plural)
            })
            .unwrap_or_else(|| panic!("no kind serves {path}"));
        let name = parts
            .name
            .unwrap_or_else(|| panic!("{path} names no object"));
        let key = key_of(&kind, parts.namespace.as_deref(), &name);
        (kind, key)
    }
}

fn manager() -> Manager {
    Manager {
        name: MANAGER.to_owned(),
        subresource: None,
    }
}
