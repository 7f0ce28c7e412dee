// SPDX-License-Identifier: Apache-2.0
//! The connections to one API server: how they are opened, whose turn it is, the headers of each request, and how each one ended.

use std::collections::BTreeMap;
use std::fmt::Display;
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

use super::error::{Error, Kind, Target};
use super::object::ObjectPath;
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

/// One request.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// The Kubernetes verb, for messages.
    pub(super) verb: &'static str,
    pub(super) method: Method,
    pub(super) path: &'a ObjectPath,
    pub(super) query: Vec<(&'static str, String)>,
    /// The media type of the response.
    pub(super) accept: &'static str,
    /// The media type of the body, and the body.
    pub(super) body: Option<(&'static str, &'a serde_json::Value)>,
}

impl<'a> Call<'a> {
    /// Returns a request that reads.
    pub(super) fn read(verb: &'static str, path: &'a ObjectPath, accept: &'static str) -> Self {
        Self {
            verb,
            method: Method::GET,
            path,
            query: Vec::new(),
            accept,
            body: None,
        }
    }

    /// Adds a parameter, if it has a value.
    pub(super) fn with(mut self, parameter: &'static str, value: Option<impl Display>) -> Self {
        let value = value.map(|value| (parameter, value.to_string()));
        self.query.extend(value);
        self
    }
}

/// The result of a request for which we no longer waited: something else was more urgent, or took too long as a whole.
const CANCELED: &str = "canceled";
/// The result of a request whose response began with a good head.
const OK: &str = "ok";

/// The number of requests to an API server by their result, since the start of the process. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct Tally(Arc<std::sync::Mutex<BTreeMap<&'static str, u64>>>);

impl Default for Tally {
    /// Creates a counter of zero for every result: a first failure is then an increase, and not a new series that starts at one.
    fn default() -> Self {
        let kinds = Kind::ALL.iter().map(|kind| kind.as_str());
        let results = [OK, CANCELED].into_iter().chain(kinds);
        let counts = results.map(|result| (result, 0)).collect();
        Self(Arc::new(std::sync::Mutex::new(counts)))
    }
}

impl Tally {
    /// Returns the numbers.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }
}

/// A request that was sent, with its result so far. It is counted when it is dropped, so that a canceled request is counted too.
struct Counted<'a>(&'a Tally, &'static str);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let Self(Tally(counts), result) = self;
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(result).or_default() += 1;
    }
}

/// The connections to one API server, and the headers of each request.
pub(super) struct Transport {
    http: reqwest::Client,
    /// The server for messages: no user information, query or fragment.
    pub(super) server: String,
    base: Url,
    pub(super) shown: Arc<std::sync::Mutex<ServerShown>>,
    authorization: Option<HeaderValue>,
    /// Kept to remove it from untrusted text.
    pub(super) token: Option<SecretString>,
    pub(super) timeouts: Timeouts,
    tally: Tally,
    pub(super) backoff: Backoff,
    /// The failure for which requests back off.
    failure: std::sync::Mutex<Option<Error>>,
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
            Err(error) if error.is_failure_of_api() => {
                self.transport.backoff.failed(self.sent, error.retry_after);
                *self.transport.last_failure() = Some(error.clone());
            }
            // Nothing was sent.
            Err(error) if error.is_deferred => {}
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
        let base = public_form(&credential.server);
        let unusable = |problem: String| {
            let text = format!("the credential for {base} is not usable: {problem}");
            Error::new(Kind::Credential, text)
        };
        let shown = Arc::default();
        let http = connections(credential, timeouts, &shown).map_err(unusable)?;
        let authorization = credential.token.as_ref().map(authorization);
        Ok(Self {
            http,
            server: base.as_str().trim_end_matches('/').to_owned(),
            shown,
            authorization: authorization.transpose().map_err(unusable)?,
            base,
            token: credential.token.clone(),
            timeouts,
            tally,
            backoff,
            failure: std::sync::Mutex::default(),
            requesting: Mutex::new(()),
            watching: Arc::new(Semaphore::new(WATCHES)),
            #[cfg(test)]
            simulated: super::testing::wire_to(credential),
        })
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
        let failure = self.last_failure().clone().unwrap_or_else(|| {
            let server = &self.server;
            let text = format!("no request to {server} yet: backing off after an error");
            Error::new(Kind::Failed, text)
        });
        Err(failure.deferral(left))
    }

    fn last_failure(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the permit to hold a watch. Times out while the earlier watches are held, since that wait would have no limit.
    pub(super) async fn watch_turn(&self, target: &Target) -> Result<OwnedSemaphorePermit, Error> {
        let limit = self.timeouts.connect;
        let turn = timeout(limit, Arc::clone(&self.watching).acquire_owned()).await;
        let late = || target.timed_out("waiting for the previous watch to close", limit);
        let turn = turn.ok().and_then(Result::ok);
        turn.ok_or_else(|| late().deferral(limit))
    }

    pub(super) fn target(&self, verb: &str, path: &ObjectPath) -> Target {
        Target::new(verb, &path.to_string(), &self.server)
    }

    /// Sends the request and reads the head of the response, which is a success, in JSON, and not compressed.
    pub(super) async fn send(&self, call: &Call<'_>, target: &Target) -> Result<Response, Error> {
        let mut counted = Counted(&self.tally, CANCELED);
        let outcome = async { self.check(self.answer(call, target).await?, target).await };
        let outcome = outcome.await;
        counted.1 = outcome
            .as_ref()
            .map_or_else(|error| error.kind.as_str(), |_| OK);
        outcome
    }

    /// Sends the request and reads the head of the response, whatever its status.
    async fn answer(&self, call: &Call<'_>, target: &Target) -> Result<Response, Error> {
        #[cfg(test)]
        if let Some(wire) = &self.simulated {
            return wire.ask(call, self.timeouts, target).await;
        }
        let url = request_url(&self.base, call.path, &call.query);
        let request = self.http.request(call.method.clone(), url);
        let mut request = request.header(ACCEPT, call.accept);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some((content_type, body)) = call.body {
            request = request
                .header(CONTENT_TYPE, content_type)
                .body(body.to_string());
        }
        // The HTTP library limits the time to connect within it.
        let limit = self.timeouts.headers;
        let late = |_| target.timed_out("reading the response headers", limit);
        let sent = timeout(limit, request.send()).await.map_err(late)?;
        let response = sent.map_err(|source| self.failure(source, target))?;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now = OffsetDateTime::now_utc().unix_timestamp();
        shown.ahead = date(response.headers()).map(|date| date - now);
        drop(shown);
        Ok(response)
    }
}

/// Returns a pool of connections for a credential, or what is wrong with the credential, as one safe line.
fn connections(
    credential: &Credential,
    timeouts: Timeouts,
    shown: &Arc<std::sync::Mutex<ServerShown>>,
) -> Result<reqwest::Client, String> {
    #[cfg(test)]
    if let Some(unused) = super::testing::unused_http() {
        return Ok(unused);
    }
    if !is_http(&credential.server) {
        return Err("the server URL is neither https nor http, or has no host".to_owned());
    }
    let setup =
        |error: reqwest::Error| format!("failed to set up HTTP: {}", chain(&error.without_url()));
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls::configure(credential, shown)?)
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
            return Err("the proxy URL is neither https nor http, or has no host".to_owned());
        }
        builder = builder.proxy(Proxy::all(proxy.clone()).map_err(setup)?);
    }
    builder.build().map_err(setup)
}

fn authorization(token: &SecretString) -> Result<HeaderValue, String> {
    let token = token.expose_secret().trim();
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let Some(mut value) = value.ok().filter(|_| !token.is_empty()) else {
        let problem = "the token is empty or has characters that are invalid in an HTTP header";
        return Err(problem.to_owned());
    };
    // Printed as `Sensitive`.
    value.set_sensitive(true);
    Ok(value)
}

/// Reports whether a URL is of a web server. A kubeconfig with `http` is refused before; only servers in tests have no TLS.
fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "https" | "http") && url.has_host()
}

/// Returns the URL without anything that may be secret. User information would also become a separate header.
fn public_form(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs that cannot have user information.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Builds the URL of a request. The server's own path stays in front: the proxy of Rancher is at `/k8s/clusters/ID`.
fn request_url(base: &Url, path: &ObjectPath, query: &[(&'static str, String)]) -> Url {
    let mut url = base.clone();
    let prefix = base.path().trim_end_matches('/');
    url.set_path(&format!("{prefix}{path}"));
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// Returns the time of a response, in seconds since 1970.
fn date(headers: &HeaderMap) -> Option<i64> {
    // `Sun, 06 Nov 1994 08:49:37 GMT` is also a valid mail date.
    let date = headers.get(DATE)?.to_str().ok()?;
    let date = OffsetDateTime::parse(date, &Rfc2822).ok()?;
    Some(date.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::kubeapi::object::NODES;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_path_prefix_of_the_server_is_kept() {
        for server in [
            "https://r.example/k8s/clusters/local",
            "https://r.example/k8s/clusters/local/",
            "https://r.example/k8s/clusters/local//",
        ] {
            let query = [("limit", "5".to_owned())];
            let requested = request_url(&url(server), &NODES.named("n"), &query);
            assert_eq!(
                requested.as_str(),
                "https://r.example/k8s/clusters/local/api/v1/nodes/n?limit=5"
            );
        }
        let requested = request_url(&url("https://10.0.0.1:6443"), &NODES, &[]);
        assert_eq!(requested.as_str(), "https://10.0.0.1:6443/api/v1/nodes");
    }

    #[test]
    fn a_request_that_times_out_and_one_that_is_dropped_are_counted_apart() {
        let tally = Tally::default();
        assert!(tally.counts().values().all(|count| *count == 0));
        drop(Counted(&tally.clone(), CANCELED));
        drop(Counted(&tally, OK));
        let counts = tally.counts();
        assert_eq!((counts["canceled"], counts["ok"]), (1, 1));
        assert_eq!(counts["timeout"], 0);
        assert_eq!(counts.len(), 12);
        drop(Counted(&tally, Kind::TimedOut.as_str()));
        let counts = tally.counts();
        assert_eq!((counts["timeout"], counts["unreachable"]), (1, 0));
    }

    #[test]
    fn the_public_form_of_a_url_has_no_secret() {
        let public = public_form(&url("https://user:pass@a.example:6443/x?token=t#f"));
        assert_eq!(public.as_str(), "https://a.example:6443/x");
    }

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
