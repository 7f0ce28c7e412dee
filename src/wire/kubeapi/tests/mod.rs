// SPDX-License-Identifier: Apache-2.0
//! Tests the client with a server that sends exactly the bytes that a test defines.

mod requests;
mod server;
mod tls;
mod watch;
mod wire;

use std::time::Duration;

use reqwest::Url;

use super::{Client, Timeouts};
use crate::access::{Credential, ServerVerification};

/// A token that must never be in a message.
const TOKEN: &str = "eyJhbGciOi.secret-token.x9";

fn credential(server: &str) -> Credential {
    Credential {
        kubeconfig: "/etc/kubeconfig".into(),
        files: Vec::new(),
        server: server.parse::<Url>().unwrap(),
        certificate_authorities: Vec::new(),
        tls_server_name: None,
        verify_server: ServerVerification::Required,
        proxy: None,
        token: Some(TOKEN.to_owned().into()),
        client_certificate: None,
        namespace: None,
    }
}

fn client(server: &str) -> Client {
    Client::new(&credential(server), Timeouts::default()).unwrap()
}

/// Creates a client with long timeouts, except those that a test shortens: on a slow machine no other timeout must occur first.
fn client_with(server: &str, shorten: impl FnOnce(&mut Timeouts)) -> Client {
    let long = Duration::from_secs(60);
    let mut timeouts = Timeouts {
        connect: long,
        headers: long,
        body_progress: long,
        body: long,
        watch_silence: long,
    };
    shorten(&mut timeouts);
    Client::new(&credential(server), timeouts).unwrap()
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
