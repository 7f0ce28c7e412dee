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
mod servers;
mod versions;

use std::time::Duration;

use serde::de::DeserializeOwned;
use time::UtcDateTime;
use tokio::time::{Instant, timeout};

use crate::commands::doctor::facts::{
    Examination, clock::ClockFacts, conflicts::Conflicts, credentials::Credentials, image::Image,
    node::NodeDetails, pods::Pods, servers::Servers, versions::Versions,
};
use crate::config::Settings;
use crate::facts::observation::Observation;
use crate::facts::permissions::Permission;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::api_access::{ApiLink, Connections};
use crate::observe::why;
use crate::sys::root::Root;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::Class;

/// The timeout of a single read.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// The timeout of each part, and of all, because they run concurrently.
const ALL_LIMIT: Duration = Duration::from_secs(3);

/// The input of the parts: the round before, and its connections.
#[derive(Debug)]
pub struct Given<'a> {
    /// The file system root.
    pub root: &'a Root,
    /// The system bus.
    pub bus: &'a Bus,
    /// The settings in force.
    pub settings: &'a Settings,
    /// The link to Harvester's API with its credential, or the reason why there is none.
    pub harvester: Result<&'a ApiLink, Unavailable>,
    /// The link to the guest cluster's API with the kubelet's credential, or the reason why there is none.
    pub guest: Result<&'a ApiLink, Unavailable>,
    /// Both credentials, even if a server rejects them.
    pub connections: &'a Connections,
    /// The observation of the round.
    pub observation: &'a Observation,
    /// Our VM, if the round found it.
    pub vm: Option<&'a Vmi>,
    /// The start of the examination.
    pub wall: UtcDateTime,
    /// The start on a monotonic clock.
    pub began: Instant,
}

/// Runs the examination, after a round that has read the credentials and the two APIs. `permissions` requests the permissions of
/// the credential.
pub async fn read(
    given: &Given<'_>,
    permissions: impl Future<Output = Vec<Permission>>,
) -> Examination {
    let slow = Unavailable::new(UnavailableKind::Unreachable, too_slow(ALL_LIMIT));
    let may = async {
        match &given.harvester {
            Ok(_) => permissions.await,
            Err(_) => Vec::new(),
        }
    };
    let (versions, node, conflicts, credentials, servers, clock, image, permissions) = tokio::join!(
        timeout(ALL_LIMIT, versions::read(given)),
        timeout(ALL_LIMIT, node::read(given)),
        timeout(ALL_LIMIT, conflicts::read(given)),
        timeout(ALL_LIMIT, credentials::read(given)),
        timeout(ALL_LIMIT, servers::read(given)),
        timeout(ALL_LIMIT, clock::read(given)),
        timeout(ALL_LIMIT, image::read(given)),
        timeout(ALL_LIMIT, may),
    );
    let (node, pods) = node.unwrap_or_else(|_| (NodeDetails::unseen(&slow), Pods::unseen(&slow)));
    let conflicts = conflicts.unwrap_or_else(|_| Conflicts::unseen(&slow));
    let versions = versions.unwrap_or_else(|_| Versions::unseen(&slow));
    Examination {
        versions: versions.or_of(&conflicts.instance),
        node,
        pods,
        conflicts,
        credentials: credentials.unwrap_or_else(|_| Credentials::unseen(&slow)),
        servers: servers.unwrap_or_else(|_| Servers::unseen(&slow)),
        clock: clock.unwrap_or_else(|_| ClockFacts::unseen(&slow)),
        image: image.unwrap_or_else(|_| Image::unseen(&slow)),
        permissions: permissions.unwrap_or_default(),
    }
}

/// Reads one object with a timeout. Absent if the server does not have it.
async fn read_object<T: DeserializeOwned>(
    link: &Result<&ApiLink, Unavailable>,
    path: &str,
) -> Fact<T> {
    let client = match link {
        Ok(link) => &link.client,
        Err(why) => return Fact::Failed(why.clone()),
    };
    briefly(async {
        match client.get::<T>(path).await {
            Ok(object) => Fact::Known(object),
            Err(error) if error.class() == Class::NotFound => Fact::Absent,
            Err(error) => Fact::Failed(why(&error)),
        }
    })
    .await
}

/// Runs one read with a timeout.
async fn briefly<T>(work: impl Future<Output = Fact<T>>) -> Fact<T> {
    timeout(READ_LIMIT, work)
        .await
        .unwrap_or_else(|_| Fact::failed(UnavailableKind::Unreachable, too_slow(READ_LIMIT)))
}

fn too_slow(limit: Duration) -> String {
    format!("timed out after {} s", limit.as_secs())
}
