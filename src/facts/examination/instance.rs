// SPDX-License-Identifier: Apache-2.0
//! What does Harvester say of our VM beyond what the running agent reads of it?

use core::net::IpAddr;

use serde_json::Value;

use super::node::{list, release, text};
use crate::facts::Seen;
use crate::facts::release::Release;
use crate::facts::vmi::CREATOR;

/// What `pkg/virt-handler` writes as the source of an interface that the guest agent told of.
const GUEST_AGENT: &str = "guest-agent";

/// What only `doctor` reads of the VM's instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Label `harvesterhci.io/creator`.
    pub creator: Option<String>,
    /// Label `guestcluster.harvesterhci.io/name`.
    pub guest_cluster: Option<String>,
    /// The image that runs the VM is of this release of KubeVirt.
    pub launcher: Seen<Release>,
    /// Why it cannot be live-migrated: reason and message of condition `LiveMigratable` that is `False`.
    pub not_migratable: Option<String>,
    /// Whether the host hears QEMU's guest agent: condition `AgentConnected`.
    pub agent_connected: bool,
    /// What Harvester believes to be the addresses of the guest's NICs.
    pub interfaces: Vec<Interface>,
}

/// A NIC and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name: in the VM's definition, or in this machine.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Instance {
    /// From a VirtualMachineInstance, as the API delivers it.
    pub fn of(vmi: &Value) -> Self {
        let label = |key: &str| {
            let labels = vmi.pointer("/metadata/labels")?;
            let value = text(labels, key);
            (!value.is_empty()).then(|| value.to_owned())
        };
        let condition = |kind: &str| {
            let mut conditions = list(vmi, "/status/conditions");
            conditions.find(|condition| text(condition, "type") == kind)
        };
        let refuses = condition("LiveMigratable").filter(|found| text(found, "status") == "False");
        Self {
            creator: label(CREATOR),
            guest_cluster: label("guestcluster.harvesterhci.io/name"),
            launcher: launcher(vmi),
            not_migratable: refuses
                .map(|found| format!("{}: {}", text(found, "reason"), text(found, "message"))),
            agent_connected: condition("AgentConnected")
                .is_some_and(|found| text(found, "status") == "True"),
            interfaces: interfaces(vmi),
        }
    }
}

/// `virt-launcher:1.5.2-150600.5.1`, with a registry before it.
fn launcher(vmi: &Value) -> Seen<Release> {
    let image = vmi.pointer("/status/launcherContainerImageVersion");
    let image = image.and_then(Value::as_str).unwrap_or_default();
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'));
    release(tag.map(|(_, tag)| Value::from(tag)).as_ref())
}

/// The interfaces that the VM was given and whose addresses the guest itself has told. One without a name was made by the
/// guest (cni0, cali*), and behind masquerade the address is that of the pod.
fn interfaces(vmi: &Value) -> Vec<Interface> {
    let is_masked = |name: &str| {
        let mut given = list(vmi, "/spec/domain/devices/interfaces");
        given.any(|given| text(given, "name") == name && given.get("masquerade").is_some())
    };
    list(vmi, "/status/interfaces")
        .filter(|seen| text(seen, "infoSource").contains(GUEST_AGENT))
        .map(|seen| Interface {
            name: text(seen, "name").to_owned(),
            addresses: list(seen, "/ipAddresses")
                .filter_map(|address| address.as_str()?.parse().ok())
                .collect(),
        })
        .filter(|seen| !seen.name.is_empty() && !is_masked(&seen.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_guest_told_of_its_own_nics_counts_as_its_addresses() {
        let instance = Instance::of(&json!({
            "spec": {"domain": {"devices": {"interfaces": [
                {"name": "nic-0", "bridge": {}}, {"name": "nic-1", "masquerade": {}}, {"name": "nic-2", "bridge": {}},
            ]}}},
            "status": {"interfaces": [
                {"name": "nic-0", "infoSource": "domain, guest-agent, multus-status",
                    "ipAddresses": ["172.19.106.159", "fe80::1", "garbage", 7]},
                {"name": "nic-1", "infoSource": "domain, guest-agent", "ipAddresses": ["10.52.0.7"]},
                {"name": "nic-2", "infoSource": "domain, multus-status", "ipAddresses": ["192.0.2.9"]},
                {"interfaceName": "cni0", "infoSource": "guest-agent", "ipAddresses": ["10.42.0.1"]},
            ]},
        }));
        let expected = Interface {
            name: "nic-0".to_owned(),
            addresses: vec![
                "172.19.106.159".parse().unwrap(),
                "fe80::1".parse().unwrap(),
            ],
        };
        assert_eq!(instance.interfaces, [expected]);
    }

    #[test]
    fn labels_conditions_and_the_launcher_are_read() {
        let instance = Instance::of(&json!({
            "metadata": {"labels": {"harvesterhci.io/creator": "harvester", "guestcluster.harvesterhci.io/name": ""}},
            "status": {
                "launcherContainerImageVersion": "registry.suse.com/suse/sles/15.6/virt-launcher:1.5.2-150600.5.1",
                "conditions": [
                    {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "cannot"},
                    {"type": "AgentConnected", "status": "True"},
                ],
            },
        }));
        assert_eq!(instance.creator.as_deref(), Some("harvester"));
        assert_eq!(instance.guest_cluster, None);
        let launcher = instance.launcher.known().unwrap();
        assert_eq!(launcher.rank(), crate::facts::release::Rank::of(1, 5, 2));
        assert_eq!(
            instance.not_migratable.as_deref(),
            Some("DisksNotLiveMigratable: cannot")
        );
        assert!(instance.agent_connected);
    }

    #[test]
    fn an_instance_of_the_wrong_shape_tells_nothing_and_breaks_nothing() {
        for vmi in [
            json!(null),
            json!({"metadata": {"labels": []}, "status": {"interfaces": "x", "conditions": {}}}),
        ] {
            let instance = Instance::of(&vmi);
            assert_eq!((instance.creator, instance.not_migratable), (None, None));
            assert!(instance.interfaces.is_empty() && !instance.agent_connected);
            assert_eq!(instance.launcher, Seen::Absent);
        }
    }
}
