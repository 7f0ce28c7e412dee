// SPDX-License-Identifier: Apache-2.0
//! Examines what only `doctor` reads, with what a round has opened.

use tokio::time::Instant;

use super::facts::Examination;
use super::read::{self, Given};
use crate::agent::Round;
use crate::config::Settings;
use crate::decide::Now;
use crate::facts::{Unavailable, UnavailableKind};
use crate::observe::api_access::ApiLink;
use crate::observe::observer::Observer;

/// Examines, after a round that has read the credentials and the two APIs.
pub(super) async fn examine(
    observer: &Observer,
    settings: &Settings,
    round: &Round,
    now: Now,
) -> Examination {
    let connections = observer.connections();
    let given = Given {
        root: observer.root(),
        bus: observer.bus(),
        settings,
        harvester: answering(
            connections.harvester.link(),
            round.observation.candidates.why(),
        ),
        guest: answering(connections.guest.link(), round.observation.node.why()),
        connections,
        observation: &round.observation,
        vm: round.identity.vmi(),
        wall: now.wall,
        began: Instant::now(),
    };
    Box::pin(read::read(&given, observer.permissions(settings))).await
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
