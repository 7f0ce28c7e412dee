// SPDX-License-Identifier: Apache-2.0
//! What only commands ask of the world, after a look.

use tokio::time::Instant;

use super::Observer;
use super::limit::limited;
use crate::agent::Round;
use crate::commands::doctor::facts::Examination;
use crate::commands::doctor::read::{self, Given};
use crate::config::Settings;
use crate::decide::Now;
use crate::facts::permissions::Permission;
use crate::facts::{Unavailable, UnavailableKind};
use crate::observe::api_access::ApiLink;
use crate::observe::permissions::{self, Objects};

impl Observer {
    /// What the Harvester credential may do; nothing when there is none.
    pub async fn permissions(&self, settings: &Settings) -> Vec<Permission> {
        let (Ok(link), Some(harvester)) =
            (self.connections.harvester.link(), self.harvester.known())
        else {
            return Vec::new();
        };
        let objects = Objects {
            namespace: &harvester.namespace,
            vm: self.own.as_ref().map(|found| &found.vmi.name),
            host: self.reads.as_ref().map(|reads| &reads.host),
            configmap: &settings.topology.configmap,
        };
        limited(permissions::read(&link.client, &objects))
            .await
            .unwrap_or_default()
    }

    /// Examines, after a round that has read the credentials and the two APIs.
    pub async fn examine(&self, settings: &Settings, round: &Round, now: Now) -> Examination {
        let given = Given {
            root: &self.root,
            bus: &self.bus,
            settings,
            harvester: answering(
                self.connections.harvester.link(),
                round.observation.candidates.why(),
            ),
            guest: answering(self.connections.guest.link(), round.observation.node.why()),
            connections: &self.connections,
            observation: &round.observation,
            vm: round.identity.vmi(),
            wall: now.wall,
            began: Instant::now(),
        };
        Box::pin(read::read(&given, self.permissions(settings))).await
    }
}

/// The link, unless the round found that its server does not answer or does not take the credential: what did not work a
/// moment ago is not waited for again.
fn answering<'a>(
    link: Result<&'a ApiLink, Unavailable>,
    failure: Option<&Unavailable>,
) -> Result<&'a ApiLink, Unavailable> {
    let link = link?;
    match failure {
        Some(why)
            if matches!(
                why.kind,
                UnavailableKind::Unreachable | UnavailableKind::Credential | UnavailableKind::Tls
            ) =>
        {
            Err(Unavailable::new(
                UnavailableKind::NotAsked,
                why.text.clone(),
            ))
        }
        _ => Ok(link),
    }
}
