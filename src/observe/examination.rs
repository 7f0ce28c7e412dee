// SPDX-License-Identifier: Apache-2.0
//! Reads what only `doctor` asks for, the parts side by side, each read with a deadline and one for all.
//!
//! To add a read: see `facts/examination.rs`. The requests to one API share its connection and take turns on it; a read
//! that is given up closes that connection, which the next opens anew.

mod clock;
mod conflicts;
mod credentials;
mod image;
mod pods;
mod servers;
mod versions;

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::World;
use crate::agent::Round;
use crate::bus::Bus;
use crate::config::Settings;
use crate::connections::{Connections, Link};
use crate::decide::Now;
use crate::facts::examination::{
    Examination, clock::Clock, conflicts::Conflicts, credentials::Credentials, image::Image,
    pods::Pods, servers::Servers, versions::Versions,
};
use crate::facts::{Seen, Why, WhyKind};
use crate::root::Root;

/// No single read takes longer.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// No part takes longer, and as they run side by side, nor do all.
const ALL_LIMIT: Duration = Duration::from_secs(3);

/// What the parts read with: the round that came before, and what it opened.
#[derive(Debug)]
pub struct Given<'a> {
    /// Prefix of every path.
    pub root: &'a Root,
    /// The system bus.
    pub bus: &'a Bus,
    /// The settings in force.
    pub settings: &'a Settings,
    /// Harvester's API and its credential, or why there is none.
    pub harvester: Result<&'a Link, Why>,
    /// The guest cluster's API and the kubelet's credential, or why there is none.
    pub guest: Result<&'a Link, Why>,
    /// Both credentials, whatever the servers say of them.
    pub connections: &'a Connections,
    /// What the round saw and found.
    pub round: &'a Round,
    /// The time when the examination began.
    pub now: Now,
    /// The same on a clock that never jumps.
    pub began: Instant,
}

impl World {
    /// Examines, after a round that has read the credentials and the two APIs.
    pub async fn examine(&self, settings: &Settings, round: &Round, now: Now) -> Examination {
        let given = Given {
            root: &self.root,
            bus: &self.bus,
            settings,
            harvester: answering(
                self.connections.harvester.link(),
                round.who.candidates.why(),
            ),
            guest: answering(self.connections.guest.link(), round.who.node.why()),
            connections: &self.connections,
            now,
            began: Instant::now(),
            round,
        };
        let slow = Why::new(WhyKind::Unreachable, too_slow(ALL_LIMIT));
        let may = async {
            match &given.harvester {
                Ok(_) => self.permissions(settings).await,
                Err(_) => Vec::new(),
            }
        };
        let (versions, pods, conflicts, credentials, servers, clock, image, permissions) = tokio::join!(
            timeout(ALL_LIMIT, versions::read(&given)),
            timeout(ALL_LIMIT, pods::read(&given)),
            timeout(ALL_LIMIT, conflicts::read(&given)),
            timeout(ALL_LIMIT, credentials::read(&given)),
            timeout(ALL_LIMIT, servers::read(&given)),
            timeout(ALL_LIMIT, clock::read(&given)),
            timeout(ALL_LIMIT, image::read(&given)),
            timeout(ALL_LIMIT, may),
        );
        Examination {
            versions: versions.unwrap_or_else(|_| Versions::unseen(&slow)),
            pods: pods.unwrap_or_else(|_| Pods::unseen(&slow)),
            conflicts: conflicts.unwrap_or_else(|_| Conflicts::unseen(&slow)),
            credentials: credentials.unwrap_or_else(|_| Credentials::unseen(&slow)),
            servers: servers.unwrap_or_else(|_| Servers::unseen(&slow)),
            clock: clock.unwrap_or_else(|_| Clock::unseen(&slow)),
            image: image.unwrap_or_else(|_| Image::unseen(&slow)),
            permissions: permissions.unwrap_or_default(),
        }
    }
}

/// The link, unless the round found that its server does not answer or does not take the credential: what did not work a
/// moment ago is not waited for again.
fn answering<'a>(link: Result<&'a Link, Why>, failure: Option<&Why>) -> Result<&'a Link, Why> {
    let link = link?;
    match failure {
        Some(why)
            if matches!(
                why.kind,
                WhyKind::Unreachable | WhyKind::Credential | WhyKind::Tls
            ) =>
        {
            Err(Why::new(WhyKind::NotAsked, why.text.clone()))
        }
        _ => Ok(link),
    }
}

/// One read with its deadline.
async fn briefly<T>(work: impl Future<Output = Seen<T>>) -> Seen<T> {
    timeout(READ_LIMIT, work)
        .await
        .unwrap_or_else(|_| Seen::failed(WhyKind::Unreachable, too_slow(READ_LIMIT)))
}

fn too_slow(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs())
}
