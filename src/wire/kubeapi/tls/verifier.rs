// SPDX-License-Identifier: Apache-2.0
//! The library's verifier, with the name of `tls-server-name` and with the names of the authorities in its errors.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use super::super::text::describe;
use crate::access::x509::Certificate;

/// What an API server shows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerShown {
    /// The certificate that it presented last, trusted or not, DER.
    pub certificate: Option<Vec<u8>>,
    /// The time in seconds by which its clock was ahead of ours, by the last response (`Date`, RFC 9110 section 6.6.1).
    pub ahead: Option<i64>,
}

/// A verifier with the same result as the library's; it does not trust any additional certificate.
#[derive(Debug)]
pub(super) struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    /// The `tls-server-name`, verified instead of the host that was connected to.
    name: Option<ServerName<'static>>,
    /// The subjects of the trusted authorities, escaped.
    trusted: String,
    shown: Arc<Mutex<ServerShown>>,
}

impl Verifier {
    pub(super) fn new(
        webpki: Arc<WebPkiServerVerifier>,
        name: Option<ServerName<'static>>,
        authorities: &[CertificateDer<'_>],
        shown: Arc<Mutex<ServerShown>>,
    ) -> Self {
        let subjects: Vec<String> = authorities
            .iter()
            .filter_map(|der| Certificate::parse(der).ok())
            .map(|certificate| certificate.subject.to_string())
            .collect();
        Self {
            webpki,
            name,
            trusted: describe(&subjects.join("; ")),
            shown,
        }
    }
}

/// The issuer of the server's certificate and the trusted authorities; a message needs both to show which of the two is wrong.
#[derive(Debug, Clone, thiserror::Error)]
#[error("unknown issuer")]
pub(super) struct UnknownAuthority {
    pub(super) issuer: String,
    pub(super) trusted: String,
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
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.certificate = Some(end_entity.to_vec());
        drop(shown);
        let name = self.name.as_ref().unwrap_or(server_name);
        self.webpki
            .verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
            .map_err(|error| match error {
                // A bad signature means an authority of the same name with another key: the cluster was reinstalled.
                Error::InvalidCertificate(
                    CertificateError::UnknownIssuer | CertificateError::BadSignature,
                ) => {
                    let issuer = match Certificate::parse(end_entity) {
                        Ok(certificate) => describe(&certificate.issuer.to_string()),
                        Err(_) => "unreadable".to_owned(),
                    };
                    let unknown = UnknownAuthority {
                        issuer,
                        trusted: self.trusted.clone(),
                    };
                    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(
                        unknown,
                    ))))
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
