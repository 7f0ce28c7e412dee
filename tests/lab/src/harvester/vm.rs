// SPDX-License-Identifier: Apache-2.0
//! A VM to be created, and the parts of its objects.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{CREATOR, NODE_DRIVER, Pod};
use crate::admin::paths;
use crate::guest::firmware_uuid;

/// What firmware UUID a VM gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Firmware {
    /// Derived from the name, as before KubeVirt 1.6.
    FromName,
    /// Random, as since KubeVirt 1.6.
    Random,
    /// This one, as in clones and restored backups.
    Fixed(String),
}

/// A VM to be created.
#[derive(Debug, Clone)]
pub struct VmSpec {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// `harvesterhci.io/creator`; [`NODE_DRIVER`] gets topology annotations.
    pub creator: Option<String>,
    /// The guest cluster's name, in a label.
    pub cluster: Option<String>,
    /// The MAC of each NIC.
    pub macs: Vec<String>,
    /// The firmware UUID.
    pub firmware: Firmware,
    /// The firmware serial.
    pub serial: Option<String>,
    /// `spec.hostname`, when it differs from the name on purpose.
    pub hostname: Option<String>,
    /// The host name and Node name of the guest, when it adds a domain to that of the platform.
    pub fqdn: Option<String>,
}

impl VmSpec {
    /// A VM as Rancher's node driver makes it, in namespace `default`, with a MAC of its own.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let id = uuid::Uuid::new_v4().into_bytes();
        let octets: Vec<String> = id[..5].iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            creator: Some(NODE_DRIVER.to_owned()),
            cluster: Some("gc8".to_owned()),
            // 0x6e: locally administered, not a group.
            macs: vec![format!("6e:{}", octets.join(":"))],
            firmware: Firmware::FromName,
            serial: Some(uuid::Uuid::new_v4().to_string()),
            hostname: None,
            fqdn: None,
        }
    }

    /// The same with another creator, or none.
    #[must_use]
    pub fn created_by(mut self, creator: Option<&str>) -> Self {
        self.creator = creator.map(str::to_owned);
        self
    }

    /// The same with another firmware UUID.
    #[must_use]
    pub fn firmware(mut self, firmware: Firmware) -> Self {
        self.firmware = firmware;
        self
    }

    /// The host name of the guest, and so the name of its Node: the one that the platform gives, unless the guest adds a domain.
    #[must_use]
    pub fn guest_name(&self) -> &str {
        let name = self.fqdn.as_deref().or(self.hostname.as_deref());
        name.unwrap_or(&self.name)
    }

    /// The address of its first NIC in the VM network, made of the last octets of its MAC.
    #[must_use]
    pub fn address(&self) -> String {
        let mac = self.macs.first().map_or("", String::as_str);
        let octet = |index: usize| {
            let octet = mac.split(':').nth(index).unwrap_or_default();
            u8::from_str_radix(octet, 16).unwrap_or_default()
        };
        format!("172.19.{}.{}", octet(4), octet(5))
    }

    pub(super) fn firmware_uuid(&self) -> String {
        match &self.firmware {
            Firmware::FromName => firmware_uuid(&self.name).to_string(),
            Firmware::Random => uuid::Uuid::new_v4().to_string(),
            Firmware::Fixed(uuid) => uuid.clone(),
        }
    }

    pub(super) fn labels(&self) -> Map<String, Value> {
        let mut labels = Map::new();
        labels.insert("harvesterhci.io/vmName".into(), json!(self.name));
        if let Some(creator) = &self.creator {
            labels.insert(CREATOR.into(), json!(creator));
        }
        if let Some(cluster) = &self.cluster {
            labels.insert("guestcluster.harvesterhci.io/name".into(), json!(cluster));
        }
        labels
    }
}

/// A VM that was created.
#[derive(Debug, Clone)]
pub struct Vm {
    /// What was asked for.
    pub spec: VmSpec,
    /// UID of the VirtualMachine, which outlives restarts and is in the guest Node's `providerID`.
    pub uid: String,
    /// DMI `product_uuid` of the guest.
    pub firmware_uuid: String,
}

impl Vm {
    /// `spec.providerID` of the guest's Node.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("harvester://{}", self.uid)
    }

    /// The host name of the guest, and so the name of its Node.
    #[must_use]
    pub fn guest_name(&self) -> &str {
        self.spec.guest_name()
    }

    pub(super) fn vm_path(&self) -> String {
        paths::vm(&self.spec.namespace, &self.spec.name)
    }

    pub(super) fn vmi_path(&self) -> String {
        paths::vmi(&self.spec.namespace, &self.spec.name)
    }

    pub(super) fn pod_path(&self, pod: &str) -> String {
        paths::core(&self.spec.namespace, &format!("pods/{pod}"))
    }
}

pub(super) fn domain(spec: &VmSpec, firmware_uuid: &str) -> Value {
    let interfaces: Vec<Value> = (0..spec.macs.len())
        .map(|index| json!({"name": format!("nic-{index}"), "bridge": {}, "model": "virtio"}))
        .collect();
    let mut firmware = json!({"uuid": firmware_uuid});
    if let Some(serial) = &spec.serial {
        firmware["serial"] = json!(serial);
    }
    json!({
        "cpu": {"cores": 4, "sockets": 1, "threads": 1},
        "devices": {"interfaces": interfaces},
        "firmware": firmware,
        "machine": {"type": "q35"},
        "memory": {"guest": "8092Mi"},
    })
}

pub(super) fn networks(spec: &VmSpec) -> Value {
    (0..spec.macs.len())
        .map(|index| json!({"name": format!("nic-{index}"), "multus": {"networkName": "default/vlan100"}}))
        .collect()
}

/// What KubeVirt observes: the VM's own NICs by name, and nameless ones that only the guest agent told of.
pub(super) fn observed_interfaces(spec: &VmSpec) -> Value {
    let own = spec.macs.iter().enumerate().map(|(index, mac)| {
        let mut interface = json!({
            "name": format!("nic-{index}"), "interfaceName": format!("eth{index}"), "mac": mac,
            "infoSource": "domain, guest-agent, multus-status", "linkState": "up",
        });
        if index == 0 {
            let address = spec.address();
            interface["ipAddress"] = json!(address);
            interface["ipAddresses"] = json!([address, "fe80::6c22:41ff:fe9c:a71"]);
        }
        interface
    });
    let of_the_guest = [
        json!({"interfaceName": "cni0", "mac": "8a:11:fd:30:aa:02", "infoSource": "guest-agent"}),
        json!({"interfaceName": "cali0b8d2f7a", "mac": "ee:ee:ee:ee:ee:ee", "infoSource": "guest-agent"}),
    ];
    own.chain(of_the_guest).collect()
}

pub(super) fn pod(object: &Value) -> Pod {
    Pod {
        name: object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        uid: uid(object),
    }
}

pub(super) fn uid(object: &Value) -> String {
    object["metadata"]["uid"]
        .as_str()
        .expect("a stored object has a UID")
        .to_owned()
}

pub(super) fn transition(phase: &str) -> Value {
    json!({"phase": phase, "phaseTransitionTimestamp": now()})
}

pub(super) fn now() -> String {
    OffsetDateTime::now_utc()
        .replace_nanosecond(0)
        .expect("zero is a nanosecond")
        .format(&Rfc3339)
        .expect("now can be written")
}
