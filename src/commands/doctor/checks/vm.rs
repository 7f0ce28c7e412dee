// SPDX-License-Identifier: Apache-2.0
//! Does another VM have our hardware IDs, has Harvester labeled our VM, and does the host hear its guest agent?

use crate::catalog::{Code, Finding};
use crate::commands::doctor::case::{Case, Checked, finding};
use crate::commands::doctor::objects::Instance;
use crate::commands::doctor::reads::Reads;
use crate::facts::Fact;
use crate::facts::vmi::{ANNOTATED_CREATOR, CREATOR, Vmi};

/// The maximum number of VMs in a finding about shared hardware; a namespace may have thousands.
const NAMED_MAX: usize = 5;

/// The label with the name of the cluster.
const CLUSTER: &str = "guestcluster.harvesterhci.io/name";

/// Judges our VM and the others of its namespace.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let instance = reads.instance.known();
    let others = reads.namespace.known();
    let others = others.map(Vec::as_slice).unwrap_or_default();
    // On KubeVirt without Harvester, its labels have no meaning.
    let is_harvester = reads.release != Fact::Absent;
    checked.findings.extend(neighbors(&reads.case, others));
    let labels = instance.filter(|_| is_harvester).and_then(labels);
    checked.findings.extend(labels);
    checked.findings.extend(instance.and_then(guest_agent));
}

/// Returns a finding if other VMs of the namespace have the same hardware IDs as ours.
fn neighbors(case: &Case<'_>, all: &[Vmi]) -> Option<Finding> {
    let own = case.identity.vmi()?;
    let others = all.iter().filter(|other| other.name != own.name);
    let mut shared = others.filter_map(|other| shared(own, other));
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
    let uuid = own.firmware_uuid;
    let uuid = uuid.filter(|_| own.firmware_uuid == other.firmware_uuid);
    let uuid = uuid.map(|uuid| format!("firmware UUID {uuid}"));
    let shared: Vec<String> = macs.chain(uuid).collect();
    (!shared.is_empty()).then(|| format!("VM {} has {}", other.reference(), shared.join(" and ")))
}

fn labels(instance: &Instance) -> Option<Finding> {
    let mut texts = Vec::new();
    let creator = instance.label(CREATOR);
    if creator != Some(ANNOTATED_CREATOR) {
        let creator = creator.unwrap_or("missing").escape_debug();
        texts.push(format!("{CREATOR} is {creator}, not {ANNOTATED_CREATOR}"));
    }
    if instance.label(CLUSTER).is_none() {
        texts.push(format!("{CLUSTER} is missing"));
    }
    finding(Code::VmLabelsMissing, &texts)
}

fn guest_agent(instance: &Instance) -> Option<Finding> {
    let text = "condition AgentConnected of the VMI is not True";
    (!instance.is_agent_connected()).then(|| Finding::new(Code::GuestAgentNotConnected, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::doctor::testing::{Bench, object};
    use crate::facts::names::VmName;
    use crate::facts::nic::Mac;

    #[test]
    fn another_vm_with_hardware_of_ours_is_named_and_we_ourselves_are_not() {
        let mut bench = Bench::new();
        let own = bench.world.vmi().clone();
        let (mut copy, mut restarted) = (own.clone(), own.clone());
        (copy.name, copy.firmware_uuid) = (VmName::parse("copy").unwrap(), None);
        let mut other = copy.clone();
        other.macs = [Mac::parse("6e:00:00:00:00:01").unwrap()].into();
        // The same VM, re-created since the round.
        restarted.uid = "new".to_owned();
        let all = [own, restarted, other, copy.clone()];
        let found = bench.ask(|case| neighbors(case, &all)).unwrap();
        assert_eq!(found.code, Code::HardwareShared);
        let text = "VM default/copy has MAC address 6e:22:41:9c:0a:71";
        assert_eq!(found.seen, text);
        let many = vec![copy; 7];
        let found = bench.ask(|case| neighbors(case, &many)).unwrap();
        assert!(found.seen.ends_with("; 2 more"), "{}", found.seen);
    }

    #[test]
    fn what_harvester_says_of_the_vm_is_passed_on() {
        let instance: Instance = object(json!({
            "metadata": {"labels": {CREATOR: "harv\nester", CLUSTER: ""}},
        }));
        let found = labels(&instance).unwrap();
        assert_eq!(
            found.seen,
            "harvesterhci.io/creator is harv\\nester, not docker-machine-driver-harvester; \
             guestcluster.harvesterhci.io/name is missing"
        );
        assert!(guest_agent(&instance).is_some());
    }
}
