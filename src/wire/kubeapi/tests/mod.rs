// SPDX-License-Identifier: Apache-2.0
//! The client against a server that says, byte for byte, what a test tells it to.

mod requests;
mod server;
mod tls;
mod watch;
mod wire;

use std::time::Duration;

use reqwest::Url;

use super::{Client, Timeouts};
use crate::access::{Credential, ServerVerification};

/// Must be in no message, ever.
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

/// All times are long but those that a test shortens, so that a slow machine cannot end another one first.
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

/// Everything that a value can print: itself, its causes, its `Debug`.
fn printed(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{error:?} {error:#?}");
    let mut next = Some(error);
    while let Some(error) = next {
        text += &format!(" {error}");
        next = error.source();
    }
    text
}
