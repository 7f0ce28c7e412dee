// SPDX-License-Identifier: Apache-2.0
//! What Harvester writes before a VM moves or stops: an eviction, the maintenance of a host, a stop and a deletion, step by step.

use serde_json::{Value, json};

use super::vm::now;
use super::{Harvester, Vm};
use crate::admin::ApiError;

/// The annotation of a VM that the maintenance of this host stops.
const MAINTAINED_HOST: &str = "harvesterhci.io/maintain-mode-strategy-node-name";

/// The label with what the maintenance of a host does with a VM.
const STRATEGY: &str = "harvesterhci.io/maintain-mode-strategy";

/// The finalizer with which an instance stays until its guest is stopped.
const FINALIZER: &str = "foregroundDeleteVirtualMachine";

impl Harvester {
    /// The eviction of a pod marks its instance, as a drain does. From KubeVirt 1.7 with a condition.
    pub async fn evict(&self, vm: &Vm) -> Result<(), ApiError> {
        self.update_vmi(vm, |vmi| {
            let host = vmi["status"]["nodeName"].clone();
            let status = &mut vmi["status"];
            status["evacuationNodeName"] = host;
            if let Some(conditions) = status["conditions"].as_array_mut() {
                conditions.push(json!({
                    "type": "EvictionRequested", "status": "True", "reason": "EvictionRequested",
                    "lastProbeTime": null, "lastTransitionTime": now(),
                }));
            }
        })
        .await
        .map(drop)
    }

    /// The eviction is over, or taken back.
    pub async fn clear_eviction(&self, vm: &Vm) -> Result<(), ApiError> {
        self.update_vmi(vm, |vmi| {
            let status = &mut vmi["status"];
            if let Some(status) = status.as_object_mut() {
                status.remove("evacuationNodeName");
            }
            if let Some(conditions) = status["conditions"].as_array_mut() {
                conditions.retain(|condition| condition["type"] != "EvictionRequested");
            }
        })
        .await
        .map(drop)
    }

    /// A running migration is aborted.
    pub async fn abort_migration(&self, migration: &super::Migration) -> Result<(), ApiError> {
        self.update_vmi(&migration.vm, |vmi| {
            let state = &mut vmi["status"]["migrationState"];
            state["abortRequested"] = json!(true);
            state["abortStatus"] = json!("Succeeded");
        })
        .await?;
        self.end_as_failed(migration, "migration aborted").await
    }

    /// Sets what the maintenance of the host does with the VM.
    pub async fn set_maintenance_strategy(&self, vm: &Vm, strategy: &str) -> Result<(), ApiError> {
        let patch = json!({"metadata": {"labels": {STRATEGY: strategy}}});
        self.change_vm(vm, &patch).await
    }

    /// The host enters maintenance mode: a VM whose strategy is to stop is annotated and stopped.
    pub async fn maintain(&self, vm: &Vm) -> Result<(), ApiError> {
        let host = self.vmi(vm).await?["status"]["nodeName"].clone();
        let patch = json!({"metadata": {"annotations": {MAINTAINED_HOST: host}}});
        self.change_vm(vm, &patch).await?;
        self.begin_stop(vm, true).await
    }

    /// The instance is deleted and its guest shuts down. `halted`: the VM is not to start again.
    pub async fn begin_stop(&self, vm: &Vm, halted: bool) -> Result<(), ApiError> {
        if halted {
            let patch = json!({"spec": {"runStrategy": "Halted"}});
            self.change_vm(vm, &patch).await?;
        }
        self.update_vmi(vm, |vmi| {
            vmi["metadata"]["finalizers"] = json!([FINALIZER]);
        })
        .await?;
        self.admin.delete(&vm.vmi_path()).await
    }

    /// The VM is deleted, and with it its instance.
    pub async fn begin_deletion(&self, vm: &Vm) -> Result<(), ApiError> {
        let patch = json!({"metadata": {"finalizers": [FINALIZER]}});
        self.change_vm(vm, &patch).await?;
        self.admin.delete(&vm.vm_path()).await?;
        self.begin_stop(vm, false).await
    }

    /// The guest has stopped: the instance and its pods are gone.
    pub async fn end_stop(&self, vm: &Vm) -> Result<(), ApiError> {
        let released = json!({"metadata": {"finalizers": null}});
        self.admin.merge_patch(&vm.vmi_path(), &released).await?;
        self.stop_vm(vm).await
    }

    async fn change_vm(&self, vm: &Vm, patch: &Value) -> Result<(), ApiError> {
        self.admin.merge_patch(&vm.vm_path(), patch).await.map(drop)
    }
}
