// SPDX-License-Identifier: Apache-2.0
//! The data of the VMI in Harvester that only `doctor` reads.

use core::net::IpAddr;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::node::release;
use crate::facts::Fact;
use crate::facts::lifecycle::{MAINTENANCE_STRATEGY, MaintenanceStrategy};
use crate::facts::node::NodeCondition;
use crate::facts::release::Release;
use crate::facts::topology::HOSTNAME;
use crate::facts::vmi::CREATOR;
use crate::sys::document::json::{
    Leading, StringMap, conditions, eviction_strategy, grace_period, ip_addresses, labels,
    launcher_version, node_selector, spec_interface_name, spec_interfaces, status_interface_name,
    status_interface_source, status_interfaces,
};

/// The source of an interface that the guest agent reported, as set by `pkg/virt-handler`.
const GUEST_AGENT: &str = "guest-agent";

/// The maximum number of interfaces of one VM. The guest agent also reports those of each container.
const INTERFACES_MAX: usize = 4096;

/// The maximum number of conditions of a VM; there are about ten.
const CONDITIONS_MAX: usize = 256;

/// The maximum number of kept addresses of one interface. With kube-proxy in IPVS mode, an interface has one for each Service.
const ADDRESSES_MAX: usize = 64;

/// The data of the VMI that only `doctor` reads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "WireInstance")]
pub struct InstanceFacts {
    /// The label `harvesterhci.io/creator`.
    pub creator: Option<String>,
    /// The label `guestcluster.harvesterhci.io/name`.
    pub guest_cluster: Option<String>,
    /// The release of KubeVirt, from the image that runs the VM.
    pub launcher: Fact<Release>,
    /// The reason why it cannot be live-migrated: reason and message of the condition `LiveMigratable` if `False`.
    pub not_migratable: Option<String>,
    /// The label `harvesterhci.io/maintain-mode-strategy`, which Harvester copies from the VM.
    pub maintenance: Option<MaintenanceStrategy>,
    /// `spec.evictionStrategy`.
    pub eviction_strategy: Option<String>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_period: Option<u64>,
    /// The only host on which `spec.nodeSelector` allows the VM.
    pub host_selector: Option<String>,
    /// Whether the host is connected to the QEMU guest agent: condition `AgentConnected`.
    pub agent_connected: bool,
    /// The addresses of the NICs of the guest, according to Harvester.
    pub interfaces: Vec<Interface>,
}

/// A NIC and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name: in the VM's specification, or on this machine.
    pub name: String,
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
struct WireInstance {
    #[serde(default)]
    metadata: WireInstanceMetadata,
    #[serde(default)]
    spec: WireInstanceSpec,
    #[serde(default)]
    status: WireInstanceStatus,
}

#[derive(Deserialize, Default)]
struct WireInstanceMetadata {
    #[serde(default, deserialize_with = "labels")]
    labels: StringMap,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireInstanceSpec {
    #[serde(default)]
    domain: WireInstanceDomain,
    #[serde(default, deserialize_with = "eviction_strategy")]
    eviction_strategy: Option<String>,
    #[serde(
        rename = "terminationGracePeriodSeconds",
        default,
        deserialize_with = "grace_period"
    )]
    grace_period: Option<u64>,
    #[serde(default, deserialize_with = "node_selector")]
    node_selector: StringMap,
}

#[derive(Deserialize, Default)]
struct WireInstanceDomain {
    #[serde(default)]
    devices: WireInstanceDevices,
}

#[derive(Deserialize, Default)]
struct WireInstanceDevices {
    #[serde(default, deserialize_with = "spec_interfaces")]
    interfaces: Leading<WireInstanceGiven, INTERFACES_MAX>,
}

/// An interface in the specification of the VM.
#[derive(Deserialize)]
struct WireInstanceGiven {
    #[serde(default, deserialize_with = "spec_interface_name")]
    name: Option<String>,
    masquerade: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireInstanceStatus {
    #[serde(default, deserialize_with = "conditions")]
    conditions: Leading<NodeCondition, CONDITIONS_MAX>,
    #[serde(default, deserialize_with = "status_interfaces")]
    interfaces: Leading<WireInstanceSeen, INTERFACES_MAX>,
    #[serde(
        rename = "launcherContainerImageVersion",
        default,
        deserialize_with = "launcher_version"
    )]
    launcher: Option<String>,
}

/// An interface that KubeVirt or the guest agent reported.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireInstanceSeen {
    #[serde(default, deserialize_with = "status_interface_name")]
    name: Option<String>,
    #[serde(default, deserialize_with = "status_interface_source")]
    info_source: Option<String>,
    #[serde(default, deserialize_with = "ip_addresses")]
    ip_addresses: Addresses,
}

/// The first addresses of a list of strings; invalid ones are omitted.
#[derive(Default)]
struct Addresses(Vec<IpAddr>);

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(AddressesVisitor)
    }
}

struct AddressesVisitor;

impl<'de> Visitor<'de> for AddressesVisitor {
    type Value = Addresses;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of addresses or null")
    }

    fn visit_none<E>(self) -> Result<Addresses, E> {
        Ok(Addresses::default())
    }

    fn visit_unit<E>(self) -> Result<Addresses, E> {
        Ok(Addresses::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Addresses, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Addresses, A::Error> {
        let mut addresses = Vec::new();
        while addresses.len() < ADDRESSES_MAX
            && let Some(Address(address)) = access.next_element()?
        {
            addresses.extend(address);
        }
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Addresses(addresses))
    }
}

/// An address, if the string is valid.
#[derive(Deserialize)]
#[serde(from = "String")]
struct Address(Option<IpAddr>);

impl From<String> for Address {
    fn from(text: String) -> Self {
        Self(text.parse().ok())
    }
}

impl From<WireInstance> for InstanceFacts {
    fn from(wire: WireInstance) -> Self {
        let WireInstance {
            metadata,
            spec,
            status,
        } = wire;
        let label = |key: &str| metadata.labels.get(key).filter(|value| !value.is_empty());
        let conditions = &status.conditions.0;
        let condition = |kind: &str, state: &str| {
            let mut conditions = conditions.iter();
            conditions.find(|condition| condition.kind == kind && condition.status == state)
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            creator: label(CREATOR).cloned(),
            guest_cluster: label("guestcluster.harvesterhci.io/name").cloned(),
            launcher: launcher(status.launcher.as_deref()),
            not_migratable: condition("LiveMigratable", "False")
                .map(|found| format!("{}: {}", text(&found.reason), text(&found.message))),
            maintenance: label(MAINTENANCE_STRATEGY)
                .and_then(|value| MaintenanceStrategy::parse(value)),
            eviction_strategy: spec.eviction_strategy.filter(|text| !text.is_empty()),
            grace_period: spec.grace_period,
            host_selector: spec.node_selector.get(HOSTNAME).cloned(),
            agent_connected: condition("AgentConnected", "True").is_some(),
            interfaces: interfaces(&spec.domain.devices.interfaces.0, status.interfaces.0),
        }
    }
}

/// Parses an image such as `virt-launcher:1.5.2-150600.5.1`, with a registry before it.
fn launcher(image: Option<&str>) -> Fact<Release> {
    let tag = image
        .unwrap_or_default()
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'));
    release(tag.map(|(_, tag)| tag))
}

/// Returns the interfaces of the specification with addresses that the guest itself reported. An interface without a name was
/// created by the guest (cni0, cali*), and with masquerade the address is that of the pod.
fn interfaces(given: &[WireInstanceGiven], seen: Vec<WireInstanceSeen>) -> Vec<Interface> {
    let masked = given.iter().filter(|given| given.masquerade.is_some());
    let masked: BTreeSet<&str> = masked.filter_map(|given| given.name.as_deref()).collect();
    let is_of_guest = |source: &Option<String>| {
        let source = source.as_deref();
        source.is_some_and(|source| source.contains(GUEST_AGENT))
    };
    let seen = seen
        .into_iter()
        .filter(|seen| is_of_guest(&seen.info_source));
    seen.filter_map(|seen| {
        let name = seen.name.filter(|name| !name.is_empty())?;
        (!masked.contains(name.as_str())).then_some(Interface {
            name,
            addresses: seen.ip_addresses.0,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn instance(vmi: Value) -> InstanceFacts {
        serde_json::from_value(vmi).unwrap()
    }

    #[test]
    fn only_what_the_guest_reported_of_its_own_nics_counts_as_its_addresses() {
        let instance = instance(json!({
            "spec": {"domain": {"devices": {"interfaces": [
                {"name": "nic-0", "bridge": {}}, {"name": "nic-1", "masquerade": {}}, {"name": "nic-2", "bridge": {}},
            ]}}},
            "status": {"interfaces": [
                {"name": "nic-0", "infoSource": "domain, guest-agent, multus-status",
                    "ipAddresses": ["172.19.106.159", "fe80::1", "garbage"]},
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
        let instance = instance(json!({
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
    fn an_instance_without_these_fields_reports_nothing() {
        for vmi in [
            json!({}),
            json!({"metadata": {"labels": null}, "status": {"interfaces": null, "conditions": null}}),
        ] {
            let instance = instance(vmi);
            assert_eq!((instance.creator, instance.not_migratable), (None, None));
            assert!(instance.interfaces.is_empty() && !instance.agent_connected);
            assert_eq!(instance.launcher, Fact::Absent);
        }
    }

    #[test]
    fn an_instance_of_the_wrong_shape_is_refused_with_its_field() {
        for (vmi, said) in [
            (json!({"metadata": {"labels": []}}), "`metadata.labels`: "),
            (
                json!({"status": {"interfaces": "x"}}),
                "`status.interfaces`: ",
            ),
            (
                json!({"status": {"interfaces": [{"ipAddresses": [7]}]}}),
                "`status.interfaces[].ipAddresses`: ",
            ),
        ] {
            let error = serde_json::from_value::<InstanceFacts>(vmi)
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_long_text_or_list_makes_no_instance_unreadable() {
        let mut conditions = vec![json!({
            "type": "LiveMigratable", "status": "False", "reason": "R", "message": "m".repeat(40_000),
        })];
        conditions.resize(300, json!({"type": "Other", "status": "True"}));
        let instance = instance(json!({"status": {
            "conditions": conditions, "interfaces": vec![json!({}); 4097],
        }}));
        assert!(instance.not_migratable.unwrap().starts_with("R: mmm"));
    }

    #[test]
    fn of_the_addresses_of_an_interface_the_first_are_kept() {
        let addresses: Vec<String> = (0..5000)
            .map(|n| format!("10.43.{}.{}", n / 250, n % 250))
            .collect();
        let vmi = json!({"status": {"interfaces": [
            {"name": "nic-0", "infoSource": "guest-agent", "ipAddresses": addresses},
        ]}});
        assert_eq!(instance(vmi).interfaces[0].addresses.len(), ADDRESSES_MAX);
    }
}
