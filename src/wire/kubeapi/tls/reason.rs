// SPDX-License-Identifier: Apache-2.0
//! The reasons why a TLS handshake failed, in messages that name the setting to repair.

use std::error::Error as StdError;
use std::io;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::text::describe;
use super::verifier::UnknownAuthority;

/// The reason why a handshake failed. All text in it is escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsReason {
    /// The certificate is signed by an authority that is not trusted.
    #[error(
        "the server certificate is signed by `{issuer}`, the kubeconfig trusts only `{trusted}`{}", of_same_name(.issuer, .trusted)
    )]
    UnknownAuthority {
        /// The issuer in the certificate.
        issuer: String,
        /// The authorities that the credential trusts.
        trusted: String,
    },
    /// The certificate is valid for other names.
    #[error("the server certificate is valid for {}, not `{expected}`", list(.presented))]
    NameMismatch {
        /// The host that was connected to, or `tls-server-name`.
        expected: String,
        /// The names in the certificate.
        presented: Vec<String>,
    },
    /// The certificate has expired.
    #[error("the server certificate has expired{}", at(" at ", .not_after))]
    Expired {
        /// The expiration time, in UTC.
        not_after: Option<String>,
    },
    /// The certificate is not yet valid, or our clock is behind.
    #[error("the server certificate is not yet valid{}; check the clock of this node", at(" until ", .not_before))]
    NotYetValid {
        /// The start of the validity, in UTC.
        not_before: Option<String>,
    },
    /// No TLS version or cipher suite that both sides support.
    #[error("the server and the agent have no TLS version or cipher suite in common")]
    NoCommonProtocol,
    /// The server rejected our certificate, or requires one.
    #[error("the server rejected the client certificate, or requires one ({alert})")]
    ClientCertificateRejected {
        /// The alert that it sent.
        alert: String,
    },
    /// Another service listens on the port.
    #[error("the server does not speak TLS on this port")]
    NotTls,
    /// Anything else.
    #[error("TLS failed: {detail}")]
    Other {
        /// The message of the TLS library.
        detail: String,
    },
}

/// Finds a TLS error in the causes of another error and converts it to a reason.
pub(in crate::wire::kubeapi) fn find(error: &(dyn StdError + 'static)) -> Option<TlsReason> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<Error>() {
            return Some(reason(tls));
        }
        // `source` of an I/O error skips the error that it wraps.
        if let Some(inner) = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            && let Some(found) = find(inner)
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn reason(error: &Error) -> TlsReason {
    match error {
        Error::InvalidCertificate(certificate) => certificate_reason(certificate, error),
        Error::PeerIncompatible(_)
        | Error::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity,
        ) => TlsReason::NoCommonProtocol,
        Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired),
        ) => TlsReason::ClientCertificateRejected {
            alert: format!("{alert:?}"),
        },
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => TlsReason::NotTls,
        other => other_reason(other),
    }
}

fn other_reason(error: &Error) -> TlsReason {
    TlsReason::Other {
        detail: describe(&error.to_string()),
    }
}

fn certificate_reason(certificate: &CertificateError, error: &Error) -> TlsReason {
    match certificate {
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => TlsReason::NameMismatch {
            expected: describe(&plain(expected)),
            presented: presented
                .iter()
                .take(MAXIMUM_NAMES)
                .map(|name| describe(&unwrapped(name)))
                .collect(),
        },
        CertificateError::ExpiredContext { not_after, .. } => TlsReason::Expired {
            not_after: moment(*not_after),
        },
        CertificateError::Expired => TlsReason::Expired { not_after: None },
        CertificateError::NotValidYetContext { not_before, .. } => TlsReason::NotYetValid {
            not_before: moment(*not_before),
        },
        CertificateError::NotValidYet => TlsReason::NotYetValid { not_before: None },
        CertificateError::Other(other) => match other.0.downcast_ref::<UnknownAuthority>() {
            Some(UnknownAuthority { issuer, trusted }) => TlsReason::UnknownAuthority {
                issuer: issuer.clone(),
                trusted: trusted.clone(),
            },
            None => other_reason(error),
        },
        _ => other_reason(error),
    }
}

/// The maximum number of names in a message; a certificate may have thousands.
const MAXIMUM_NAMES: usize = 12;

fn plain(name: &ServerName<'_>) -> String {
    name.to_str().into_owned()
}

/// Returns the name without the type that the TLS library puts around it, as in `DnsName("a")`.
fn unwrapped(name: &str) -> String {
    let inner = name
        .strip_prefix("DnsName(\"")
        .and_then(|rest| rest.strip_suffix("\")"))
        .or_else(|| {
            name.strip_prefix("IpAddress(")
                .and_then(|rest| rest.strip_suffix(')'))
        });
    inner.unwrap_or(name).to_owned()
}

fn moment(time: UnixTime) -> Option<String> {
    let seconds = i64::try_from(time.as_secs()).ok()?;
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()?
        .format(&Rfc3339)
        .ok()
}

/// Returns the text for two authorities of the same name, as when a cluster was reinstalled.
fn of_same_name(issuer: &str, trusted: &str) -> &'static str {
    if issuer == trusted {
        ", which has the same name but another key"
    } else {
        ""
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "no name".to_owned();
    }
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn at(preposition: &str, moment: &Option<String>) -> String {
    moment
        .as_ref()
        .map(|moment| format!("{preposition}{moment}"))
        .unwrap_or_default()
}
