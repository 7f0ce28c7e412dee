// SPDX-License-Identifier: Apache-2.0
//! A Kubernetes API server in this process, which behaves like kube-apiserver as far as a client can see. Statuses and
//! texts were compared with a real one.
//!
//! What is where: `wire` and `connections` sockets and TLS, `handler` one request, `objects` the verbs, `watch` watches, `store` the objects
//! and their history, `access` who may do what, `patch`, `managed_fields`, `resource` (kinds and paths), `status` (error texts), `log`.
//!
//! It answers what the agent and the players of the lab ask. Left out on purpose, as scenarios run on a real server: validation and
//! admission, pages of lists, discovery, JSON patch and server-side apply, garbage collection, protobuf, HTTP/2.
//!
//! To add a kind: a row in `resource`.

mod access;
mod body;
mod connections;
mod drive;
mod handler;
mod log;
mod managed_fields;
mod objects;
mod patch;
mod reply;
mod resource;
mod status;
mod store;
mod watch;
mod wire;

#[cfg(test)]
mod parity;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::ServerConfig;
use serde_json::json;
use tokio::task::JoinHandle;

pub use self::access::User;
pub use self::log::{RequestRecord, WatchWrite};
pub use self::status::Failure;

use self::access::Attributes;
use self::connections::{Connections, listen};
use self::resource::Kind;
use self::store::{Key, Step, Store};
use self::watch::Watches;
use self::wire::{ClientAuthority, Door, Flow, Port};
use crate::SERVER_NAMES;
use crate::faults::{Faults, ServerCertificate};
use crate::pki::{Authority, Identity, Validity};

/// The common name of a server's authority.
fn authority_name(is_harvester: bool) -> &'static str {
    match is_harvester {
        true => "rke2-server-ca",
        false => "guest-server-ca",
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
    /// Starts a server on a free port of 127.0.0.1, on the current tokio runtime. A Harvester has KubeVirt's resources and its own.
    ///
    /// # Panics
    /// When there is no port to be had.
    pub async fn start(is_harvester: bool) -> Self {
        let authority = Authority::new(authority_name(is_harvester));
        let admin = authority.client_identity("system:admin", &["system:masters"]);
        let port = Port::reserve().expect("127.0.0.1 has a free port");
        let number = port.number();
        let shared = Arc::new(Shared {
            store: Store::new(),
            tokens: Mutex::default(),
            client_authority: ClientAuthority::new(&authority.pem()),
            log: log::Log::default(),
            faults: Faults::default(),
            watches: Watches::default(),
            tls: Mutex::new(wire::tls_config(&authority.server_identity(&SERVER_NAMES))),
            connections: Mutex::default(),
            is_harvester,
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
        // By its UID a cluster is known.
        let key = Key {
            group: "",
            plural: "namespaces",
            namespace: String::new(),
            name: "kube-system".to_owned(),
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let namespace = json!({"metadata": {"name": key.name, "uid": uid}});
        let stored = server
            .shared
            .store
            .transact(&key, |_| Ok(Step::Put(namespace)));
        stored.expect("nothing refuses it");
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

    /// Which certificate new connections are shown.
    pub fn present(&self, certificate: ServerCertificate) {
        let right = Validity::current();
        let identity = match certificate {
            ServerCertificate::Right => self.authority.server_identity(&SERVER_NAMES),
            ServerCertificate::OtherAuthority => {
                Authority::new(authority_name(self.shared.is_harvester))
                    .server_identity(&SERVER_NAMES)
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
    pub is_harvester: bool,
    pub store: Store,
    pub log: log::Log,
    pub faults: Faults,
    pub watches: Watches,
    tokens: Mutex<BTreeMap<String, User>>,
    client_authority: ClientAuthority,
    tls: Mutex<Arc<ServerConfig>>,
    connections: Mutex<Connections>,
}

impl Shared {
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::all(self.is_harvester)
    }

    pub(crate) fn user_of_token(&self, token: &str) -> Option<User> {
        self.lock_tokens().get(token).cloned()
    }

    pub(crate) fn authorize(&self, user: &User, attributes: &Attributes) -> Result<(), String> {
        access::authorize(&self.store, user, attributes)
    }

    fn lock_tokens(&self) -> MutexGuard<'_, BTreeMap<String, User>> {
        self.tokens.lock().expect("no holder of the tokens panics")
    }

    fn lock_connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .expect("no holder of the connections panics")
    }
}
