// SPDX-License-Identifier: Apache-2.0
//! Converts the status of a response, or of an error event in a watch, to an error.

use std::sync::Arc;
use std::time::Duration;

use super::error::{Error, RequestTarget};

/// The minimum time to wait at the server's request: zero would lead to a busy loop.
pub const SHORTEST_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The maximum time to wait at the server's request, the same as for any other retry: a proxy that asks for more must not stop reads,
/// writes and watches for longer than an outage does.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A status of an HTTP response or of an error event in a watch.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    /// The server's message, escaped. Set only when a `metav1.Status` was read.
    pub(super) message: Option<String>,
    /// The Node of the credential, escaped, if the server denied access to another one.
    pub(super) own_node: Option<String>,
    pub(super) confirmed: bool,
    pub(super) retry_after: Option<Duration>,
}

/// Returns the error for a status.
pub(super) fn from_status(target: Arc<RequestTarget>, answered: Answered) -> Error {
    let Answered {
        status,
        message,
        own_node,
        confirmed,
        retry_after,
    } = answered;
    match status {
        401 => Error::Unauthorized { target, message },
        403 if is_of_none(message.as_deref()) => Error::Anonymous { target, message },
        403 => match own_node {
            Some(own) => Error::OtherNode { target, own },
            None => Error::Forbidden { target, message },
        },
        404 => Error::NotFound {
            target,
            message,
            confirmed,
        },
        409 => Error::Conflict { target, message },
        410 => Error::Gone { target, message },
        422 => Error::Invalid { target, message },
        500 if is_without_progress(message.as_deref()) => {
            Error::NoWatchProgress { target, message }
        }
        408 | 425 | 429 | 500..=599 => Error::Retry {
            target,
            status,
            after: retry_after,
            message,
        },
        _ => Error::Rejected {
            target,
            status,
            message,
        },
    }
}

/// Reports whether the message of an authorizer names the anonymous user.
fn is_of_none(message: Option<&str>) -> bool {
    message.is_some_and(|message| message.contains("User \"system:anonymous\""))
}

/// Returns the Node of a kubelet that requested another one: the authorizer of Kubernetes 1.32 and later reports `node 'n1' cannot
/// read 'n2', only its own Node object`. Needs the whole message, not the truncated one.
pub(super) fn own_node(message: &str) -> Option<&str> {
    let reason = message.strip_suffix(", only its own Node object")?;
    let (_, reason) = reason.rsplit_once("node '")?;
    let (own, _) = reason.split_once("' cannot read ")?;
    (!own.is_empty()).then_some(own)
}

/// Reports whether kube-apiserver rejects a watch with bookmarks because of its etcd: before 3.4.31, or from 3.5.0 to 3.5.12.
fn is_without_progress(message: Option<&str>) -> bool {
    message.is_some_and(|message| message.contains("RequestWatchProgress is disabled"))
}

/// Parses a `Retry-After` header. A date is ignored like an invalid value: it would depend on our clock.
pub(super) fn parse_retry_after(header: &str) -> Option<Duration> {
    let digits = header.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(clamp_retry_after(digits.parse().unwrap_or(u64::MAX)))
}

/// Converts the number of seconds to wait that the server requested, within our bounds.
pub(super) fn clamp_retry_after(seconds: u64) -> Duration {
    Duration::from_secs(seconds).clamp(SHORTEST_RETRY_AFTER, LONGEST_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::super::error::Class;
    use super::*;

    fn class_of(status: u16) -> Class {
        let target = Arc::new(RequestTarget {
            server: "https://api".into(),
            verb: "get",
            path: "/x".into(),
        });
        from_status(
            target,
            Answered {
                status,
                message: None,
                own_node: None,
                confirmed: true,
                retry_after: None,
            },
        )
        .class()
    }

    #[test]
    fn retry_after_takes_seconds_only_and_stays_within_its_bounds() {
        let table = [
            ("0", Some(1)),
            ("1", Some(1)),
            (" 17 ", Some(17)),
            ("60", Some(60)),
            ("600", Some(60)),
            ("1000000000", Some(60)),
            ("99999999999999999999999999", Some(60)),
            ("", None),
            ("-1", None),
            ("+5", None),
            ("1.5", None),
            ("1e9", None),
            ("soon", None),
            ("٣", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ];
        for (header, seconds) in table {
            assert_eq!(
                parse_retry_after(header),
                seconds.map(Duration::from_secs),
                "{header:?}"
            );
        }
    }

    #[test]
    fn a_refusal_of_an_anonymous_user_is_a_matter_of_the_credential_and_not_of_roles() {
        let refused = |message: &str| {
            let target = Arc::new(RequestTarget {
                server: "https://api".into(),
                verb: "get",
                path: "/x".into(),
            });
            let answered = Answered {
                status: 403,
                message: Some(message.to_owned()),
                own_node: None,
                confirmed: true,
                retry_after: None,
            };
            from_status(target, answered).class()
        };
        let anonymous =
            "nodes \"n\" is forbidden: User \"system:anonymous\" cannot get resource \"nodes\"";
        assert_eq!(refused(anonymous), Class::Credential);
        let known =
            "nodes \"n\" is forbidden: User \"system:node:n\" cannot get resource \"nodes\"";
        assert_eq!(refused(known), Class::Forbidden);
    }

    #[test]
    fn a_refused_kubelet_learns_which_node_it_is() {
        let refused = |message: &str| {
            let target = Arc::new(RequestTarget {
                server: "https://api".into(),
                verb: "get",
                path: "/api/v1/nodes/n2".into(),
            });
            let answered = Answered {
                status: 403,
                message: Some(message.to_owned()),
                own_node: own_node(message).map(str::to_owned),
                confirmed: true,
                retry_after: None,
            };
            from_status(target, answered)
        };
        let text = r#"nodes "n2" is forbidden: User "system:node:n1" cannot get resource "nodes" in API group "" at the cluster scope: node 'n1' cannot read 'n2', only its own Node object"#;
        let error = refused(text);
        assert!(matches!(&error, Error::OtherNode { own, .. } if own == "n1"));
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
            assert!(matches!(refused(other), Error::Forbidden { .. }), "{other}");
        }
    }

    #[test]
    fn each_status_has_its_class() {
        let table = [
            (400, Class::Refused),
            (401, Class::Credential),
            (403, Class::Forbidden),
            (404, Class::NotFound),
            (405, Class::Refused),
            (406, Class::Refused),
            (408, Class::Retry),
            (409, Class::Conflict),
            (410, Class::Gone),
            (413, Class::Refused),
            (415, Class::Refused),
            (422, Class::Conflict),
            (429, Class::Retry),
            (500, Class::Retry),
            (502, Class::Retry),
            (503, Class::Retry),
            (504, Class::Retry),
        ];
        for (status, class) in table {
            assert_eq!(class_of(status), class, "{status}");
        }
    }
}
