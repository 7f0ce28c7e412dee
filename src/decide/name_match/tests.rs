// SPDX-License-Identifier: Apache-2.0
//! What names lead to: verdict, finding, fix, condition and labels of one plan agree.

use std::time::Duration;

use uuid::Uuid;

use crate::catalog::{Finding, Flag, Severity};
use crate::decide::fixtures::{VM, World, kubelet_named};
use crate::decide::{Action, Plan, Write};
use crate::facts::distribution::Distribution;
use crate::facts::guest_agent::UnitState;
use crate::facts::names::{NodeName, VmName};
use crate::facts::nic::Mac;
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// A machine with this hostname, and the Node name of its kubelet; none before it registers.
fn named(hostname: &str, node: Option<&str>) -> World {
    let mut world = World::new();
    world.set_hostname(hostname);
    match (node, &mut world.observation.kubelet) {
        (Some(node), Fact::Known(kubelet)) => kubelet.node_name = NodeName::parse(node).unwrap(),
        (_, kubelet) => *kubelet = Fact::failed(UnavailableKind::Missing, "none"),
    }
    if node.is_none() {
        world.observation.node = Fact::failed(UnavailableKind::Missing, "none");
    }
    world
}

fn add_other(world: &mut World, name: &str) {
    world.add_vmi(|other| {
        other.name = VmName::parse(name).unwrap();
        other.uid = format!("uid-of-{name}");
        other.firmware_uuid = Some(Uuid::from_u128(7));
        other.macs = [Mac::parse("6e:22:41:9c:0a:99").unwrap()].into();
    });
}

fn codes(plan: &Plan) -> Vec<&'static str> {
    let found = plan.findings.iter();
    found.map(|found| found.code.as_str()).collect()
}

fn found<'p>(plan: &'p Plan, code: &str) -> &'p Finding {
    let mut found = plan.findings.iter();
    found.find(|found| found.code.as_str() == code).unwrap()
}

/// Returns everything that a finding advises.
fn advice(finding: &Finding) -> String {
    let commands = finding.commands().iter();
    let commands: Vec<&str> = commands.map(|command| &*command.text).collect();
    format!("{} {}", finding.remedy(), commands.join(" "))
}

fn is_destructive(text: &str) -> bool {
    let text = text.to_lowercase().replace("do not delete the node", "");
    let mut words = ["drain", "delete", "reset", "uninstall"].iter();
    words.any(|word| text.contains(word))
}

fn is_harmless(advice: &str) {
    assert!(!is_destructive(advice), "{advice}");
}

/// Returns the status and the reason of the identity condition after the labels were written.
fn condition(world: &mut World) -> Option<(&'static str, &'static str)> {
    for _ in 0..2 {
        world.step();
    }
    world.memory = Default::default();
    world.node().conditions.clear();
    let plan = world.plan();
    let mut wanted = plan.actions.iter().filter_map(|action| match action {
        Action::PatchConditions(patch) => Some(&patch.conditions),
        _ => None,
    });
    let mut wanted = wanted.next()?.iter();
    let (wanted, _) = wanted.find(|(wanted, _)| wanted.kind == "HarvesterIdentityVerified")?;
    Some((wanted.status, wanted.reason))
}

#[test]
fn a_name_with_a_domain_is_a_mismatch_for_every_reader() {
    let full = format!("{VM}.example.org");
    for hostname in [full.clone(), format!("{VM}.Example.ORG")] {
        let mut world = named(&hostname, Some(&full));
        let verdict = world.identity().verdict;
        assert_eq!(verdict.as_str(), "fqdn", "{hostname}");
        assert!(!verdict.may_register() && !verdict.is_match());
        assert!(verdict.consequence().contains("whole Node name"));
        assert_eq!(condition(&mut world), Some(("False", "HostnameDiffers")));
        let plan = world.plan();
        assert_eq!(codes(&plan), ["hostname-differs"]);
        assert!(advice(&plan.findings[0]).contains("prefer_fqdn_over_hostname: false"));
    }
    // Before the kubelet starts, the hostname is what would register.
    let world = named(&full, None);
    assert_eq!(world.identity().verdict.as_str(), "fqdn");
    let plan = world.plan();
    let advice = advice(found(&plan, "hostname-differs"));
    for command in ["hostnamectl set-hostname", "node-name:"] {
        assert!(advice.contains(&format!("{command} {VM}")), "{advice}");
    }
    is_harmless(&advice);
}

#[test]
fn a_hostname_with_a_domain_beside_a_node_name_without_one_is_judged_by_the_next_start() {
    let full = format!("{VM}.example.org");
    let mut world = named(&full, Some(VM));
    assert_eq!(world.identity().verdict.as_str(), "fqdn");
    let plan = world.plan();
    is_harmless(&advice(&plan.findings[0]));
    // A configured name registers, whatever the hostname.
    world.observation.distributions = vec![kubelet_named(VM)];
    assert!(world.identity().verdict.is_match());
    assert_eq!(codes(&world.plan()), [""; 0]);
}

#[test]
fn a_difference_in_case_stays_harmless() {
    let mut world = named(&VM.to_uppercase(), Some(VM));
    assert!(world.identity().verdict.is_match());
    assert_eq!(condition(&mut world).unwrap().0, "True");
    assert_eq!(codes(&world.plan()), [""; 0]);
}

#[test]
fn a_name_with_a_domain_is_one_for_every_name_that_the_platform_makes() {
    let long = "very-long-cluster-name-pool1-q99l7-6ndw9";
    for (vm, given, hostname) in [
        ("pool1-abcde", Some("web"), "web.example.org"),
        ("web.prod", None, "web.example.org"),
        ("web.prod", None, "web.prod.example.org"),
        (long, None, "very-long-f864a.example.org"),
    ] {
        let mut world = named(hostname, None);
        world.vmi().name = VmName::parse(vm).unwrap();
        world.vmi().hostname = given.map(str::to_owned);
        let verdict = world.identity().verdict;
        assert_eq!(verdict.as_str(), "fqdn", "{hostname} of {vm}");
    }
}

#[test]
fn a_configured_node_name_is_a_notice_and_its_node_is_never_deleted() {
    let with_id = Distribution {
        with_node_id: true,
        ..kubelet_named("worker-a")
    };
    for (distribution, node) in [
        (kubelet_named("Worker-A"), "worker-a"),
        (with_id, "worker-a-1a2b3c4d"),
        (kubelet_named("another"), "another"),
        (kubelet_named("vm.example.org"), "vm.example.org"),
    ] {
        for hostname in [VM, node] {
            let mut world = named(hostname, Some(node));
            world.observation.distributions = vec![distribution.clone()];
            let verdict = world.identity().verdict;
            assert_eq!(verdict.as_str(), "configured-override", "{node} {hostname}");
            let plan = world.plan();
            assert_eq!(codes(&plan), ["configured-override"], "{node} {hostname}");
            let finding = &plan.findings[0];
            assert_eq!(finding.code.entry().severity, Severity::Notice);
            is_harmless(&advice(finding));
        }
        // The hostname is wrong as well: that is a warning, and no reason to delete the Node.
        let mut world = named("localhost", Some(node));
        world.observation.distributions = vec![distribution.clone()];
        let plan = world.plan();
        assert_eq!(codes(&plan), ["hostname-differs"], "{node}");
        is_harmless(&advice(&plan.findings[0]));
    }
    let mut world = named(VM, Some("chosen"));
    world.observation.distributions = vec![kubelet_named("chosen")];
    world.node().provider_id = Some("harvester://vm-uid".to_owned());
    if let Fact::Known(agent) = &mut world.observation.guest_agent
        && let Fact::Known(unit) = &mut agent.unit
    {
        unit.state = UnitState::Inactive;
    }
    let plan = world.plan();
    let fix = found(&plan, "node-may-be-deleted").remedy();
    assert!(!fix.contains("rain the Node"), "{fix}");
    // Names that the platform made come again.
    let mut world = named("web", Some("web"));
    world.vmi().hostname = Some("web".to_owned());
    let plan = world.plan();
    let advice = advice(found(&plan, "hostname-differs")).replace("that is deleted registers", "");
    is_harmless(&advice);
}

#[test]
fn a_name_that_only_cloud_init_received_is_not_compared_with_itself() {
    let why = Unavailable {
        retry_after: Some(Duration::from_secs(30)),
        ..Unavailable::new(UnavailableKind::NotAsked, "listed in 30 s")
    };
    for hostname in ["web", "web.prod-2", "WEB", "elsewhere"] {
        let mut world = named(hostname, None);
        world.observation.machine.product_uuid = Fact::Known(Uuid::from_u128(9));
        world.observation.machine.platform_hostname = Fact::Known("web".to_owned());
        world.observation.candidates = Fact::Failed(why.clone());
        let verdict = match hostname {
            "elsewhere" => "differs",
            _ => "vm-unknown",
        };
        assert_eq!(world.identity().verdict.as_str(), verdict, "{hostname}");
        let findings = world.plan().findings;
        for finding in findings.iter().filter(|one| one.code.is(Flag::OfNames)) {
            assert!(!finding.seen.contains("VM `"), "{}", finding.seen);
            is_harmless(&advice(finding));
        }
    }
}

#[test]
fn a_hostname_of_several_vms_belongs_to_none_of_them() {
    let mut world = named("web", Some("web"));
    world.vmi().name = VmName::parse("web.prod-2").unwrap();
    assert_eq!(world.identity().verdict.as_str(), "platform-hostname");
    add_other(&mut world, "web.prod-1");
    let verdict = world.identity().verdict;
    assert_eq!(verdict.as_str(), "hostname-of-several-vms");
    assert!(!verdict.may_register());
    let plan = world.plan();
    assert_eq!(codes(&plan), ["hostname-of-several-vms"]);
    let finding = &plan.findings[0];
    assert_eq!(finding.code.entry().severity, Severity::Error);
    is_harmless(&advice(finding));
    // While Harvester is away, and beside a node name of its own.
    world.apply(&plan);
    world.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "timeout");
    assert_eq!(world.identity().verdict.as_str(), "hostname-of-several-vms");
    world.observation.distributions = vec![kubelet_named("web")];
    assert_eq!(world.identity().verdict.as_str(), "configured-override");
    // The whole name of the VM is a Node name that all components find.
    let mut world = named("web.prod-2", Some("web.prod-2"));
    world.vmi().name = VmName::parse("web.prod-2").unwrap();
    add_other(&mut world, "web.prod-1");
    assert_eq!(world.identity().verdict.as_str(), "names-match");
}

#[test]
fn the_name_of_another_vm_writes_no_label_and_registers_none() {
    let mut world = named("other", Some("other"));
    add_other(&mut world, "other");
    world.settings.registration.node_labels = true;
    for _ in 0..3 {
        let plan = world.plan();
        let mut actions = plan.actions.iter();
        assert!(actions.all(|action| action.write() != Write::Node));
        assert_eq!(plan.sync.reason(), "NameOfAnotherVm");
        assert_eq!(plan.registration.as_ref().unwrap().labels, None);
        assert_eq!(codes(&plan), ["name-of-another-vm"]);
        let finding = &plan.findings[0];
        let text = format!("{} {}", finding.code.entry().impact, advice(finding));
        assert!(text.contains("out-of-service"), "{text}");
        assert!(text.contains("hot-plugged"), "{text}");
        world.apply(&plan);
    }
}

#[test]
fn a_hostname_of_another_vm_takes_no_label_from_a_node_of_the_right_name() {
    let mut world = named("other", Some(VM));
    add_other(&mut world, "other");
    let plan = world.plan();
    assert_eq!(world.identity().verdict.as_str(), "name-of-another-vm");
    assert_eq!(codes(&plan), ["name-of-another-vm"]);
    let mut actions = plan.actions.iter();
    assert!(actions.any(|action| action.write() == Write::Node));
}

#[test]
fn a_node_name_with_the_id_of_the_node_is_not_replaced_for_a_domain_in_the_hostname() {
    let hostname = format!("{VM}.example.org");
    let world = named(&hostname, Some(&format!("{VM}-0a1b2c3d")));
    let plan = world.plan();
    let finding = &plan.findings[0];
    assert_eq!(finding.code.as_str(), "hostname-differs");
    is_harmless(&advice(finding).replace("Node that is deleted", ""));
}

#[test]
fn a_node_is_replaced_only_if_the_kubelet_of_this_vm_reports_it() {
    let full = format!("{VM}.example.org");
    for (node, code) in [
        ("wrong", "hostname-differs"),
        (&*full, "hostname-differs"),
        (VM, "provider-id-differs"),
    ] {
        let mut world = named(node, Some(node));
        if node == VM {
            world.node().provider_id = Some("harvester://earlier-uid".to_owned());
        }
        let ours = world.observation.machine.product_uuid.known().copied();
        for (system_uuid, is_replaced) in [(None, false), (ours, true)] {
            world.node().system_uuid = system_uuid;
            let plan = world.plan();
            assert_eq!(codes(&plan), [code], "{node}");
            let text = advice(&plan.findings[0]).replace("do not drain or delete", "");
            assert_eq!(is_destructive(&text), is_replaced, "{node}: {text}");
            let is_warned = text.contains("Never delete the Node of a server");
            assert_eq!(is_warned, is_replaced, "{text}");
            let at = |words: &str| text.to_lowercase().find(words);
            assert!(
                !is_replaced || at("never delete") < at("drain the node"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_template_of_hostnames_is_neither_a_difference_nor_replaced() {
    let mut world = named("node-92a9-061c", Some("node-92a9-061c"));
    world.observation.machine.static_hostname = Fact::Known("node-????-????".to_owned());
    world.vmi().name = VmName::parse("node-92a9-061c").unwrap();
    assert_eq!(codes(&world.plan()), [""; 0]);
    world.vmi().name = VmName::parse(VM).unwrap();
    world.observation.kubelet = Fact::failed(UnavailableKind::Missing, "none");
    world.observation.node = Fact::failed(UnavailableKind::Missing, "none");
    let plan = world.plan();
    assert!(codes(&plan).contains(&"hostname-differs"));
    assert!(!codes(&plan).contains(&"static-hostname-differs"));
    for finding in &plan.findings {
        let advice = advice(finding);
        assert!(!advice.contains("set-hostname"), "{advice}");
    }
    // A systemd that does not know templates: said, and not replaced either.
    world.observation.machine.kernel_hostname = Fact::Known("localhost".to_owned());
    let plan = world.plan();
    let advice = advice(found(&plan, "static-hostname-differs"));
    assert!(!advice.contains("set-hostname"), "{advice}");
}
