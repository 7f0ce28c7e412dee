// SPDX-License-Identifier: Apache-2.0
//! A small client of the Kubernetes API with which the players of the lab act as administrators.
//!
//! It speaks untyped JSON and knows nothing of the agent's own client, so that a fault of that one cannot hide itself here.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Endpoint;

pub mod paths;
mod watch;

pub use watch::{Watch, WatchEvent};

/// Objects per page of a list; small enough that the lab's lists are really paged now and then.
const PAGE: usize = 250;

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

struct Shared {
    authority: String,
    user_agent: String,
    token: Option<String>,
    tls: TlsConnector,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("authority", &self.authority)
            .field("user_agent", &self.user_agent)
            .finish_non_exhaustive()
    }
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
        let chain = CertificateDer::pem_slice_iter(endpoint.admin.certificate_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("the administrator's certificate is PEM");
        let key = PrivateKeyDer::from_pem_slice(endpoint.admin.key_pem.as_bytes())
            .expect("the administrator's key is PEM");
        let tls = tls_builder(&endpoint.authority_pem)
            .with_client_auth_cert(chain, key)
            .expect("the administrator's key fits the certificate");
        Self::build(endpoint, user_agent, None, tls)
    }

    /// A client with a bearer token instead of the administrator's certificate.
    #[must_use]
    pub fn with_token(endpoint: &Endpoint, user_agent: &str, token: &str) -> Self {
        let tls = tls_builder(&endpoint.authority_pem).with_no_client_auth();
        Self::build(endpoint, user_agent, Some(token.to_owned()), tls)
    }

    /// The same endpoint as another user with a client certificate.
    #[must_use]
    pub fn with_identity(
        endpoint: &Endpoint,
        user_agent: &str,
        identity: &crate::pki::Identity,
    ) -> Self {
        let endpoint = Endpoint {
            admin: identity.clone(),
            ..endpoint.clone()
        };
        Self::named(&endpoint, user_agent)
    }

    fn build(
        endpoint: &Endpoint,
        user_agent: &str,
        token: Option<String>,
        tls: rustls::ClientConfig,
    ) -> Self {
        let authority = endpoint
            .url
            .strip_prefix("https://")
            .expect("an endpoint is https")
            .trim_end_matches('/')
            .to_owned();
        Self {
            shared: Arc::new(Shared {
                authority,
                user_agent: user_agent.to_owned(),
                token,
                tls: TlsConnector::from(Arc::new(tls)),
                idle: Mutex::new(Vec::new()),
            }),
        }
    }

    /// Forgets the connections that are idle: the next request opens one. For when a test made them half-open.
    ///
    /// # Panics
    /// When another user of them panicked.
    pub fn hang_up(&self) {
        self.shared.idle.lock().unwrap().clear();
    }

    /// Reads one object.
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.request(Method::GET, path, JSON, None).await
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
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let page = with_query(path, &format!("limit={PAGE}{next}"));
            let mut list = self.get(&page).await?;
            if let Value::Array(page) = list["items"].take() {
                items.extend(page);
            }
            match list["metadata"]["continue"].as_str() {
                None | Some("") => return Ok(items),
                Some(token) => next = format!("&continue={}", percent_encode(token)),
            }
        }
    }

    /// Creates an object in a collection and answers it as stored.
    pub async fn create(&self, collection: &str, object: &Value) -> Result<Value, ApiError> {
        self.request(Method::POST, collection, JSON, Some(object))
            .await
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
        self.request(Method::PUT, path, JSON, Some(object)).await
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
        self.request(Method::PATCH, path, MERGE, Some(patch)).await
    }

    /// JSON merge patch of the status subresource.
    pub async fn merge_patch_status(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        self.merge_patch(&format!("{path}/status"), patch).await
    }

    /// Strategic merge patch.
    pub async fn strategic_patch(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        self.request(Method::PATCH, path, STRATEGIC, Some(patch))
            .await
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
        let path = with_query(path, "gracePeriodSeconds=0");
        self.request(Method::DELETE, &path, JSON, None)
            .await
            .map(drop)
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
        let mut query = "watch=true&allowWatchBookmarks=true".to_owned();
        if !resource_version.is_empty() {
            query.push_str("&resourceVersion=");
            query.push_str(resource_version);
        }
        // A connection of its own: a watch occupies it to its end.
        let request = self.build_request(Method::GET, &with_query(path, &query), JSON, None);
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await.map_err(transport)?;
        if !response.status().is_success() {
            let code = response.status().as_u16();
            let body = read_body(response).await?;
            return Err(ApiError::from_status(code, &body));
        }
        Ok(Watch {
            body: response.into_body(),
            buffer: Vec::new(),
            _sender: sender,
        })
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let body = body.map(|value| Bytes::from(value.to_string()));
        let (mut sender, reused) = match self.take_idle().await {
            Some(sender) => (sender, true),
            None => (self.connect().await?, false),
        };
        let request = self.build_request(method.clone(), path, content_type, body.clone());
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            // The server closed the idle connection and the request never left.
            Err(error) if reused && error.message().is_some() => {
                sender = self.connect().await?;
                let request = self.build_request(method, path, content_type, body);
                sender.send_request(request).await.map_err(transport)?
            }
            Err(error) => return Err(transport(error.into_error())),
        };
        let code = response.status().as_u16();
        let success = response.status().is_success();
        let body = read_body(response).await?;
        self.put_idle(sender);
        if !success {
            return Err(ApiError::from_status(code, &body));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Transport(format!("the answer is not JSON: {error}")))
    }

    fn build_request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<Bytes>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.shared.authority)
            .header("user-agent", &self.shared.user_agent)
            .header("accept", JSON);
        if let Some(token) = &self.shared.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header("content-type", content_type);
        }
        request
            .body(Full::new(body.unwrap_or_default()))
            .expect("the lab builds valid requests")
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ApiError> {
        let authority = &self.shared.authority;
        let host = authority
            .rsplit_once(':')
            .map_or(authority.as_str(), |(host, _)| host)
            .trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| ApiError::Transport(error.to_string()))?;
        let stream = TcpStream::connect(authority).await.map_err(transport)?;
        stream.set_nodelay(true).map_err(transport)?;
        let stream = self
            .shared
            .tls
            .connect(name, stream)
            .await
            .map_err(transport)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(transport)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        loop {
            let mut sender = self.shared.idle.lock().unwrap().pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    fn put_idle(&self, sender: SendRequest<Full<Bytes>>) {
        if !sender.is_closed() {
            self.shared.idle.lock().unwrap().push(sender);
        }
    }
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

async fn read_body(response: Response<Incoming>) -> Result<Bytes, ApiError> {
    Ok(response
        .into_body()
        .collect()
        .await
        .map_err(transport)?
        .to_bytes())
}

fn transport(error: impl std::error::Error) -> ApiError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    ApiError::Transport(text)
}

fn with_query(path: &str, query: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{query}")
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
