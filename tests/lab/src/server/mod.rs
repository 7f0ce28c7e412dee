// SPDX-License-Identifier: Apache-2.0
//! A Kubernetes API server in this process, which behaves like kube-apiserver as far as a client can see. Statuses and
//! texts were compared with a real one.
//!
//! What is where: `wire` and `connections` sockets and TLS, `handler` one request, `objects` and `life` the verbs,
//! `watch` watches, `store` the objects and their history, `access` who may do what, `admission` NodeRestriction, `validate` 422s, `patch`,
//! `selector`, `managed_fields`, `negotiate` (Accept), `resource` (kinds and paths), `status` (error texts), `log`.
//!
//! Left out on purpose: JSON patch and server-side apply (415), deletion of collections (405), garbage collection,
//! protobuf, HTTP/2. Pages of a list are cut from the present state, not from the state at the first page.
//!
//! To add a kind: [`Kind`] in [`ServerOptions::kinds`], or create its CustomResourceDefinition.

mod access;
mod admission;
mod body;
mod connections;
mod discovery;
mod drive;
mod handler;
mod life;
mod log;
mod managed_fields;
mod negotiate;
mod objects;
mod patch;
mod reply;
mod resource;
mod selector;
mod status;
mod store;
mod validate;
mod watch;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub use self::access::{Grant, Rule, Subject, User};
pub use self::log::{RequestRecord, WatchWrite};
pub use self::resource::{Kind, StatusSubresource, built_in_kinds, harvester_kinds};
pub use self::status::Failure;
pub use self::watch::GoneForm;

use self::access::{Access, Attributes};
use self::connections::{Connections, listen};
use self::store::Store;
use self::watch::Watches;
use self::wire::{ClientAuthority, Door, Flow, Port};
use crate::SERVER_NAMES;
use crate::faults::{Faults, ServerCertificate};
use crate::kubernetes::Kubernetes;
use crate::pki::{Authority, Identity, Validity};

/// What kind of server to start.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Common name of its authority.
    pub name: String,
    /// The kinds it serves.
    pub kinds: Vec<Kind>,
    /// `gitVersion` of `/version`.
    pub version: String,
    /// `gitVersion` of KubeVirt's subresource API, where it is served.
    pub kubevirt_version: Option<String>,
    /// Time between the bookmarks of a watch.
    pub bookmark_interval: Duration,
    /// The version of Kubernetes that it behaves like.
    pub kubernetes: Kubernetes,
    /// Whether its storage is too old for the bookmarks of a newer version (etcd before 3.4.31).
    pub storage_is_old: bool,
    /// Whether the NodeRestriction admission plugin is on.
    pub node_restriction: bool,
    /// Whether a client without credentials is `system:anonymous` (403) or refused (401, as RKE2 and K3s do).
    pub anonymous: bool,
}

impl ServerOptions {
    /// The API server of a Harvester.
    #[must_use]
    pub fn harvester() -> Self {
        let mut options = Self::guest();
        options.name = "rke2-server-ca".to_owned();
        options.version = "v1.33.5+rke2r1".to_owned();
        options.kubevirt_version = Some("v1.5.2".to_owned());
        options.kinds.extend(harvester_kinds());
        options
    }

    /// The API server of a guest cluster.
    #[must_use]
    pub fn guest() -> Self {
        Self {
            name: "guest-server-ca".to_owned(),
            kinds: built_in_kinds(),
            version: "v1.34.2+rke2r1".to_owned(),
            kubevirt_version: None,
            bookmark_interval: Duration::from_secs(60),
            kubernetes: Kubernetes::V1_36,
            storage_is_old: false,
            node_restriction: true,
            anonymous: true,
        }
    }
}

/// A running server. It ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
    door: tokio::sync::watch::Sender<Door>,
    /// What the listener has carried out of `door`.
    door_done: tokio::sync::watch::Receiver<Option<Door>>,
    authority: Authority,
    admin: Identity,
    port: u16,
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1, on the current tokio runtime, with the namespaces of a new cluster.
    ///
    /// # Panics
    /// When there is no port to be had.
    pub async fn start(options: ServerOptions) -> Self {
        let authority = Authority::new(&options.name);
        let admin = authority.client_identity("system:admin", &["system:masters"]);
        let port = Port::reserve().expect("127.0.0.1 has a free port");
        let number = port.number();
        let access = Access {
            node_reads_restricted: options.kubernetes >= Kubernetes::V1_36,
            ..Access::default()
        };
        let shared = Arc::new(Shared {
            kinds: Mutex::new(options.kinds.clone()),
            store: Store::new(),
            access: Mutex::new(access),
            client_authority: ClientAuthority::new(&authority.pem()),
            log: log::Log::default(),
            faults: Faults::default(),
            watches: Watches::default(),
            gone_form: Mutex::new(GoneForm::InStream),
            tls: Mutex::new(wire::tls_config(&authority.server_identity(&SERVER_NAMES))),
            connections: Mutex::default(),
            options,
        });
        let (door, door_seen) = tokio::sync::watch::channel(Door::Open);
        let (done, door_done) = tokio::sync::watch::channel(None);
        let listener = tokio::spawn(listen(shared.clone(), port, door_seen, done));
        let server = Self {
            shared,
            listener,
            door,
            door_done,
            authority,
            admin,
            port: number,
        };
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            server.create(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
            }));
        }
        server.set_door(Door::Open).await;
        server
    }

    /// How to reach it as its administrator.
    #[must_use]
    pub fn endpoint(&self) -> crate::Endpoint {
        crate::Endpoint {
            url: self.url(),
            authority_pem: self.authority.pem(),
            admin: self.admin.clone(),
        }
    }

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The authority that signs its certificate and those of its clients.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The faults of its answers and watches.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// No process listens on the port any more; open connections stay (see [`Server::drop_connections`]).
    pub async fn refuse_connections(&self) {
        self.set_door(Door::Closed).await;
    }

    /// New connections are accepted and never hear a byte, not even of TLS; open connections stay.
    pub async fn stay_silent(&self) {
        self.set_door(Door::Silent).await;
    }

    /// New connections are served again, on the same port.
    pub async fn serve_again(&self) {
        self.set_door(Door::Open).await;
    }

    /// Closes all open connections.
    pub fn drop_connections(&self) {
        // Not under the lock: a task that ends takes itself out of the table.
        let connections = self.shared.lock_connections();
        let tasks: Vec<_> = connections.values().map(|open| open.task.clone()).collect();
        drop(connections);
        for task in tasks {
            task.abort();
        }
    }

    /// From now on no byte passes on the connections that are open, and none of them is closed. New ones work.
    pub fn half_open(&self) {
        for connection in self.shared.lock_connections().values() {
            *connection
                .valve
                .lock()
                .expect("no holder of a valve panics") = Flow::Stopped;
        }
    }

    /// How many connections are open.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.lock_connections().len()
    }

    /// Which certificate new connections are shown.
    pub fn present(&self, certificate: ServerCertificate) {
        let right = Validity::current();
        let identity = match certificate {
            ServerCertificate::Right => self.authority.server_identity(&SERVER_NAMES),
            ServerCertificate::OtherAuthority => {
                Authority::new(&self.shared.options.name).server_identity(&SERVER_NAMES)
            }
            ServerCertificate::OtherName => self
                .authority
                .server_identity_with(&["other.example"], right),
            ServerCertificate::Expired => self
                .authority
                .server_identity_with(&SERVER_NAMES, Validity::expired()),
            ServerCertificate::NotYetValid => self
                .authority
                .server_identity_with(&SERVER_NAMES, Validity::not_yet()),
        };
        self.present_identity(&identity);
    }

    /// Shows any certificate to new connections.
    pub fn present_identity(&self, identity: &Identity) {
        *self
            .shared
            .tls
            .lock()
            .expect("no holder of the TLS side panics") = wire::tls_config(identity);
    }

    async fn set_door(&self, door: Door) {
        self.door.send_replace(door);
        let mut done = self.door_done.clone();
        done.wait_for(|carried_out| *carried_out == Some(door))
            .await
            .expect("the listener lives as long as the server");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listener.abort();
        self.drop_connections();
    }
}

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub options: ServerOptions,
    pub store: Store,
    pub log: log::Log,
    pub faults: Faults,
    pub watches: Watches,
    kinds: Mutex<Vec<Kind>>,
    access: Mutex<Access>,
    client_authority: ClientAuthority,
    gone_form: Mutex<GoneForm>,
    tls: Mutex<Arc<ServerConfig>>,
    connections: Mutex<Connections>,
}

impl Shared {
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.lock_kinds().clone()
    }

    pub(crate) fn register(&self, kinds: Vec<Kind>) {
        let mut known = self.lock_kinds();
        for kind in kinds {
            known.retain(|old| {
                (&old.group, &old.version, &old.plural)
                    != (&kind.group, &kind.version, &kind.plural)
            });
            known.push(kind);
        }
    }

    pub(crate) fn gone_form(&self) -> GoneForm {
        *self.gone_form.lock().expect("no holder of the form panics")
    }

    pub(crate) fn user_of_token(&self, token: &str) -> Option<User> {
        self.lock_access().tokens.get(token).cloned()
    }

    pub(crate) fn authorize(&self, user: &User, attributes: &Attributes) -> Result<(), String> {
        self.lock_access().authorize(&self.store, user, attributes)
    }

    /// What `/version` tells of a server of this `gitVersion`.
    pub(crate) fn version(version: &str) -> Value {
        let mut numbers = version.trim_start_matches('v').split('.');
        let mut next = || numbers.next().unwrap_or_default();
        json!({
            "major": next(), "minor": next(), "gitVersion": version, "gitCommit": "lab",
            "gitTreeState": "clean", "buildDate": "2025-01-01T00:00:00Z", "goVersion": "go1.24.9",
            "compiler": "gc", "platform": "linux/amd64",
        })
    }

    fn lock_kinds(&self) -> MutexGuard<'_, Vec<Kind>> {
        self.kinds.lock().expect("no holder of the kinds panics")
    }

    fn lock_access(&self) -> MutexGuard<'_, Access> {
        self.access
            .lock()
            .expect("no holder of the access tables panics")
    }

    fn lock_connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .expect("no holder of the connections panics")
    }
}
