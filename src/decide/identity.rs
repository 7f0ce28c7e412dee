// SPDX-License-Identifier: Apache-2.0
//! Determines by evidence which VirtualMachine this machine is, and whether its names match.

mod evidence;

use serde::{Deserialize, Serialize};

use super::name_match::{Verdict, VmNames, judge};
use crate::facts::names::{NameKind, Namespace, VmName, firmware_uuid, kubevirt_hostname, short};
use crate::facts::observation::{Coverage, Observation};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use evidence::{Candidate, own_names};

pub use evidence::{Evidence, EvidenceKind};

/// The maximum number of VMs that are named if several match. A namespace may contain thousands.
const NAMED_MAX: usize = 5;

/// The identity of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The VirtualMachine of this machine.
    pub vm: OwnVm,
    /// The comparisons that were made, strongest evidence first.
    pub evidence: Vec<Evidence>,
    /// The names of this machine, compared with the name of the VM.
    pub names: Vec<JudgedName>,
    /// The worst verdict of `names`.
    pub verdict: Verdict,
    /// The name that `names` were compared with: that of the VM, or that given by the platform while the VM is not known.
    pub expected: Option<VmName>,
}

impl Identity {
    /// Reports whether the VM was identified only by what everybody on its network knows: users who may create VMs in the namespace can
    /// give its name and MAC address to theirs.
    pub fn is_imitable(&self) -> bool {
        let is_public = |kind| matches!(kind, EvidenceKind::MacAddress | EvidenceKind::Name);
        let mut agreeing = self.evidence.iter().filter(|item| item.agrees);
        self.vmi().is_some() && agreeing.all(|item| is_public(item.kind))
    }

    /// Returns our own instance, if exactly one was found.
    pub fn vmi(&self) -> Option<&Vmi> {
        match &self.vm {
            OwnVm::Identified(vmi) => Some(vmi),
            _ => None,
        }
    }

    /// Reports whether our Node has the name of another VM, or would get it.
    pub fn is_named_as_another(&self) -> bool {
        self.node_verdict() == Verdict::AnotherVm
    }

    /// Returns the name of the Node, if it has or would get one.
    pub fn node_name(&self) -> Option<&JudgedName> {
        let mut names = self.names.iter();
        names.find(|judged| judged.kind == NameKind::NodeName)
    }

    /// Returns the verdict on the name of the Node, or on all names while it has none.
    pub fn node_verdict(&self) -> Verdict {
        self.node_name()
            .map_or(self.verdict, |judged| judged.verdict)
    }

    /// Returns the name of the VM, if it is proven.
    pub fn vm_name(&self) -> Option<&VmName> {
        match &self.vm {
            OwnVm::Identified(vmi) | OwnVm::Remembered(vmi, _) => Some(&vmi.name),
            OwnVm::ProvenOffline(vm) => Some(&vm.name),
            OwnVm::Ambiguous(_) | OwnVm::NotFound(_) | OwnVm::Unknown(_) => None,
        }
    }

    /// Returns the name that the names were compared with, as text: a name that only cloud-init received is not called that of a VM.
    pub fn reference(&self) -> String {
        let name = self.expected.as_ref().map_or("", VmName::as_str);
        match self.vm {
            OwnVm::Unknown(_) => format!("cloud-init received `{name}`, the VM is not identified"),
            _ => format!("VM `{name}`"),
        }
    }

    /// Returns the evidence that agrees, as short text.
    pub fn proof(&self) -> String {
        let agreeing = self.evidence.iter().filter(|item| item.agrees);
        let kinds: Vec<&str> = agreeing.map(|item| item.kind.as_str()).collect();
        match kinds.is_empty() {
            true => "none".to_owned(),
            false => kinds.join(", "),
        }
    }
}

/// The VirtualMachine of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnVm {
    /// Exactly one instance matches all known evidence.
    Identified(Box<Vmi>),
    /// No instance could be read, but this machine itself proves the name of the VM. This is enough to judge names, but not to write
    /// labels.
    ProvenOffline(OfflineVm),
    /// Several instances match (`namespace/name` of the first ones, and the number of the others). Nothing may be written.
    Ambiguous(Vec<String>),
    /// No instance can be read at present; this one was found earlier. This is enough to judge names, but not to write labels.
    Remembered(Box<Vmi>, Unavailable),
    /// Instances were read, and none matches.
    NotFound(String),
    /// No instance could be read.
    Unknown(Unavailable),
}

/// A VM that is known without a read of its instance: by its firmware UUID, or by its virt-launcher pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineVm {
    /// The name.
    pub name: VmName,
    /// The namespace, if known.
    pub namespace: Option<Namespace>,
    /// The UID of the instance, if known.
    pub instance_uid: Option<String>,
}

/// A name of this machine, with its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedName {
    /// The kind of name.
    #[serde(rename = "type")]
    pub kind: NameKind,
    /// The name as it was read.
    pub name: String,
    /// The result of the comparison with the name of the VM.
    #[serde(rename = "state")]
    pub verdict: Verdict,
}

/// Finds our own VM among the candidates and judges every name.
///
/// `pinned` is the VM that our configuration names. `last` is the instance that was found earlier, with the names of the other
/// VMs.
pub fn identify(
    observation: &Observation,
    pinned: Option<&VmName>,
    last: Option<(&Vmi, &[VmName])>,
) -> Identity {
    let (vm, evidence) = match &observation.candidates {
        Fact::Known(candidates) => {
            choose(observation, &candidates.vmis, candidates.coverage, pinned)
        }
        Fact::Absent => offline(
            observation,
            &Unavailable::new(UnavailableKind::NotAsked, "no Harvester credential"),
        ),
        Fact::Failed(why) => match last {
            Some((vmi, _)) => (
                OwnVm::Remembered(Box::new(vmi.clone()), why.clone()),
                Candidate::new(observation, vmi).evidence,
            ),
            None => offline(observation, why),
        },
    };
    let others: Vec<VmNames<'_>> = match (&vm, observation.candidates.known(), last) {
        (OwnVm::Identified(own), Some(candidates), _) => {
            let others = candidates.vmis.iter().filter(|vmi| vmi.name != own.name);
            others.map(names_of).collect()
        }
        (OwnVm::Remembered(..), _, Some((_, others))) => others.iter().map(derived_names).collect(),
        _ => Vec::new(),
    };
    let platform = observation.machine.platform_hostname.known();
    let platform = platform.and_then(|name| VmName::parse(&short(name)).ok());
    let reference = match &vm {
        OwnVm::Identified(vmi) | OwnVm::Remembered(vmi, _) => Some(names_of(vmi)),
        OwnVm::ProvenOffline(vm) => Some(derived_names(&vm.name)),
        OwnVm::Unknown(_) => platform.as_ref().map(derived_names),
        OwnVm::Ambiguous(_) | OwnVm::NotFound(_) => None,
    };
    // The name that the platform gave may be the name of no VM, so equality with it proves nothing.
    let is_given = matches!(vm, OwnVm::Unknown(_));
    let names: Vec<JudgedName> = own_names(observation)
        .into_iter()
        .map(|(kind, name)| {
            let verdict = reference.as_ref().map_or(Verdict::Unknown, |own| {
                judge(kind, &name, own, &others, &observation.distributions)
            });
            let verdict = match verdict {
                verdict if !is_given || verdict == Verdict::Differs => verdict,
                _ => Verdict::Unknown,
            };
            JudgedName {
                kind,
                name,
                verdict,
            }
        })
        .collect();
    // The static hostname takes effect only at the next boot. It has its own finding.
    let verdicts = names
        .iter()
        .filter(|judged| judged.kind != NameKind::StaticHostname)
        .map(|judged| judged.verdict);
    let verdict = match vm {
        OwnVm::Ambiguous(_) => Verdict::Ambiguous,
        OwnVm::NotFound(_) => Verdict::NotFound,
        _ => verdicts.max().unwrap_or(Verdict::Unknown),
    };
    let expected = reference.map(|own| own.vm.clone());
    Identity {
        vm,
        evidence,
        names,
        verdict,
        expected,
    }
}

/// Returns the names of an instance.
fn names_of(vmi: &Vmi) -> VmNames<'_> {
    let given = vmi.hostname.as_deref().map(short);
    VmNames {
        hostname: given.unwrap_or_else(|| kubevirt_hostname(&vmi.name)),
        vm: &vmi.name,
    }
}

/// Reports whether KubeVirt gives two VMs one hostname.
pub fn shares_hostname(vmi: &Vmi, other: &Vmi) -> bool {
    vmi.name != other.name && names_of(vmi).hostname == names_of(other).hostname
}

/// Returns the names of a VM of which only the name is known.
fn derived_names(vm: &VmName) -> VmNames<'_> {
    VmNames {
        hostname: kubevirt_hostname(vm),
        vm,
    }
}

/// Reports whether an instance is certainly this machine: its hardware matches and no evidence disagrees, or our configuration
/// names it. A name alone is no proof while other instances have not been compared.
pub fn is_proven(observation: &Observation, vmi: &Vmi, pinned: Option<&VmName>) -> bool {
    let candidate = Candidate::new(observation, vmi);
    let is_meant = pinned.map_or_else(
        || candidate.has(true, EvidenceKind::is_hardware) && !candidate.is_namesake(),
        |name| vmi.name == *name,
    );
    is_meant && !candidate.is_other_machine()
}

/// Reports whether an instance is this machine whatever other instances there are, so that none needs to be compared: it is proven, and
/// the VM in `spec.providerID` of our Node, if there is one, owns it. Any user who may create VMs can give one our name and our hardware
/// IDs, and leave out its owner.
pub fn is_certain(observation: &Observation, vmi: &Vmi, pinned: Option<&VmName>) -> bool {
    let provided = observation.node_vm_uid();
    let is_owned = provided.is_none() || provided == vmi.vm_uid.as_deref();
    is_proven(observation, vmi, pinned) && (pinned.is_some() || is_owned)
}

/// Reports whether anything speaks for an instance.
pub fn may_be(observation: &Observation, vmi: &Vmi) -> bool {
    Candidate::new(observation, vmi).has(true, |_| true)
}

/// Reports whether metadata from a list makes an instance likely to be ours: the UID of the VM that owns it, or its name, from
/// which KubeVirt before 1.6 derived the firmware UUID.
pub fn is_likely(observation: &Observation, name: &VmName, owner: Option<&str>) -> bool {
    let provided = observation.node_vm_uid();
    let is_owner = provided.is_some() && provided == owner;
    is_owner || observation.machine.product_uuid.known() == Some(&firmware_uuid(name.as_str()))
}

/// Returns the only candidate that matches, or the reason why there is none.
fn choose(
    observation: &Observation,
    vmis: &[Vmi],
    coverage: Coverage,
    pinned: Option<&VmName>,
) -> (OwnVm, Vec<Evidence>) {
    let candidates: Vec<Candidate<'_>> = vmis
        .iter()
        .map(|vmi| Candidate::new(observation, vmi))
        .collect();
    if let Some(name) = pinned {
        let mut fitting = candidates.iter().filter(|one| !one.is_other_machine());
        return match fitting.find(|one| one.vmi.name == *name) {
            Some(Candidate { vmi, evidence }) => {
                let detail = format!("`harvester.vm` is `{name}`");
                let configured = Evidence::new(EvidenceKind::Configured, true, detail);
                let evidence = [&[configured], evidence.as_slice()].concat();
                (OwnVm::Identified(Box::new((*vmi).clone())), evidence)
            }
            None => not_found(
                &candidates,
                format!("the configured VM `{name}` does not exist or does not match this node"),
            ),
        };
    }
    let best = candidates.iter().filter_map(Candidate::rank).max();
    let found: Vec<&Candidate<'_>> = candidates
        .iter()
        .filter(|one| best.is_some() && one.rank() == best)
        .collect();
    match found.as_slice() {
        [Candidate { vmi, evidence }] => {
            let vm = match original(observation, vmi, &candidates) {
                None => OwnVm::Identified(Box::new((*vmi).clone())),
                Some(original) => OwnVm::Ambiguous(vec![vmi.reference(), original.reference()]),
            };
            (vm, evidence.clone())
        }
        [] => {
            let seen = match coverage {
                Coverage::Namespace => format!(
                    "none of the {} VMs in the namespace matches this node",
                    vmis.len()
                ),
                Coverage::Named => {
                    "no VM with a name of this node matches, and the others cannot be listed: it is forbidden, or there are too many"
                        .to_owned()
                }
                Coverage::Listed => {
                    "no VM with a name of this node matches, and no other VM matched when they were last listed".to_owned()
                }
            };
            not_found(&candidates, seen)
        }
        several @ [first, ..] => {
            let names = several.iter().map(|one| one.vmi.reference());
            let mut names: Vec<String> = names.take(NAMED_MAX).collect();
            let more = several.len().saturating_sub(NAMED_MAX);
            if more > 0 {
                names.push(format!("{more} more"));
            }
            (OwnVm::Ambiguous(names), first.evidence.clone())
        }
    }
}

/// Returns the running VM that owns our Node, if ours is a copy of it: Harvester restores a backup to a new VM with the firmware
/// UUID and the disk of the original, and another MAC address. The kubelet of the copy has the credential of the original, so only
/// this comparison prevents its labels from being written to the Node of the original.
fn original<'a>(
    observation: &Observation,
    own: &Vmi,
    candidates: &[Candidate<'a>],
) -> Option<&'a Vmi> {
    let provided = observation.node_vm_uid();
    let kubelet = observation.kubelet.known();
    let is_of_node = |vmi: &Vmi| match (provided, vmi.vm_uid.as_deref()) {
        (Some(node), Some(vm)) => node == vm,
        _ => kubelet.is_some_and(|kubelet| kubelet.node_name.as_str() == vmi.name.as_str()),
    };
    let is_original = |one: &&Candidate<'_>| {
        one.vmi.uid != own.uid
            && one.has(true, |kind| kind == EvidenceKind::FirmwareUuid)
            && is_of_node(one.vmi)
            && !is_of_node(own)
    };
    candidates.iter().find(is_original).map(|one| one.vmi)
}

/// Returns the result for no match. It shows the evidence of a candidate that matches some of our hardware, or else of one with
/// our name.
fn not_found(candidates: &[Candidate<'_>], text: String) -> (OwnVm, Vec<Evidence>) {
    let with = |kind: fn(EvidenceKind) -> bool| candidates.iter().find(|one| one.has(true, kind));
    match with(EvidenceKind::is_hardware).or_else(|| with(|kind| kind == EvidenceKind::Name)) {
        Some(Candidate { vmi, evidence }) => (
            OwnVm::NotFound(format!("{text}; the closest match is {}", vmi.reference())),
            evidence.clone(),
        ),
        None => (OwnVm::NotFound(text), Vec::new()),
    }
}

/// Proves the name of the VM by its pod or by the firmware UUID, without any candidate.
fn offline(observation: &Observation, why: &Unavailable) -> (OwnVm, Vec<Evidence>) {
    let of_pod = || {
        let pod = observation.pod_info.known()?;
        let vm = OfflineVm {
            name: pod.vm.clone()?,
            namespace: Some(pod.namespace.clone()),
            instance_uid: pod.instance_uid.clone(),
        };
        let (namespace, pod) = (&pod.namespace, &pod.pod);
        let detail = format!("virtiofs shares the files of pod {namespace}/{pod}");
        Some((vm, EvidenceKind::PodInfo, detail))
    };
    let of_uuid = || {
        let uuid = observation.machine.product_uuid.known()?;
        let platform = observation.machine.platform_hostname.known().cloned();
        let own = own_names(observation).into_iter().map(|(_, name)| name);
        let names = platform.into_iter().chain(own);
        let mut names = names.filter_map(|name| VmName::parse(&short(&name)).ok());
        let name = names.find(|name| firmware_uuid(name.as_str()) == *uuid)?;
        let detail = format!("product_uuid is the UUIDv5 of `{name}`");
        let vm = OfflineVm {
            name,
            namespace: None,
            instance_uid: None,
        };
        Some((vm, EvidenceKind::UuidOfName, detail))
    };
    match of_pod().or_else(of_uuid) {
        Some((vm, kind, detail)) => (
            OwnVm::ProvenOffline(vm),
            vec![Evidence::new(kind, true, detail)],
        ),
        None => (OwnVm::Unknown(why.clone()), Vec::new()),
    }
}

#[cfg(test)]
mod tests;
