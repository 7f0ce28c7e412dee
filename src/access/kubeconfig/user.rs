// SPDX-License-Identifier: Apache-2.0
//! The user of a kubeconfig: the identity of the agent for the API server.

use std::path::Path;

use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use secrecy::SecretString;

use super::key::KubeconfigKey;
use super::reader::KubeconfigReader;
use crate::access::credential::ClientCertificate;
use crate::access::error::CredentialError;
use crate::access::{pem, token};

/// The keys that are not supported, and the reasons.
const REFUSED: [(&str, &str); 8] = [
    (
        "exec",
        "the agent runs no credential plugins; use a token, a token file or a client certificate",
    ),
    (
        "auth-provider",
        "Kubernetes removed it, and the agent runs no credential plugins; use a token, a token file or a client certificate",
    ),
    ("username", BASIC),
    ("password", BASIC),
    ("as", IMPERSONATION),
    ("as-uid", IMPERSONATION),
    ("as-groups", IMPERSONATION),
    ("as-user-extra", IMPERSONATION),
];

const BASIC: &str =
    "Kubernetes removed basic authentication; use a token, a token file or a client certificate";
const IMPERSONATION: &str = "the agent does not impersonate other users";

const UNUSABLE_KEY: &str = "has a private key that the agent cannot use: its TLS library supports RSA with 2048 to 4096 bits, \
    ECDSA with P-256 or P-384, and Ed25519";

const UNUSABLE_CERTIFICATE: &str = "has a client certificate that the agent cannot use: its TLS library requires \
    X.509 version 3, and supports no unknown critical extensions";

impl KubeconfigReader<'_> {
    pub(super) fn refuse_unsupported(
        &self,
        user: &KubeconfigKey<'_>,
    ) -> Result<(), CredentialError> {
        for (key, reason) in REFUSED {
            let key = user.child(key)?;
            if key.is_set() {
                return Err(key.refused(reason));
            }
        }
        Ok(())
    }

    /// Returns the token; that of a file takes precedence over an inline one, unless the file does not exist, as in Kubernetes'
    /// own clients.
    pub(super) fn token(
        &mut self,
        user: &KubeconfigKey<'_>,
    ) -> Result<Option<SecretString>, CredentialError> {
        let inline = user.child("token")?;
        let file = user.child("tokenFile")?;
        let inline_text = inline.text()?;
        if inline_text.is_some() {
            self.secret_files.push(self.path.to_owned());
        }
        if let Some(name) = file.text()? {
            match self.reference(&file, name) {
                Ok(material) => {
                    self.secret_files.push(material.path.clone());
                    let text = material.text.trim_ascii();
                    return checked_token(&material.path, &file.name, text).map(Some);
                }
                Err(CredentialError::Reference { source, .. })
                    if source.is_absent() && inline_text.is_some() => {}
                Err(CredentialError::NotAFile { .. }) if inline_text.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        inline_text
            .map(|text| checked_token(self.path, &inline.name, text.as_bytes()))
            .transpose()
    }

    pub(super) fn client_certificate(
        &mut self,
        user: &KubeconfigKey<'_>,
    ) -> Result<Option<ClientCertificate>, CredentialError> {
        let certificate = self.material(user, "client-certificate")?;
        let key = self.material(user, "client-key")?;
        let Some(certificate) = certificate else {
            return match key {
                None => Ok(None),
                Some(_) => Err(user
                    .child("client-certificate")?
                    .missing("there is a private key without a certificate")),
            };
        };
        let contents =
            pem::client(&certificate.text).map_err(|problem| certificate.pem(problem))?;
        if contents.key.is_some() {
            self.secret_files.push(certificate.path.clone());
        }
        let (holder, private_key) = match (&key, contents.key) {
            (Some(material), _) => {
                self.secret_files.push(material.path.clone());
                let key = pem::private_key(&material.text);
                (material, key.map_err(|problem| material.pem(problem))?)
            }
            (None, Some(key)) => (&certificate, key),
            (None, None) => {
                return Err(user.child("client-key")?.missing(
                    "there is a client certificate without a private key, here or in the same PEM text",
                ));
            }
        };
        let signer = any_supported_type(&private_key).map_err(|_| holder.pem(UNUSABLE_KEY))?;
        let chain = contents.certificates;
        match CertifiedKey::new(chain.clone(), signer).keys_match() {
            Ok(()) | Err(TlsError::InconsistentKeys(InconsistentKeys::Unknown)) => {
                let key = private_key;
                Ok(Some(ClientCertificate { chain, key }))
            }
            // As in the middle of a rotation.
            Err(TlsError::InconsistentKeys(_)) => Err(CredentialError::Unusable(format!(
                "the private key of `{}` in `{}` does not match the client certificate",
                user.name,
                self.path.display()
            ))),
            Err(_) => Err(certificate.pem(UNUSABLE_CERTIFICATE)),
        }
    }
}

fn checked_token(path: &Path, key: &str, text: &[u8]) -> Result<SecretString, CredentialError> {
    let text = std::str::from_utf8(text).map_err(|_| token::NOT_A_TOKEN);
    let checked = text.and_then(|text| token::check(text).map(|()| text.into()));
    checked.map_err(|problem| {
        let path = path.display();
        CredentialError::Unusable(format!("the token of `{key}` in `{path}` {problem}"))
    })
}
