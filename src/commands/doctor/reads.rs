// SPDX-License-Identifier: Apache-2.0
//! Reads what only `doctor` needs of the two APIs, after a round that has read the credentials and the two APIs: each object once, with
//! a timeout for each read and one for all reads of an API.
//!
//! All requests to one API share a connection and run one after another, and the timeout of each begins with it: an API that is
//! far away is slow, and not unreachable. A read that times out closes that connection, and the next read opens a new one.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};

use super::case::Case;
use super::certificate::Certificate;
use super::objects::{Instance, NodeObject, Pods, Setting, release};
use crate::agent::Round;
use crate::catalog::Api;
use crate::commands::doctor::release::Release;
use crate::commands::rbac::permissions::{self, Permission};
use crate::config::Settings;
use crate::facts::names::NodeName;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::api_access::ApiLink;
use crate::observe::observer::Observer;
use crate::observe::why;
use crate::wire::kubeapi::{Client, Error, INSTANCES, Kind, NODES, ObjectPath, PODS, Selector};
use UnavailableKind::{Credential, Tls, Unreachable};

/// The timeout of a single read.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// The timeout of all reads of an API. One that needs half a second for each request is read within it.
const ALL_LIMIT: Duration = Duration::from_secs(8);

/// The settings of Harvester. All users can read `server-version`, its release (`pkg/settings/settings.go`, `WhiteListedSettings`).
const SETTINGS: ObjectPath = ObjectPath::all("/apis/harvesterhci.io/v1beta1", "settings", None);

/// The input of the checks.
#[derive(Debug)]
pub(crate) struct Reads<'a> {
    /// The round before.
    pub(super) case: Case<'a>,
    /// The reader of the round.
    pub(super) observer: &'a Observer,
    /// Our Node.
    pub(super) node: Fact<NodeObject>,
    /// The pods of our Node.
    pub(super) pods: Fact<Pods>,
    /// The VMI of our VM. Absent if it is deleted.
    pub(super) instance: Fact<Instance>,
    /// All VMIs of our namespace, including our own.
    pub(super) namespace: Fact<Vec<Vmi>>,
    /// The release of Harvester. Absent on KubeVirt without Harvester.
    pub(super) release: Fact<Release>,
    /// The permissions of the Harvester credential.
    pub(super) permissions: Fact<Vec<Permission>>,
}

/// An API, and the start of its reads.
struct Endpoint<'a> {
    link: Result<&'a ApiLink, Unavailable>,
    began: Instant,
}

impl<'a> Reads<'a> {
    /// Reads both APIs after this round.
    pub(crate) async fn after(
        round: &'a Round,
        observer: &'a Observer,
        settings: &'a Settings,
    ) -> Self {
        let case = Case {
            settings,
            observation: &round.observation,
            identity: &round.identity,
            placement: round.placement.as_ref(),
            now: round.now,
        };
        let of_harvester = async {
            let api = Endpoint::new(observer, &case, Api::Harvester);
            let instance = api.instance(&case).await;
            let (release, namespace) = (api.release().await, api.namespace(&case).await);
            let permissions = api.permissions(settings, round).await;
            (instance, release, namespace, permissions)
        };
        let of_guest = async {
            let api = Endpoint::new(observer, &case, Api::Guest);
            (api.node(&case).await, api.pods(&case).await)
        };
        let ((instance, release, namespace, permissions), (node, pods)) =
            tokio::join!(of_harvester, of_guest);
        Self {
            case,
            observer,
            node,
            pods,
            instance,
            namespace,
            release,
            permissions,
        }
    }

    /// Returns the certificates of both credentials and of both servers.
    pub(super) fn certificates(&self) -> Vec<Certificate> {
        let mut certificates = Vec::new();
        for api in Api::ALL.iter().copied() {
            let link = self.observer.connections().of(api).link().ok();
            certificates.extend(link.iter().flat_map(|link| Certificate::of_link(api, link)));
        }
        for api in Api::ALL.iter().copied() {
            let server = self.server(api);
            let shown = server.known();
            certificates.extend(shown.and_then(|link| Certificate::of_server(api, &link.client)));
        }
        certificates
    }

    /// Returns the link to a server that responded in the round, also if it is not trusted or rejects our credential.
    pub(super) fn server(&self, api: Api) -> Fact<&ApiLink> {
        link(self.observer, &self.case, api, &[Unreachable]).into()
    }
}

impl<'a> Endpoint<'a> {
    fn new(observer: &'a Observer, case: &Case<'_>, api: Api) -> Self {
        let finals = [Unreachable, Credential, Tls];
        Self {
            link: link(observer, case, api, &finals),
            began: Instant::now(),
        }
    }

    async fn node(&self, case: &Case<'_>) -> Fact<NodeObject> {
        let path = match node_name(case) {
            Ok(name) => NODES.named(name),
            Err(why) => return Fact::Failed(why),
        };
        match self.object(&path).await {
            Fact::Absent => Fact::failed(UnavailableKind::Missing, "the Node does not exist"),
            node => node,
        }
    }

    /// Lists the pods of our Node, with a field selector: a kubelet is not allowed to list others.
    async fn pods(&self, case: &Case<'_>) -> Fact<Pods> {
        let field = match node_name(case) {
            Ok(name) => ("fieldSelector", format!("spec.nodeName={name}")),
            Err(why) => return Fact::Failed(why),
        };
        let pods = self.list(&PODS, &[field]).await;
        pods.map(Pods::new)
    }

    async fn instance(&self, case: &Case<'_>) -> Fact<Instance> {
        let Some(vmi) = case.identity.vmi() else {
            return unread(case.failure(Api::Harvester), "the VM is unknown");
        };
        let path = INSTANCES.within(&vmi.namespace).named(&vmi.name);
        self.object(&path).await
    }

    async fn namespace(&self, case: &Case<'_>) -> Fact<Vec<Vmi>> {
        let Some(harvester) = case.observation.harvester.known() else {
            return unread(self.link.as_ref().err(), "the namespace is unknown");
        };
        let path = INSTANCES.within(&harvester.namespace);
        self.list(&path, &[]).await
    }

    async fn release(&self) -> Fact<Release> {
        let path = SETTINGS.named("server-version");
        let setting = self.object::<Setting>(&path).await;
        setting.and_then(|setting| release(setting.value.as_deref()))
    }

    async fn permissions(&self, settings: &Settings, round: &Round) -> Fact<Vec<Permission>> {
        if let Err(why) = &self.link {
            return Fact::Failed(why.clone());
        }
        let mut permissions = Vec::new();
        for (useful, attributes) in permissions::reviews(settings, round) {
            let review = async |client: &Client| client.may(&attributes).await;
            let allowed = self.request(review).await.map(|review| review.allowed);
            permissions.push(Permission { useful, allowed });
        }
        Fact::Known(permissions)
    }

    /// Reads one object. Absent if the server does not have it.
    async fn object<T: DeserializeOwned>(&self, path: &ObjectPath) -> Fact<T> {
        let get = async |client: &Client| match client.get(path).await {
            Err(error) if matches!(error.kind, Kind::Absent | Kind::NotFound) => Ok(None),
            object => object.map(Some),
        };
        let object = self.request(get).await;
        object.and_then(|object| object.map_or(Fact::Absent, Fact::Known))
    }

    async fn list<T: DeserializeOwned>(&self, path: &ObjectPath, by: &[Selector]) -> Fact<Vec<T>> {
        let list = async |client: &Client| client.list(path, by, Some).await;
        self.request(list).await
    }

    /// Sends one request, with a timeout for it and one for all.
    async fn request<T>(&self, send: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Fact<T> {
        let link = match &self.link {
            Ok(link) => link,
            Err(why) => return Fact::Failed(why.clone()),
        };
        let work = briefly(async { send(&link.client).await.map_err(|error| why(&error)).into() });
        let slow = |_| too_slow(ALL_LIMIT);
        let until = self.began + ALL_LIMIT;
        timeout_at(until, work).await.unwrap_or_else(slow)
    }
}

/// Returns the name of our Node, or why nothing is read of it.
fn node_name<'a>(case: &Case<'a>) -> Result<&'a NodeName, Unavailable> {
    let kubelet = &case.observation.kubelet;
    let known = kubelet.known().map(|kubelet| &kubelet.node_name);
    known.ok_or_else(|| skipped(kubelet.why(), "the name of this Node is unknown"))
}

/// Returns why an object is not read: an earlier failure, or else this text.
fn skipped(failure: Option<&Unavailable>, text: &str) -> Unavailable {
    let unknown = || Unavailable::new(UnavailableKind::NotAsked, text);
    failure.map_or_else(unknown, Unavailable::skipping)
}

fn unread<T>(failure: Option<&Unavailable>, text: &str) -> Fact<T> {
    Fact::Failed(skipped(failure, text))
}

/// Returns the link to an API, unless the first request of the round failed with a final error: such a request is not retried.
fn link<'a>(
    observer: &'a Observer,
    case: &Case<'_>,
    api: Api,
    finals: &[UnavailableKind],
) -> Result<&'a ApiLink, Unavailable> {
    let link = observer.connections().of(api).link();
    let link = link.map_err(|why| why.skipping())?;
    match case.failure(api).filter(|why| finals.contains(&why.kind)) {
        Some(why) => Err(why.skipping()),
        None => Ok(link),
    }
}

/// Runs one read with a timeout.
pub(super) async fn briefly<T>(work: impl Future<Output = Fact<T>>) -> Fact<T> {
    let slow = |_| too_slow(READ_LIMIT);
    timeout(READ_LIMIT, work).await.unwrap_or_else(slow)
}

fn too_slow<T>(limit: Duration) -> Fact<T> {
    let text = format!("timed out after {} s", limit.as_secs());
    Fact::failed(Unreachable, text)
}
