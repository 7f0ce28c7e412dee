// SPDX-License-Identifier: Apache-2.0
//! Why a request to an API server failed: one safe line of text, and a kind that defines how to handle it.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::types::ApiStatus;
use crate::sys::escape::one_line;
use crate::sys::named::named;

/// The number of characters after which untrusted text is truncated: enough for any sentence of the API server, too little to
/// flood a journal.
const MAXIMUM_CHARACTERS: usize = 200;

/// Returns untrusted text as one line without characters that move the cursor, truncated to the maximum length.
#[must_use]
pub fn describe(foreign: &str) -> String {
    one_line(foreign.trim(), MAXIMUM_CHARACTERS).into_owned()
}

/// Returns an error and its causes.
pub(super) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // `source` of an I/O error skips the error that it wraps.
        let wrapped = error.downcast_ref().and_then(io::Error::get_ref);
        wrapped.map_or_else(|| error.source(), |inner| Some(inner))
    })
}

/// The reason why a request or a watch failed. Untrusted text in it is escaped and truncated; it never contains a bearer token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[expect(
    clippy::error_impl_error,
    reason = "the one error of this module, read as `kubeapi::Error`"
)]
pub struct Error {
    /// The way to handle it.
    pub kind: Kind,
    /// Whether no request was sent, because requests back off after an error of this kind, or because it waited for one of ours.
    pub is_deferred: bool,
    /// The time to wait before the next try: what the server requested, or the rest of the backoff.
    pub retry_after: Option<Duration>,
    text: Arc<str>,
}

named! {
    plain
    /// The way to handle an [`Error`], with its name in metrics.
    Kind {
        /// There is no connection to the server.
        Unreachable = "unreachable",
        /// 429 and 503: the server has no capacity for any request.
        Overloaded = "unreachable",
        /// 408, 425 and any other 5xx: this request failed, and may succeed later.
        Failed = "unreachable",
        /// The response did not arrive in time.
        TimedOut = "timeout",
        /// The connection broke in the middle of a response or of an event.
        Interrupted = "unreachable",
        /// A watch on which nothing was received, not even a bookmark.
        Silent = "unreachable",
        /// The server does not accept the credential, or no client can be created from it. Read its files again.
        Credential = "unauthorized",
        /// The server is not trusted, or there is no TLS connection to it.
        Tls = "tls",
        /// 403: the user is known and not allowed. The text has the verb and the path that a role has to allow.
        Forbidden = "forbidden",
        /// 403: a kubelet may read only its own Node, and requested another one. Kubernetes before 1.32 returns 404 or the other 403.
        OtherNode = "forbidden",
        /// 404 of a Kubernetes API: the object does not exist.
        Absent = "not-found",
        /// Any other 404. It may come from a proxy, or from a server without the whole API group, and proves nothing about the object.
        NotFound = "not-found",
        /// 410: the resource version is too old; read again and watch from the new version.
        Gone = "gone",
        /// 409: the object changed at the same time, or already exists. Read again, then decide again.
        Conflict = "conflict",
        /// 422: the resulting object is not valid.
        Invalid = "conflict",
        /// The response exceeds a limit.
        TooLarge = "invalid",
        /// A watch with bookmarks is not possible because the server's storage does not report its progress; one without bookmarks is.
        NoWatchProgress = "invalid",
        /// An object other than the one that the request names: a proxy or a cache mixes up responses.
        UnexpectedObject = "unexpected-object",
        /// The server does not behave like a Kubernetes API, or will reject the same request again.
        Refused = "invalid",
    }
}

impl Kind {
    /// Reports whether the server or the way to it failed, and may work again later.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::Overloaded
                | Self::Failed
                | Self::TimedOut
                | Self::Interrupted
                | Self::Silent
        )
    }

    /// Returns the kind of an HTTP status and what it means. `said` is the server's message, `is_named` whether it names an object of
    /// the request.
    fn of_status(code: u16, said: &str, is_named: bool) -> (Self, &'static str) {
        match code {
            401 => (Self::Credential, "unauthorized"),
            // The server received no credential: an intermediary, such as a proxy that terminates TLS, removed it.
            403 if said.contains("User \"system:anonymous\"") => (
                Self::Credential,
                "request was treated as anonymous: the credential did not reach the server",
            ),
            403 => (Self::Forbidden, "forbidden"),
            // For a kind that the server does not serve, there are no details.
            404 if is_named => (Self::Absent, "not found"),
            404 => (Self::NotFound, "not found"),
            409 => (Self::Conflict, "conflict"),
            410 => (Self::Gone, "the resource version is no longer available"),
            422 => (Self::Invalid, "the change is invalid"),
            // kube-apiserver rejects a watch with bookmarks because of its etcd: before 3.4.31, or from 3.5.0 to 3.5.12.
            500 if said.contains("RequestWatchProgress is disabled") => (
                Self::NoWatchProgress,
                "the storage of the server has no watch progress",
            ),
            429 | 503 => (Self::Overloaded, UNABLE),
            408 | 425 | 500..=599 => (Self::Failed, UNABLE),
            _ => (Self::Refused, "rejected"),
        }
    }
}

const UNABLE: &str = "the server is currently unable to handle the request";

impl Error {
    /// Creates an error. The text is one line without a secret.
    pub fn new(kind: Kind, text: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            is_deferred: false,
            retry_after: None,
            text: text.into(),
        }
    }

    /// Returns the error for requests that are not sent for `left` because of this error.
    #[must_use]
    pub fn deferral(&self, left: Duration) -> Self {
        Self {
            is_deferred: true,
            retry_after: Some(left),
            ..self.clone()
        }
    }

    /// Reports whether the same request may succeed later without a change to a credential, a role or a server.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.kind.is_temporary() || matches!(self.kind, Kind::Gone | Kind::Conflict | Kind::Invalid)
    }

    /// Reports whether requests to the API must back off. An API that decided on a request works, whatever the decision was. There is
    /// an alternative to a list that is too large, and to a watch with bookmarks.
    #[must_use]
    pub fn is_failure_of_api(&self) -> bool {
        let is_failure = self.kind.is_temporary()
            || matches!(self.kind, Kind::Credential | Kind::Tls | Kind::Refused);
        is_failure && !self.is_deferred
    }

    /// Reports whether any other request to the API server would fail too.
    #[must_use]
    pub fn is_of_whole_api(&self) -> bool {
        let is_of_all = matches!(
            self.kind,
            Kind::Unreachable | Kind::Overloaded | Kind::Credential | Kind::Tls
        );
        is_of_all && !self.is_deferred
    }

    /// Reports whether a watch must not be opened from the same resource version again. kube-apiserver rejects a version that is
    /// too old with 410, one that it cannot parse with 400, and one that it has not reached with 504 "Too large
    /// resource version", as after a restore of etcd. 429 and 503 are unrelated to the version.
    #[must_use]
    pub fn is_of_version(&self) -> bool {
        let is_of_it = matches!(
            self.kind,
            Kind::Failed
                | Kind::Gone
                | Kind::Conflict
                | Kind::Invalid
                | Kind::TooLarge
                | Kind::Refused
        );
        is_of_it && !self.is_deferred
    }
}

/// The beginning of an error's text: the verb, the path and the server of a request. Contains no secret: the server has no user
/// information and the path no query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target(Arc<str>);

impl Target {
    pub(super) fn new(verb: &str, path: &str, server: &str) -> Self {
        let path = describe(path);
        Self(format!("failed to {verb} `{path}` at {server}").into())
    }

    /// Returns an error with this problem, which is one safe line.
    pub(super) fn error(&self, kind: Kind, problem: impl Display) -> Error {
        Error::new(kind, format!("{}: {problem}", self.0))
    }

    pub(super) fn timed_out(&self, what: &str, limit: Duration) -> Error {
        self.error(Kind::TimedOut, format!("{what} timed out after {limit:?}"))
    }

    pub(super) fn too_large(&self, what: &str, limit: usize) -> Error {
        let problem = format!("response too large: more than {limit} {what}");
        self.error(Kind::TooLarge, problem)
    }

    /// Returns the error for the status of a response, or of an error event in a watch. `described` makes untrusted text safe.
    pub(super) fn refused(
        &self,
        code: u16,
        status: &ApiStatus,
        retry_after: Option<Duration>,
        described: impl Fn(&str) -> String,
    ) -> Error {
        let said = status.message.as_deref().unwrap_or_default();
        let details = status.details.as_ref();
        let plural = details.and_then(|details| details.kind.as_deref());
        // The path that was requested, and not that of a proxy in the address of the server.
        let path = self.0.split("` at ").next().unwrap_or_default();
        let is_named = plural.is_some_and(|plural| path.contains(&format!("/{plural}/")));
        let (kind, meaning) = Kind::of_status(code, said, is_named);
        if let (Kind::Forbidden, Some(own)) = (kind, own_node(said)) {
            let problem = format!("the credential is for Node `{}` ({code})", described(own));
            return self.error(Kind::OtherNode, problem);
        }
        let mut problem = format!("{meaning} ({code})");
        let said = described(said);
        if !said.is_empty() && !said.eq_ignore_ascii_case(meaning) {
            problem.push_str(&format!(": {said}"));
        }
        Error {
            retry_after: retry_after.filter(|_| kind.is_temporary()),
            ..self.error(kind, problem)
        }
    }
}

/// Returns the Node of a kubelet that requested another one: the authorizer of Kubernetes 1.32 and later reports `node 'n1' cannot
/// read 'n2', only its own Node object`. Needs the whole message, not the truncated one.
fn own_node(message: &str) -> Option<&str> {
    let reason = message.strip_suffix(", only its own Node object")?;
    let (_, reason) = reason.rsplit_once("node '")?;
    let (own, _) = reason.split_once("' cannot read ")?;
    (!own.is_empty()).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: Option<&str>) -> Error {
        let status = ApiStatus {
            message: message.map(str::to_owned),
            ..ApiStatus::default()
        };
        let target = Target::new("get", "/api/v1/nodes/n2", "https://api");
        target.refused(code, &status, Some(Duration::from_secs(7)), describe)
    }

    #[test]
    fn a_long_text_is_cut_after_two_hundred_characters() {
        assert_eq!(describe(" a\n\u{1b}[31m "), "a\\n\\x1b[31m");
        assert_eq!(describe(&"ü".repeat(200)), "ü".repeat(200));
        assert_eq!(describe(&"ü".repeat(201)), format!("{}…", "ü".repeat(199)));
    }

    #[test]
    fn a_refusal_of_an_anonymous_user_is_a_matter_of_the_credential_and_not_of_roles() {
        let anonymous =
            "nodes \"n\" is forbidden: User \"system:anonymous\" cannot get resource \"nodes\"";
        assert_eq!(refused(403, Some(anonymous)).kind, Kind::Credential);
        let known =
            "nodes \"n\" is forbidden: User \"system:node:n\" cannot get resource \"nodes\"";
        assert_eq!(refused(403, Some(known)).kind, Kind::Forbidden);
    }

    #[test]
    fn a_refused_kubelet_learns_which_node_it_is() {
        let text = r#"nodes "n2" is forbidden: User "system:node:n1" cannot get resource "nodes" in API group "" at the cluster scope: node 'n1' cannot read 'n2', only its own Node object"#;
        let error = refused(403, Some(text));
        assert_eq!(error.kind, Kind::OtherNode);
        assert_eq!(
            error.to_string(),
            "failed to get `/api/v1/nodes/n2` at https://api: the credential is for Node `n1` (403)"
        );
        for other in [
            "node 'n1' cannot read 'n2', only its own Node object, says a webhook",
            "node '' cannot read 'n2', only its own Node object",
            "cannot read 'n2', only its own Node object",
            "no relationship found between node 'n1' and this object",
        ] {
            assert_eq!(refused(403, Some(other)).kind, Kind::Forbidden, "{other}");
        }
    }

    #[test]
    fn each_status_has_its_kind_and_only_a_failure_a_time_to_wait() {
        let table = [
            (400, Kind::Refused),
            (401, Kind::Credential),
            (403, Kind::Forbidden),
            (404, Kind::NotFound),
            (405, Kind::Refused),
            (406, Kind::Refused),
            (408, Kind::Failed),
            (409, Kind::Conflict),
            (410, Kind::Gone),
            (413, Kind::Refused),
            (415, Kind::Refused),
            (422, Kind::Invalid),
            (429, Kind::Overloaded),
            (500, Kind::Failed),
            (502, Kind::Failed),
            (503, Kind::Overloaded),
            (504, Kind::Failed),
        ];
        for (code, kind) in table {
            let error = refused(code, None);
            assert_eq!(error.kind, kind, "{code}");
            assert_eq!(error.retry_after.is_some(), kind.is_temporary(), "{code}");
        }
    }

    #[test]
    fn what_the_server_says_is_added_unless_it_repeats_the_status() {
        for (code, message, ending) in [
            (403, Some("no role"), ": forbidden (403): no role"),
            (403, Some("Forbidden"), ": forbidden (403)"),
            (401, Some("Unauthorized"), ": unauthorized (401)"),
            (400, Some(""), ": rejected (400)"),
            (400, None, ": rejected (400)"),
        ] {
            let text = refused(code, message).to_string();
            assert!(text.ends_with(ending), "{text}");
        }
    }

    /// Each kind: its name in metrics, and whether the same request may pass, requests back off, the whole API is affected, and the
    /// version of a watch is dropped.
    #[test]
    fn each_kind_has_its_policies() {
        let table = [
            (Kind::Unreachable, "unreachable", [true, true, true, false]),
            (Kind::Overloaded, "unreachable", [true, true, true, false]),
            (Kind::Failed, "unreachable", [true, true, false, true]),
            (Kind::TimedOut, "timeout", [true, true, false, false]),
            (Kind::Interrupted, "unreachable", [true, true, false, false]),
            (Kind::Silent, "unreachable", [true, true, false, false]),
            (Kind::Credential, "unauthorized", [false, true, true, false]),
            (Kind::Tls, "tls", [false, true, true, false]),
            (Kind::Forbidden, "forbidden", [false, false, false, false]),
            (Kind::OtherNode, "forbidden", [false, false, false, false]),
            (Kind::Absent, "not-found", [false, false, false, false]),
            (Kind::NotFound, "not-found", [false, false, false, false]),
            (Kind::Gone, "gone", [true, false, false, true]),
            (Kind::Conflict, "conflict", [true, false, false, true]),
            (Kind::Invalid, "conflict", [true, false, false, true]),
            (Kind::TooLarge, "invalid", [false, false, false, true]),
            (
                Kind::NoWatchProgress,
                "invalid",
                [false, false, false, false],
            ),
            (
                Kind::UnexpectedObject,
                "unexpected-object",
                [false, false, false, false],
            ),
            (Kind::Refused, "invalid", [false, true, false, true]),
        ];
        let policies = |error: &Error| {
            [
                error.may_pass(),
                error.is_failure_of_api(),
                error.is_of_whole_api(),
                error.is_of_version(),
            ]
        };
        for (kind, name, expected) in table {
            assert_eq!(kind.as_str(), name, "{kind:?}");
            let error = Error::new(kind, "x");
            assert_eq!(policies(&error), expected, "{kind:?}");
            // A request that was not sent shows nothing of the API.
            let [may_pass, ..] = expected;
            let deferred = error.deferral(Duration::from_secs(1));
            assert_eq!(policies(&deferred), [may_pass, false, false, false]);
            assert_eq!(deferred.to_string(), "x");
        }
    }
}
