// SPDX-License-Identifier: Apache-2.0
//! Evidence for and against an instance being this machine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::facts::distribution::Distribution;
use crate::facts::names::{NameKind, firmware_uuid, is_made_from, short};
use crate::facts::nic::Mac;
use crate::facts::observation::Observation;
use crate::facts::vmi::Vmi;
use crate::sys::named::named;

/// The result of one comparison with an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The kind of evidence.
    #[serde(rename = "type")]
    pub kind: EvidenceKind,
    /// Whether the evidence matches the instance.
    #[serde(rename = "matches")]
    pub agrees: bool,
    /// The compared values. An identifier of the firmware is not among them: only root can read it, and all users the status.
    pub detail: String,
}

impl Evidence {
    pub(super) fn new(kind: EvidenceKind, agrees: bool, detail: String) -> Self {
        Self {
            kind,
            agrees,
            detail,
        }
    }
}

named! {
    /// The kinds of evidence, strongest first.
    EvidenceKind {
        /// Our configuration names the VM.
        Configured = "configured",
        /// The virt-launcher pod whose files this VM has belongs to the instance.
        PodInfo = "pod-info",
        /// `spec.providerID` of our Node contains the UID of the VirtualMachine.
        ProviderId = "provider-id",
        /// DMI `product_uuid` matches the firmware UUID.
        FirmwareUuid = "firmware-uuid",
        /// DMI `product_serial` matches the firmware serial.
        FirmwareSerial = "firmware-serial",
        /// A physical NIC has a MAC address of the instance.
        MacAddress = "mac-address",
        /// DMI `product_uuid` is the UUID that KubeVirt before 1.6 derives from the name.
        UuidOfName = "uuid-of-name",
        /// A name of this machine matches the name of the instance.
        Name = "name",
    }
}

impl EvidenceKind {
    /// Reports whether this is virtual hardware, which a guest cannot rename.
    pub(super) fn is_hardware(self) -> bool {
        matches!(
            self,
            Self::FirmwareUuid | Self::FirmwareSerial | Self::MacAddress
        )
    }

    /// Returns how much it proves. A user can copy every property of a VM into another one, but not the pod that shares its files.
    /// Neither the providerID nor the name decides between instances with the same hardware: both follow the hostname, which a clone
    /// copies.
    fn rank(self) -> u8 {
        match self {
            Self::Configured | Self::PodInfo => 3,
            Self::FirmwareUuid | Self::FirmwareSerial | Self::MacAddress => 2,
            Self::ProviderId => 1,
            Self::UuidOfName | Self::Name => 0,
        }
    }
}

/// An instance, with the evidence for and against it.
pub(super) struct Candidate<'a> {
    pub(super) vmi: &'a Vmi,
    pub(super) evidence: Vec<Evidence>,
}

impl<'a> Candidate<'a> {
    /// Compares an instance with this machine. Values that are not known on both sides are skipped: they are no evidence.
    pub(super) fn new(observation: &Observation, vmi: &'a Vmi) -> Self {
        let machine = &observation.machine;
        let mut evidence = Vec::new();
        let mut add = |kind, agrees, detail| evidence.push(Evidence::new(kind, agrees, detail));
        if let Some(pod) = observation.pod_info.known()
            && let Some(ours) = pod.instance_uid.as_deref()
        {
            let (agrees, pod) = (ours == vmi.uid, &pod.pod);
            let detail = format!("pod {pod} is of VMI UID {ours}, this VMI has {}", vmi.uid);
            add(EvidenceKind::PodInfo, agrees, detail);
        }
        if let (Some(ours), Some(theirs)) = (observation.node_vm_uid(), vmi.vm_uid.as_deref()) {
            let detail =
                format!("the providerID of the Node has VM UID {ours}, this VM has {theirs}");
            add(EvidenceKind::ProviderId, ours == theirs, detail);
        }
        if let (Some(ours), Some(theirs)) = (machine.product_uuid.known(), &vmi.firmware_uuid) {
            let detail = "product_uuid of this node, firmware UUID of the VM".to_owned();
            add(EvidenceKind::FirmwareUuid, ours == theirs, detail);
        }
        if let (Some(ours), Some(theirs)) = (machine.product_serial.known(), &vmi.serial) {
            let detail = "product_serial of this node, firmware serial of the VM".to_owned();
            add(EvidenceKind::FirmwareSerial, ours == theirs, detail);
        }
        let ours = machine.macs();
        if !ours.is_empty() && !vmi.macs.is_empty() {
            let text = |macs: &BTreeSet<Mac>| {
                let texts: Vec<String> = macs.iter().map(ToString::to_string).collect();
                texts.join(" ")
            };
            let (nics, interfaces) = (text(&ours), text(&vmi.macs));
            let detail = format!("NICs of this node {nics}, interfaces of the VM {interfaces}");
            let agrees = !ours.is_disjoint(&vmi.macs);
            add(EvidenceKind::MacAddress, agrees, detail);
        }
        let names = own_names(observation);
        let same = names
            .iter()
            .find(|(_, name)| short(name) == vmi.name.as_str() || name == vmi.name.as_str());
        let detail = match same {
            Some((kind, name)) => format!("{} `{name}`", kind.as_str()),
            None => format!("no name of this node is `{}`", vmi.name),
        };
        add(EvidenceKind::Name, same.is_some(), detail);
        Self { vmi, evidence }
    }

    /// Reports whether some evidence of these kinds agrees, or disagrees.
    pub(super) fn has(&self, agrees: bool, kind: impl Fn(EvidenceKind) -> bool) -> bool {
        let mut items = self.evidence.iter();
        items.any(|item| item.agrees == agrees && kind(item.kind))
    }

    /// Reports whether hardware that is known on both sides differs, or the pod is of another VMI, whatever other evidence agrees.
    pub(super) fn is_other_machine(&self) -> bool {
        self.has(false, |kind| {
            kind.is_hardware() || kind == EvidenceKind::PodInfo
        })
    }

    /// Reports whether the Node belongs to another VM, and only the name matches this one: a duplicate name in another namespace has
    /// the same name and, before KubeVirt 1.6, a firmware UUID that is derived from it.
    pub(super) fn is_namesake(&self) -> bool {
        let of_name = self.vmi.firmware_uuid == Some(firmware_uuid(self.vmi.name.as_str()));
        let is_proof = |kind: EvidenceKind| {
            kind.rank() > 1 && !(of_name && kind == EvidenceKind::FirmwareUuid)
        };
        self.has(false, |kind| kind == EvidenceKind::ProviderId) && !self.has(true, is_proof)
    }

    /// Returns the rank of the strongest evidence that agrees, unless this is certainly another machine.
    pub(super) fn rank(&self) -> Option<u8> {
        let agreeing = self.evidence.iter().filter(|item| item.agrees);
        let rank = agreeing.map(|item| item.kind.rank()).max();
        rank.filter(|_| !self.is_other_machine() && !self.is_namesake())
    }
}

/// Returns the names of this machine and of its Node.
pub(super) fn own_names(observation: &Observation) -> Vec<(NameKind, String)> {
    let kernel = observation.machine.kernel_hostname.known().cloned();
    let fixed = observation.machine.static_hostname.known();
    // A template gives the name that it has made.
    let made = kernel.as_ref().zip(fixed);
    let made = made.filter(|(kernel, fixed)| is_made_from(kernel, fixed));
    let fixed = made.map(|(kernel, _)| kernel).or(fixed).cloned();
    // Before the first start of the kubelet, this is its future node name.
    let configured = || {
        let mut distributions = observation.distributions.iter();
        let name = distributions.find_map(Distribution::configured_node_name);
        name.map(str::to_owned)
    };
    let kubelet = observation.kubelet.known();
    let node = kubelet
        .map(|kubelet| kubelet.node_name.to_string())
        .or_else(configured);
    [
        (NameKind::KernelHostname, kernel),
        (NameKind::StaticHostname, fixed),
        (NameKind::NodeName, node),
    ]
    .into_iter()
    .filter_map(|(kind, name)| name.map(|name| (kind, name)))
    .collect()
}
