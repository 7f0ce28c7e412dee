// SPDX-License-Identifier: Apache-2.0
//! Reads the data that only `doctor` needs. The parts run concurrently, with a timeout for each read and one for all.
//!
//! To add a read: see `commands/doctor/facts.rs`. All requests to one API share a connection and run one after another, and the
//! timeout of each begins with its turn: an API that is far away is slow, and not unreachable. A read that times out closes that
//! connection, and the next read opens a new one.

mod clock;
mod conflicts;
mod credentials;
mod image;
mod node;
mod overlay;
mod servers;
mod system;
mod versions;

use std::time::Duration;

use serde::de::DeserializeOwned;
use time::UtcDateTime;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::agent::Round;
use crate::commands::doctor::facts::Examination;
use crate::commands::rbac::permissions;
use crate::config::Settings;
use crate::decide::Now;
use crate::facts::observation::{Api, Observation};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Prerequisite, Unavailable, UnavailableKind};
use crate::observe::api_access::{ApiLink, Connections};
use crate::observe::observer::Observer;
use crate::observe::why;
use crate::sys::root::Root;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::{Class, Client, Error, ResourceAttributes};

/// The timeout of a single read.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// The timeout of all reads together. An API that needs half a second for each request is read within it.
const ALL_LIMIT: Duration = Duration::from_secs(8);

/// A link to an API, or the reason why there is none.
type LinkResult<'a> = Result<&'a ApiLink, Unavailable>;

/// An API, whose requests take turns.
#[derive(Debug)]
struct Endpoint<'a> {
    link: LinkResult<'a>,
    turn: Mutex<()>,
    /// The end of all reads.
    until: Instant,
}

/// The input of the parts: the round before, and its connections.
#[derive(Debug)]
struct Given<'a> {
    /// The file system root.
    root: &'a Root,
    /// The system bus.
    bus: &'a Bus,
    /// The settings in force.
    settings: &'a Settings,
    /// Harvester's API with its credential.
    harvester: Endpoint<'a>,
    /// The guest cluster's API with the kubelet's credential.
    guest: Endpoint<'a>,
    /// Both credentials, even if a server rejects them.
    connections: &'a Connections,
    /// The observation of the round.
    observation: &'a Observation,
    /// Our VM, if the round found it.
    vm: Option<&'a Vmi>,
    /// The start of the examination.
    wall: UtcDateTime,
    /// The start on a monotonic clock.
    began: Instant,
}

/// Runs the examination, after a round that has read the credentials and the two APIs.
pub(crate) async fn read(
    observer: &Observer,
    settings: &Settings,
    round: &Round,
    now: Now,
) -> Examination {
    let connections = observer.connections();
    let observation = &round.observation;
    let is_final = |kind| {
        matches!(
            kind,
            UnavailableKind::Unreachable | UnavailableKind::Credential | UnavailableKind::Tls
        )
    };
    let began = Instant::now();
    let endpoint = |api| Endpoint {
        link: link(connections, observation, api, is_final),
        turn: Mutex::new(()),
        until: began + ALL_LIMIT,
    };
    let given = &Given {
        root: observer.root(),
        bus: observer.bus(),
        settings,
        harvester: endpoint(Api::Harvester),
        guest: endpoint(Api::Guest),
        connections,
        observation,
        vm: round.identity.vmi(),
        wall: now.wall,
        began,
    };
    let permissions = async {
        let ask = async |_: &Client, attributes: &ResourceAttributes| {
            let review = request(&given.harvester, async |client| {
                client.may(attributes).await
            });
            review.await.map(|review| review.allowed)
        };
        match &given.harvester.link {
            Ok(_) => permissions::read_by(connections, settings, round, ask).await,
            Err(why) => permissions::unasked(why),
        }
    };
    let ((node, pods), conflicts, versions, credentials, servers, clock, image, permissions) = tokio::join!(
        node::read(given),
        conflicts::read(given),
        versions::read(given),
        credentials::read(given),
        servers::read(given),
        clock::read(given),
        image::read(given),
        permissions,
    );
    Examination {
        versions: versions.or_of(&conflicts.instance),
        node,
        pods,
        conflicts,
        credentials,
        servers,
        clock,
        system: system::read(given),
        image,
        permissions,
    }
}

/// Returns the link to an API, unless the first request of the round failed with a final error: such a request is not retried.
fn link<'a>(
    connections: &'a Connections,
    observation: &Observation,
    api: Api,
    is_final: fn(UnavailableKind) -> bool,
) -> LinkResult<'a> {
    let (access, failure) = match api {
        Api::Harvester => (&connections.harvester, observation.candidates.why()),
        Api::Guest => (&connections.guest, observation.node.why()),
    };
    let link = access.link();
    let link = link.map_err(|why| why.due_to(Prerequisite::Kubeconfig(api)))?;
    match failure.filter(|why| is_final(why.kind)) {
        Some(why) => Err(why.skipping(Prerequisite::Request(api))),
        None => Ok(link),
    }
}

/// Reads one object with a timeout. Absent if the server does not have it.
async fn read_object<T: DeserializeOwned>(endpoint: &Endpoint<'_>, path: &str) -> Fact<T> {
    let object = request(endpoint, async |client| match client.get(path).await {
        Err(error) if error.class() == Class::NotFound => Ok(None),
        object => object.map(Some),
    });
    match object.await {
        Fact::Known(Some(object)) => Fact::Known(object),
        Fact::Known(None) | Fact::Absent => Fact::Absent,
        Fact::Failed(why) => Fact::Failed(why),
    }
}

/// Sends one request in its turn, with a timeout from then on.
async fn request<T>(
    endpoint: &Endpoint<'_>,
    send: impl AsyncFnOnce(&Client) -> Result<T, Error>,
) -> Fact<T> {
    let link = match &endpoint.link {
        Ok(link) => link,
        Err(why) => return Fact::Failed(why.clone()),
    };
    let work = async {
        let _turn = endpoint.turn.lock().await;
        briefly(async { send(&link.client).await.map_err(|error| why(&error)).into() }).await
    };
    let slow = |_| Fact::Failed(too_slow(ALL_LIMIT));
    timeout_at(endpoint.until, work).await.unwrap_or_else(slow)
}

/// Runs one read with a timeout.
async fn briefly<T>(work: impl Future<Output = Fact<T>>) -> Fact<T> {
    let slow = |_| Fact::Failed(too_slow(READ_LIMIT));
    timeout(READ_LIMIT, work).await.unwrap_or_else(slow)
}

fn too_slow(limit: Duration) -> Unavailable {
    let text = format!("timed out after {} s", limit.as_secs());
    Unavailable::new(UnavailableKind::Unreachable, text)
}
