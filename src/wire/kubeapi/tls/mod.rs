// SPDX-License-Identifier: Apache-2.0
//! TLS for an API server: only the credential's own authorities are trusted, never those of the system.

mod reason;
mod verifier;

use std::sync::{Arc, Mutex};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};

pub(super) use reason::find;
pub use reason::TlsReason;
pub use verifier::ServerShown;

use super::error::CredentialProblem;
use crate::access::Credential;
use verifier::Verifier;

/// The number of sessions kept for resumption: two connections to one server need no more, and the default of 256 costs memory.
const KEPT_SESSIONS: usize = 2;

/// Creates the TLS configuration of a client. Each certificate that the server presents is noted in `shown`.
pub(super) fn configure(
    credential: &Credential,
    shown: &Arc<Mutex<ServerShown>>,
) -> Result<ClientConfig, CredentialProblem> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = verifier(credential, &provider, Arc::clone(shown))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| CredentialProblem::Tls { source })?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &credential.client_certificate {
        None => builder.with_no_client_auth(),
        Some(client) => builder
            .with_client_auth_cert(client.chain.clone(), client.key.clone_key())
            .map_err(|source| match source {
                rustls::Error::InconsistentKeys(_) => CredentialProblem::KeyMismatch,
                source => CredentialProblem::ClientCertificate { source },
            })?,
    };
    config.resumption = Resumption::in_memory_sessions(KEPT_SESSIONS);
    Ok(config)
}

fn verifier(
    credential: &Credential,
    provider: &Arc<CryptoProvider>,
    shown: Arc<Mutex<ServerShown>>,
) -> Result<Verifier, CredentialProblem> {
    let name = credential.tls_server_name.clone().map(ServerName::try_from);
    let name = name
        .transpose()
        .map_err(|_| CredentialProblem::TlsServerName)?;
    let mut roots = RootCertStore::empty();
    // One unreadable certificate in a bundle must not affect the readable ones.
    roots.add_parsable_certificates(credential.certificate_authorities.iter().cloned());
    let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|_| CredentialProblem::NoAuthority)?;
    let authorities = &credential.certificate_authorities;
    Ok(Verifier::new(webpki, name, authorities, shown))
}
