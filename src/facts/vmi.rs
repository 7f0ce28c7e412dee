// SPDX-License-Identifier: Apache-2.0
//! The fields of the VirtualMachineInstance (`kubevirt.io/v1`) that the agent uses.
//!
//! All fields are optional in the serialized form, because versions of KubeVirt differ, and a field that we do not need must never
//! make an object unreadable.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;

use super::guest_agent::HostView;
use super::names::{HostName, Namespace, VmName};
use super::nic::Mac;
use super::node::{NodeCondition, required, text};
use super::placement::HostLabels;
use super::scheduled_events::{self, Announcements, StopRequest, WireMigration};
use super::topology::{REGION, ZONE};
use crate::sys::document::json::{Cut, Identifier, Keys, Leading, NAME_BYTES, objects};

/// The label with the creator of a VM.
pub const CREATOR: &str = "harvesterhci.io/creator";

/// The creator whose VMs Harvester annotates with the topology of their host
/// (`pkg/controller/master/virtualmachine/vmi_controller.go`, `ReconcileFromHostLabels`).
pub const ANNOTATED_CREATOR: &str = "docker-machine-driver-harvester";

/// The condition of an instance that is to leave its host.
const EVICTION_REQUESTED: &str = "EvictionRequested";

/// The condition of an instance whose guest has the channel of the QEMU guest agent open.
const AGENT_CONNECTED: &str = "AgentConnected";

/// The condition of an instance whose guest agent lacks or blocks required commands. It stays when the agent disconnects.
const AGENT_NOT_SUPPORTED: &str = "AgentVersionNotSupported";

/// The maximum number of interfaces of a VM that are kept. The guest agent also reports those of each container.
const INTERFACES_MAX: usize = 4096;

/// The maximum number of pods of a VM that are kept. Those of earlier migrations stay until something deletes them.
const PODS_MAX: usize = 64;

/// The maximum number of conditions of a VM that are kept; usually there are about five.
const CONDITIONS_MAX: usize = 1000;

/// The maximum number of owners of an object that are kept.
const OWNERS_MAX: usize = 64;

/// A VirtualMachineInstance.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WireVmi")]
pub struct Vmi {
    /// The name. The VirtualMachine has the same name.
    pub name: VmName,
    /// The namespace.
    pub namespace: Namespace,
    /// The UID of the instance. It changes with each stop and start.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
    /// The UID of the owning VirtualMachine, which `spec.providerID` of the Node contains.
    pub vm_uid: Option<String>,
    /// `spec.hostname`.
    pub hostname: Option<String>,
    /// `spec.domain.firmware.uuid`.
    pub firmware_uuid: Option<Uuid>,
    /// `spec.domain.firmware.serial`.
    pub serial: Option<String>,
    /// The addresses of the interfaces that KubeVirt created. Those that only the guest agent reports are skipped.
    pub macs: BTreeSet<Mac>,
    /// `status.nodeName`: the host that runs the VM. It is the only authoritative source of the host.
    pub host: Option<HostName>,
    /// Whether Harvester writes topology annotations on this VM.
    pub annotated_by_harvester: bool,
    /// The host for which Harvester wrote the annotations, if any.
    pub annotated_host: Option<String>,
    /// The annotations that Harvester copies from the host.
    pub annotations: HostLabels,
    /// The UIDs of the pods in `status.activePods`. There are two during a migration.
    pub active_pods: Vec<String>,
    /// What is announced about its future: a migration, a stop.
    pub announcements: Announcements,
    /// What KubeVirt reports of the QEMU guest agent.
    pub guest_agent: HostView,
}

impl Vmi {
    /// Returns the topology annotations, if they were written for the current host of the VM.
    pub fn annotations_of_host(&self) -> Option<&HostLabels> {
        let host = self.host.as_ref().map(HostName::as_str)?;
        (self.annotated_host.as_deref() == Some(host)).then_some(&self.annotations)
    }

    /// Returns `namespace/name`.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The object in errors.
pub(crate) const INSTANCE: &str = "a VirtualMachineInstance";

objects! {
    struct WireVmi {
        metadata: WireVmiMetadata,
        spec: WireVmiSpec,
        status: WireVmiStatus,
    }

    struct WireVmiMetadata {
        name: Option<Identifier>,
        namespace: Option<Identifier>,
        uid: Option<Identifier>,
        resource_version: Option<Identifier>,
        labels: Option<WireVmiLabels>,
        annotations: Option<WireVmiAnnotations>,
        owner_references: Owners,
        deletion_timestamp: Option<Cut>,
    }

    /// The labels that are used. Others are skipped, however many there are: any user who may change the VM writes them.
    struct WireVmiLabels {
        #[serde(rename = "harvesterhci.io/creator")]
        creator: Option<Cut>,
        #[serde(rename = "kubevirt.io/migrationTargetNodeName")]
        migration_target: Option<Cut>,
    }

    /// The annotations that are used.
    struct WireVmiAnnotations {
        #[serde(rename = "kubernetes.io/hostname")]
        host: Option<Cut>,
        #[serde(rename = "topology.kubernetes.io/region")]
        region: Option<Cut>,
        #[serde(rename = "topology.kubernetes.io/zone")]
        zone: Option<Cut>,
    }

    struct WireVmiOwner {
        kind: Option<Cut>,
        uid: Option<Cut>,
    }

    struct WireVmiSpec {
        hostname: Option<Cut>,
        domain: WireVmiDomain,
        termination_grace_period_seconds: Option<i64>,
    }

    struct WireVmiDomain {
        firmware: Option<WireVmiFirmware>,
        devices: Option<WireVmiDevices>,
    }

    struct WireVmiFirmware {
        uuid: Option<Cut>,
        serial: Option<Cut<1024>>,
    }

    struct WireVmiDevices {
        interfaces: Leading<WireVmiSpecInterface, INTERFACES_MAX>,
    }

    struct WireVmiSpecInterface {
        mac_address: Option<Cut>,
    }

    struct WireVmiStatus {
        node_name: Option<Identifier>,
        interfaces: Leading<WireVmiStatusInterface, INTERFACES_MAX>,
        active_pods: Keys<PODS_MAX>,
        conditions: Leading<NodeCondition, CONDITIONS_MAX>,
        evacuation_node_name: Option<Cut>,
        migration_state: Option<WireMigration>,
    }

    struct WireVmiStatusInterface {
        name: Option<Cut>,
        mac: Option<Cut>,
    }
}

/// The owners of an instance, of which only the VirtualMachine matters.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Leading<WireVmiOwner, OWNERS_MAX>")]
pub struct Owners {
    /// Its UID.
    pub vm_uid: Option<String>,
}

impl From<Leading<WireVmiOwner, OWNERS_MAX>> for Owners {
    fn from(owners: Leading<WireVmiOwner, OWNERS_MAX>) -> Self {
        let is_vm = |owner: &WireVmiOwner| owner.kind.as_deref() == Some("VirtualMachine");
        let vm = owners.0.into_iter().find(is_vm);
        Self {
            vm_uid: vm.and_then(|owner| owner.uid).map(|uid| uid.0),
        }
    }
}

impl TryFrom<WireVmi> for Vmi {
    type Error = String;

    fn try_from(wire: WireVmi) -> Result<Self, String> {
        let WireVmi {
            metadata,
            spec,
            status,
        } = wire;
        let firmware = spec.domain.firmware.unwrap_or_default();
        let devices = spec.domain.devices.unwrap_or_default();
        let of_spec = devices.interfaces.0.into_iter();
        let of_spec = of_spec.filter_map(|interface| interface.mac_address);
        // An interface without a name was only reported by the guest agent: cni0, cali*, flannel.1.
        let of_status = status.interfaces.0.into_iter();
        let of_status = of_status.filter(|seen| seen.name.is_some());
        let found = of_spec.chain(of_status.filter_map(|seen| seen.mac));
        let found = found.filter_map(|text| Mac::parse(&text));
        let mut macs = BTreeSet::new();
        macs.extend(found);
        let labels = metadata.labels.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let of_host = [(REGION, annotations.region), (ZONE, annotations.zone)].into_iter();
        let of_host = of_host.filter_map(|(key, value)| Some((key.to_owned(), value?.0)));
        let mut active_pods = status.active_pods.0;
        active_pods.retain(|uid| uid.len() <= NAME_BYTES);
        let host = status.node_name.filter(|host| !host.is_empty());
        let holds = |kind: &str| {
            let mut conditions = status.conditions.0.iter();
            conditions.find(|condition| *condition.kind == *kind && &*condition.status == "True")
        };
        let is_eviction_requested = holds(EVICTION_REQUESTED).is_some();
        let guest_agent = match (holds(AGENT_CONNECTED), holds(AGENT_NOT_SUPPORTED)) {
            (None, _) => HostView::Disconnected,
            (Some(_), None) => HostView::Connected,
            (Some(_), Some(why)) => {
                HostView::NotSupported(text(why.reason.clone()).unwrap_or_default())
            }
        };
        let grace = spec
            .termination_grace_period_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        let requested = metadata.deletion_timestamp.as_deref();
        let announcements = Announcements {
            is_eviction_requested,
            evacuated_host: scheduled_events::host(status.evacuation_node_name),
            migration_target: scheduled_events::host(labels.migration_target),
            migration: status.migration_state.and_then(WireMigration::parse),
            stop: requested
                .and_then(scheduled_events::timestamp)
                .map(|requested| StopRequest {
                    requested,
                    grace: grace.map(Duration::from_secs),
                }),
        };
        Ok(Self {
            name: required(INSTANCE, "metadata.name", metadata.name)?,
            namespace: required(INSTANCE, "metadata.namespace", metadata.namespace)?,
            uid: required(INSTANCE, "metadata.uid", metadata.uid)?,
            resource_version: metadata.resource_version.map(|version| version.0),
            vm_uid: metadata.owner_references.vm_uid,
            hostname: text(spec.hostname),
            firmware_uuid: firmware.uuid.and_then(|uuid| Uuid::parse_str(&uuid).ok()),
            serial: text(firmware.serial),
            macs,
            host: host
                .map(|host| required(INSTANCE, "status.nodeName", Some(host)))
                .transpose()?,
            annotated_by_harvester: labels.creator.as_deref() == Some(ANNOTATED_CREATOR),
            annotated_host: annotations.host.map(|host| host.0),
            annotations: of_host.collect(),
            active_pods,
            announcements,
            guest_agent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::topology::HOSTNAME;
    use super::*;
    use crate::sys::document::json::MAXIMUM_KEYS;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn parse(value: serde_json::Value) -> Result<Vmi, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn of_a_long_annotation_only_the_beginning_is_kept() {
        let vmi = parse(json!({
            "metadata": {"name": "a", "namespace": "d", "uid": "u",
                "annotations": {ZONE: "z".repeat(100_000), "other": "x"}},
        }));
        let annotations = vmi.unwrap().annotations;
        let illegal = annotations.topology().unwrap_err();
        assert_eq!(illegal.key, ZONE);
        assert_eq!(illegal.value, "z".repeat(253) + "…");
        assert_eq!(annotations.get("other"), None);
    }

    #[test]
    fn labels_and_annotations_that_are_not_used_make_no_instance_unreadable() {
        let long = "x".repeat(20);
        let mut map: serde_json::Map<String, serde_json::Value> = (0..=MAXIMUM_KEYS)
            .map(|number| (format!("{long}{number}"), json!(long)))
            .collect();
        for (key, value) in [
            (CREATOR, ANNOTATED_CREATOR),
            (HOSTNAME, "hv-a"),
            (ZONE, "z"),
        ] {
            map.insert(key.to_owned(), json!(value));
        }
        let vmi = parse(json!({
            "metadata": {"name": "a", "namespace": "d", "uid": "u", "labels": map, "annotations": map},
            "status": {"nodeName": "hv-a"},
        }));
        let vmi = vmi.unwrap();
        let topology = vmi.annotations_of_host().unwrap().topology().unwrap();
        assert_eq!(topology.zone.unwrap().as_str(), "z");
        assert!(vmi.annotated_by_harvester);
    }

    #[test]
    fn a_long_text_or_list_that_is_only_shown_makes_no_instance_unreadable() {
        let long = |count: usize| "x".repeat(count);
        for (spec, status) in [
            (
                json!({}),
                json!({"conditions": [{"type": "A", "status": "True", "message": long(40_000)}]}),
            ),
            (
                json!({}),
                json!({"conditions": vec![json!({"type": long(400), "status": "True"}); 3000]}),
            ),
            (
                json!({}),
                json!({"migrationState": {"migrationUid": "m", "failureReason": long(40_000)}}),
            ),
            (json!({}), json!({"interfaces": vec![json!({}); 5000]})),
            (
                json!({}),
                json!({"activePods": BTreeMap::from_iter((0..=MAXIMUM_KEYS).map(|pod| (pod, "hv")))}),
            ),
            (
                json!({"hostname": long(300), "domain": {"firmware": {"serial": long(2000)}}}),
                json!({"evacuationNodeName": long(300)}),
            ),
        ] {
            let mut status = status;
            status["nodeName"] = json!("hv-a");
            let vmi: Vmi = serde_json::from_value(json!({
                "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
                "spec": spec, "status": status,
            }))
            .unwrap();
            assert_eq!(vmi.host, HostName::parse("hv-a").ok());
            assert_eq!(vmi.announcements.evacuated_host, None);
        }
    }

    #[test]
    fn a_running_instance_is_read() {
        let vmi = parse(json!({
            "metadata": {
                "name": "vm-1", "namespace": "default", "uid": "u1",
                "labels": {"harvesterhci.io/creator": "docker-machine-driver-harvester"},
                "annotations": {"kubernetes.io/hostname": "hv-a", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
                "ownerReferences": [{"kind": "VirtualMachine", "uid": "vm-uid"}]
            },
            "spec": {"domain": {
                "firmware": {"uuid": "6CEA024F-F050-5571-B0E3-4262BD19B153"},
                "devices": {"interfaces": [{"name": "nic-0", "macAddress": "6e:22:41:9c:0a:71"}]}
            }},
            "status": {
                "nodeName": "hv-a",
                "interfaces": [
                    {"name": "nic-1", "mac": "6e:22:41:9c:0a:72"},
                    {"interfaceName": "cni0", "mac": "8a:11:fd:30:aa:02"}
                ]
            }
        }))
        .unwrap();
        assert_eq!(vmi.vm_uid.as_deref(), Some("vm-uid"));
        assert_eq!(
            vmi.firmware_uuid.unwrap().to_string(),
            "6cea024f-f050-5571-b0e3-4262bd19b153"
        );
        let macs: Vec<String> = vmi.macs.iter().map(ToString::to_string).collect();
        assert_eq!(macs, ["6e:22:41:9c:0a:71", "6e:22:41:9c:0a:72"]);
        assert!(vmi.annotated_by_harvester && vmi.annotations_of_host().is_some());
        let none = HostLabels::default();
        assert_eq!(vmi.annotations, none, "what is not used is not kept");
    }

    #[test]
    fn a_name_that_could_change_a_request_path_is_refused() {
        for name in ["../nodes/x", "a/b", "a?b", "A"] {
            let error =
                parse(json!({"metadata": {"name": name, "namespace": "default", "uid": "u"}}))
                    .unwrap_err();
            assert!(error.contains("metadata.name"), "{error}");
        }
        let host = json!({"metadata": {"name": "a", "namespace": "d", "uid": "u"}, "status": {"nodeName": "a/b"}});
        assert!(parse(host).unwrap_err().contains("status.nodeName"));
    }

    #[test]
    fn a_label_annotation_or_field_that_comes_twice_is_refused() {
        let vmi = |metadata: &str| {
            let text =
                format!(r#"{{"metadata":{{"name":"a","namespace":"d","uid":"u",{metadata}}}}}"#);
            serde_json::from_str::<Vmi>(&text).unwrap_err().to_string()
        };
        let twice = |map: &str, key: &str| format!(r#""{map}":{{"{key}":"1","{key}":"2"}}"#);
        for (metadata, named) in [
            (&*twice("labels", CREATOR), CREATOR),
            (&*twice("annotations", ZONE), ZONE),
            (r#""labels":{},"labels":{}"#, "`labels`"),
            (r#""name":"b""#, "`name`"),
        ] {
            let error = vmi(metadata);
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn what_is_announced_is_read_and_an_invalid_value_announces_nothing() {
        let vmi = parse(json!({
            "metadata": {
                "name": "a", "namespace": "d", "uid": "u", "deletionTimestamp": "2026-11-24T10:00:00Z",
                "labels": {"kubevirt.io/migrationTargetNodeName": "hv-b"},
            },
            "spec": {"terminationGracePeriodSeconds": 120},
            "status": {
                "nodeName": "hv-a", "evacuationNodeName": "hv-a",
                "conditions": [{"type": "EvictionRequested", "status": "True"}],
                "migrationState": {
                    "migrationUid": "m1", "sourceNode": "hv-a", "targetNode": "hv-b",
                    "startTimestamp": "2026-11-24T09:59:00Z", "completed": null, "failed": true,
                    "failureReason": "no memory", "abortRequested": true,
                },
            },
        }))
        .unwrap();
        let announced = vmi.announcements;
        assert!(announced.is_eviction_requested);
        assert_eq!(announced.evacuated_host, HostName::parse("hv-a").ok());
        assert_eq!(announced.migration_target, HostName::parse("hv-b").ok());
        let deadline = announced.stop.and_then(|stop| stop.deadline());
        assert_eq!(
            deadline,
            scheduled_events::timestamp("2026-11-24T10:02:00Z")
        );
        let migration = announced.migration.unwrap();
        assert!(migration.started.is_some() && migration.is_failed && !migration.is_completed);
        assert_eq!(migration.failure.as_deref(), Some("no memory"));
        let odd = parse(json!({
            "metadata": {
                "name": "a", "namespace": "d", "uid": "u", "deletionTimestamp": "soon",
                "labels": {"kubevirt.io/migrationTargetNodeName": "a/b"},
            },
            "status": {"nodeName": "hv-a", "evacuationNodeName": "", "migrationState": {"completed": false}},
        }));
        assert_eq!(odd.unwrap().announcements, Announcements::default());
    }

    #[test]
    fn the_guest_agent_is_what_two_conditions_say() {
        let read = |conditions: &[(&str, &str)]| {
            let conditions = conditions
                .iter()
                .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "too old"}));
            let vmi = parse(json!({
                "metadata": {"name": "a", "namespace": "d", "uid": "u"},
                "status": {"conditions": conditions.collect::<Vec<_>>()},
            }));
            vmi.unwrap().guest_agent
        };
        let refused = (AGENT_NOT_SUPPORTED, "True");
        let not_supported = HostView::NotSupported("too old".to_owned());
        for (conditions, expected) in [
            (vec![], HostView::Disconnected),
            (vec![(AGENT_CONNECTED, "False")], HostView::Disconnected),
            (vec![(AGENT_CONNECTED, "True")], HostView::Connected),
            (vec![refused], HostView::Disconnected),
            (vec![(AGENT_CONNECTED, "True"), refused], not_supported),
        ] {
            assert_eq!(read(&conditions), expected, "{conditions:?}");
        }
    }

    #[test]
    fn an_empty_instance_has_no_host() {
        let vmi = parse(
            json!({"metadata": {"name": "a", "namespace": "d", "uid": "u"}, "status": {"nodeName": ""}}),
        );
        let vmi = vmi.unwrap();
        assert_eq!(vmi.host, None);
        assert!(vmi.annotations_of_host().is_none());
    }
}
