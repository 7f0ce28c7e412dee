// SPDX-License-Identifier: Apache-2.0
//! TLS for an API server: only the credential's own authorities are trusted, never those of the system. The message about a failed
//! handshake names the setting to repair.

use std::error::Error as StdError;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    OtherError, RootCertStore, SignatureScheme,
};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::error::{Kind, causes, describe};
use crate::access::Credential;
use crate::access::x509::Certificate;

/// The number of sessions kept for resumption: two connections to one server need no more, and the default of 256 costs memory.
const KEPT_SESSIONS: usize = 2;

/// The maximum number of names in a message; a certificate may have thousands.
const MAXIMUM_NAMES: usize = 12;

/// What an API server shows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerShown {
    /// The certificate that it presented last, trusted or not, DER.
    pub certificate: Option<Vec<u8>>,
    /// Whether that is signed by a trusted CA, and only its names do not match.
    pub is_misnamed: bool,
    /// The time in seconds by which its clock was ahead of ours, by the last response (`Date`, RFC 9110 section 6.6.1).
    pub ahead: Option<i64>,
}

/// Creates the TLS configuration of a client. Each certificate that the server presents is noted in `shown`.
/// Fails with what is wrong with the credential, as one safe line.
pub(super) fn configure(
    credential: &Credential,
    shown: &Arc<Mutex<ServerShown>>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(credential, &provider, Arc::clone(shown))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("failed to set up TLS: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &credential.client_certificate {
        None => builder.with_no_client_auth(),
        Some(client) => builder
            .with_client_auth_cert(client.chain.clone(), client.key.clone_key())
            .map_err(|error| {
                let error = describe(&error.to_string());
                format!("the client certificate and its key cannot be used: {error}")
            })?,
    };
    config.resumption = Resumption::in_memory_sessions(KEPT_SESSIONS);
    Ok(config)
}

/// The library's verifier, with the name of `tls-server-name` and with the names of the authorities in its errors. It does not trust
/// any additional certificate.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    /// The `tls-server-name`, verified instead of the host that was connected to.
    name: Option<ServerName<'static>>,
    /// The subjects of the trusted authorities, escaped.
    trusted: String,
    shown: Arc<Mutex<ServerShown>>,
}

impl Verifier {
    fn new(
        credential: &Credential,
        provider: &Arc<CryptoProvider>,
        shown: Arc<Mutex<ServerShown>>,
    ) -> Result<Self, String> {
        let authorities = &credential.certificate_authorities;
        let mut roots = RootCertStore::empty();
        // One unreadable certificate in a bundle must not affect the readable ones.
        roots.add_parsable_certificates(authorities.iter().cloned());
        let webpki =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|_| "it has no readable CA certificate")?;
        let parsed = authorities.iter().filter_map(|der| Certificate::parse(der));
        let subjects = parsed.map(|certificate| certificate.subject.to_string());
        let subjects: Vec<String> = subjects.collect();
        Ok(Self {
            webpki,
            name: credential.tls_server_name.clone(),
            trusted: describe(&subjects.join("; ")),
            shown,
        })
    }

    /// Returns an error with the issuer of the server's certificate and the trusted authorities; a message needs both to show which of
    /// the two is wrong. All text in it is escaped.
    fn unknown(&self, end_entity: &CertificateDer<'_>) -> io::Error {
        let issuer = match Certificate::parse(end_entity) {
            Some(certificate) => describe(&certificate.issuer.to_string()),
            None => "unreadable".to_owned(),
        };
        let trusted = &self.trusted;
        let note = match issuer == *trusted {
            // As when the cluster was reinstalled.
            true => ", which has the same name but another key",
            false => "",
        };
        io::Error::other(format!(
            "the server certificate is signed by `{issuer}`, the kubeconfig trusts only `{trusted}`{note}"
        ))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let name = self.name.as_ref().unwrap_or(server_name);
        let verified =
            self.webpki
                .verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.certificate = Some(end_entity.to_vec());
        // The library compares the names last.
        shown.is_misnamed = matches!(
            verified,
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ))
        );
        drop(shown);
        verified.map_err(|error| match error {
            // A bad signature means an authority of the same name with another key.
            Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => {
                let unknown = OtherError(Arc::new(self.unknown(end_entity)));
                Error::InvalidCertificate(CertificateError::Other(unknown))
            }
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Returns the kind of a failed handshake and why it failed, if that is among the causes of an error.
pub(super) fn failure(error: &(dyn StdError + 'static)) -> Option<(Kind, String)> {
    causes(error)
        .find_map(|cause| cause.downcast_ref())
        .map(reason)
}

fn reason(error: &Error) -> (Kind, String) {
    let certificate = match error {
        Error::InvalidCertificate(certificate) => of_certificate(certificate),
        _ => None,
    };
    let text = match error {
        Error::PeerIncompatible(_)
        | Error::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity,
        ) => "the server and the agent have no TLS version or cipher suite in common".to_owned(),
        Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired),
        ) => {
            let text =
                format!("the server rejected the client certificate, or requires one ({alert:?})");
            // A server that rejects our certificate does not have a problem with its own.
            return (Kind::Credential, text);
        }
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => {
            // No certificate was presented: another service responds.
            let text = "the server does not speak TLS on this port".to_owned();
            return (Kind::Refused, text);
        }
        other => {
            certificate.unwrap_or_else(|| format!("TLS failed: {}", describe(&other.to_string())))
        }
    };
    (Kind::Tls, text)
}

/// Returns what is wrong with a certificate, if there is more to say than the library does.
fn of_certificate(error: &CertificateError) -> Option<String> {
    match error {
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let quoted = |name: &String| format!("`{}`", describe(unwrapped(name)));
            let names = presented.iter().take(MAXIMUM_NAMES).map(quoted);
            let names: Vec<String> = names.collect();
            let names = match names.as_slice() {
                [] => "no name".to_owned(),
                names => names.join(", "),
            };
            let expected = describe(&expected.to_str());
            Some(format!(
                "the server certificate is valid for {names}, not `{expected}`"
            ))
        }
        CertificateError::ExpiredContext { not_after, .. } => Some(format!(
            "the server certificate has expired at {}",
            date(*not_after)
        )),
        CertificateError::NotValidYetContext { not_before, .. } => Some(format!(
            "the server certificate is not yet valid until {}; check the clock of this node",
            date(*not_before)
        )),
        CertificateError::Other(other) => match other.0.downcast_ref::<io::Error>() {
            Some(unknown) => Some(unknown.to_string()),
            // The type of this error is not public.
            None if other.to_string() == "CaUsedAsEndEntity" => Some(
                "the server presents a CA certificate instead of a server certificate".to_owned(),
            ),
            None => None,
        },
        _ => None,
    }
}

/// Returns the name without the type that the TLS library puts around it, as in `DnsName("a")`.
fn unwrapped(name: &str) -> &str {
    let dns = name
        .strip_prefix("DnsName(\"")
        .and_then(|rest| rest.strip_suffix("\")"));
    let address = || name.strip_prefix("IpAddress(")?.strip_suffix(')');
    dns.or_else(address).unwrap_or(name)
}

fn date(time: UnixTime) -> String {
    let seconds = time.as_secs();
    let date = i64::try_from(seconds).map(OffsetDateTime::from_unix_timestamp);
    let text = date.ok().and_then(|date| date.ok()?.format(&Rfc3339).ok());
    text.unwrap_or_else(|| format!("Unix timestamp {seconds}"))
}
