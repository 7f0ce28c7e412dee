// SPDX-License-Identifier: Apache-2.0
//! The resources of KubeVirt and Harvester on a bare API server.

use serde_json::{Value, json};

use super::RealApi;
use crate::admin::ApiError;
use crate::world::{SOON, eventually};

impl RealApi {
    /// The resources of KubeVirt and Harvester. None has a status subresource: KubeVirt changes labels and status of a
    /// VirtualMachineInstance in one update, and the order of its updates is what the scenarios are about.
    ///
    /// # Panics
    /// When they are not served soon.
    pub async fn install_kubevirt_crds(&self) -> Result<(), ApiError> {
        let admin = self.admin();
        let kinds = [
            ("kubevirt.io", "v1", "VirtualMachine", "Namespaced"),
            ("kubevirt.io", "v1", "VirtualMachineInstance", "Namespaced"),
            ("harvesterhci.io", "v1beta1", "Setting", "Cluster"),
        ];
        for (group, version, kind, scope) in kinds {
            admin
                .create_if_absent(
                    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                    &definition(group, version, kind, scope),
                )
                .await?;
        }
        for (group, version, kind, _) in kinds {
            let path = format!("/apis/{group}/{version}/{}s", kind.to_lowercase());
            let is_served = async || admin.get(&path).await.is_ok();
            eventually(SOON, &path, is_served).await;
        }
        Ok(())
    }
}

fn definition(group: &str, version: &str, kind: &str, scope: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
