// SPDX-License-Identifier: Apache-2.0
//! Certificates, tokens and trees for the tests of this module.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;

use crate::sys::root::Root;

/// 2024-01-01, the start of the validity of all certificates.
pub(crate) const NOT_BEFORE: i64 = 1_704_067_200;

/// 2034-01-01, the end of the validity of all certificates.
pub(crate) const NOT_AFTER: i64 = 2_019_686_400;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A client certificate and its key.
pub(crate) struct Client {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(common_name: &str) -> Self {
        let mut params = params(common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(crate) fn client(&self, common_name: &str, organisation: &str) -> Client {
        let mut params = params(common_name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, organisation);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Client {
            der: certificate.der().clone(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = time::OffsetDateTime::from_unix_timestamp(NOT_BEFORE).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(NOT_AFTER).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

/// Returns a JSON Web Token with these claims, with an invalid signature of the right length.
pub(crate) fn jwt(claims: &str) -> String {
    format!(
        "{}.{}.{}",
        BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","kid":"x"}"#),
        BASE64_URL_SAFE_NO_PAD.encode(claims),
        BASE64_URL_SAFE_NO_PAD.encode([0x5a; 256]),
    )
}

pub(crate) fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// Creates an empty tree.
pub(crate) fn tree() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    (dir, root)
}

/// Writes a file in place, and creates its directories.
pub(crate) fn write(root: &Root, path: impl AsRef<Path>, text: &str) {
    let real = root.join(path);
    std::fs::create_dir_all(real.parent().unwrap()).unwrap();
    std::fs::write(real, text).unwrap();
}

/// Returns a kubeconfig as created by Harvester's API.
pub(crate) fn harvester_kubeconfig(authority: &Authority, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: default\n  cluster:\n    server: https://192.0.2.10:6443\n    \
         certificate-authority-data: {}\ncontexts:\n- name: default\n  context:\n    cluster: default\n    \
         namespace: team-a\n    user: default\ncurrent-context: default\nusers:\n- name: default\n  user:\n    token: {token}\n",
        base64(&authority.pem()),
    )
}

/// Returns a kubeconfig as created by RKE2, with relative paths of its files.
pub(crate) fn kubelet_kubeconfig() -> String {
    "apiVersion: v1\nkind: Config\nclusters:\n- name: local\n  cluster:\n    server: https://127.0.0.1:6443\n    \
     certificate-authority: server-ca.crt\ncontexts:\n- name: Default\n  context:\n    cluster: local\n    \
     user: user\ncurrent-context: Default\nusers:\n- name: user\n  user:\n    client-certificate: client-kubelet.crt\n    \
     client-key: client-kubelet.key\n"
        .to_owned()
}
