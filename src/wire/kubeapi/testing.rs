// SPDX-License-Identifier: Apache-2.0
//! An in-memory network for tests. All layers above it are those of the real client.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::Response;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::error::{Error, Kind, Target};
use super::http::{Call, Timeouts};
use super::types::JSON;
use crate::access::Credential;

/// The parameters of a request.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// `get`, `list`, `watch`, `patch`, `create`.
    pub(crate) verb: &'static str,
    /// The path below the server.
    pub(crate) path: &'a str,
    /// The query.
    pub(crate) query: &'a [(&'static str, String)],
    /// Whether only the metadata is requested.
    pub(crate) is_metadata_only: bool,
    /// The body.
    pub(crate) body: Option<&'a Value>,
}

/// The reason why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Nothing listens.
    Refused,
    /// The connection was not established in time.
    Connect,
    /// The head of the response did not arrive in time.
    Headers,
    /// The connection was reset.
    Reset,
}

/// The future response to a request.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Result<Response, Failed>> + Send + 'a>>;

/// The connections of one client to one API server.
pub(crate) trait Wire: Send + Sync {
    /// Sends a request and reads the head of the response.
    fn answer<'a>(&'a self, asked: Asked<'a>, timeouts: Timeouts) -> Answering<'a>;
}

impl dyn Wire {
    pub(super) async fn ask(
        &self,
        call: &Call<'_>,
        timeouts: Timeouts,
        target: &Target,
    ) -> Result<Response, Error> {
        let path = call.path.to_string();
        let asked = Asked {
            verb: call.verb,
            path: &path,
            query: &call.query,
            is_metadata_only: call.accept != JSON,
            body: call.body.map(|(_, body)| body),
        };
        let Timeouts {
            connect, headers, ..
        } = timeouts;
        let answered = self.answer(asked, timeouts).await;
        answered.map_err(|failed| match failed {
            Failed::Refused => target.error(Kind::Unreachable, "connection refused"),
            Failed::Connect => {
                let problem = format!("connecting timed out after {connect:?}");
                target.error(Kind::Unreachable, problem)
            }
            Failed::Headers => target.timed_out("reading the response headers", headers),
            Failed::Reset => target.error(Kind::Interrupted, "connection interrupted"),
        })
    }
}

/// A function that creates the simulated connection for a credential.
pub(crate) type Dialer = Box<dyn Fn(&Credential) -> Arc<dyn Wire>>;

thread_local! {
    static NETWORK: RefCell<Option<(reqwest::Client, Dialer)>> = const { RefCell::new(None) };
}

/// The body of a response, as a test writes it.
#[derive(Clone)]
pub(crate) struct Text(Arc<Mutex<UnboundedReceiver<String>>>);

impl Text {
    /// Creates a body, which ends when the sender is dropped.
    pub(crate) fn new() -> (UnboundedSender<String>, Self) {
        let (sender, pieces) = unbounded_channel();
        (sender, Self(Arc::new(Mutex::new(pieces))))
    }
}

impl Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.0.lock().unwrap().poll_recv(context);
        piece.map(|piece| piece.map(|text| Ok(Frame::data(text.into()))))
    }
}

/// Returns a response in JSON. If it is a failure, the server requests to wait for one second.
pub(crate) fn response(code: u16, body: reqwest::Body) -> Response {
    let head = hyper::Response::builder().status(code);
    let head = head.header(CONTENT_TYPE, "application/json");
    head.header(RETRY_AFTER, "1").body(body).unwrap().into()
}

/// Returns a credential for a server, without a secret.
pub(crate) fn credential(server: &str) -> Credential {
    Credential {
        kubeconfig: "/etc/kubeconfig".into(),
        files: Vec::new(),
        server: server.parse().unwrap(),
        certificate_authorities: Vec::new(),
        tls_server_name: None,
        proxy: None,
        token: None,
        client_certificate: None,
        namespace: None,
    }
}

/// Makes every client that this thread creates after the call use `wire`.
pub(crate) fn simulate(wire: impl Wire + Clone + 'static) {
    replace_network(Box::new(move |_| Arc::new(wire.clone())));
}

/// Makes every client that this thread creates after the call use `dialer`, in a simulated system.
pub(crate) fn replace_network(dialer: Dialer) {
    crate::testing::simulate_system();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    // Never used.
    let http = reqwest::Client::builder().tls_backend_preconfigured(tls);
    NETWORK.set(Some((http.build().unwrap(), dialer)));
}

/// Returns the client that is not used while the network is replaced on this thread.
pub(super) fn unused_http() -> Option<reqwest::Client> {
    NETWORK.with_borrow(|network| network.as_ref().map(|(http, _)| http.clone()))
}

/// Returns the connection that replaces the network on this thread.
pub(super) fn wire_to(credential: &Credential) -> Option<Arc<dyn Wire>> {
    NETWORK.with_borrow(|network| network.as_ref().map(|(_, dialer)| dialer(credential)))
}
