// SPDX-License-Identifier: Apache-2.0
//! All that is needed to connect to one API server.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::facts::names::Namespace;

/// All data to connect to one API server, read from a kubeconfig and the files that it names.
///
/// A value is always complete: a half-written file never becomes a `Credential`.
pub struct Credential {
    /// The kubeconfig that was read.
    pub kubeconfig: PathBuf,
    /// Every file that was read for it, the kubeconfig first; after a change of any of them it must be read again.
    pub files: Vec<PathBuf>,
    /// The API server, with its path prefix if it has one.
    pub server: Url,
    /// The trusted certificate authorities, at least one; never those of the system.
    pub certificate_authorities: Vec<CertificateDer<'static>>,
    /// The name to verify instead of the host in `server`.
    pub tls_server_name: Option<ServerName<'static>>,
    /// The proxy that the kubeconfig names; never one of the environment.
    pub proxy: Option<Url>,
    /// Bearer token.
    pub token: Option<SecretString>,
    /// Client certificate chain, leaf first, and its key.
    pub client_certificate: Option<ClientCertificate>,
    /// The namespace of the current context.
    pub namespace: Option<Namespace>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A proxy URL may include a password, so only its host is printed.
        formatter
            .debug_struct("Credential")
            .field("kubeconfig", &self.kubeconfig)
            .field("server", &self.server.as_str())
            .field("proxy", &self.proxy.as_ref().map(Url::host_str))
            .finish_non_exhaustive()
    }
}

/// A file with a secret that users other than its owner and group can reach and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// The file, as in the kubeconfig.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
}

/// A client certificate and its private key.
#[derive(Debug)]
pub struct ClientCertificate {
    /// Leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's key. Its `Debug` prints no key material.
    pub key: Zeroizing<PrivateKeyDer<'static>>,
}
