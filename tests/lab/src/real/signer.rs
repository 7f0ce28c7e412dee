// SPDX-License-Identifier: Apache-2.0
//! The part of kube-controller-manager that signs the certificates for which kubelets ask.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

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
