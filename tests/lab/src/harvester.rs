// SPDX-License-Identifier: Apache-2.0
//! A Harvester: it schedules VMs on hosts and live-migrates them, with the objects, the order of updates and the delays
//! of the real one. It is a client of whatever API server stands behind its endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};

use crate::Endpoint;
use crate::admin::{Admin, ApiError, paths};

mod access;
mod lifecycle;
mod migration;
mod vm;

pub use access::HOST_NODES;
pub use migration::{Migration, Order};
pub use vm::{Firmware, Vm, VmSpec};
use vm::{domain, networks, now, observed_interfaces, pod, transition, uid};

/// The creator whose VMs Harvester annotates with their host's topology; it does so for no other.
pub const NODE_DRIVER: &str = "docker-machine-driver-harvester";

/// What Harvester copies from a host's labels to a VMI's annotations, under the same keys.
pub const ANNOTATED_LABELS: [&str; 3] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
];

/// The namespace whose ConfigMaps every credential may read.
pub const PUBLIC_NAMESPACE: &str = "harvester-public";

const CREATOR: &str = "harvesterhci.io/creator";
const NODE_NAME: &str = "kubevirt.io/nodeName";
const MIGRATION_TARGET: &str = "kubevirt.io/migrationTargetNodeName";

/// Who writes what a VM's pods carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLabels {
    /// Those of the VMI alone.
    VmiOnly,
    /// Region and zone of the host too, as Kubernetes 1.35 adds them when a pod is bound.
    WithTopology,
}

/// A virt-launcher pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its UID, which is the key in `status.activePods`.
    pub uid: String,
}

/// The Harvester. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Harvester {
    admin: Admin,
    annotating: Arc<AtomicBool>,
    pod_labels: PodLabels,
}

impl Harvester {
    /// A Harvester on an API server that knows KubeVirt's resources.
    #[must_use]
    pub fn new(endpoint: &Endpoint) -> Self {
        Self {
            admin: Admin::named(endpoint, "harvester"),
            annotating: Arc::new(AtomicBool::new(true)),
            pod_labels: PodLabels::VmiOnly,
        }
    }

    /// The same with pods that carry other labels.
    #[must_use]
    pub fn with_pod_labels(mut self, pod_labels: PodLabels) -> Self {
        self.pod_labels = pod_labels;
        self
    }

    /// Its own client.
    #[must_use]
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    // ---- hosts ----

    /// A new host with these labels beside the usual ones.
    pub async fn add_host(&self, name: &str, labels: &[(&str, &str)]) -> Result<(), ApiError> {
        let mut all: BTreeMap<&str, &str> = BTreeMap::from([
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("node.kubernetes.io/instance-type", "rke2"),
            ("harvesterhci.io/managed", "true"),
            ("kubevirt.io/schedulable", "true"),
            ("network.harvesterhci.io/mgmt", "true"),
        ]);
        all.extend(labels.iter().copied());
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": all},
            "spec": {"providerID": format!("rke2://{name}")},
        });
        self.admin.create(paths::NODES, &node).await?;
        let status = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {
                "osImage": "Harvester v1.6.1", "kubeletVersion": "v1.33.5+rke2r1", "architecture": "amd64",
                "operatingSystem": "linux", "kernelVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
                "containerRuntimeVersion": "", "kubeProxyVersion": "",
            },
        }});
        self.admin
            .strategic_patch_status(&paths::node(name), &status)
            .await
            .map(drop)
    }

    /// Changes labels of a host; `None` removes one. The VMIs' annotations do not follow before the VMI's next update,
    /// since Harvester does not watch its hosts.
    pub async fn relabel_host(
        &self,
        name: &str,
        labels: &[(&str, Option<&str>)],
    ) -> Result<(), ApiError> {
        let labels: Map<String, Value> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let patch = json!({"metadata": {"labels": labels}});
        let path = paths::node(name);
        self.admin.merge_patch(&path, &patch).await.map(drop)
    }

    /// Publishes the topology of all hosts in a ConfigMap that every credential may read: host name to JSON of labels.
    pub async fn publish_topology(&self, configmap: &str) -> Result<(), ApiError> {
        let mut data = BTreeMap::new();
        for node in self.admin.list(paths::NODES).await? {
            let mut labels = node["metadata"]["labels"].clone();
            if let Some(labels) = labels.as_object_mut() {
                labels.retain(|key, _| key.starts_with("topology."));
            }
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            data.insert(name.to_owned(), labels.to_string());
        }
        self.publish(configmap, &data).await
    }

    /// Publishes a ConfigMap with this content in [`PUBLIC_NAMESPACE`].
    pub async fn publish(
        &self,
        configmap: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<(), ApiError> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": configmap}, "data": data,
        });
        let collection = paths::core(PUBLIC_NAMESPACE, "configmaps");
        let path = format!("{collection}/{configmap}");
        if self.admin.find(&path).await?.is_some() {
            self.admin.replace(&path, &object).await.map(drop)
        } else {
            self.admin.create(&collection, &object).await.map(drop)
        }
    }

    // ---- VMs ----

    /// Creates a VM and runs it on a host.
    pub async fn create_vm(&self, spec: VmSpec, host: &str) -> Result<Vm, ApiError> {
        let firmware_uuid = spec.firmware_uuid();
        let macs: Map<String, Value> = spec
            .macs
            .iter()
            .enumerate()
            .map(|(index, mac)| (format!("nic-{index}"), json!(mac)))
            .collect();
        let mut template = json!({
            "architecture": "amd64",
            "domain": domain(&spec, &firmware_uuid),
            "evictionStrategy": "LiveMigrateIfPossible",
            "networks": networks(&spec),
            "terminationGracePeriodSeconds": 120,
        });
        if let Some(hostname) = &spec.hostname {
            template["hostname"] = json!(hostname);
        }
        let labels = spec.labels();
        let object = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {
                "name": spec.name, "namespace": spec.namespace, "labels": labels,
                "annotations": {
                    "harvesterhci.io/mac-address": Value::Object(macs).to_string(),
                    "harvesterhci.io/vmRunStrategy": "RerunOnFailure",
                },
            },
            "spec": {
                "runStrategy": "RerunOnFailure",
                "template": {"metadata": {"labels": labels}, "spec": template},
            },
            "status": {"created": true, "ready": true, "printableStatus": "Running", "runStrategy": "RerunOnFailure"},
        });
        let collection = paths::grouped("kubevirt.io/v1", &spec.namespace, "virtualmachines");
        let created = self.admin.create(&collection, &object).await?;
        let vm = Vm {
            uid: uid(&created),
            spec,
            firmware_uuid,
        };
        self.start_vm(&vm, host).await?;
        Ok(vm)
    }

    /// Runs a VM that is stopped: a new VMI with a new UID, and its pod.
    pub async fn start_vm(&self, vm: &Vm, host: &str) -> Result<(), ApiError> {
        let machine = self.admin.get(&vm.vm_path()).await?;
        let mut spec = machine["spec"]["template"]["spec"].clone();
        for (index, mac) in vm.spec.macs.iter().enumerate() {
            spec["domain"]["devices"]["interfaces"][index]["macAddress"] = json!(mac);
        }
        let object = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": vm.spec.name, "namespace": vm.spec.namespace, "labels": vm.spec.labels(),
                "annotations": {"harvesterhci.io/sshNames": "[]", "kubevirt.io/vm-generation": "1"},
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": vm.spec.name, "uid": vm.uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
            "status": {"phase": "Pending", "phaseTransitionTimestamps": [transition("Pending")]},
        });
        let collection = paths::grouped(
            "kubevirt.io/v1",
            &vm.spec.namespace,
            "virtualmachineinstances",
        );
        let vmi = self.admin.create(&collection, &object).await?;
        let pod = self.create_pod(vm, &uid(&vmi), host).await?;
        let interfaces = observed_interfaces(&vm.spec);
        self.update_vmi(vm, |vmi| {
            vmi["metadata"]["labels"][NODE_NAME] = json!(host);
            let status = &mut vmi["status"];
            status["phase"] = json!("Running");
            if let Some(transitions) = status["phaseTransitionTimestamps"].as_array_mut() {
                transitions.push(transition("Running"));
            }
            status["nodeName"] = json!(host);
            status["activePods"] = json!({&pod.uid: host});
            status["interfaces"] = interfaces.clone();
            status["conditions"] = json!([
                {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": now()},
                {"type": "LiveMigratable", "status": "True", "lastProbeTime": null, "lastTransitionTime": null},
                {"type": "AgentConnected", "status": "True", "lastProbeTime": now(), "lastTransitionTime": null},
            ]);
            status["guestOSInfo"] = json!({"id": "sles", "name": "SLES", "versionId": "15.6"});
            status["launcherContainerImageVersion"] = json!("virt-launcher:1.5.2");
        })
        .await?;
        self.reconcile(vm).await
    }

    /// Stops a VM: its VMI and pods are gone, the VM stays.
    pub async fn stop_vm(&self, vm: &Vm) -> Result<(), ApiError> {
        for pod in self.pods(vm).await? {
            self.admin
                .delete_if_present(&vm.pod_path(&pod.name))
                .await?;
        }
        self.admin.delete_if_present(&vm.vmi_path()).await
    }

    /// Stops a VM and runs it on a host, the same or another: the VMI's UID is new, the VM's is not.
    pub async fn restart_vm(&self, vm: &Vm, host: &str) -> Result<(), ApiError> {
        self.stop_vm(vm).await?;
        self.start_vm(vm, host).await
    }

    /// Deletes a VM with all that belongs to it.
    pub async fn delete_vm(&self, vm: &Vm) -> Result<(), ApiError> {
        self.stop_vm(vm).await?;
        self.admin.delete(&vm.vm_path()).await
    }

    /// The VMI as it stands.
    pub async fn vmi(&self, vm: &Vm) -> Result<Value, ApiError> {
        self.admin.get(&vm.vmi_path()).await
    }

    /// Some update of the VMI that says nothing new, as there is one every few minutes; Harvester's controller runs on it.
    pub async fn touch(&self, vm: &Vm) -> Result<(), ApiError> {
        self.update_vmi(vm, |vmi| {
            vmi["metadata"]["annotations"]["lab.harvesterhci.io/touched"] =
                json!(uuid::Uuid::new_v4().to_string());
        })
        .await?;
        self.reconcile(vm).await
    }

    // ---- annotations ----

    /// From now on Harvester's controller is down: annotations stay as they are until a test calls
    /// [`Harvester::annotate`].
    pub fn stop_annotating(&self) {
        self.annotating.store(false, Ordering::SeqCst);
    }

    /// Copies the host's topology to the VMI's annotations, as Harvester's controller does, whoever created the VM.
    pub async fn annotate(&self, vm: &Vm) -> Result<(), ApiError> {
        let vmi = self.vmi(vm).await?;
        let host = vmi["status"]["nodeName"].as_str().unwrap_or_default();
        // Without a host the controller changes nothing.
        let Some(node) = self.admin.find(&paths::node(host)).await? else {
            return Ok(());
        };
        let wanted: Map<String, Value> = ANNOTATED_LABELS
            .iter()
            .map(|key| ((*key).to_owned(), node["metadata"]["labels"][key].clone()))
            .collect();
        let is_same = wanted
            .iter()
            .all(|(key, value)| vmi["metadata"]["annotations"][key] == *value);
        if is_same {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": wanted}});
        self.admin
            .merge_patch(&vm.vmi_path(), &patch)
            .await
            .map(drop)
    }

    /// What the controller does on an update of a VMI.
    async fn reconcile(&self, vm: &Vm) -> Result<(), ApiError> {
        let gated = vm.spec.creator.as_deref() == Some(NODE_DRIVER);
        if gated && self.annotating.load(Ordering::SeqCst) {
            self.annotate(vm).await
        } else {
            Ok(())
        }
    }

    // ---- pods ----

    /// The virt-launcher pods of a VM.
    pub async fn pods(&self, vm: &Vm) -> Result<Vec<Pod>, ApiError> {
        let pods = paths::core(&vm.spec.namespace, "pods");
        let selector = format!(
            "{pods}?labelSelector=harvesterhci.io/vmName%3D{}",
            vm.spec.name
        );
        let pods = self.admin.list(&selector).await?;
        Ok(pods.iter().map(pod).collect())
    }

    /// Takes region and zone off the pods of a VM, as where the host had none when they were made.
    pub async fn unlabel_pods(&self, vm: &Vm) -> Result<(), ApiError> {
        let bare = json!({"metadata": {"labels": {
            ANNOTATED_LABELS[0]: null, ANNOTATED_LABELS[1]: null,
        }}});
        for pod in self.pods(vm).await? {
            self.admin
                .merge_patch(&vm.pod_path(&pod.name), &bare)
                .await?;
        }
        Ok(())
    }

    async fn create_pod(&self, vm: &Vm, vmi_uid: &str, host: &str) -> Result<Pod, ApiError> {
        let mut labels = vm.spec.labels();
        for (key, value) in [
            ("kubevirt.io", "virt-launcher"),
            ("kubevirt.io/created-by", vmi_uid),
            (NODE_NAME, host),
            ("vm.kubevirt.io/name", &vm.spec.name),
            ("vmi.kubevirt.io/id", &vm.spec.name),
        ] {
            labels.insert(key.to_owned(), json!(value));
        }
        if self.pod_labels == PodLabels::WithTopology {
            let node = self.admin.get(&paths::node(host)).await?;
            for key in &ANNOTATED_LABELS[..2] {
                if let Some(value) = node["metadata"]["labels"].get(key) {
                    labels.insert((*key).to_owned(), value.clone());
                }
            }
        }
        let suffix = uuid::Uuid::new_v4().simple().to_string();
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("virt-launcher-{}-{}", vm.spec.name, &suffix[..5]),
                "namespace": vm.spec.namespace,
                "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vm.spec.name,
                    "uid": vmi_uid, "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeName": host,
                "automountServiceAccountToken": false,
                "containers": [{"name": "compute", "image": "virt-launcher"}],
            },
        });
        let collection = paths::core(&vm.spec.namespace, "pods");
        Ok(pod(&self.admin.create(&collection, &object).await?))
    }

    async fn update_vmi(&self, vm: &Vm, change: impl FnMut(&mut Value)) -> Result<Value, ApiError> {
        self.admin.update(&vm.vmi_path(), change).await
    }
}
