// SPDX-License-Identifier: Apache-2.0
//! The part of kube-controller-manager that signs the certificates for which kubelets ask.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD as BASE64_URL};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

use super::{POLL, RealApi};
use crate::admin::{Admin, ApiError};
use crate::pki::Authority;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Kubelets ask this signer for their client certificates.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Approves and signs until it is dropped.
#[derive(Debug)]
pub struct Signer {
    task: JoinHandle<()>,
}

impl RealApi {
    /// Signs a token of a service account with the key of the server, as a controller manager does for a Secret.
    #[must_use]
    pub fn sign_token(&self, claims: &Value) -> String {
        let key = std::fs::read_to_string(self.dir.join("server.key"));
        let key = rcgen::KeyPair::from_pem(&key.expect("the server has a key"));
        let key = key.expect("the key is PEM").serialize_der();
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, &key, &random);
        let key = key.expect("the key is of P-256");
        let encode = |bytes: &[u8]| BASE64_URL.encode(bytes);
        let header = encode(json!({"alg": "ES256"}).to_string().as_bytes());
        let signed = format!("{header}.{}", encode(claims.to_string().as_bytes()));
        let signature = key.sign(&random, signed.as_bytes());
        let signature = signature.expect("the random source works");
        format!("{signed}.{}", encode(signature.as_ref()))
    }

    /// Begins to sign what kubelets ask for, with the authority that the server trusts.
    #[must_use]
    pub fn sign_kubelet_certificates(&self) -> Signer {
        let (admin, authority) = (self.admin(), self.authority().clone());
        let task = tokio::spawn(async move {
            loop {
                // A failure is tried again, as everything in a controller.
                for request in admin.list(REQUESTS).await.unwrap_or_default() {
                    let _ = sign(&admin, &authority, request).await;
                }
                tokio::time::sleep(POLL).await;
            }
        });
        Signer { task }
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn sign(admin: &Admin, authority: &Authority, mut request: Value) -> Result<(), ApiError> {
    let is_open = request["status"]["certificate"].is_null();
    if request["spec"]["signerName"] != KUBELET_CLIENT || !is_open {
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let path = format!("{REQUESTS}/{}", text(&request["metadata"]["name"]));
    let pem = BASE64
        .decode(text(&request["spec"]["request"]))
        .unwrap_or_default();
    // As the approver of kube-controller-manager: a node gets a certificate for itself alone.
    let user = text(&request["spec"]["username"]);
    if user.starts_with("system:node:") && requested_name(&pem) != Some(user) {
        return Ok(());
    }
    let certificate = authority.sign_request(&String::from_utf8_lossy(&pem));
    if request["status"]["conditions"].is_null() {
        request["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "AutoApproved"}]);
        request = admin.replace(&format!("{path}/approval"), &request).await?;
    }
    request["status"]["certificate"] = BASE64.encode(certificate).into();
    admin
        .replace(&format!("{path}/status"), &request)
        .await
        .map(drop)
}

/// The name that a request for a certificate, which is PEM, asks for.
fn requested_name(request: &[u8]) -> Option<String> {
    let (_, pem) = parse_x509_pem(request).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &request.certification_request_info.subject;
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}
