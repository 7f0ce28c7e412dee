// SPDX-License-Identifier: Apache-2.0
//! Reads the data that only `doctor` needs. The parts run concurrently, with a timeout for each read and one for all.
//!
//! To add a read: see `commands/doctor/facts.rs`. All requests to one API share a connection and run one after another. A read
//! that times out closes that connection, and the next read opens a new one.

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
use tokio::time::{Instant, timeout};

use crate::agent::Round;
use crate::commands::doctor::facts::{
    Examination, clock::ClockFacts, conflicts::Conflicts, credentials::Credentials, image::Image,
    node::NodeDetails, pods::Pods, servers::Servers, versions::Versions,
};
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
use crate::wire::kubeapi::{Class, Client, Error};

/// The timeout of a single read.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// The timeout of each part, and of all, because they run concurrently.
const ALL_LIMIT: Duration = Duration::from_secs(3);

/// A link to an API, or the reason why there is none.
type LinkResult<'a> = Result<&'a ApiLink, Unavailable>;

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
    harvester: LinkResult<'a>,
    /// The guest cluster's API with the kubelet's credential.
    guest: LinkResult<'a>,
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
pub(super) async fn read(
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
    let given = &Given {
        root: observer.root(),
        bus: observer.bus(),
        settings,
        harvester: link(connections, observation, Api::Harvester, is_final),
        guest: link(connections, observation, Api::Guest, is_final),
        connections,
        observation,
        vm: round.identity.vmi(),
        wall: now.wall,
        began: Instant::now(),
    };
    let permissions = async {
        match &given.harvester {
            Ok(_) => observer.permissions(settings).await,
            Err(_) => Vec::new(),
        }
    };
    let ((node, pods), conflicts, versions, credentials, servers, clock, image, permissions) = tokio::join!(
        part(node::read(given), |why| (
            NodeDetails::unseen(why),
            Pods::unseen(why)
        )),
        part(conflicts::read(given), Conflicts::unseen),
        part(versions::read(given), Versions::unseen),
        part(credentials::read(given), Credentials::unseen),
        part(servers::read(given), Servers::unseen),
        part(clock::read(given), ClockFacts::unseen),
        part(image::read(given), Image::unseen),
        part(permissions, |_| Vec::new()),
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

/// Runs one part with the timeout of all.
async fn part<T>(work: impl Future<Output = T>, unseen: fn(&Unavailable) -> T) -> T {
    let slow = |_| unseen(&too_slow(ALL_LIMIT));
    timeout(ALL_LIMIT, work).await.unwrap_or_else(slow)
}

/// Reads one object with a timeout. Absent if the server does not have it.
async fn read_object<T: DeserializeOwned>(link: &LinkResult<'_>, path: &str) -> Fact<T> {
    let object = request(link, async |client| match client.get(path).await {
        Err(error) if error.class() == Class::NotFound => Ok(None),
        object => object.map(Some),
    });
    match object.await {
        Fact::Known(Some(object)) => Fact::Known(object),
        Fact::Known(None) | Fact::Absent => Fact::Absent,
        Fact::Failed(why) => Fact::Failed(why),
    }
}

/// Sends one request with a timeout.
async fn request<T>(
    link: &LinkResult<'_>,
    send: impl AsyncFnOnce(&Client) -> Result<T, Error>,
) -> Fact<T> {
    match link {
        Ok(link) => {
            briefly(async { send(&link.client).await.map_err(|error| why(&error)).into() }).await
        }
        Err(why) => Fact::Failed(why.clone()),
    }
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
