// SPDX-License-Identifier: Apache-2.0
//! The texts of kubeconfig files, as their generators write them.

/// Who wrote the Harvester kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeconfigForm {
    /// Harvester's API, which Rancher asks: cluster, user and context are all called `default`.
    HarvesterApi,
    /// The shell script of the documentation: names with account, namespace and cluster.
    AddOnScript,
}

/// The text of a Harvester kubeconfig, for other places than the usual one.
#[must_use]
pub fn harvester_kubeconfig_text(
    form: KubeconfigForm,
    server: &str,
    authority_pem: &str,
    token: &str,
    namespace: &str,
) -> String {
    let (cluster, other) = match form {
        KubeconfigForm::HarvesterApi => ("default".to_owned(), "default".to_owned()),
        KubeconfigForm::AddOnScript => ("local".to_owned(), format!("gc8-{namespace}-local")),
    };
    let authority = base64(authority_pem);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"{cluster}\"\n  cluster:\n    server: \"{server}\"\n    \
         certificate-authority-data: \"{authority}\"\n\nusers:\n- name: \"{other}\"\n  user:\n    token: \"{token}\"\n\n\
         contexts:\n- name: \"{other}\"\n  context:\n    user: \"{other}\"\n    cluster: \"{cluster}\"\n    \
         namespace: \"{namespace}\"\n\ncurrent-context: \"{other}\"\n"
    )
}

pub(super) fn rancher_kubeconfig(server: &str, dir: &str) -> String {
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    server: {server}\n    certificate-authority: {dir}/server-ca.crt\n  \
         name: local\ncontexts:\n- context:\n    cluster: local\n    namespace: default\n    user: user\n  name: Default\n\
         current-context: Default\nkind: Config\npreferences: {{}}\nusers:\n- name: user\n  user:\n    \
         client-certificate: {dir}/client-kubelet.crt\n    client-key: {dir}/client-kubelet.key\n"
    )
}

pub(super) fn kubeadm_kubeconfig(server: &str, authority_pem: &str) -> String {
    let authority = base64(authority_pem);
    let pem = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {authority}\n    server: {server}\n  \
         name: kubernetes\ncontexts:\n- context:\n    cluster: kubernetes\n    user: default-auth\n  name: default-auth@kubernetes\n\
         current-context: default-auth@kubernetes\nkind: Config\npreferences: {{}}\nusers:\n- name: default-auth\n  user:\n    \
         client-certificate: {pem}\n    client-key: {pem}\n"
    )
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}
