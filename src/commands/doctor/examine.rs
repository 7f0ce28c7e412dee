// SPDX-License-Identifier: Apache-2.0
//! Reads the data that only `doctor` needs, with the connections of a round.

use tokio::time::Instant;

use super::facts::Examination;
use super::read::{self, Given};
use crate::agent::Round;
use crate::config::Settings;
use crate::decide::Now;
use crate::facts::{Unavailable, UnavailableKind};
use crate::observe::api_access::ApiLink;
use crate::observe::observer::Observer;

/// Runs the examination after a round that has read the credentials and the two APIs.
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

/// Returns the link, unless its server was unreachable or rejected the credential in the round: a request that just failed is not
/// retried.
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
