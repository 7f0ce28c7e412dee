// SPDX-License-Identifier: Apache-2.0
//! Who may read what on a Harvester: the roles it comes with, and their bindings.

use serde_json::{Value, json};

use super::{Harvester, PUBLIC_NAMESPACE};
use crate::admin::ApiError;

/// The role that lets a credential get the hosts, and the beginning of its bindings' names.
pub const HOST_NODES: &str = "lab-host-nodes";

/// The role of a guest cluster's CSI driver.
const CSI_DRIVER: &str = "harvesterhci.io:csi-driver";

/// What everybody may do in [`PUBLIC_NAMESPACE`].
const PUBLIC_VIEW: &str = "lab-public-view";

/// What KubeVirt lets everybody read who has any credential.
const KUBEVIRT_DEFAULT: &str = "kubevirt.io:default";

impl Harvester {
    /// Installs what a Harvester comes with: the roles of a guest cluster's credential, what everybody may read, and the
    /// setting `server-version`. The resources have to be there.
    pub async fn install(&self, server_version: &str) -> Result<(), ApiError> {
        let admin = &self.admin;
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        self.create_namespace(PUBLIC_NAMESPACE).await?;
        for role in [
            cloud_provider_role(),
            csi_driver_role(),
            authenticated_role(),
            kubevirt_role(),
            public_view_role(),
        ] {
            let collection = format!("{rbac}/clusterroles");
            admin.create_if_absent(&collection, &role).await?;
        }
        let everybody = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]);
        for role in ["harvester-authenticated", KUBEVIRT_DEFAULT] {
            let binding = binding("ClusterRoleBinding", role, role, &everybody);
            let collection = format!("{rbac}/clusterrolebindings");
            admin.create_if_absent(&collection, &binding).await?;
        }
        admin
            .create_if_absent(
                &format!("{rbac}/namespaces/{PUBLIC_NAMESPACE}/rolebindings"),
                &binding("RoleBinding", "harvester-public", PUBLIC_VIEW, &everybody),
            )
            .await?;
        let settings = "/apis/harvesterhci.io/v1beta1/settings";
        let path = format!("{settings}/server-version");
        admin
            .create_if_absent(settings, &setting("server-version", server_version))
            .await?;
        let version = json!({"value": server_version});
        admin.merge_patch(&path, &version).await.map(drop)
    }

    /// Creates a namespace unless it is there.
    pub async fn create_namespace(&self, name: &str) -> Result<(), ApiError> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.admin
            .create_if_absent("/api/v1/namespaces", &namespace)
            .await
    }

    /// Binds Harvester's `cloudprovider` role to a service account in its namespace, as Harvester's API does for Rancher.
    pub async fn bind_cloud_provider(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let subject = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
        let binding = binding(
            "RoleBinding",
            &format!("{namespace}-{name}"),
            "harvesterhci.io:cloudprovider",
            &subject,
        );
        let collection =
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        self.admin.create_if_absent(&collection, &binding).await?;
        self.bind_csi_driver(namespace, name).await
    }

    /// Binds the role of Harvester's CSI driver, which is about objects outside of any namespace.
    pub async fn bind_csi_driver(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let subject = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
        let name = format!("{namespace}-{name}");
        let binding = binding("ClusterRoleBinding", &name, CSI_DRIVER, &subject);
        self.admin
            .create_if_absent(&format!("{rbac}/clusterrolebindings"), &binding)
            .await
    }

    /// Takes [`Harvester::bind_cloud_provider`](super::Harvester::bind_cloud_provider) back.
    pub async fn unbind_cloud_provider(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{namespace}-{name}"
        );
        self.admin.delete_if_present(&path).await
    }

    /// Lets a service account get (and nothing else) the Nodes, which Harvester's own roles do not.
    pub async fn grant_host_nodes(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": HOST_NODES},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
        });
        let admin = &self.admin;
        admin
            .create_if_absent(&format!("{rbac}/clusterroles"), &role)
            .await?;
        let subject = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
        let name = format!("{HOST_NODES}-{namespace}-{name}");
        let binding = binding("ClusterRoleBinding", &name, HOST_NODES, &subject);
        admin
            .create_if_absent(&format!("{rbac}/clusterrolebindings"), &binding)
            .await
    }

    /// Takes [`Harvester::grant_host_nodes`](super::Harvester::grant_host_nodes) back.
    pub async fn revoke_host_nodes(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{HOST_NODES}-{namespace}-{name}"
        );
        self.admin.delete_if_present(&path).await
    }
}

/// The role that Harvester gives to a guest cluster's cloud provider.
fn cloud_provider_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "harvesterhci.io:cloudprovider"},
        "rules": [
            {
                "apiGroups": ["loadbalancer.harvesterhci.io"], "resources": ["loadbalancers"],
                "verbs": ["get", "list", "watch", "update", "create", "delete"],
            },
            {
                "apiGroups": ["subresources.kubevirt.io"],
                "resources": [
                    "virtualmachines/addvolume", "virtualmachines/removevolume", "virtualmachineinstances/addvolume",
                    "virtualmachineinstances/removevolume", "virtualmachineinstances/guestosinfo",
                ],
                "verbs": ["get", "update"],
            },
            {
                "apiGroups": ["kubevirt.io"], "resources": ["virtualmachines", "virtualmachineinstances"],
                "verbs": ["get", "list", "watch"],
            },
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
            {
                "apiGroups": [""], "resources": ["persistentvolumeclaims", "persistentvolumeclaims/status"],
                "verbs": ["*"],
            },
        ],
    })
}

/// The role that Harvester gives to a guest cluster's CSI driver, as far as all its releases agree.
fn csi_driver_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": CSI_DRIVER},
        "rules": [{
            "apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get", "list", "watch"],
        }],
    })
}

/// What Harvester lets everybody read who has any credential.
fn authenticated_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "harvester-authenticated"},
        "rules": [
            {
                "apiGroups": ["harvesterhci.io"], "resources": ["settings"], "verbs": ["get", "watch"],
                "resourceNames": [
                    "server-version", "default-storage-class", "harvester-csi-ccm-versions",
                    "default-vm-termination-grace-period-seconds",
                ],
            },
            {
                "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "watch"],
                "resourceNames": ["harvester-public"],
            },
        ],
    })
}

/// The part of KubeVirt's own role for everybody that is about versions.
fn kubevirt_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": KUBEVIRT_DEFAULT},
        "rules": [
            {"apiGroups": ["kubevirt.io"], "resources": ["kubevirts"], "verbs": ["get", "list"]},
            {"apiGroups": ["subresources.kubevirt.io"], "resources": ["version", "guestfs"], "verbs": ["get", "list"]},
        ],
    })
}

/// One of Harvester's settings.
fn setting(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1",
        "kind": "Setting",
        "metadata": {"name": name},
        "value": value,
        "default": "",
        "source": "env",
        "status": {"conditions": null},
    })
}

fn binding(kind: &str, name: &str, role: &str, subjects: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

/// What Kubernetes' own role `view` says of ConfigMaps. A controller fills that one, and none runs here.
fn public_view_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": PUBLIC_VIEW},
        "rules": [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "list", "watch"]}],
    })
}
