// SPDX-License-Identifier: Apache-2.0
//! TLS for an API server: only the credential's own authorities are trusted, never those of the system.

mod reason;
mod unverified;
mod verifier;

use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};

pub(super) use reason::find;
pub use reason::{TlsReason, TlsSetupError};

use super::error::CredentialProblem;
use crate::access::{Credential, ServerVerification};

/// The number of sessions kept for resumption: two connections to one server need no more, and the default of 256 costs memory.
const KEPT_SESSIONS: usize = 2;

/// Creates the TLS configuration of a client.
pub(super) fn configure(credential: &Credential) -> Result<ClientConfig, CredentialProblem> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let name = verified_name(credential)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| CredentialProblem::Tls {
            source: error.into(),
        })?;
    let trust_is_needed =
        credential.server.scheme() != "http" || !credential.certificate_authorities.is_empty();
    let builder = match credential.verify_server {
        ServerVerification::Skipped => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(unverified::Unverified::new(&provider))),
        ServerVerification::Required if trust_is_needed => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier(credential, &provider, name)?)),
        // No handshake takes place with `http`; if one did, no server would be trusted.
        ServerVerification::Required => builder.with_root_certificates(RootCertStore::empty()),
    };
    let mut config = match &credential.client_certificate {
        None => builder.with_no_client_auth(),
        Some(client) => builder
            .with_client_auth_cert(client.chain.clone(), client.key.clone_key())
            .map_err(|source| match source {
                rustls::Error::InconsistentKeys(_) => CredentialProblem::KeyMismatch,
                error => CredentialProblem::ClientCertificate {
                    source: error.into(),
                },
            })?,
    };
    config.resumption = Resumption::in_memory_sessions(KEPT_SESSIONS);
    Ok(config)
}

fn verified_name(
    credential: &Credential,
) -> Result<Option<ServerName<'static>>, CredentialProblem> {
    credential
        .tls_server_name
        .as_ref()
        .map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| CredentialProblem::TlsServerName)
        })
        .transpose()
}

fn verifier(
    credential: &Credential,
    provider: &Arc<CryptoProvider>,
    name: Option<ServerName<'static>>,
) -> Result<verifier::Verifier, CredentialProblem> {
    let mut roots = RootCertStore::empty();
    // One unreadable certificate in a bundle must not affect the readable ones.
    roots.add_parsable_certificates(credential.certificate_authorities.iter().cloned());
    if roots.is_empty() {
        return Err(CredentialProblem::NoAuthority);
    }
    let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|_| CredentialProblem::NoAuthority)?;
    Ok(verifier::Verifier::new(
        webpki,
        name,
        &credential.certificate_authorities,
    ))
}
