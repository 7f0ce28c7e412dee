// SPDX-License-Identifier: Apache-2.0
//! Tests the client with a server that sends exactly the bytes that a test defines.

mod requests;
mod server;
mod tls;
mod watch;
mod wire;

use std::sync::LazyLock;
use std::time::Duration;

use harvester_lab::world::{SOON, eventually};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::{Client, Error, Kind, ObjectPath, Timeouts};
use crate::access::Credential;
use crate::access::testing::Authority;
use server::Server;

/// A path that is not of an object, so that any response matches.
const VERSION: ObjectPath = ObjectPath::all("", "version", None);

/// A token that must never be in a message.
const TOKEN: &str = "eyJhbGciOi.secret-token.x9";

/// An authority that has signed the certificate of no server.
static AUTHORITY: LazyLock<CertificateDer<'static>> =
    LazyLock::new(|| Authority::new("unused").der());

/// Returns a credential for a server. Most servers here have no TLS: a kubeconfig with such a server is refused before.
fn credential(server: &str) -> Credential {
    Credential {
        certificate_authorities: vec![AUTHORITY.clone()],
        token: Some(TOKEN.to_owned().into()),
        ..super::testing::credential(server)
    }
}

/// Timeouts that no machine exceeds, however slow it is.
const LONG: Timeouts = Timeouts {
    connect: HOUR,
    headers: HOUR,
    body_progress: HOUR,
    body: HOUR,
    watch_silence: HOUR,
};

const HOUR: Duration = Duration::from_secs(3600);

fn client(server: &str) -> Client {
    client_with(server, |_| {})
}

/// Creates a client with long timeouts, except those that a test shortens: no other timeout must occur first.
fn client_with(server: &str, shorten: impl FnOnce(&mut Timeouts)) -> Client {
    let mut timeouts = LONG;
    shorten(&mut timeouts);
    Client::new(&credential(server), timeouts).unwrap()
}

/// Waits until the server has received so many requests.
async fn received(server: &Server, requests: usize) {
    let is_here = async || server.requests().len() >= requests;
    eventually(SOON, "the server has the request", is_here).await;
}

/// Pauses the clock once the server has received so many requests, to which it does not respond: only a timeout is left to happen.
/// Returns the time of the pause.
async fn pause_after(server: &Server, requests: usize) -> Instant {
    received(server, requests).await;
    tokio::time::pause();
    Instant::now()
}

/// Checks how an error is handled, and that its text has these words.
#[track_caller]
fn is(error: &Error, kind: Kind, words: &str) {
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

/// Returns every text that an error can print: its message, its causes, its `Debug`.
fn printed(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{error:?} {error:#?}");
    let mut next = Some(error);
    while let Some(error) = next {
        text += &format!(" {error}");
        next = error.source();
    }
    text
}
