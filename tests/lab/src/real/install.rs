// SPDX-License-Identifier: Apache-2.0
//! The resources of KubeVirt and Harvester on a bare API server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{POLL, RealApi};
use crate::admin::ApiError;

/// A custom resource is served within a second after its definition; the rest is patience for a busy machine.
const CRD_TIMEOUT: Duration = Duration::from_secs(30);

impl RealApi {
    /// The resources of KubeVirt and Harvester. None has a status subresource: KubeVirt changes labels and status of a
    /// VirtualMachineInstance in one update, and the order of its updates is what the scenarios are about.
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
        let deadline = Instant::now() + CRD_TIMEOUT;
        for (group, version, kind, _) in kinds {
            let path = format!("/apis/{group}/{version}/{}s", kind.to_lowercase());
            while let Err(error) = admin.get(&path).await {
                if Instant::now() > deadline {
                    return Err(error);
                }
                tokio::time::sleep(POLL).await;
            }
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
