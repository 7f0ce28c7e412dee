// SPDX-License-Identifier: Apache-2.0
//! The errors of a request to an API server, classified by how to handle them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::tls::TlsReason;
use crate::sys::escape::chain;

/// The verb, path and server of a request. Contains no secret: the server has no user information and the path no query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTarget {
    /// The API server.
    pub server: String,
    /// The Kubernetes verb: `get`, `list`, `watch`, `patch`, `create`.
    pub verb: &'static str,
    /// The path below the server.
    pub path: String,
}

impl RequestTarget {
    pub(super) fn timeout(self: &Arc<Self>, phase: RequestPhase, limit: Duration) -> Error {
        let target = Arc::clone(self);
        Error::Timeout {
            target,
            phase,
            limit,
        }
    }

    pub(super) fn too_large(self: &Arc<Self>, what: &'static str, limit: usize) -> Error {
        let target = Arc::clone(self);
        Error::TooLarge {
            target,
            what,
            limit,
        }
    }

    pub(super) fn protocol(self: &Arc<Self>, problem: impl Into<String>) -> Error {
        Error::Protocol {
            target: Arc::clone(self),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "failed to {} `{}` at {}",
            self.verb, self.path, self.server
        )
    }
}

/// The reason why a request or a watch failed. Untrusted text in it is escaped and truncated; it never contains a bearer token.
#[derive(Debug, thiserror::Error)]
#[expect(
    clippy::error_impl_error,
    reason = "the one error of this module, read as `kubeapi::Error`"
)]
pub enum Error {
    /// The credential cannot be used to create a client.
    #[error("the credential for {server} is not usable")]
    Credential {
        /// The API server.
        server: String,
        /// The problem of the credential.
        #[source]
        problem: CredentialProblem,
    },
    /// The connection failed.
    #[error("{target}: {reason}")]
    Connect {
        /// The request.
        target: Arc<RequestTarget>,
        /// The step that failed.
        reason: Unreached,
        /// The cause, if `reason` does not explain everything.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The request timed out.
    #[error("{target}: {phase} timed out after {limit:?}")]
    Timeout {
        /// The request.
        target: Arc<RequestTarget>,
        /// The part of the request that timed out.
        phase: RequestPhase,
        /// The time limit.
        limit: Duration,
    },
    /// The TLS handshake failed.
    #[error("{target}: {reason}")]
    Tls {
        /// The request.
        target: Arc<RequestTarget>,
        /// The reason why the handshake failed.
        reason: TlsReason,
    },
    /// 401: the server does not accept the credential.
    #[error("{target}: unauthorized (401){}", ServerMessage(.message))]
    Unauthorized {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
    },
    /// 403 for the anonymous user: the server received no credential. An intermediary, such as a proxy that terminates TLS,
    /// removed it.
    #[error("{target}: request was treated as anonymous: the credential did not reach the server (403){}", ServerMessage(.message))]
    Anonymous {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
    },
    /// 403: the user is known and not allowed. The target has the verb and the path that a role has to allow.
    #[error("{target}: forbidden (403){}", ServerMessage(.message))]
    Forbidden {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
    },
    /// 403: a kubelet may read only its own Node, and requested another one. Kubernetes before 1.32 returns 404 or the other 403.
    #[error("{target}: the credential is for Node `{own}` (403)")]
    OtherNode {
        /// The request.
        target: Arc<RequestTarget>,
        /// The Node that the credential is for, escaped.
        own: String,
    },
    /// 404.
    #[error("{target}: not found (404){}", ServerMessage(.message))]
    NotFound {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
        /// Whether a Kubernetes API sent the 404. Otherwise it may come from a proxy, or from a server without the whole API
        /// group, and proves nothing about the object.
        confirmed: bool,
    },
    /// 410: the resource version is too old; read again and watch from the new version.
    #[error("{target}: the resource version is no longer available (410){}", ServerMessage(.message))]
    Gone {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
    },
    /// 409: the object changed at the same time, or already exists.
    #[error("{target}: conflict (409){}", ServerMessage(.message))]
    Conflict {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
    },
    /// 422: the resulting object is not valid.
    #[error("{target}: the change is invalid (422){}", ServerMessage(.message))]
    Invalid {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
    },
    /// A watch with bookmarks is not possible because the server's storage does not report its progress; one without bookmarks is.
    #[error("{target}: the storage of the server has no watch progress{}", ServerMessage(.message))]
    NoWatchProgress {
        /// The request.
        target: Arc<RequestTarget>,
        /// The message of the server.
        message: Option<String>,
    },
    /// 429 and 5xx: the request may succeed later.
    #[error("{target}: the server is currently unable to handle the request ({status}){}", ServerMessage(.message))]
    Retry {
        /// The request.
        target: Arc<RequestTarget>,
        /// The HTTP status.
        status: u16,
        /// The time to wait that the server requested, within the bounds of `status.rs`.
        after: Option<Duration>,
        /// The message of the server.
        message: Option<String>,
    },
    /// Not sent: requests back off after a failure.
    #[error("{text}")]
    Deferred {
        /// The class of that failure.
        class: Class,
        /// The failure as one line of text.
        text: Arc<str>,
        /// The remaining time of the backoff.
        left: Duration,
    },
    /// Any other status: the same request will fail again.
    #[error("{target}: rejected with status {status}{}", ServerMessage(.message))]
    Rejected {
        /// The request.
        target: Arc<RequestTarget>,
        /// The HTTP status.
        status: u16,
        /// The message of the server.
        message: Option<String>,
    },
    /// The response exceeds a limit.
    #[error("{target}: response too large: more than {limit} {what}")]
    TooLarge {
        /// The request.
        target: Arc<RequestTarget>,
        /// The unit of the limit.
        what: &'static str,
        /// The limit, in the unit of `what`: bytes, items or pages.
        limit: usize,
    },
    /// 3xx: redirects are never followed, since they would send the token to another server.
    #[error("{target}: redirected ({status}) to `{to}`; redirects are not followed")]
    Redirected {
        /// The request.
        target: Arc<RequestTarget>,
        /// The HTTP status.
        status: u16,
        /// The target of the redirect, escaped.
        to: String,
    },
    /// Compressed, although not requested.
    #[error(
        "{target}: the response has the content encoding `{encoding}`, which was not requested"
    )]
    Compressed {
        /// The request.
        target: Arc<RequestTarget>,
        /// The encoding, escaped.
        encoding: String,
    },
    /// Nested deeper than any Kubernetes object.
    #[error("{target}: the response nests deeper than {limit} levels")]
    TooDeep {
        /// The request.
        target: Arc<RequestTarget>,
        /// The limit.
        limit: usize,
    },
    /// An object other than the one that the request names.
    #[error("{target}: requested {expected}, got {found}")]
    UnexpectedObject {
        /// The request.
        target: Arc<RequestTarget>,
        /// The object that the request names.
        expected: String,
        /// The received object, escaped.
        found: String,
    },
    /// The response does not follow the Kubernetes API.
    #[error("{target}: {problem}")]
    Protocol {
        /// The request.
        target: Arc<RequestTarget>,
        /// The problem, escaped.
        problem: String,
    },
    /// A watch on which nothing was received, not even a bookmark.
    #[error("{target}: no data received for {limit:?}")]
    Silent {
        /// The request.
        target: Arc<RequestTarget>,
        /// The time limit.
        limit: Duration,
    },
    /// The connection broke in the middle of a response or of an event.
    #[error("{target}: connection interrupted")]
    Interrupted {
        /// The request.
        target: Arc<RequestTarget>,
        /// The cause; none when the stream ended normally but within a line.
        #[source]
        source: Option<reqwest::Error>,
    },
}

impl Error {
    /// Returns the class, which defines how to handle the error.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Retry { .. }
            | Self::Silent { .. }
            | Self::Interrupted { .. } => Class::Retry,
            // A server that rejects our certificate does not have a problem with its own.
            Self::Tls {
                reason: TlsReason::ClientCertificateRejected { .. },
                ..
            }
            | Self::Credential { .. }
            | Self::Unauthorized { .. }
            | Self::Anonymous { .. } => Class::Credential,
            Self::Deferred { class, .. } => *class,
            Self::Forbidden { .. } | Self::OtherNode { .. } => Class::Forbidden,
            Self::NotFound { .. } => Class::NotFound,
            Self::Gone { .. } => Class::Gone,
            Self::Conflict { .. } | Self::Invalid { .. } => Class::Conflict,
            Self::Tls { .. } => Class::Tls,
            Self::UnexpectedObject { .. } => Class::UnexpectedObject,
            Self::Rejected { .. }
            | Self::NoWatchProgress { .. }
            | Self::TooLarge { .. }
            | Self::Redirected { .. }
            | Self::Compressed { .. }
            | Self::TooDeep { .. }
            | Self::Protocol { .. } => Class::Refused,
        }
    }

    /// Reports whether the object certainly does not exist: the 404 is from a Kubernetes API, not from a proxy or a server without
    /// the API group.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NotFound {
                confirmed: true,
                ..
            }
        )
    }

    /// Reports whether requests to the API must back off. An API that decided on a request works, whatever the decision was.
    #[must_use]
    pub fn is_failure_of_api(&self) -> bool {
        match self.class() {
            Class::Retry | Class::Credential | Class::Tls => true,
            // There is an alternative to a list that is too large, and to a watch with bookmarks.
            Class::Refused => !matches!(self, Self::TooLarge { .. } | Self::NoWatchProgress { .. }),
            Class::Forbidden
            | Class::NotFound
            | Class::Gone
            | Class::Conflict
            | Class::UnexpectedObject => false,
        }
    }

    /// Reports whether any other request to the API server would fail too.
    #[must_use]
    pub fn is_of_whole_api(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Tls { .. } => true,
            // No request was sent.
            Self::Deferred { .. } => false,
            Self::Timeout { phase, .. } => *phase == RequestPhase::Connect,
            Self::Retry { status, .. } => matches!(status, 429 | 503),
            _ => self.class() == Class::Credential,
        }
    }

    /// Returns the error for requests that are not sent for `left` because of this failure.
    #[must_use]
    pub fn deferral(&self, left: Duration) -> Self {
        Self::Deferred {
            class: self.class(),
            text: chain(self).into(),
            left,
        }
    }

    /// Reports whether a watch must not be opened from the same resource version again. kube-apiserver rejects a version that is
    /// too old with 410, one that it cannot parse with 400, and one that it has not reached with 504 "Too large
    /// resource version", as after a restore of etcd. 429 and 503 are unrelated to the version.
    #[must_use]
    pub fn is_of_version(&self) -> bool {
        match self {
            Self::Retry { status, .. } => !matches!(status, 429 | 503),
            Self::Deferred { .. } | Self::NoWatchProgress { .. } => false,
            _ => matches!(self.class(), Class::Gone | Class::Refused | Class::Conflict),
        }
    }

    /// Returns the time to wait before the next try that the server requested.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Retry { after, .. } => *after,
            Self::Deferred { left, .. } => Some(*left),
            _ => None,
        }
    }
}

/// The way to handle an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Retry with increasing delays.
    Retry,
    /// Read the credential's files again.
    Credential,
    /// Continue without the object, and report which role is missing.
    Forbidden,
    /// The object does not exist; see [`Error::NotFound`] for how certain that is.
    NotFound,
    /// Read again, then watch from the new version.
    Gone,
    /// Read again, then decide again.
    Conflict,
    /// Report it: the server does not behave like a Kubernetes API.
    Refused,
    /// Report it: the TLS handshake failed.
    Tls,
    /// Report it: a proxy or a cache mixes up responses.
    UnexpectedObject,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 9] = [
        Self::Retry,
        Self::Credential,
        Self::Forbidden,
        Self::NotFound,
        Self::Gone,
        Self::Conflict,
        Self::Refused,
        Self::Tls,
        Self::UnexpectedObject,
    ];

    /// Returns the name used in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "unreachable",
            Self::Credential => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not-found",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Refused => "invalid",
            Self::Tls => "tls",
            Self::UnexpectedObject => "unexpected-object",
        }
    }

    /// Reports whether the same request may succeed later without a change to a credential, a role or a server.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Retry | Self::Gone | Self::Conflict)
    }
}

/// The step at which a connection to a server failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreached {
    /// The name cannot be resolved.
    Name,
    /// There is no route to the address.
    Route,
    /// The host responds, but nothing listens on the port.
    Port,
    /// Any other step.
    Other,
}

impl fmt::Display for Unreached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Name => "cannot resolve the server name (DNS)",
            Self::Route => "no route to host",
            Self::Port => "connection refused",
            Self::Other => "connection failed",
        })
    }
}

/// The part of a request that timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPhase {
    /// Waiting for another watch of the same client to be dropped.
    Turn,
    /// Name resolution, TCP and TLS.
    Connect,
    /// From the request to the last line of the response head.
    Headers,
    /// Between two chunks of the body.
    BodyProgress,
    /// The whole body.
    Body,
}

impl fmt::Display for RequestPhase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Turn => "waiting for the previous watch to close",
            Self::Connect => "connecting",
            Self::Headers => "reading the response headers",
            Self::BodyProgress => "reading the next part of the response",
            Self::Body => "reading the response",
        })
    }
}

/// The reason why a credential cannot be used to create a client.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProblem {
    /// The URL is neither `https` nor `http`.
    #[error("the server URL is neither https nor http, or has no host")]
    Server,
    /// No CA certificate to verify the server with.
    #[error("it has no readable CA certificate")]
    NoAuthority,
    /// The private key belongs to another certificate.
    #[error("the client certificate and the client key do not match")]
    KeyMismatch,
    /// The client certificate or its key cannot be read.
    #[error("the client certificate or its key cannot be read")]
    ClientCertificate {
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// Characters that are invalid in an HTTP header.
    #[error("the token is empty or has characters that are invalid in an HTTP header")]
    Token,
    /// Neither a DNS name nor an IP address.
    #[error("tls-server-name is neither a DNS name nor an IP address")]
    TlsServerName,
    /// Only HTTP proxies are supported.
    #[error("the proxy URL is neither https nor http, or has no host")]
    Proxy,
    /// The TLS library rejected its parameters.
    #[error("failed to set up TLS")]
    Tls {
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The HTTP library rejected its parameters.
    #[error("failed to set up HTTP")]
    Http {
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
}

/// The server's message, if there is one.
struct ServerMessage<'a>(&'a Option<String>);

impl fmt::Display for ServerMessage<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Each is said before it.
            Some(message)
                if ["unauthorized", "forbidden"]
                    .iter()
                    .any(|word| message.eq_ignore_ascii_case(word)) =>
            {
                Ok(())
            }
            Some(message) => write!(formatter, ": {message}"),
            None => Ok(()),
        }
    }
}
