// SPDX-License-Identifier: Apache-2.0
//! A small client of the Kubernetes API with which the players of the lab act as administrators.
//!
//! It speaks untyped JSON and has no line of the agent's own client, so that a fault of that one cannot hide itself here.

use std::sync::{Arc, Mutex};

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, Url};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::Endpoint;

pub mod paths;
mod watch;

pub use watch::{Watch, WatchEvent};

/// How often an update is tried when another writer is faster; more than this is a fight, which a test wants to see.
const UPDATE_ATTEMPTS: usize = 20;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Why a request had no success.
#[derive(Debug, Clone)]
pub enum ApiError {
    /// The server answered with a `metav1.Status` (or with something else and this code).
    Status {
        /// HTTP status, or the code inside a watch's `ERROR` event.
        code: u16,
        /// For example `NotFound`, `Conflict`, `Forbidden`; empty when the answer was no `Status`.
        reason: String,
        /// The server's text.
        message: String,
    },
    /// No answer.
    Transport(String),
}

impl ApiError {
    /// The HTTP status, when there was an answer.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            Self::Transport(_) => None,
        }
    }

    fn from_status(code: u16, body: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let message = if value["message"].is_string() {
            text("message")
        } else {
            String::from_utf8_lossy(body).into_owned()
        };
        Self::Status {
            code,
            reason: text("reason"),
            message,
        }
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status {
                code,
                reason,
                message,
            } => write!(f, "{code} {reason}: {message}"),
            Self::Transport(what) => write!(f, "no answer: {what}"),
        }
    }
}

impl std::error::Error for ApiError {}

/// The client. Clones share their idle connections; a value belongs to the runtime that it was first used on.
#[derive(Debug, Clone)]
pub struct Admin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    url: String,
    headers: HeaderMap,
    tls: rustls::ClientConfig,
    client: Mutex<Client>,
}

impl Admin {
    /// The administrator of `endpoint`.
    #[must_use]
    pub fn new(endpoint: &Endpoint) -> Self {
        Self::named(endpoint, "lab-admin")
    }

    /// The administrator of `endpoint` under another name: the first word of the User-Agent is the field manager.
    #[must_use]
    pub fn named(endpoint: &Endpoint, user_agent: &str) -> Self {
        Self::with_identity(endpoint, user_agent, &endpoint.admin)
    }

    /// A client with a bearer token instead of the administrator's certificate.
    #[must_use]
    pub fn with_token(endpoint: &Endpoint, user_agent: &str, token: &str) -> Self {
        let tls = tls_builder(&endpoint.authority_pem).with_no_client_auth();
        Self::build(endpoint, user_agent, Some(token), tls)
    }

    /// A client without a credential.
    #[cfg(test)]
    pub(crate) fn anonymous(endpoint: &Endpoint) -> Self {
        let tls = tls_builder(&endpoint.authority_pem).with_no_client_auth();
        Self::build(endpoint, "anonymous", None, tls)
    }

    /// The same endpoint as another user with a client certificate.
    #[must_use]
    pub fn with_identity(
        endpoint: &Endpoint,
        user_agent: &str,
        identity: &crate::pki::Identity,
    ) -> Self {
        let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("an identity's certificate is PEM");
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
            .expect("an identity's key is PEM");
        let tls = tls_builder(&endpoint.authority_pem)
            .with_client_auth_cert(chain, key)
            .expect("an identity's key fits the certificate");
        Self::build(endpoint, user_agent, None, tls)
    }

    fn build(
        endpoint: &Endpoint,
        user_agent: &str,
        token: Option<&str>,
        tls: rustls::ClientConfig,
    ) -> Self {
        let value = |text: &str| HeaderValue::from_str(text).expect("the lab's headers are text");
        let mut headers = HeaderMap::from_iter([(USER_AGENT, value(user_agent))]);
        headers.extend(token.map(|token| (AUTHORIZATION, value(&format!("Bearer {token}")))));
        Self {
            shared: Arc::new(Shared {
                url: endpoint.url.clone(),
                client: Mutex::new(client(&tls, &headers)),
                headers,
                tls,
            }),
        }
    }

    /// Forgets the connections that are idle: the next request opens one. For when a test made them half-open.
    pub fn hang_up(&self) {
        let Shared { tls, headers, .. } = self.shared.as_ref();
        *self.shared.client.lock().expect("no holder panics") = client(tls, headers);
    }

    /// Reads one object.
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.request(Method::GET, self.url(path, &[]), None).await
    }

    /// Reads one object that may not exist.
    pub async fn find(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(ApiError::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all objects of a collection; `path` may carry a query.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        match self.get(path).await?["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Creates an object in a collection and answers it as stored.
    pub async fn create(&self, collection: &str, object: &Value) -> Result<Value, ApiError> {
        let url = self.url(collection, &[]);
        self.request(Method::POST, url, Some((JSON, object))).await
    }

    /// Creates an object unless one of that name is there.
    pub async fn create_if_absent(&self, collection: &str, object: &Value) -> Result<(), ApiError> {
        match self.create(collection, object).await {
            Ok(_) | Err(ApiError::Status { code: 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Replaces an object; a `resourceVersion` in it makes it conditional.
    pub async fn replace(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        let url = self.url(path, &[]);
        self.request(Method::PUT, url, Some((JSON, object))).await
    }

    /// Reads, changes and replaces an object, again when another writer was faster.
    pub async fn update(
        &self,
        path: &str,
        mut change: impl FnMut(&mut Value),
    ) -> Result<Value, ApiError> {
        let mut attempts = 0;
        loop {
            let mut object = self.get(path).await?;
            change(&mut object);
            attempts += 1;
            match self.replace(path, &object).await {
                Err(ApiError::Status { code: 409, .. }) if attempts < UPDATE_ATTEMPTS => {}
                result => return result,
            }
        }
    }

    /// JSON merge patch.
    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        self.patch(path, MERGE, patch).await
    }

    /// JSON merge patch of the status subresource.
    pub async fn merge_patch_status(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        self.merge_patch(&format!("{path}/status"), patch).await
    }

    /// Strategic merge patch.
    pub async fn strategic_patch(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        self.patch(path, STRATEGIC, patch).await
    }

    /// Strategic merge patch of the status subresource.
    pub async fn strategic_patch_status(
        &self,
        path: &str,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        self.strategic_patch(&format!("{path}/status"), patch).await
    }

    /// Deletes an object at once, with no grace period.
    pub async fn delete(&self, path: &str) -> Result<(), ApiError> {
        let url = self.url(path, &[("gracePeriodSeconds", "0")]);
        self.request(Method::DELETE, url, None).await.map(drop)
    }

    /// Deletes an object that may not exist.
    pub async fn delete_if_present(&self, path: &str) -> Result<(), ApiError> {
        match self.delete(path).await {
            Err(ApiError::Status { code: 404, .. }) => Ok(()),
            result => result,
        }
    }

    /// Watches a collection from `resource_version` (empty: from now, with the present objects first).
    ///
    /// `path` may carry a query, for example a field selector.
    pub async fn watch(&self, path: &str, resource_version: &str) -> Result<Watch, ApiError> {
        let from_now = [("watch", "true"), ("allowWatchBookmarks", "true")];
        let from = [("resourceVersion", resource_version)];
        let query = match resource_version {
            "" => from_now.to_vec(),
            _ => [&from_now[..], &from].concat(),
        };
        let request = self.client().get(self.url(path, &query));
        let response = request.send().await.map_err(transport)?;
        if !response.status().is_success() {
            return Err(failure(response).await);
        }
        Ok(Watch {
            response,
            buffer: Vec::new(),
        })
    }

    /// Sends a body of a media type, or else accepts that media type.
    #[cfg(test)]
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &'static str,
    ) -> Response {
        let request = self
            .client()
            .request(method.parse().unwrap(), self.url(path, &[]));
        let request = match body {
            "" => request.header(reqwest::header::ACCEPT, media),
            body => request.header(CONTENT_TYPE, media).body(body),
        };
        request.send().await.unwrap()
    }

    async fn patch(&self, path: &str, media: &str, patch: &Value) -> Result<Value, ApiError> {
        let url = self.url(path, &[]);
        self.request(Method::PATCH, url, Some((media, patch))).await
    }

    async fn request(
        &self,
        method: Method,
        url: Url,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, ApiError> {
        let mut request = self.client().request(method, url);
        if let Some((media, body)) = body {
            request = request.header(CONTENT_TYPE, media).body(body.to_string());
        }
        let response = request.send().await.map_err(transport)?;
        if !response.status().is_success() {
            return Err(failure(response).await);
        }
        let body = response.bytes().await.map_err(transport)?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Transport(format!("the answer is not JSON: {error}")))
    }

    fn client(&self) -> Client {
        let client = self.shared.client.lock();
        client.expect("no holder panics").clone()
    }

    /// The address of a path, which may carry a query, with this query after it.
    fn url(&self, path: &str, query: &[(&str, &str)]) -> Url {
        let mut url =
            Url::parse(&format!("{}{path}", self.shared.url)).expect("an endpoint is https");
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

fn client(tls: &rustls::ClientConfig, headers: &HeaderMap) -> Client {
    Client::builder()
        .tls_backend_preconfigured(tls.clone())
        .default_headers(headers.clone())
        .no_proxy()
        .redirect(Policy::none())
        .build()
        .expect("all of its parts are given")
}

fn tls_builder(
    authority_pem: &str,
) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority_pem.as_bytes()) {
        roots
            .add(certificate.expect("the authority is PEM"))
            .expect("the authority is a certificate");
    }
    // Named and not the process's default: tests of the agent may install another one.
    rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
}

async fn failure(response: Response) -> ApiError {
    let code = response.status().as_u16();
    match response.bytes().await {
        Ok(body) => ApiError::from_status(code, &body),
        Err(error) => transport(error),
    }
}

fn transport(error: reqwest::Error) -> ApiError {
    use std::error::Error as _;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    ApiError::Transport(text)
}
