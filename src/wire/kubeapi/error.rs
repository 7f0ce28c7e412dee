// SPDX-License-Identifier: Apache-2.0
//! All that can go wrong between us and an API server, distinguished by what there is to do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::tls::{TlsReason, TlsSetupError};
use crate::sys::escape::chain;

/// What was asked, of whom. Holds no secret: the server has no user information and the path no query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTarget {
    /// The API server.
    pub server: String,
    /// The Kubernetes verb: `get`, `list`, `watch`, `patch`, `create`.
    pub verb: &'static str,
    /// The path below the server.
    pub path: String,
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

/// Why a request or a watch failed. Foreign text in it is escaped and cut; a bearer token is nowhere in it.
#[derive(Debug, thiserror::Error)]
#[expect(
    clippy::error_impl_error,
    reason = "the one error of this module, read as `kubeapi::Error`"
)]
pub enum Error {
    /// No client can be made from the credential.
    #[error("the credential for {server} is not usable")]
    Credential {
        /// The API server.
        server: String,
        /// What is wrong with it.
        #[source]
        problem: CredentialProblem,
    },
    /// No connection.
    #[error("{target}: {reason}")]
    Connect {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// How far it came.
        reason: Unreached,
        /// The cause, where the reason does not say it all.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// Too slow.
    #[error("{target}: {phase} timed out after {limit:?}")]
    Timeout {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// In which part of it the time ran out.
        phase: RequestPhase,
        /// The time that was allowed.
        limit: Duration,
    },
    /// No trust between the two sides.
    #[error("{target}: {reason}")]
    Tls {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the handshake failed on.
        reason: TlsReason,
    },
    /// 401: the server does not know who we are.
    #[error("{target}: unauthorized (401){}", ServerMessage(.message))]
    Unauthorized {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
    },
    /// 403 to no one: the server saw no credential. Something in between, such as a proxy that ends TLS, took it away.
    #[error("{target}: request was treated as anonymous: the credential did not reach the server (403){}", ServerMessage(.message))]
    Anonymous {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
    },
    /// 403: it knows, and we may not. The target holds the verb and the path that a role has to allow.
    #[error("{target}: forbidden (403){}", ServerMessage(.message))]
    Forbidden {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
    },
    /// 403: a kubelet may read its own Node alone, and asked for another one. Kubernetes before 1.32 answers 404, or with the other.
    #[error("{target}: the credential is for Node `{own}` (403)")]
    OtherNode {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The Node that the credential is for, described.
        own: String,
    },
    /// 404.
    #[error("{target}: not found (404){}", ServerMessage(.message))]
    NotFound {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
        /// Whether a Kubernetes API said so. Without it the answer may be that of a proxy, or of a server that lacks the whole API group,
        /// and proves nothing about the object.
        confirmed: bool,
    },
    /// 410: the resource version is too old; read again and watch from there.
    #[error("{target}: the resource version is no longer available (410){}", ServerMessage(.message))]
    Gone {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
    },
    /// 409: the object changed under us, or exists already.
    #[error("{target}: conflict (409){}", ServerMessage(.message))]
    Conflict {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
    },
    /// 422: the object that would come out is not valid.
    #[error("{target}: the change is invalid (422){}", ServerMessage(.message))]
    Invalid {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
    },
    /// A watch with bookmarks, of a server whose storage does not tell its progress: one without them works.
    #[error("{target}: the storage of the server has no watch progress{}", ServerMessage(.message))]
    NoWatchProgress {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What the server said.
        message: Option<String>,
    },
    /// 429 and 5xx: later.
    #[error("{target}: the server asks to try again later ({status}){}", ServerMessage(.message))]
    Retry {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The HTTP status.
        status: u16,
        /// How long the server asked us to wait, within the bounds of `status.rs`.
        after: Option<Duration>,
        /// What the server said.
        message: Option<String>,
    },
    /// Not sent: the API is left alone for a while after a failure.
    #[error("{text}")]
    Deferred {
        /// The class of that failure.
        class: Class,
        /// The failure, one line for people.
        text: Arc<str>,
        /// How much longer no request is sent.
        left: Duration,
    },
    /// Any other status: the same request will not do better.
    #[error("{target}: rejected with status {status}{}", ServerMessage(.message))]
    Rejected {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The HTTP status.
        status: u16,
        /// What the server said.
        message: Option<String>,
    },
    /// More than we are willing to read.
    #[error("{target}: response too large: more than {limit} {what}")]
    TooLarge {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What is too large.
        what: &'static str,
        /// The cap, in the unit of `what`: bytes, items or pages.
        limit: usize,
    },
    /// 3xx: never followed, since the token would go along.
    #[error("{target}: redirected ({status}) to `{to}`; redirects are not followed")]
    Redirected {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The HTTP status.
        status: u16,
        /// Where to, described.
        to: String,
    },
    /// Compressed, though we did not ask for it.
    #[error(
        "{target}: the response has the content encoding `{encoding}`, which was not requested"
    )]
    Compressed {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The encoding, described.
        encoding: String,
    },
    /// Nested deeper than any Kubernetes object.
    #[error("{target}: the response nests deeper than {limit} levels")]
    TooDeep {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The cap.
        limit: usize,
    },
    /// Another object than the one that the request names.
    #[error("{target}: requested {expected}, got {found}")]
    UnexpectedObject {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The object that the request names.
        expected: String,
        /// What came, described.
        found: String,
    },
    /// Not what the Kubernetes API speaks.
    #[error("{target}: {problem}")]
    Protocol {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// What is wrong, described.
        problem: String,
    },
    /// A watch of which nothing has been heard, not even a bookmark.
    #[error("{target}: no data received for {limit:?}")]
    Silent {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The time that was allowed.
        limit: Duration,
    },
    /// The connection broke in the middle of an answer or of an event.
    #[error("{target}: connection interrupted")]
    Interrupted {
        /// What was asked.
        target: Arc<RequestTarget>,
        /// The cause; none when the stream ended in order but within a line.
        #[source]
        source: Option<reqwest::Error>,
    },
}

impl Error {
    /// What there is to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Retry { .. }
            | Self::Silent { .. }
            | Self::Interrupted { .. } => Class::Retry,
            // A server that does not take our certificate has no quarrel about its own.
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

    /// Whether there is surely no such object: a Kubernetes API said so, and not a proxy, or a server without the whole API group.
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

    /// Whether the API is to be left alone for a while. Where it decided on a request, whatever it decided, it works.
    #[must_use]
    pub fn is_failure_of_api(&self) -> bool {
        match self.class() {
            Class::Retry | Class::Credential | Class::Tls => true,
            // A list that is too large has another way, and so has a watch with bookmarks.
            Class::Refused => !matches!(self, Self::TooLarge { .. } | Self::NoWatchProgress { .. }),
            Class::Forbidden
            | Class::NotFound
            | Class::Gone
            | Class::Conflict
            | Class::UnexpectedObject => false,
        }
    }

    /// Whether nothing else can be asked of the API server either.
    #[must_use]
    pub fn is_of_whole_api(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Tls { .. } => true,
            // Nothing was asked.
            Self::Deferred { .. } => false,
            Self::Timeout { phase, .. } => *phase == RequestPhase::Connect,
            Self::Retry { status, .. } => matches!(status, 429 | 503),
            _ => self.class() == Class::Credential,
        }
    }

    /// What is said to those who would have sent a request and do not, for `left`, because of this failure.
    #[must_use]
    pub fn deferral(&self, left: Duration) -> Self {
        Self::Deferred {
            class: self.class(),
            text: chain(self).into(),
            left,
        }
    }

    /// Whether a watch should not be opened from the same resource version again. kube-apiserver refuses a version that is
    /// too old with 410, one that it does not understand with 400, and one that it has not reached with 504 "Too large
    /// resource version", as after a restore of etcd. 429 and 503 say nothing of the version.
    #[must_use]
    pub fn is_of_version(&self) -> bool {
        match self {
            Self::Retry { status, .. } => !matches!(status, 429 | 503),
            Self::Deferred { .. } | Self::NoWatchProgress { .. } => false,
            _ => matches!(self.class(), Class::Gone | Class::Refused | Class::Conflict),
        }
    }

    /// How long the server asked us to wait before the next try.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Retry { after, .. } => *after,
            Self::Deferred { left, .. } => Some(*left),
            _ => None,
        }
    }
}

/// What there is to do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Try again, later and later.
    Retry,
    /// Read the credential's files again.
    Credential,
    /// Do without, and tell which role is missing.
    Forbidden,
    /// The object is not there; see [`Error::NotFound`] for how sure that is.
    NotFound,
    /// Read again, then watch from there.
    Gone,
    /// Read again, decide again.
    Conflict,
    /// Report it: the other side does not behave like a Kubernetes API.
    Refused,
    /// Report it: there is no trust between the two sides.
    Tls,
    /// Report it: something mixes up answers.
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

    /// The name used in metrics.
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

    /// Whether the same request may well succeed a little later, with no one having changed a credential, a role or a server.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Retry | Self::Gone | Self::Conflict)
    }
}

/// How far the way to a server was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreached {
    /// Its name leads nowhere.
    Name,
    /// No network leads to its address.
    Route,
    /// Its machine answers, and nothing listens there.
    Port,
    /// Anything else.
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

/// The part of a request in which its time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPhase {
    /// Waiting for another watch of the same client to be dropped.
    Turn,
    /// Name resolution, TCP and TLS.
    Connect,
    /// From the request to the last line of the answer's head.
    Headers,
    /// Between two pieces of the body.
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

/// Why no client can be made from a credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProblem {
    /// Neither `https` nor `http`.
    #[error("the server URL is neither https nor http, or has no host")]
    Server,
    /// Nothing to verify the server with.
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
        source: TlsSetupError,
    },
    /// Characters that no HTTP header can carry.
    #[error("the token is empty or has characters that are invalid in an HTTP header")]
    Token,
    /// Neither a DNS name nor an address.
    #[error("tls-server-name is neither a DNS name nor an IP address")]
    TlsServerName,
    /// The proxy would be asked for the wrong host.
    #[error("tls-server-name cannot be used through a proxy")]
    TlsServerNameThroughProxy,
    /// Only HTTP proxies are spoken to.
    #[error("the proxy URL is neither https nor http, or has no host")]
    Proxy,
    /// The TLS library refused its parameters.
    #[error("failed to set up TLS")]
    Tls {
        /// The cause.
        #[source]
        source: TlsSetupError,
    },
    /// The HTTP library refused its parameters.
    #[error("failed to set up HTTP")]
    Http {
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
}

/// What the server said, if it said something.
struct ServerMessage<'a>(&'a Option<String>);

impl fmt::Display for ServerMessage<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(message) => write!(formatter, ": {message}"),
            None => Ok(()),
        }
    }
}
