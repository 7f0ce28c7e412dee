// SPDX-License-Identifier: Apache-2.0
//! Checks for conflicting writers of our names and labels, and for VM settings that prevent the VM or its labels from moving.

use super::Case;
use crate::catalog::{Code, Finding};
use crate::facts::Fact;
use crate::facts::topology::TWINS;
use crate::facts::vmi::{ANNOTATED_CREATOR, CREATOR, Vmi};

/// The field manager of the agent in `managedFields`.
const OURS: &str = "harvester-node-agent";

/// The maximum number of VMs in a finding about shared hardware; a namespace may have thousands.
const NAMED_MAX: usize = 5;

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    [
        conflict(case),
        twins(case),
        neighbours(case),
        vm_labels(case),
        guest_agent(case),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a finding if another field manager overwrote a topology label with a value that differs from the host's.
fn conflict(case: &Case<'_>) -> Option<Finding> {
    let node = case.observation.node.known()?;
    let topology = &case.placement?.known.as_ref()?.topology;
    let pairs = TWINS
        .iter()
        .flat_map(|(key, beta)| [(*key, *key), (*beta, *key)]);
    let texts: Vec<String> = pairs
        .filter_map(|(key, asked)| {
            let wanted = topology.value(asked)?;
            let present = node
                .labels
                .get(key)
                .filter(|value| *value != wanted.as_str())?;
            let manager = node.label_managers.get(key).filter(|name| *name != OURS)?;
            Some(format!(
                "`{}` wrote {key}={}, the host has {wanted}",
                manager.escape_debug(),
                present.escape_debug()
            ))
        })
        .collect();
    finding(Code::TopologyLabelOverwritten, &texts)
}

/// Returns a finding if a topology key and its deprecated beta key differ.
fn twins(case: &Case<'_>) -> Option<Finding> {
    let node = case.observation.node.known()?;
    let labels = &node.labels;
    let writer = |key: &str| match node.label_managers.get(key) {
        Some(manager) => format!(" (by `{}`)", manager.escape_debug()),
        None => String::new(),
    };
    let texts: Vec<String> = TWINS
        .iter()
        .filter_map(|(key, beta)| {
            let old = labels.get(*beta)?;
            let new = labels.get(*key).map_or("missing", String::as_str);
            (old != new).then(|| {
                format!(
                    "{key} is {}{}, {beta} is {}{}",
                    new.escape_debug(),
                    writer(key),
                    old.escape_debug(),
                    writer(beta)
                )
            })
        })
        .collect();
    finding(Code::BetaLabelsDiffer, &texts)
}

/// Returns a finding if other VMs of the namespace have the same hardware IDs as ours.
fn neighbours(case: &Case<'_>) -> Option<Finding> {
    let own = case.identity.vmi()?;
    let others = case.examination.conflicts.namespace.known()?.iter();
    let mut shared = others
        .filter(|other| other.name != own.name)
        .filter_map(|other| shared(own, other));
    let mut texts: Vec<String> = shared.by_ref().take(NAMED_MAX).collect();
    let more = shared.count();
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    finding(Code::HardwareShared, &texts)
}

fn shared(own: &Vmi, other: &Vmi) -> Option<String> {
    let macs = own.macs.intersection(&other.macs);
    let macs = macs.map(|mac| format!("MAC address {mac}"));
    let uuid = own
        .firmware_uuid
        .filter(|_| own.firmware_uuid == other.firmware_uuid);
    let uuid = uuid.map(|uuid| format!("firmware UUID {uuid}"));
    let shared: Vec<String> = macs.chain(uuid).collect();
    (!shared.is_empty()).then(|| format!("VM {} has {}", other.reference(), shared.join(" and ")))
}

fn vm_labels(case: &Case<'_>) -> Option<Finding> {
    let instance = case.examination.conflicts.instance.known()?;
    // On KubeVirt without Harvester, these labels have no meaning.
    if case.examination.versions.harvester == Fact::Absent {
        return None;
    }
    let mut texts = Vec::new();
    if instance.creator.as_deref() != Some(ANNOTATED_CREATOR) {
        let creator = instance.creator.as_deref().unwrap_or("missing");
        texts.push(format!(
            "{CREATOR} is {}, not {ANNOTATED_CREATOR}",
            creator.escape_debug()
        ));
    }
    if instance.guest_cluster.is_none() {
        texts.push("guestcluster.harvesterhci.io/name is missing".to_owned());
    }
    finding(Code::VmLabelsMissing, &texts)
}

fn guest_agent(case: &Case<'_>) -> Option<Finding> {
    let instance = case.examination.conflicts.instance.known()?;
    let text = "condition AgentConnected of the VMI is not True";
    (!instance.agent_connected).then(|| Finding::new(Code::GuestAgentNotConnected, text))
}

fn finding(code: Code, texts: &[String]) -> Option<Finding> {
    (!texts.is_empty()).then(|| Finding::new(code, texts.join("; ")))
}
