// SPDX-License-Identifier: Apache-2.0
//! The objects of both APIs, as far as only `doctor` needs them. Lists are cut: the largest answer could have a million entries.

use core::net::IpAddr;
use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::commands::doctor::release::Release;
use crate::facts::node::NodeCondition;
use crate::facts::topology::{LabelValue, ZONE};
use crate::facts::{Fact, UnavailableKind};
use crate::sys::document::json::{Leading, StringMap, objects};

/// The taint of a Node that a cloud provider has not initialized, or must initialize again.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The image of Harvester's cloud provider, which runs on one Node of the cluster.
pub(super) const CLOUD_PROVIDER: &str = "harvester-cloud-provider";

/// The image of Harvester's CSI driver, which runs on every Node.
pub(super) const CSI_DRIVER: &str = "harvester-csi-driver";

/// The image of KubeVirt's own cloud provider.
pub(super) const KUBEVIRT_CLOUD_PROVIDER: &str = "kubevirt-cloud-controller-manager";

/// The maximum number of kept images of one pod.
const IMAGES_MAX: usize = 8;

/// The source of an interface that the guest agent reported, as set by `pkg/virt-handler`.
const GUEST_AGENT: &str = "guest-agent";

/// An object of either API.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Object<S, T> {
    metadata: Metadata,
    pub(super) spec: S,
    status: T,
}

objects! {
    struct Metadata {
        namespace: String,
        name: String,
        labels: StringMap,
        creation_timestamp: Option<String>,
    }

    pub(super) struct NodeSpec { taints: Leading<Taint, 256>, }

    struct Taint {
        key: Option<String>,
        effect: Option<String>,
        time_added: Option<String>,
    }

    pub(super) struct NodeStatus {
        addresses: Leading<NodeAddress, 256>,
        capacity: StringMap,
        node_info: NodeInfo,
    }

    struct NodeAddress {
        r#type: Option<String>,
        address: Option<String>,
    }

    struct NodeInfo { kubelet_version: Option<String>, }

    struct PodSpec { containers: Leading<PodContainer, 256>, }

    struct PodContainer { image: Option<String>, }

    struct PodStatus { phase: Option<String>, }

    pub(super) struct InstanceSpec {
        domain: InstanceDomain,
        pub(super) eviction_strategy: Option<String>,
        #[serde(rename = "terminationGracePeriodSeconds")]
        pub(super) grace_period: Option<u64>,
        pub(super) node_selector: StringMap,
    }

    struct InstanceDomain { devices: InstanceDevices, }

    struct InstanceDevices { interfaces: Leading<GivenInterface, 4096>, }

    struct GivenInterface {
        name: Option<String>,
        masquerade: Option<IgnoredAny>,
    }

    pub(super) struct InstanceStatus {
        conditions: Leading<NodeCondition, 256>,
        /// Of KubeVirt and of the guest agent, which also reports those of each container.
        interfaces: Leading<SeenInterface, 4096>,
        launcher_container_image_version: Option<String>,
    }

    struct SeenInterface {
        name: Option<String>,
        info_source: Option<String>,
        /// With kube-proxy in IPVS mode, an interface has one for each Service.
        ip_addresses: Leading<String, 64>,
    }

    pub(super) struct Setting { pub(super) value: Option<String>, }
}

/// Our Node.
pub(super) type NodeObject = Object<NodeSpec, NodeStatus>;

/// The taint `node.cloudprovider.kubernetes.io/uninitialized`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Uninitialized {
    /// The effect: `NoSchedule` from a kubelet that registers, `PreferNoSchedule` from Harvester's cloud provider if it must read
    /// region and zone again.
    pub(super) effect: String,
    /// The time when it was added, as a Unix timestamp; for the taint of a kubelet that registers, the creation time of the
    /// Node.
    pub(super) since: Option<i64>,
}

impl NodeObject {
    /// Returns the creation time, as a Unix timestamp.
    pub(super) fn created(&self) -> Option<i64> {
        seconds(self.metadata.creation_timestamp.as_deref()?)
    }

    /// Returns the release of the kubelet.
    pub(super) fn kubelet(&self) -> Fact<Release> {
        release(self.status.node_info.kubelet_version.as_deref())
    }

    /// Returns the taint of a Node that no cloud provider has initialized.
    pub(super) fn uninitialized(&self) -> Option<Uninitialized> {
        let mut taints = self.spec.taints.0.iter();
        let taint = taints.find(|taint| taint.key.as_deref() == Some(UNINITIALIZED))?;
        let effect = taint.effect.clone().unwrap_or_default();
        let since = match &taint.time_added {
            Some(added) => seconds(added),
            None => self.created().filter(|_| effect == "NoSchedule"),
        };
        Some(Uninitialized { effect, since })
    }

    /// Returns the valid addresses with type `InternalIP`.
    pub(super) fn internal_ips(&self) -> Vec<IpAddr> {
        let addresses = self.status.addresses.0.iter();
        let internal = addresses.filter(|one| one.r#type.as_deref() == Some("InternalIP"));
        let parsed = internal.filter_map(|one| one.address.as_deref()?.parse().ok());
        parsed.collect()
    }

    /// Returns the capacity of a resource, which the kubelet writes in this unit only.
    pub(super) fn capacity(&self, resource: &str, unit: &str) -> Option<u64> {
        let text = self.status.capacity.get(resource)?;
        text.strip_suffix(unit)?.parse().ok()
    }
}

/// One pod of a list, or why it cannot be parsed: anyone who may create pods must not hide the others.
#[derive(Debug)]
pub(super) struct ListedPod(pub(super) Result<Pod, String>);

impl<'de> Deserialize<'de> for ListedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(
            serde_json::from_str(text.get()).map_err(|error| error.to_string()),
        ))
    }
}

/// One pod on our Node. The list may have thousands.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "PodObject")]
pub struct Pod {
    /// `namespace/name`.
    pub(super) reference: String,
    /// The images of its containers that matter here, such as `rancher/harvester-csi-driver:v0.2.2`.
    images: Vec<String>,
    /// The zone of the Node at its creation, which Kubernetes 1.35 and later adds as a label (KEP-4742). `None` for a pod that has
    /// ended.
    pub(super) zone: Option<LabelValue>,
}

/// A Harvester component in the guest cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Component {
    /// The release.
    pub(super) release: Release,
    /// The pod on this Node whose image has it, `namespace/name`.
    pub(super) pod: String,
}

type PodObject = Object<PodSpec, PodStatus>;

impl From<PodObject> for Pod {
    fn from(pod: PodObject) -> Self {
        let metadata = pod.metadata;
        let names = [CLOUD_PROVIDER, CSI_DRIVER, KUBEVIRT_CLOUD_PROVIDER];
        let matters = |image: &String| names.iter().any(|name| image.contains(name));
        let containers = pod.spec.containers.0.into_iter();
        let images = containers.filter_map(|container| container.image);
        let has_ended = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let zone = metadata.labels.get(ZONE).filter(|_| !has_ended);
        let mut images: Vec<String> = images.filter(matters).take(IMAGES_MAX).collect();
        // The memory of all containers would be kept for each of thousands of pods.
        images.shrink_to_fit();
        Self {
            reference: format!("{}/{}", metadata.namespace, metadata.name),
            images,
            zone: zone.and_then(|zone| LabelValue::parse(zone).ok()),
        }
    }
}

impl Pod {
    /// Returns the tag of its image with this name, the last part of the path of the image.
    pub(super) fn tag(&self, name: &str) -> Option<&str> {
        let images = self.images.iter();
        let mut tags = images.filter_map(|image| {
            let image = image.split('@').next()?;
            let (found, tag) = image.rsplit('/').next()?.split_once(':')?;
            (found == name).then_some(tag)
        });
        tags.next()
    }
}

/// The pods on our Node.
#[derive(Debug, Default)]
pub(super) struct Pods {
    /// Those that can be parsed.
    pub(super) list: Vec<Pod>,
    /// The error of the first pod that cannot be parsed.
    pub(super) unreadable: Option<String>,
}

impl Pods {
    /// Separates the pods that can be parsed from the others.
    pub(super) fn new(listed: Vec<ListedPod>) -> Self {
        let mut pods = Self::default();
        for ListedPod(pod) in listed {
            match pod {
                Ok(pod) => pods.list.push(pod),
                Err(error) => pods.unreadable = pods.unreadable.or(Some(error)),
            }
        }
        pods
    }

    /// Returns the component with this image that one of the pods runs.
    pub(super) fn component(&self, image: &str) -> Fact<Component> {
        let mut pods = self.list.iter();
        let Some((pod, tag)) = pods.find_map(|pod| Some((pod, pod.tag(image)?))) else {
            return Fact::Absent;
        };
        let pod = pod.reference.clone();
        match Release::parse(tag) {
            Ok(release) => Fact::Known(Component { release, pod }),
            Err(error) => {
                let text = format!("image tag of pod {pod}: {error}");
                Fact::failed(UnavailableKind::Malformed, text)
            }
        }
    }
}

/// The VMI of our VM.
pub(super) type Instance = Object<InstanceSpec, InstanceStatus>;

/// A NIC and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    /// The name: in the VM's specification, or on this machine.
    pub(super) name: String,
    /// The addresses.
    pub(super) addresses: Vec<IpAddr>,
}

impl Instance {
    /// Returns a label that is not empty.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let value = self.metadata.labels.get(key)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    fn condition(&self, kind: &str, status: &str) -> Option<&NodeCondition> {
        let mut conditions = self.status.conditions.0.iter();
        conditions.find(|condition| *condition.kind == *kind && *condition.status == *status)
    }

    /// Returns why it cannot be live-migrated: reason and message of the condition `LiveMigratable`.
    pub(super) fn not_migratable(&self) -> Option<String> {
        let condition = self.condition("LiveMigratable", "False")?;
        let reason = condition.reason.as_deref().unwrap_or_default();
        let message = condition.message.as_deref().unwrap_or_default();
        Some(format!("{reason}: {message}"))
    }

    /// Reports whether the host is connected to the QEMU guest agent.
    pub(super) fn is_agent_connected(&self) -> bool {
        self.condition("AgentConnected", "True").is_some()
    }

    /// Returns the release of KubeVirt, from an image such as `REGISTRY/virt-launcher:1.5.2-150600.5.1`.
    pub(super) fn launcher(&self) -> Fact<Release> {
        let image = self.status.launcher_container_image_version.as_deref();
        let last = image.unwrap_or_default().rsplit('/').next();
        let tag = last.and_then(|last| last.split_once(':'));
        release(tag.map(|(_, tag)| tag))
    }

    /// Returns the interfaces of the specification with addresses that the guest itself reported. An interface without a name was
    /// created by the guest (cni0, cali*), and with masquerade the address is that of the pod.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        let given = self.spec.domain.devices.interfaces.0.iter();
        let masked = given.filter(|given| given.masquerade.is_some());
        let masked: BTreeSet<&str> = masked.filter_map(|given| given.name.as_deref()).collect();
        let seen = self.status.interfaces.0.iter();
        let seen = seen.filter(|seen| {
            let source = seen.info_source.as_deref();
            source.is_some_and(|source| source.contains(GUEST_AGENT))
        });
        let named = seen.filter_map(|seen| Some((seen.name.as_deref()?, seen)));
        let ours = named.filter(|(name, _)| !name.is_empty() && !masked.contains(name));
        let interfaces = ours.map(|(name, seen)| Interface {
            name: name.to_owned(),
            addresses: seen
                .ip_addresses
                .0
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect(),
        });
        interfaces.collect()
    }
}

/// Parses the release in a field of an API object. Absent if the field is missing or empty.
pub(super) fn release(text: Option<&str>) -> Fact<Release> {
    match text.filter(|text| !text.is_empty()) {
        None => Fact::Absent,
        Some(text) => match Release::parse(text) {
            Ok(release) => Fact::Known(release),
            Err(error) => Fact::failed(UnavailableKind::Malformed, error),
        },
    }
}

/// Parses the time in a field of an API object, as a Unix timestamp.
fn seconds(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(time.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use harvester_lab::expected::cases_are_expected;
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::doctor::testing::object;

    /// The file has objects of each kind, and what is read of them.
    #[test]
    fn of_each_object_the_expected_parts_are_read() {
        cases_are_expected("src/commands/doctor/objects.txt", |case| {
            let (kind, json) = case.split_once(' ').unwrap();
            let json: Value = serde_json::from_str(json).unwrap();
            if kind == "Node" {
                let node: NodeObject = object(json);
                let memory = ["Ki", "Mi"].map(|unit| node.capacity("memory", unit));
                let capacity = (node.capacity("cpu", ""), memory);
                let parts = (node.internal_ips(), capacity, node.kubelet());
                format!("{parts:?}\n{:?}", node.uninitialized())
            } else if kind == "Pod" {
                let pod: Pod = object(json.clone());
                let component = Pods::new(vec![object(json)]).component(CSI_DRIVER);
                format!("{component:?}, zone {:?}", pod.zone)
            } else {
                assert_eq!(kind, "VMI");
                let vmi: Instance = object(json);
                let parts = (vmi.label("a"), vmi.not_migratable(), vmi.launcher());
                let is_connected = vmi.is_agent_connected();
                format!("{:?}\n{parts:?} {is_connected}", vmi.interfaces())
            }
        });
    }

    #[test]
    fn a_long_text_or_list_makes_no_object_unreadable() {
        let long = "x".repeat(40_000);
        let mut taints =
            vec![json!({"key": UNINITIALIZED, "effect": "NoSchedule", "timeAdded": long})];
        taints.resize(300, json!({"key": long}));
        let address = json!({"type": "InternalIP", "address": "192.0.2.1"});
        let node: NodeObject = object(json!({
            "spec": {"taints": taints}, "status": {"addresses": vec![address; 300]},
        }));
        assert!(node.uninitialized().is_some());
        assert_eq!(node.internal_ips().len(), 256);
        let mut conditions = vec![json!({
            "type": "LiveMigratable", "status": "False", "reason": "R", "message": long,
        })];
        conditions.resize(300, json!({"type": "Other", "status": "True"}));
        let addresses = vec![
            json!({"name": "n", "infoSource": "guest-agent", "ipAddresses": vec!["::1"; 5000]});
            2
        ];
        let instance: Instance = object(json!({
            "status": {"conditions": conditions, "interfaces": addresses},
        }));
        assert!(instance.not_migratable().unwrap().starts_with("R: xxx"));
        assert_eq!(instance.interfaces()[0].addresses.len(), 64);
        let unreadable = object::<ListedPod>(json!({"spec": {"containers": "x"}}));
        let pods = Pods::new(vec![unreadable, object(json!({}))]);
        assert_eq!((pods.list.len(), pods.unreadable.is_some()), (1, true));
    }
}
