// SPDX-License-Identifier: Apache-2.0
//! The connections to one API server: how they are opened, the headers of each request, and the timeout of the response head.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Method, Proxy, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::address::{is_http, public_form, request_url};
use super::error::{Class, CredentialProblem, Error, RequestPhase, RequestTarget};
use super::request_counts::Tally;
use super::text::describe;
use super::tls::{self, ServerShown};
use crate::access::Credential;
use crate::sys::escape::chain;
use crate::wire::backoff::Backoff;

/// The idle time of a connection before the kernel sends keepalive probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// The interval of the probes. The kernel sends three.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// The time for which data may be unacknowledged before the connection breaks: the same as for an idle connection with keepalive.
const USER_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of watches at the same time: one, and briefly the one that replaces it.
const WATCHES: usize = 2;
/// The number of idle connections that are kept: the one for requests.
const IDLE_CONNECTIONS: usize = 1;

const USER_AGENT: &str = concat!("harvester-node-agent/", env!("CARGO_PKG_VERSION"));

/// The timeouts of each part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Name resolution, TCP and TLS. Default 5 s.
    pub connect: Duration,
    /// From the request to the last line of the response head, including the time to connect. Default 10 s.
    pub headers: Duration,
    /// From one chunk of a body to the next. Default 10 s.
    pub body_progress: Duration,
    /// A whole body. Default 30 s.
    pub body: Duration,
    /// A watch without any event or bookmark. Default 90 s: API servers send a bookmark each minute.
    pub watch_silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            headers: Duration::from_secs(10),
            body_progress: Duration::from_secs(10),
            body: Duration::from_secs(30),
            watch_silence: Duration::from_secs(90),
        }
    }
}

/// The requested representation of an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Accept {
    Object,
    MetadataOnly,
    MetadataOnlyList,
}

/// One request.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// The Kubernetes verb, for messages.
    pub(super) verb: &'static str,
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) accept: Accept,
    pub(super) body: Option<(&'static str, &'a serde_json::Value)>,
}

/// A connection pool for one API server, and the headers of each request.
pub(super) struct Transport {
    http: reqwest::Client,
    /// The server for messages: no user information, query or fragment.
    pub(super) server: String,
    /// The base URL of requests.
    base: Url,
    pub(super) shown: Arc<std::sync::Mutex<ServerShown>>,
    authorization: Option<HeaderValue>,
    /// Kept to remove it from untrusted text.
    pub(super) token: Option<SecretString>,
    pub(super) timeouts: Timeouts,
    tally: Tally,
    pub(super) backoff: Backoff,
    /// The failure for which requests back off: its class, and one line of text.
    failure: std::sync::Mutex<Option<(Class, Arc<str>)>>,
    /// Allows one request at a time, so that all requests use one connection.
    requesting: Mutex<()>,
    /// Allows one watch at a time, and the one that replaces it.
    watching: Arc<Semaphore>,
    /// Replaces the network.
    #[cfg(test)]
    simulated: Option<Arc<dyn super::testing::Wire>>,
}

/// A request in progress, whose result decides whether further requests back off.
pub(super) struct RequestAttempt<'a> {
    transport: &'a Transport,
    sent: Instant,
    /// The permit to be the only request in progress; a watch has its own.
    _turn: Option<MutexGuard<'a, ()>>,
}

impl RequestAttempt<'_> {
    /// Records the result, and lets the next request begin. A request that is dropped has no result.
    pub(super) fn end<T>(self, outcome: Result<T, Error>) -> Result<T, Error> {
        match &outcome {
            Err(error) if error.is_failure_of_api() => self.transport.failed(self.sent, error),
            _ => self.transport.backoff.succeeded(),
        }
        outcome
    }
}

impl Transport {
    pub(super) fn new(
        credential: &Credential,
        timeouts: Timeouts,
        tally: Tally,
        backoff: Backoff,
    ) -> Result<Self, Error> {
        #[cfg(test)]
        if let Some((http, wire)) = super::testing::wire_to(credential) {
            let counts = (tally, backoff);
            return Ok(Self::simulated(credential, timeouts, counts, http, wire));
        }
        let server = public_form(&credential.server);
        Self::build(
            credential,
            timeouts,
            (tally, backoff),
            server.to_string().trim_end_matches('/').to_owned(),
            server,
        )
        .map_err(|problem| Error::Credential {
            server: public_form(&credential.server).to_string(),
            problem,
        })
    }

    fn build(
        credential: &Credential,
        timeouts: Timeouts,
        (tally, backoff): (Tally, Backoff),
        server: String,
        base: Url,
    ) -> Result<Self, CredentialProblem> {
        if !is_http(&base) {
            return Err(CredentialProblem::Server);
        }
        let shown = Arc::default();
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::configure(credential, &shown)?)
            .user_agent(USER_AGENT)
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .http1_only()
            .connect_timeout(timeouts.connect)
            .pool_idle_timeout(None)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .tcp_keepalive(KEEPALIVE_IDLE)
            .tcp_keepalive_interval(KEEPALIVE_INTERVAL)
            .tcp_keepalive_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(USER_TIMEOUT);
        if let Some(proxy) = &credential.proxy {
            if !is_http(proxy) {
                return Err(CredentialProblem::Proxy);
            }
            let proxy =
                Proxy::all(proxy.clone()).map_err(|source| CredentialProblem::Http { source })?;
            builder = builder.proxy(proxy);
        }
        let http = builder.build().map_err(|source| CredentialProblem::Http {
            source: source.without_url(),
        })?;
        Ok(Self {
            http,
            server,
            base,
            shown,
            authorization: credential.token.as_ref().map(authorization).transpose()?,
            token: credential.token.clone(),
            timeouts,
            tally,
            backoff,
            failure: std::sync::Mutex::default(),
            requesting: Mutex::new(()),
            watching: Arc::new(Semaphore::new(WATCHES)),
            #[cfg(test)]
            simulated: None,
        })
    }

    #[cfg(test)]
    fn simulated(
        credential: &Credential,
        timeouts: Timeouts,
        (tally, backoff): (Tally, Backoff),
        http: reqwest::Client,
        wire: Arc<dyn super::testing::Wire>,
    ) -> Self {
        Self {
            http,
            server: credential.server.to_string(),
            base: credential.server.clone(),
            shown: Arc::default(),
            authorization: None,
            token: credential.token.clone(),
            timeouts,
            tally,
            backoff,
            failure: std::sync::Mutex::default(),
            requesting: Mutex::new(()),
            watching: Arc::new(Semaphore::new(WATCHES)),
            simulated: Some(wire),
        }
    }

    /// Begins a request when no other one is in progress. Fails while requests back off.
    pub(super) async fn turn(&self) -> Result<RequestAttempt<'_>, Error> {
        let turn = self.requesting.lock().await;
        self.attempt(Some(turn))
            .inspect_err(|_| self.backoff.read_deferred())
    }

    /// Begins a request. Fails while requests back off.
    pub(super) fn attempt<'a>(
        &'a self,
        turn: Option<MutexGuard<'a, ()>>,
    ) -> Result<RequestAttempt<'a>, Error> {
        let Some(left) = self.backoff.left() else {
            return Ok(RequestAttempt {
                transport: self,
                sent: Instant::now(),
                _turn: turn,
            });
        };
        let (class, text) = self.last_failure().clone().unwrap_or_else(|| {
            let text = format!(
                "no request to {} yet: backing off after an error",
                self.server
            );
            (Class::Retry, text.into())
        });
        Err(Error::Deferred { class, text, left })
    }

    fn failed(&self, sent: Instant, error: &Error) {
        self.backoff.failed(sent, error.retry_after());
        *self.last_failure() = Some((error.class(), chain(error).into()));
    }

    fn last_failure(&self) -> std::sync::MutexGuard<'_, Option<(Class, Arc<str>)>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the permit to hold a watch. Times out while the earlier watches are held, since that wait would have no limit.
    pub(super) async fn watch_turn(
        &self,
        target: &Arc<RequestTarget>,
    ) -> Result<OwnedSemaphorePermit, Error> {
        let limit = self.timeouts.connect;
        tokio::time::timeout(limit, Arc::clone(&self.watching).acquire_owned())
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| target.timeout(RequestPhase::Turn, limit))
    }

    pub(super) fn target(&self, call: &Call<'_>) -> Arc<RequestTarget> {
        Arc::new(RequestTarget {
            server: self.server.clone(),
            verb: call.verb,
            path: describe(call.path),
        })
    }

    /// Sends the request and reads the head of the response, which is a success, in JSON, and not compressed.
    pub(super) async fn send(
        &self,
        call: &Call<'_>,
        target: &Arc<RequestTarget>,
    ) -> Result<Response, Error> {
        let pending = self.tally.begin();
        let outcome = match self.answer(call, target).await {
            Ok(response) => self.check(response, target).await,
            Err(error) => Err(error),
        };
        pending.end(&outcome);
        outcome
    }

    /// Sends the request and reads the head of the response, whatever its status.
    async fn answer(
        &self,
        call: &Call<'_>,
        target: &Arc<RequestTarget>,
    ) -> Result<Response, Error> {
        #[cfg(test)]
        if let Some(wire) = &self.simulated {
            return wire.ask(call, self.timeouts, target).await;
        }
        let Some(url) = request_url(&self.base, call.path, &call.query) else {
            return Err(target.protocol("invalid request path"));
        };
        let mut headers = HeaderMap::new();
        headers.insert(
            ACCEPT,
            HeaderValue::from_static(match call.accept {
                Accept::Object => "application/json",
                Accept::MetadataOnly => {
                    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
                }
                Accept::MetadataOnlyList => {
                    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
                }
            }),
        );
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut request = self.http.request(call.method.clone(), url).headers(headers);
        if let Some((content_type, body)) = call.body {
            request = request
                .header(CONTENT_TYPE, content_type)
                .body(body.to_string());
        }
        self.head(request.send(), target).await
    }

    /// Waits for the head of the response. The HTTP library limits the time to connect within it.
    async fn head(
        &self,
        sending: impl Future<Output = reqwest::Result<Response>>,
        target: &Arc<RequestTarget>,
    ) -> Result<Response, Error> {
        let limit = self.timeouts.headers;
        let sent = timeout(limit, sending)
            .await
            .map_err(|_| target.timeout(RequestPhase::Headers, limit))?;
        let response = sent.map_err(|source| self.failure(source, target))?;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.ahead = date(response.headers()).map(|date| date - now());
        drop(shown);
        Ok(response)
    }
}

/// Returns the time of a response, in seconds since 1970.
fn date(headers: &HeaderMap) -> Option<i64> {
    // `Sun, 06 Nov 1994 08:49:37 GMT` is also a valid mail date.
    let date = headers.get(DATE)?.to_str().ok()?;
    let date = OffsetDateTime::parse(date, &Rfc2822).ok()?;
    Some(date.unix_timestamp())
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

fn authorization(token: &SecretString) -> Result<HeaderValue, CredentialProblem> {
    let token = token.expose_secret().trim();
    if token.is_empty() {
        return Err(CredentialProblem::Token);
    }
    let mut value =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| CredentialProblem::Token)?;
    // Printed as `Sensitive`.
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_a_head_is_read_and_nonsense_is_none() {
        let read = |text: &'static str| {
            let date = HeaderValue::from_static(text);
            super::date(&HeaderMap::from_iter([(DATE, date)]))
        };
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        for nonsense in ["", "now", "06 Nov 1994", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_header_with_the_token_prints_nothing_of_it() {
        let header = authorization(&" hunter2\n".to_owned().into()).unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer hunter2");
        assert!(!format!("{header:?}").contains("hunter2"));
    }
}
