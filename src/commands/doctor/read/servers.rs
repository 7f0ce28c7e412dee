// SPDX-License-Identifier: Apache-2.0
//! Reads the unauthenticated data of the two servers, without any credential.

use std::time::Duration;

use tokio::time::Instant;

use super::credentials::certificate;
use super::{Given, briefly, link};
use crate::access::x509;
use crate::commands::doctor::facts::credentials::CredentialRole;
use crate::commands::doctor::facts::servers::{Servers, Shown};
use crate::facts::observation::Api;
use crate::facts::{Fact, Prerequisite, UnavailableKind};
use crate::observe::why;
use crate::wire::kubeapi;

/// Reads both servers concurrently.
pub(super) async fn read(given: &Given<'_>) -> Servers {
    let (harvester, guest) = tokio::join!(shown(given, Api::Harvester), shown(given, Api::Guest));
    Servers { harvester, guest }
}

async fn shown(given: &Given<'_>, api: Api) -> Fact<Shown> {
    // A server that rejects our credential is still read.
    let is_final = |kind| kind == UnavailableKind::Unreachable;
    let link = match link(given.connections, given.observation, api, is_final) {
        Ok(link) => link,
        Err(why) => return Fact::Failed(why.skipping(Prerequisite::Kubeconfig(api))),
    };
    let ask = async {
        let asked = Instant::now();
        match kubeapi::probe(&link.credential, given.connections.timeouts).await {
            Ok(shown) => Fact::Known((shown, asked.elapsed())),
            Err(error) => Fact::Failed(why(&error)),
        }
    };
    briefly(ask).await.map(|(shown, took)| {
        let server = link.client.server();
        let read = |der: Vec<u8>| x509::Certificate::parse(&der).ok();
        let leaf = shown.certificate.and_then(read);
        Shown {
            certificate: leaf.map(|leaf| certificate(api, CredentialRole::Server, server, &leaf)),
            ahead: shown
                .date
                .map(|date| date.saturating_sub(our_time(given, took))),
        }
    })
}

/// Returns our time when the response was created: halfway between request and response.
fn our_time(given: &Given<'_>, took: Duration) -> i64 {
    let passed = given.began.elapsed().saturating_sub(took / 2);
    let passed = i64::try_from(passed.as_secs()).unwrap_or(i64::MAX);
    given.wall.unix_timestamp().saturating_add(passed)
}
