// SPDX-License-Identifier: Apache-2.0
//! Reads what the two servers show to anybody. No credential goes along.

use std::time::Duration;

use tokio::time::Instant;

use super::credentials::certificate;
use super::{Given, briefly};
use crate::access::x509;
use crate::commands::doctor::facts::credentials::Role;
use crate::commands::doctor::facts::servers::{Servers, Shown};
use crate::facts::observation::Api;
use crate::facts::{Seen, Why, WhyKind};
use crate::observe::api_access::{Connections, Link};
use crate::observe::why;
use crate::wire::kubeapi;

/// Reads them, side by side.
pub(super) async fn read(given: &Given<'_>) -> Servers {
    let Connections {
        harvester,
        guest,
        timeouts,
    } = given.connections;
    let who = given.who;
    let harvester = worth_asking(harvester.link(), who.candidates.why());
    let guest = worth_asking(guest.link(), who.node.why());
    let (harvester, guest) = tokio::join!(
        shown(given, Api::Harvester, harvester, *timeouts),
        shown(given, Api::Guest, guest, *timeouts)
    );
    Servers { harvester, guest }
}

/// The link, unless its server gave no answer a moment ago. One that does not take our credential is asked all the same.
fn worth_asking<'a>(link: Result<&'a Link, Why>, failure: Option<&Why>) -> Result<&'a Link, Why> {
    let link = link.map_err(|why| Why::new(WhyKind::NotAsked, why.text))?;
    match failure.filter(|why| why.kind == WhyKind::Unreachable) {
        Some(why) => Err(Why::new(WhyKind::NotAsked, why.text.clone())),
        None => Ok(link),
    }
}

async fn shown(
    given: &Given<'_>,
    api: Api,
    link: Result<&Link, Why>,
    timeouts: kubeapi::Timeouts,
) -> Seen<Shown> {
    let link = match link {
        Ok(link) => link,
        Err(why) => return Seen::Failed(why),
    };
    let ask = async {
        let asked = Instant::now();
        match kubeapi::probe(&link.credential, timeouts).await {
            Ok(shown) => Seen::Known((shown, asked.elapsed())),
            Err(error) => Seen::Failed(why(&error)),
        }
    };
    briefly(ask).await.map(|(shown, took)| {
        let server = link.client.server();
        let read = |der: Vec<u8>| x509::Certificate::parse(&der).ok();
        let leaf = shown.certificate.and_then(read);
        Shown {
            certificate: leaf.map(|leaf| certificate(api, Role::Server, server, &leaf)),
            ahead: shown
                .date
                .map(|date| date.saturating_sub(our_time(given, took))),
        }
    })
}

/// Our clock when the answer was made: in the middle between question and answer.
fn our_time(given: &Given<'_>, took: Duration) -> i64 {
    let passed = given.began.elapsed().saturating_sub(took / 2);
    let passed = i64::try_from(passed.as_secs()).unwrap_or(i64::MAX);
    given.wall.unix_timestamp().saturating_add(passed)
}
