// SPDX-License-Identifier: Apache-2.0
//! A guest: a VM, its Node, its kubelet's credential and its file tree.

use serde_json::json;

use super::{Api, Registration, WorldOptions};
use crate::admin::{Admin, ApiError, paths};
use crate::guest::{Distribution, GuestTree};
use crate::harvester::Vm;
use crate::pki::Identity;

/// A guest beside the world's first one, for fleets.
#[derive(Debug)]
pub struct Machine {
    /// The VM.
    pub vm: Vm,
    /// Its files.
    pub tree: GuestTree,
    /// Its kubelet's credential.
    pub kubelet: Identity,
    pub(super) dir: tempfile::TempDir,
}

impl Machine {
    /// Registers the Node of a VM and writes the files that are found in it.
    pub(super) async fn make(
        harvester: &Api,
        guest: &Api,
        token: &str,
        vm: Vm,
        story: &WorldOptions,
    ) -> Result<Self, ApiError> {
        let name = vm.guest_name().to_owned();
        let kubelet = guest.client_identity(&format!("system:node:{name}"), &["system:nodes"]);
        let guest = guest.endpoint();
        if story.registration == Registration::World {
            let as_kubelet = Admin::with_identity(&guest, "kubelet", &kubelet);
            register_node(&as_kubelet, &name, &vm.spec.address()).await?;
        }

        let dir = tempfile::tempdir().expect("a directory for the guest's files");
        let tree = GuestTree::new(dir.path());
        tree.kernel_hostname(&name);
        tree.static_hostname(&name);
        tree.machine_id(&uuid::Uuid::new_v4().simple().to_string());
        tree.boot_id(uuid::Uuid::new_v4());
        tree.dmi(&vm.firmware_uuid, vm.spec.serial.as_deref());
        tree.node_nics(&vm.spec.macs);
        tree.cloud_init(&name, &vm.firmware_uuid);
        tree.guest_agent();
        tree.kubelet(
            story.distribution,
            &guest.url,
            &guest.authority_pem,
            &kubelet,
        );
        if story.distribution == Distribution::Rke2 {
            tree.rancher_config(None);
        }
        let harvester = harvester.endpoint();
        let (url, authority) = (&harvester.url, &harvester.authority_pem);
        tree.harvester_kubeconfig(story.form, url, authority, token, &vm.spec.namespace);
        Ok(Self {
            vm,
            tree,
            kubelet,
            dir,
        })
    }
}

/// A token with the claims of a service account's and a signature that is not valid; the same for the same account, so that
/// a server that knows it can serve the next world too.
#[must_use]
pub fn service_account_token(namespace: &str, name: &str) -> String {
    use base64::Engine;
    let account = uuid::Uuid::new_v5(
        &uuid::Uuid::NAMESPACE_OID,
        format!("{namespace}/{name}").as_bytes(),
    );
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let header = json!({"alg": "RS256", "kid": "lab"});
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": format!("{name}-token"),
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account.to_string(),
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    format!(
        "{}.{}.{}",
        encode(header.to_string().as_bytes()),
        encode(claims.to_string().as_bytes()),
        // As long as an RS256 signature is.
        encode(&account.as_bytes().repeat(16))
    )
}

/// What a kubelet does at its start.
pub(super) async fn register_node(
    as_kubelet: &Admin,
    name: &str,
    address: &str,
) -> Result<(), ApiError> {
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "rke.cattle.io/machine": "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d",
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {},
    });
    as_kubelet.create(paths::NODES, &node).await?;
    // As old as its server, which is what Kubernetes supports in any case.
    let server = as_kubelet.get("/version").await?;
    let status = json!({"status": {
        "addresses": [
            {"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name},
        ],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
        ],
        "nodeInfo": {
            "osImage": "SUSE Linux Enterprise Server 15 SP6", "kubeletVersion": server["gitVersion"], "architecture": "amd64",
            "operatingSystem": "linux", "kernelVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
            "containerRuntimeVersion": "", "kubeProxyVersion": "",
        },
    }});
    as_kubelet
        .strategic_patch_status(&paths::node(name), &status)
        .await
        .map(drop)
}
