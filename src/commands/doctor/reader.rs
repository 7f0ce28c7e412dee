// SPDX-License-Identifier: Apache-2.0
//! Reads what only `doctor` needs, after a round that has read the credentials and the two APIs: each object once, whichever check
//! needs it first, with a timeout for each read and one for all.
//!
//! All requests to one API share a connection and run one after another, and the timeout of each begins with its turn: an API that
//! is far away is slow, and not unreachable. A read that times out closes that connection, and the next read opens a new one.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, timeout, timeout_at};

use super::case::Case;
use super::certificate::{Certificate, Server};
use super::objects::{Instance, NodeObject, Pods, Setting, release};
use crate::agent::Round;
use crate::catalog::Api;
use crate::config::Settings;
use crate::decide::Now;
use crate::facts::names::NodeName;
use crate::facts::release::Release;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::api_access::ApiLink;
use crate::observe::harvester::collection;
use crate::observe::observer::Observer;
use crate::observe::why;
use crate::wire::kubeapi::{Client, Error, Kind, Selectors};

/// The timeout of a single read.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// The timeout of all reads together. An API that needs half a second for each request is read within it.
const ALL_LIMIT: Duration = Duration::from_secs(8);

/// The release of Harvester, a setting that all users can read (`pkg/settings/settings.go`, `WhiteListedSettings`).
const SERVER_VERSION: &str = "/apis/harvesterhci.io/v1beta1/settings/server-version";

/// The input of the checks.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    /// The round before.
    pub(super) round: &'a Round,
    /// What it observed and decided.
    pub(super) case: Case<'a>,
    /// The reader of the round.
    pub(super) observer: &'a Observer,
    harvester: Endpoint<'a>,
    guest: Endpoint<'a>,
    /// The start on a monotonic clock.
    began: Instant,
    read: Objects,
}

/// What was read.
#[derive(Debug, Default)]
struct Objects {
    node: OnceCell<Fact<NodeObject>>,
    pods: OnceCell<Fact<Pods>>,
    instance: OnceCell<Fact<Instance>>,
    namespace: OnceCell<Fact<Vec<Vmi>>>,
    release: OnceCell<Fact<Release>>,
}

/// An API, whose requests take turns.
#[derive(Debug)]
struct Endpoint<'a> {
    link: Result<&'a ApiLink, Unavailable>,
    turn: Mutex<()>,
}

impl<'a> Reader<'a> {
    /// Creates a reader for the checks after this round.
    pub(crate) fn new(
        observer: &'a Observer,
        settings: &'a Settings,
        round: &'a Round,
        now: Now,
    ) -> Self {
        let case = Case {
            settings,
            observation: &round.observation,
            identity: &round.identity,
            placement: round.placement.as_ref(),
            now,
        };
        let is_final = |kind| {
            matches!(
                kind,
                UnavailableKind::Unreachable | UnavailableKind::Credential | UnavailableKind::Tls
            )
        };
        let endpoint = |api| Endpoint {
            link: link(observer, &case, api, is_final),
            turn: Mutex::new(()),
        };
        Self {
            round,
            case,
            observer,
            harvester: endpoint(Api::Harvester),
            guest: endpoint(Api::Guest),
            began: Instant::now(),
            read: Objects::default(),
        }
    }

    /// Returns why Harvester's API is not asked, if so.
    pub(super) fn without_harvester(&self) -> Option<&Unavailable> {
        self.harvester.link.as_ref().err()
    }

    /// Returns the name of our Node, or why nothing is read of it.
    fn node_name(&self) -> Result<&NodeName, Unavailable> {
        let unknown = "the name of this Node is unknown";
        let unknown = || Unavailable::new(UnavailableKind::NotAsked, unknown);
        let kubelet = &self.case.observation.kubelet;
        let skipped = || kubelet.why().map_or_else(unknown, Unavailable::skipping);
        let known = kubelet.known().map(|kubelet| &kubelet.node_name);
        known.ok_or_else(skipped)
    }

    /// Returns our Node.
    pub(super) async fn node(&self) -> &Fact<NodeObject> {
        let read = || async {
            let name = match self.node_name() {
                Ok(name) => name,
                Err(why) => return Fact::Failed(why),
            };
            let path = format!("/api/v1/nodes/{name}");
            match self.object(Api::Guest, &path).await {
                Fact::Absent => Fact::failed(UnavailableKind::Missing, "the Node does not exist"),
                node => node,
            }
        };
        self.read.node.get_or_init(read).await
    }

    /// Returns the pods of our Node. They are listed with a field selector: a kubelet is not allowed to list others.
    pub(super) async fn pods(&self) -> &Fact<Pods> {
        let read = || async {
            let name = match self.node_name() {
                Ok(name) => name,
                Err(why) => return Fact::Failed(why),
            };
            let selectors = Selectors {
                field: Some(format!("spec.nodeName={name}")),
                label: None,
            };
            let list =
                async |client: &Client| client.list("/api/v1/pods", &selectors, |_| true).await;
            self.request(Api::Guest, list).await.map(Pods::new)
        };
        self.read.pods.get_or_init(read).await
    }

    /// Returns the VMI of our VM. Absent if it is deleted.
    pub(super) async fn instance(&self) -> &Fact<Instance> {
        let read = || async {
            match self.case.identity.vmi() {
                Some(vmi) => {
                    let path = format!("{}/{}", collection(&vmi.namespace), vmi.name);
                    self.object(Api::Harvester, &path).await
                }
                None => {
                    let unknown =
                        || Unavailable::new(UnavailableKind::NotAsked, "the VM is unknown");
                    let why = self.case.observation.candidates.why();
                    Fact::Failed(why.map_or_else(unknown, Unavailable::skipping))
                }
            }
        };
        self.read.instance.get_or_init(read).await
    }

    /// Returns all VMIs of our namespace, including our own.
    pub(super) async fn namespace(&self) -> &Fact<Vec<Vmi>> {
        let read = || async {
            let Some(harvester) = self.case.observation.harvester.known() else {
                let unknown = "the namespace is unknown";
                let unknown = || Unavailable::new(UnavailableKind::NotAsked, unknown);
                let why = self.without_harvester().cloned();
                return Fact::Failed(why.unwrap_or_else(unknown));
            };
            let path = collection(&harvester.namespace);
            let all = Selectors::default();
            let list = async |client: &Client| client.list(&path, &all, |_| true).await;
            self.request(Api::Harvester, list).await
        };
        self.read.namespace.get_or_init(read).await
    }

    /// Returns the release of Harvester. Absent on KubeVirt without Harvester.
    pub(super) async fn harvester_release(&self) -> &Fact<Release> {
        let read = || async {
            match self.object::<Setting>(Api::Harvester, SERVER_VERSION).await {
                Fact::Known(setting) => release(setting.value.as_deref()),
                Fact::Absent => Fact::Absent,
                Fact::Failed(why) => Fact::Failed(why),
            }
        };
        self.read.release.get_or_init(read).await
    }

    /// Returns the certificates of both credentials and of both servers.
    pub(super) fn certificates(&self) -> Vec<Certificate> {
        let connections = self.observer.connections();
        let mut certificates = Vec::new();
        for (api, access) in [
            (Api::Harvester, &connections.harvester),
            (Api::Guest, &connections.guest),
        ] {
            let link = access.link().ok();
            certificates.extend(link.iter().flat_map(|link| Certificate::of_link(api, link)));
        }
        for api in [Api::Harvester, Api::Guest] {
            let server = self.server(api);
            certificates.extend(server.known().and_then(|server| server.certificate.clone()));
        }
        certificates
    }

    /// Returns what a server showed in the round, also if it is not trusted or rejects our credential.
    pub(super) fn server(&self, api: Api) -> Fact<Server> {
        let is_final = |kind| kind == UnavailableKind::Unreachable;
        match link(self.observer, &self.case, api, is_final) {
            Ok(link) => Fact::Known(Server::of(api, &link.client)),
            Err(why) => Fact::Failed(why),
        }
    }

    /// Reads one object. Absent if the server does not have it.
    async fn object<T: DeserializeOwned>(&self, api: Api, path: &str) -> Fact<T> {
        let get = async |client: &Client| match client.get(path).await {
            Err(error) if matches!(error.kind, Kind::Absent | Kind::NotFound) => Ok(None),
            object => object.map(Some),
        };
        match self.request(api, get).await {
            Fact::Known(Some(object)) => Fact::Known(object),
            Fact::Known(None) | Fact::Absent => Fact::Absent,
            Fact::Failed(why) => Fact::Failed(why),
        }
    }

    /// Sends one request in its turn, with a timeout from then on.
    pub(super) async fn request<T>(
        &self,
        api: Api,
        send: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Fact<T> {
        let endpoint = match api {
            Api::Harvester => &self.harvester,
            Api::Guest => &self.guest,
        };
        let link = match &endpoint.link {
            Ok(link) => link,
            Err(why) => return Fact::Failed(why.clone()),
        };
        let work = async {
            let _turn = endpoint.turn.lock().await;
            briefly(async { send(&link.client).await.map_err(|error| why(&error)).into() }).await
        };
        let slow = |_| Fact::Failed(too_slow(ALL_LIMIT));
        let until = self.began + ALL_LIMIT;
        timeout_at(until, work).await.unwrap_or_else(slow)
    }
}

/// Returns the link to an API, unless the first request of the round failed with a final error: such a request is not retried.
fn link<'a>(
    observer: &'a Observer,
    case: &Case<'_>,
    api: Api,
    is_final: fn(UnavailableKind) -> bool,
) -> Result<&'a ApiLink, Unavailable> {
    let connections = observer.connections();
    let (access, failure) = match api {
        Api::Harvester => (&connections.harvester, case.observation.candidates.why()),
        Api::Guest => (&connections.guest, case.observation.node.why()),
    };
    let link = access.link().map_err(|why| why.skipping())?;
    match failure.filter(|why| is_final(why.kind)) {
        Some(why) => Err(why.skipping()),
        None => Ok(link),
    }
}

/// Runs one read with a timeout.
pub(super) async fn briefly<T>(work: impl Future<Output = Fact<T>>) -> Fact<T> {
    let slow = |_| Fact::Failed(too_slow(READ_LIMIT));
    timeout(READ_LIMIT, work).await.unwrap_or_else(slow)
}

fn too_slow(limit: Duration) -> Unavailable {
    let text = format!("timed out after {} s", limit.as_secs());
    Unavailable::new(UnavailableKind::Unreachable, text)
}
