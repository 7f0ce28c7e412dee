// SPDX-License-Identifier: Apache-2.0
//! An in-memory network for tests. All layers above it are those of the real client.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;

use reqwest::Response;
use serde_json::Value;

use super::error::{Error, Kind, Target};
use super::http::{Accept, Call, Timeouts};
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
            is_metadata_only: !matches!(call.accept, Accept::Object),
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

/// Makes every client that this thread creates after the call use `dialer`. `http` is never used.
pub(crate) fn replace_network(http: reqwest::Client, dialer: Dialer) {
    NETWORK.set(Some((http, dialer)));
}

/// Returns the client that is not used while the network is replaced on this thread.
pub(super) fn unused_http() -> Option<reqwest::Client> {
    NETWORK.with_borrow(|network| network.as_ref().map(|(http, _)| http.clone()))
}

/// Returns the connection that replaces the network on this thread.
pub(super) fn wire_to(credential: &Credential) -> Option<Arc<dyn Wire>> {
    NETWORK.with_borrow(|network| network.as_ref().map(|(_, dialer)| dialer(credential)))
}
