// SPDX-License-Identifier: Apache-2.0
//! Credentials for the two APIs, as kubeconfig files hold them.

use std::path::PathBuf;

use reqwest::Url;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::SecretString;

/// All that is needed to reach one API server, read in whole from a kubeconfig and the files that it names.
///
/// A value is complete or does not exist: a half-written file never becomes a `Credential`.
#[derive(Debug)]
pub struct Credential {
    /// The kubeconfig that was read.
    pub kubeconfig: PathBuf,
    /// Every file that was read for it, the kubeconfig first; a change of any of them calls for a new reading.
    pub files: Vec<PathBuf>,
    /// The API server, with its path prefix if it has one.
    pub server: Url,
    /// The certificate authorities that are trusted for it; never the system's. Empty only with `verify_server` off or `http`.
    pub certificate_authorities: Vec<CertificateDer<'static>>,
    /// The name to ask for and to verify instead of the host in `server`.
    pub tls_server_name: Option<String>,
    /// Off only when the kubeconfig says `insecure-skip-tls-verify` and our own configuration allows it for this endpoint.
    pub verify_server: ServerVerification,
    /// The proxy, only when the kubeconfig names one and our own configuration allows it for this endpoint.
    pub proxy: Option<Url>,
    /// Bearer token.
    pub token: Option<SecretString>,
    /// Client certificate chain, leaf first, and its key.
    pub client_certificate: Option<ClientCertificate>,
    /// The namespace of the current context.
    pub namespace: Option<String>,
}

/// Whether the server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerVerification {
    /// Against `certificate_authorities`.
    Required,
    /// Not at all: twice asked for, by the kubeconfig and by our own configuration.
    Skipped,
}

/// A client certificate and its private key.
#[derive(Debug)]
pub struct ClientCertificate {
    /// Leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's key. Its `Debug` prints no key material.
    pub key: PrivateKeyDer<'static>,
}
