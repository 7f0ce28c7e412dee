// SPDX-License-Identifier: Apache-2.0
//! Live migration, as a whole and step by step.

use std::time::Duration;

use serde_json::json;

use super::vm::{now, uid};
use super::{Harvester, MIGRATION_TARGET, NODE_NAME, Pod, Vm};
use crate::admin::ApiError;

/// In what order KubeVirt says that a migration is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Up to KubeVirt 1.5: the source's handler moves `nodeName` and sets `completed` in one update.
    UpTo1_5,
    /// From KubeVirt 1.6: the target's handler moves `nodeName`; `completed` comes in a later update.
    From1_6,
}

/// A migration that has begun. Its steps are methods of [`Harvester`] that a test may call one by one.
#[derive(Debug, Clone)]
pub struct Migration {
    /// The VM.
    pub vm: Vm,
    /// UID of the VirtualMachineInstanceMigration.
    pub uid: String,
    /// Host that it leaves.
    pub source: String,
    /// Host that it moves to.
    pub target: String,
    /// Pod that it leaves.
    pub source_pod: Pod,
    /// Pod that it moves to.
    pub target_pod: Pod,
}

impl Harvester {
    /// Live-migrates a VM. Harvester's annotations follow `annotations_lag` after the move.
    pub async fn migrate(
        &self,
        vm: &Vm,
        to: &str,
        order: Order,
        annotations_lag: Duration,
    ) -> Result<Migration, ApiError> {
        let migration = self.prepare_migration(vm, to).await?;
        self.copy_memory(&migration).await?;
        self.switch_host(&migration, order).await?;
        let switched = tokio::time::Instant::now();
        self.complete_migration(&migration, order).await?;
        tokio::time::sleep_until(switched + annotations_lag).await;
        self.reconcile(vm).await?;
        self.clean_up_migration(&migration).await?;
        Ok(migration)
    }

    /// Step 1: a pod on the target, and the VMI says that it is to move there.
    pub async fn prepare_migration(&self, vm: &Vm, to: &str) -> Result<Migration, ApiError> {
        let vmi = self.vmi(vm).await?;
        let source = vmi["status"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let active = vmi["status"]["activePods"].as_object().cloned();
        let source_uid = active.and_then(|pods| pods.keys().next().cloned());
        let source_pod = self
            .pods(vm)
            .await?
            .into_iter()
            .find(|pod| Some(&pod.uid) == source_uid.as_ref())
            .expect("a VM that runs has a pod");
        let migration_uid = uuid::Uuid::new_v4().to_string();
        self.update_vmi(vm, |vmi| {
            let annotations = &mut vmi["metadata"]["annotations"];
            annotations["harvesterhci.io/migrationUID"] = json!(migration_uid);
            annotations["harvesterhci.io/migrationState"] = json!("Pending migration");
        })
        .await?;
        self.reconcile(vm).await?;
        let target_pod = self.create_pod(vm, &uid(&vmi), to).await?;
        let migration = Migration {
            vm: vm.clone(),
            uid: migration_uid,
            source,
            target: to.to_owned(),
            source_pod,
            target_pod,
        };
        self.update_vmi(vm, |vmi| {
            vmi["metadata"]["annotations"]["harvesterhci.io/migrationState"] = json!("Migrating");
            vmi["metadata"]["labels"][MIGRATION_TARGET] = json!(migration.target);
            vmi["status"]["activePods"][&migration.target_pod.uid] = json!(migration.target);
            vmi["status"]["migrationState"] = json!({
                "migrationUid": migration.uid,
                "mode": "PreCopy",
                "sourceNode": migration.source,
                "sourcePod": migration.source_pod.name,
                "targetNode": migration.target,
                "targetPod": migration.target_pod.name,
                "targetNodeAddress": "10.52.1.31",
            });
        })
        .await?;
        self.reconcile(vm).await?;
        Ok(migration)
    }

    /// Step 2: memory is copied; the VM still runs on the source.
    pub async fn copy_memory(&self, migration: &Migration) -> Result<(), ApiError> {
        self.update_vmi(&migration.vm, |vmi| {
            let state = &mut vmi["status"]["migrationState"];
            state["startTimestamp"] = json!(now());
            state["targetNodeDomainDetected"] = json!(true);
            state["targetNodeDomainReadyTimestamp"] = json!(now());
        })
        .await?;
        self.reconcile(&migration.vm).await
    }

    /// Step 3: the VM runs on the target, and the VMI says so. Its annotations are still those of the source.
    pub async fn switch_host(&self, migration: &Migration, order: Order) -> Result<(), ApiError> {
        self.update_vmi(&migration.vm, |vmi| {
            vmi["metadata"]["labels"][NODE_NAME] = json!(migration.target);
            vmi["status"]["nodeName"] = json!(migration.target);
            let state = &mut vmi["status"]["migrationState"];
            state["endTimestamp"] = json!(now());
            if order == Order::UpTo1_5 {
                state["completed"] = json!(true);
            } else {
                state["migrationNetworkType"] = json!("Pod");
                state["sourceState"] =
                    json!({"node": migration.source, "pod": migration.source_pod.name});
                state["targetState"] =
                    json!({"node": migration.target, "pod": migration.target_pod.name});
            }
        })
        .await
        .map(drop)
    }

    /// Step 4: `completed`, which up to KubeVirt 1.5 was part of step 3.
    pub async fn complete_migration(
        &self,
        migration: &Migration,
        order: Order,
    ) -> Result<(), ApiError> {
        if order == Order::UpTo1_5 {
            return Ok(());
        }
        self.update_vmi(&migration.vm, |vmi| {
            vmi["status"]["migrationState"]["completed"] = json!(true);
        })
        .await
        .map(drop)
    }

    /// Step 6 (step 5 is [`Harvester::annotate`]): the pod on the source goes.
    pub async fn clean_up_migration(&self, migration: &Migration) -> Result<(), ApiError> {
        self.forget_pod(migration, &migration.source_pod).await
    }

    /// A migration that fails while memory is copied: the VM never left its host.
    pub async fn fail_migration(
        &self,
        vm: &Vm,
        to: &str,
        reason: &str,
    ) -> Result<Migration, ApiError> {
        let migration = self.prepare_migration(vm, to).await?;
        self.copy_memory(&migration).await?;
        self.end_as_failed(&migration, reason).await?;
        Ok(migration)
    }

    /// A begun migration fails: `completed` and `failed`, the host unchanged, the target's pod goes.
    pub async fn end_as_failed(&self, migration: &Migration, reason: &str) -> Result<(), ApiError> {
        self.update_vmi(&migration.vm, |vmi| {
            let state = &mut vmi["status"]["migrationState"];
            state["completed"] = json!(true);
            state["failed"] = json!(true);
            state["failureReason"] = json!(reason);
            state["endTimestamp"] = json!(now());
        })
        .await?;
        self.reconcile(&migration.vm).await?;
        self.forget_pod(migration, &migration.target_pod).await
    }

    async fn forget_pod(&self, migration: &Migration, pod: &Pod) -> Result<(), ApiError> {
        let vm = &migration.vm;
        self.admin
            .delete_if_present(&vm.pod_path(&pod.name))
            .await?;
        self.update_vmi(vm, |vmi| {
            if let Some(pods) = vmi["status"]["activePods"].as_object_mut() {
                pods.remove(&pod.uid);
            }
            if let Some(labels) = vmi["metadata"]["labels"].as_object_mut() {
                labels.remove(MIGRATION_TARGET);
            }
            if let Some(annotations) = vmi["metadata"]["annotations"].as_object_mut() {
                annotations.remove("harvesterhci.io/migrationState");
                annotations.remove("harvesterhci.io/migrationUID");
            }
        })
        .await?;
        self.reconcile(vm).await
    }
}
