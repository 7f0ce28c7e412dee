// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::decide::fixtures::{VM, World, kubelet_named};
use crate::facts::names::{NodeName, firmware_uuid};
use crate::facts::nic::Mac;
use uuid::Uuid;

fn rename(world: &mut World, hostname: &str, node: &str) {
    world.observation.machine.kernel_hostname = Fact::Known(hostname.to_owned());
    match &mut world.observation.kubelet {
        Fact::Known(kubelet) => kubelet.node_name = NodeName::parse(node).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn disagrees(identity: &Identity, kind: EvidenceKind) -> bool {
    let mut evidence = identity.evidence.iter();
    evidence.any(|item| item.kind == kind && !item.agrees)
}

fn random_uuid(digit: u128) -> Uuid {
    Uuid::from_u128(0x1111_1111_1111_4111_8111_1111_1111_1110 + digit)
}

#[test]
fn uuid_and_mac_find_the_vm_and_equal_names_match() {
    let identity = World::new().identity();
    assert_eq!(identity.vm_name().unwrap().as_str(), VM);
    assert_eq!(identity.verdict, Verdict::Match);
    assert_eq!(identity.proof(), "firmware-uuid, mac-address, name");
}

#[test]
fn every_verdict_is_reached_by_its_rule() {
    let long = "very-long-cluster-name-pool1-q99l7-6ndw9";
    let (but_case, short) = (Verdict::MatchExceptCaseOrDomain, "very-long-f864a");
    for (vm, spec_hostname, hostname, node, verdict) in [
        (VM, None, VM, VM, Verdict::Match),
        (VM, None, "POOL1-ABCDE", VM, but_case),
        (VM, None, "pool1-abcde.", VM, but_case),
        (VM, None, "pool1-abcde.example.org.", VM, Verdict::Fqdn),
        (VM, Some("web"), "web", "web", Verdict::PlatformHostname),
        ("web.prod", None, "web", "web", Verdict::PlatformHostname),
        (long, None, short, short, Verdict::RancherTruncated),
        (VM, None, VM, "pool1-abcde-0a1b2c3d", Verdict::NodeIdSuffix),
        (VM, None, VM, "chosen-by-hand", Verdict::ConfiguredOverride),
        (VM, None, "localhost", VM, Verdict::Differs),
        (VM, None, "pool1-abcdf", "pool1-abcdf", Verdict::AnotherVm),
        (VM, None, "pool1-abcdf.org", VM, Verdict::Differs),
        (VM, None, "evil\u{1b}[31m", VM, Verdict::Differs),
    ] {
        let mut world = World::new();
        world.add_vmi(|other| {
            other.name = VmName::parse("pool1-abcdf").unwrap();
            other.uid = "other".to_owned();
            other.firmware_uuid = Some(random_uuid(1));
            other.macs.clear();
        });
        world.vmi().name = VmName::parse(vm).unwrap();
        world.vmi().hostname = spec_hostname.map(str::to_owned);
        if verdict == Verdict::ConfiguredOverride {
            let configured = kubelet_named(node);
            world.observation.distributions.push(configured);
        }
        rename(&mut world, hostname, node);
        let identity = world.identity();
        assert_eq!(identity.verdict, verdict, "{vm} {hostname} {node}");
        assert!(!identity.verdict.consequence().is_empty());
    }
}

#[test]
fn two_vms_of_one_uuid_and_mac_are_ambiguous_whatever_the_name_says() {
    let mut world = World::new();
    world.add_vmi(|other| {
        other.name = VmName::parse("clone").unwrap();
        other.uid = "other".to_owned();
        other.vm_uid = Some("other-vm".to_owned());
    });
    world.node().provider_id = Some("harvester://vm-uid".to_owned());
    let OwnVm::Ambiguous(vms) = world.identity().vm else {
        panic!("{:?}", world.identity().vm)
    };
    assert_eq!(vms, ["default/pool1-abcde", "default/clone"]);
}

#[test]
fn a_copy_that_runs_beside_the_vm_of_the_node_is_ambiguous() {
    // A Harvester restore to a new VM: firmware UUID, disk and credential of the original, another MAC address.
    let restored = |provider_id: Option<&str>| {
        let mut world = World::new();
        world.add_vmi(|copy| {
            copy.name = VmName::parse("restored").unwrap();
            copy.uid = "copy".to_owned();
            copy.vm_uid = Some("copy-vm".to_owned());
        });
        world.vmi().vm_uid = Some("vm-uid".to_owned());
        world.vmi().macs = [Mac::parse("02:00:00:00:00:99").unwrap()].into();
        world.node().provider_id = provider_id.map(str::to_owned);
        world
    };
    for provider_id in [Some("harvester://vm-uid"), None] {
        let OwnVm::Ambiguous(vms) = restored(provider_id).identity().vm else {
            panic!("{:?}", restored(provider_id).identity().vm)
        };
        assert_eq!(vms, ["default/restored", "default/pool1-abcde"]);
    }
    // The Node belongs to the copy.
    let identity = restored(Some("harvester://copy-vm")).identity();
    assert_eq!(identity.vm_name().unwrap().as_str(), "restored");
    // The original does not exist.
    let mut world = restored(Some("harvester://vm-uid"));
    match &mut world.observation.candidates {
        Fact::Known(candidates) => drop(candidates.vmis.remove(0)),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.identity().vm_name().unwrap().as_str(), "restored");
}

#[test]
fn a_configured_vm_breaks_a_tie_but_not_a_contradiction() {
    let mut world = World::new();
    world.add_vmi(|other| {
        other.name = VmName::parse("clone").unwrap();
        other.uid = "other".to_owned();
    });
    world.settings.harvester.vm = Some(VmName::parse("clone").unwrap());
    assert_eq!(world.identity().vm_name().unwrap().as_str(), "clone");
    world.observation.machine.product_uuid = Fact::Known(random_uuid(1));
    assert!(matches!(world.identity().vm, OwnVm::NotFound(_)));
}

#[test]
fn one_mac_distinguishes_vms_of_one_uuid() {
    let mut world = World::new();
    world.add_vmi(|other| {
        other.name = VmName::parse("clone").unwrap();
        other.macs = [Mac::parse("6e:22:41:9c:0a:99").unwrap()].into();
    });
    assert_eq!(world.identity().vm_name().unwrap().as_str(), VM);
}

#[test]
fn hardware_that_differs_rules_out_a_vm_of_our_name() {
    let mut world = World::new();
    world.observation.machine.product_uuid = Fact::Known(random_uuid(1));
    let identity = world.identity();
    assert!(matches!(identity.vm, OwnVm::NotFound(_)));
    assert!(disagrees(&identity, EvidenceKind::FirmwareUuid));
    assert_eq!(identity.verdict, Verdict::NotFound);
}

#[test]
fn a_vm_of_our_name_in_the_wrong_namespace_shares_the_uuid_but_not_the_mac() {
    let mut world = World::new();
    world.vmi().macs = [Mac::parse("6e:22:41:9c:0a:99").unwrap()].into();
    assert!(matches!(world.identity().vm, OwnVm::NotFound(_)));
}

#[test]
fn without_hardware_facts_the_provider_id_counts_and_then_the_name() {
    let mut world = World::new();
    world.observation.machine.product_uuid = Fact::Absent;
    world.observation.machine.nics = Fact::Absent;
    world.add_vmi(|other| {
        other.name = VmName::parse("other").unwrap();
        other.vm_uid = Some("other-vm".to_owned());
    });
    assert_eq!(world.identity().vm_name().unwrap().as_str(), VM);
    world.node().provider_id = Some("harvester://other-vm".to_owned());
    assert_eq!(world.identity().vm_name().unwrap().as_str(), "other");
}

#[test]
fn hardware_ids_are_not_enough_to_stop_the_search_while_the_node_belongs_to_another_vm() {
    let mut world = World::new();
    for (owner, provider_id, expected) in [
        (Some("vm-uid"), None, true),
        (Some("vm-uid"), Some("harvester://vm-uid"), true),
        (Some("vm-uid"), Some("harvester://other-vm"), false),
        (None, None, true),
        (None, Some("harvester://vm-uid"), false),
    ] {
        world.vmi().vm_uid = owner.map(str::to_owned);
        world.node().provider_id = provider_id.map(str::to_owned);
        let vmi = world.vmi().clone();
        let certain = |pinned| is_certain(&world.observation, &vmi, pinned);
        assert!(is_proven(&world.observation, &vmi, None));
        assert_eq!(certain(None), expected, "{owner:?} {provider_id:?}");
        assert!(certain(Some(&vmi.name)));
    }
}

#[test]
fn a_provider_id_of_another_vm_does_not_outweigh_hardware() {
    let mut world = World::new();
    world.node().provider_id = Some("harvester://someone-else".to_owned());
    let identity = world.identity();
    assert_eq!(identity.vm_name().unwrap().as_str(), VM);
    assert!(disagrees(&identity, EvidenceKind::ProviderId));
}

#[test]
fn with_no_credential_the_firmware_uuid_proves_an_old_vms_name() {
    let mut world = World::new();
    world.observation.candidates = Fact::Absent;
    let identity = world.identity();
    assert!(matches!(&identity.vm, OwnVm::ProvenOffline(vm) if vm.name.as_str() == VM));
    assert_eq!(identity.verdict, Verdict::Match);
    // A hostname that differs from the VM cannot be proven. The name from cloud-init can, and the difference is detected.
    rename(&mut world, "wrong", "wrong");
    assert_eq!(world.identity().verdict, Verdict::Differs);
    world.observation.machine.product_uuid = Fact::Known(random_uuid(1));
    let identity = world.identity();
    // cloud-init received another name.
    assert_eq!(identity.vm_name(), None);
    assert_eq!(identity.verdict, Verdict::Differs);
    world.observation.machine.platform_hostname = Fact::Absent;
    assert_eq!(world.identity().verdict, Verdict::Unknown);
    assert_eq!(firmware_uuid(VM).get_version_num(), 5);
}

#[test]
fn while_the_api_is_away_names_are_judged_by_what_was_found_before() {
    let mut world = World::new();
    world.memory.last_vmi = Some(world.vmi().clone());
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "timeout");
    rename(&mut world, "wrong", VM);
    let identity = world.identity();
    assert!(matches!(identity.vm, OwnVm::Remembered(..)));
    assert_eq!(identity.verdict, Verdict::Differs);
    assert_eq!(identity.vmi(), None, "labels need a fresh look");
}

#[test]
fn the_static_name_is_judged_but_does_not_decide() {
    let mut world = World::new();
    world.observation.machine.static_hostname = Fact::Known("other".to_owned());
    let identity = world.identity();
    assert_eq!(identity.verdict, Verdict::Match);
    let mut names = identity.names.iter();
    let name = names.find(|name| name.kind == NameKind::StaticHostname);
    assert_eq!(name.unwrap().verdict, Verdict::Differs);
}

#[test]
fn before_the_first_start_of_the_kubelet_the_configured_name_is_the_nodes() {
    let named = |world: &World| {
        let mut names = world.identity().names.into_iter();
        let node = names.find(|name| name.kind == NameKind::NodeName);
        node.map(|node| (node.name, node.verdict))
    };
    let mut world = World::new();
    world.observation.kubelet = Fact::failed(UnavailableKind::Missing, "none");
    assert_eq!(named(&world), None);
    world.observation.distributions = vec![kubelet_named("chosen-1")];
    let chosen = ("chosen-1".to_owned(), Verdict::ConfiguredOverride);
    assert_eq!(named(&world), Some(chosen));
    world.add_vmi(|other| {
        other.name = VmName::parse("chosen-1").unwrap();
        other.firmware_uuid = Some(random_uuid(1));
        other.macs.clear();
    });
    assert_eq!(named(&world).unwrap().1, Verdict::AnotherVm);
}

#[test]
fn a_namesake_is_not_this_machine_where_the_node_was_made_for_another_vm() {
    let mut world = World::new();
    world.observation.machine.nics = Fact::Absent;
    world.observation.machine.product_serial = Fact::Absent;
    // Only the firmware UUID that is derived from the name matches.
    world.observation.machine.product_uuid = Fact::Known(firmware_uuid(VM));
    world.vmi().firmware_uuid = Some(firmware_uuid(VM));
    assert_eq!(world.identity().vm_name().unwrap().as_str(), VM);
    world.node().provider_id = Some("harvester://that-of-another-namespace".to_owned());
    assert!(matches!(world.identity().vm, OwnVm::NotFound(_)));
    // A UUID that is not derived from a name is hardware evidence.
    world.observation.machine.product_uuid = Fact::Known(random_uuid(3));
    world.vmi().firmware_uuid = Some(random_uuid(3));
    assert_eq!(world.identity().vm_name().unwrap().as_str(), VM);
}

#[test]
fn hardware_that_agrees_in_part_is_reported_whatever_the_names() {
    let mut world = World::new();
    rename(&mut world, "renamed", "renamed");
    world.vmi().macs = [Mac::parse("6e:22:41:9c:0a:99").unwrap()].into();
    let identity = world.identity();
    let OwnVm::NotFound(text) = &identity.vm else {
        panic!("{:?}", identity.vm);
    };
    assert!(text.contains(VM), "{text}");
    let kinds = |agrees: bool| -> Vec<EvidenceKind> {
        let items = identity.evidence.iter();
        let items = items.filter(|item| item.agrees == agrees && item.kind.is_hardware());
        items.map(|item| item.kind).collect()
    };
    assert_eq!(kinds(true), [EvidenceKind::FirmwareUuid]);
    assert_eq!(kinds(false), [EvidenceKind::MacAddress]);
}

#[test]
fn a_list_of_duplicate_vms_is_truncated() {
    let mut world = World::new();
    for number in 0..2_000 {
        world.add_vmi(|other| other.name = VmName::parse(&format!("clone-{number}")).unwrap());
    }
    let OwnVm::Ambiguous(vms) = world.identity().vm else {
        panic!();
    };
    assert_eq!(vms.len(), 6);
    assert_eq!(vms[5], "1996 more");
}

/// Adds the files of a pod of this VM.
fn share_pod(world: &mut World, uid: &str) {
    let labels = format!("kubevirt.io/created-by=\"{uid}\"\nkubevirt.io/nodeName=\"hv-a\"\n");
    let pod = format!("virt-launcher-{VM}-x7k2p");
    let info = crate::facts::pod_info::PodInfo::parse(&labels, &pod, "default").unwrap();
    world.observation.pod_info = Fact::Known(info);
}

#[test]
fn without_harvester_the_pod_proves_the_vm_and_is_named_as_the_evidence() {
    let mut world = World::new();
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "no route");
    world.observation.machine.product_uuid = Fact::Known(random_uuid(1));
    assert_eq!(world.identity().vm_name(), None);
    share_pod(&mut world, "vmi-uid");
    let identity = world.identity();
    assert_eq!(identity.vm_name().unwrap().as_str(), VM);
    assert_eq!(identity.proof(), "pod-info");
    assert_eq!(identity.verdict, Verdict::Match);
    rename(&mut world, "wrong", "wrong");
    assert_eq!(world.identity().verdict, Verdict::Differs);
}

#[test]
fn the_pod_decides_between_vms_with_the_same_hardware() {
    let mut world = World::new();
    world.add_vmi(|vmi| {
        vmi.name = VmName::parse("copy").unwrap();
        vmi.uid = "copy-uid".to_owned();
    });
    assert!(matches!(world.identity().vm, OwnVm::Ambiguous(_)));
    share_pod(&mut world, "vmi-uid");
    assert_eq!(world.identity().vm_name().unwrap().as_str(), VM);
    // A pod of neither excludes both.
    share_pod(&mut world, "old-uid");
    assert!(matches!(world.identity().vm, OwnVm::NotFound(_)));
}
