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

/// The reason why TLS cannot be set up, with the message of the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsSetupError(String);

impl From<Error> for TlsSetupError {
    fn from(error: Error) -> Self {
        // The library always writes "invalid peer certificate".
        let text = match &error {
            Error::InvalidCertificate(certificate) => certificate.to_string(),
            error => error.to_string(),
        };
        Self(in_words(&describe(&text)))
    }
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
        Error::InvalidCertificate(certificate) => certificate_reason(certificate),
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
            alert: in_words(&format!("{alert:?}")),
        },
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => TlsReason::NotTls,
        other => TlsReason::Other {
            detail: in_words(&describe(&other.to_string())),
        },
    }
}

fn certificate_reason(error: &CertificateError) -> TlsReason {
    match error {
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
            None => invalid_certificate(&other.to_string()),
        },
        other => invalid_certificate(&other.to_string()),
    }
}

fn invalid_certificate(error: &str) -> TlsReason {
    let detail = in_words(&describe(error));
    TlsReason::Other {
        detail: format!("the server certificate is invalid: {detail}"),
    }
}

/// Converts names of variants in the message of the TLS library, `Other(OtherError(UnsupportedCertVersion))`. Returns the
/// innermost one as words: `unsupported certificate version`.
fn in_words(text: &str) -> String {
    let mut text = text;
    while let Some((name, rest)) = text.split_once('(')
        && let Some(inner) = rest.strip_suffix(')')
        && name
            .chars()
            .all(|character| character.is_ascii_alphanumeric())
    {
        text = inner;
    }
    let words: Vec<String> = text.split(' ').map(split).collect();
    words.join(" ")
}

/// Splits a CamelCase name into words, and returns any other word unchanged.
fn split(name: &str) -> String {
    let is_name = name.starts_with(|first: char| first.is_ascii_uppercase())
        && name
            .chars()
            .all(|character| character.is_ascii_alphanumeric())
        && name.chars().any(|character| character.is_ascii_lowercase());
    if !is_name {
        return name.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    let mut characters = name.chars().peekable();
    let mut last = ' ';
    while let Some(character) = characters.next() {
        let ends_capitals = characters.peek().is_some_and(char::is_ascii_lowercase);
        let is_start =
            character.is_ascii_uppercase() && (!last.is_ascii_uppercase() || ends_capitals);
        match words.last_mut().filter(|_| !is_start) {
            Some(word) => word.push(character),
            None => words.push(character.to_string()),
        }
        last = character;
    }
    let is_capitals =
        |word: &str| word.len() > 1 && word.chars().all(|one| one.is_ascii_uppercase());
    let words = words.into_iter().map(|word| match word.as_str() {
        "Cert" => "certificate".to_owned(),
        word if is_capitals(word) => word.to_owned(),
        word => word.to_ascii_lowercase(),
    });
    words.collect::<Vec<_>>().join(" ")
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("UnsupportedCertVersion")]
    struct Unsupported;

    #[test]
    fn no_name_of_a_variant_is_shown() {
        let other = || CertificateError::Other(OtherError(Arc::new(Unsupported)));
        for (error, text) in [
            (
                Error::InvalidCertificate(other()),
                "TLS failed: the server certificate is invalid: unsupported certificate version",
            ),
            (
                Error::InvalidCertificate(CertificateError::BadEncoding),
                "TLS failed: the server certificate is invalid: bad encoding",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "the server rejected the client certificate, or requires one (unknown CA)",
            ),
            (
                Error::AlertReceived(AlertDescription::InternalError),
                "TLS failed: received fatal alert: internal error",
            ),
        ] {
            assert_eq!(reason(&error).to_string(), text);
        }
        let setup = Error::InvalidCertificate(CertificateError::BadEncoding);
        assert_eq!(TlsSetupError::from(setup).to_string(), "bad encoding");
        for (name, words) in [
            (
                "Other(OtherError(UnsupportedCertVersion))",
                "unsupported certificate version",
            ),
            ("InvalidCRLSignature", "invalid CRL signature"),
            ("TLS", "TLS"),
            ("a plain text (with a note)", "a plain text (with a note)"),
        ] {
            assert_eq!(in_words(name), words);
        }
    }
}
