// SPDX-License-Identifier: Apache-2.0
use super::fixtures::{ADDRESS, Bench, NOW, addresses, component};
use super::{addresses as of_addresses, conflicts, node, versions};
use crate::commands::doctor::facts::instance::Interface;
use crate::commands::doctor::facts::node::Uninitialized;
use crate::commands::doctor::facts::pods::{Pod, Restarts};
use crate::facts::machine::Mac;
use crate::facts::names::VmName;
use crate::facts::topology::{LabelValue, REGION, ZONE, ZONE_BETA};
use crate::facts::{Fact, UnavailableKind};

fn tainted(effect: &str, seconds: Option<i64>) -> Bench {
    let mut bench = Bench::new();
    bench.examination.node.uninitialized = Fact::Known(Uninitialized {
        effect: effect.to_owned(),
        since: seconds.map(|seconds| NOW - seconds),
    });
    bench
}

#[test]
fn a_node_that_no_cloud_provider_takes_on_is_an_error_after_two_minutes() {
    assert_eq!(
        tainted("NoSchedule", Some(119)).codes(node::findings),
        [""; 0]
    );
    // A time slightly in the future, as from a server's clock, counts as new; a later one does not.
    assert_eq!(
        tainted("NoSchedule", Some(-30)).codes(node::findings),
        [""; 0]
    );
    for since in [Some(120), Some(86_400), Some(-86_400), None] {
        let bench = tainted("NoSchedule", since);
        assert_eq!(bench.codes(node::findings), ["node-uninitialized"]);
    }
    let bench = tainted("NoSchedule", Some(3600));
    let text = &bench.found(node::findings)[0].1;
    assert!(
        text.contains("2026-11-18T") && text.contains("(60 min)"),
        "{text}"
    );
}

#[test]
fn the_likely_cause_is_the_first_on_the_way() {
    let cause = |bench: Bench| bench.found(node::findings)[0].1.clone();
    let mut renamed = tainted("NoSchedule", None);
    renamed.rename_node();
    renamed.examination.pods.cloud_provider = Fact::Absent;
    assert!(cause(renamed).contains("`renamed`, its VM is `pool1-abcde`"));
    let again = cause(tainted("PreferNoSchedule", None));
    assert!(again.contains("did not finish updating"), "{again}");
    let mut absent = tainted("NoSchedule", None);
    absent.examination.pods.cloud_provider = Fact::Absent;
    let absent = cause(absent);
    assert!(absent.contains("is not running"), "{absent}");
    // A new cloud provider finds another name through the guest agent, if it is connected.
    for (version, is_heard, part) in [
        ("v0.2.0", true, "too old"),
        ("v0.2.1", false, "is not connected"),
        ("v0.2.1", true, "pod kube-system/p"),
    ] {
        let mut renamed = tainted("NoSchedule", None);
        renamed.rename_node();
        renamed.examination.pods.cloud_provider = component(version);
        renamed.instance().agent_connected = is_heard;
        let text = cause(renamed);
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let mut other = tainted("NoSchedule", None);
    other.world.observation.distributions[0].cloud_provider_name = Some("aws".to_owned());
    assert!(cause(other).contains("cloud provider `aws`"));
}

#[test]
fn a_provider_id_of_another_provider_matters_where_harvesters_is_asked_for() {
    let mut bench = Bench::new();
    bench.world.node().provider_id = Some("rke2://n".to_owned());
    assert_eq!(bench.codes(node::findings), ["provider-id-not-harvester"]);
    bench.world.observation.distributions.clear();
    assert_eq!(bench.codes(node::findings), [""; 0]);
    bench.world.node().provider_id = None;
    assert_eq!(bench.codes(node::findings), [""; 0]);
}

#[test]
fn kubevirts_own_cloud_provider_is_known_by_its_pod_or_by_what_it_wrote() {
    let mut bench = Bench::new();
    bench.examination.pods.here = Fact::Known(vec![Pod {
        namespace: "kube-system".to_owned(),
        name: "ccm".to_owned(),
        images: vec!["quay.io/kubevirt/kubevirt-cloud-controller-manager:v0.5.1".to_owned()],
        restarts: Vec::new(),
        zone: None,
    }]);
    assert_eq!(bench.codes(node::findings), ["kubevirt-cloud-provider"]);
    let mut bench = Bench::new();
    bench.world.observation.distributions.clear();
    bench.world.node().provider_id = Some("kubevirt://pool1-abcde".to_owned());
    assert_eq!(bench.codes(node::findings), ["kubevirt-cloud-provider"]);
}

#[test]
fn pods_that_were_created_in_another_zone_are_named() {
    let with = |zones: &[&str]| {
        let pod = |(index, zone): (usize, &&str)| Pod {
            namespace: "shop".to_owned(),
            name: format!("p{index}"),
            images: Vec::new(),
            restarts: Vec::new(),
            zone: LabelValue::parse(zone).ok(),
        };
        let mut bench = Bench::new();
        let node = bench.world.node();
        node.labels.insert(ZONE.to_owned(), "rack-b".to_owned());
        let pods = zones.iter().enumerate().map(pod).collect();
        bench.examination.pods.here = Fact::Known(pods);
        let found = bench.found(node::findings).into_iter();
        let texts = found.map(|(code, text)| format!("{code}: {text}"));
        texts.collect::<Vec<_>>()
    };
    // A pod without the label is one of an older Kubernetes.
    assert_eq!(with(&["rack-b", ""]), [""; 0]);
    let text = "pods-in-other-zone: the Node has zone rack-b, 1 pod another: shop/p1 (rack-a)";
    assert_eq!(with(&["rack-b", "rack-a", ""]), [text]);
    let many = with(&["rack-a"; 5]);
    let text = "pods-in-other-zone: the Node has zone rack-b, 5 pods another: shop/p0 (rack-a), shop/p1 (rack-a), shop/p2 (rack-a) and \
                2 more";
    assert_eq!(many, [text]);
}

#[test]
fn a_rival_is_named_with_what_it_wrote_and_only_where_that_is_wrong() {
    let mut bench = Bench::new();
    let node = bench.world.node();
    for (key, value) in [(REGION, "eu-1"), (ZONE, "rack-z"), (ZONE_BETA, "rack-z")] {
        node.labels.insert(key.to_owned(), value.to_owned());
        node.label_managers
            .insert(key.to_owned(), "kubectl-label".to_owned());
    }
    let found = bench.found(conflicts::findings);
    let text = format!(
        "`kubectl-label` wrote {ZONE}=rack-z, the host has rack-a; `kubectl-label` wrote {ZONE_BETA}=rack-z, the host has rack-a"
    );
    assert_eq!(found, [("topology-label-overwritten", text)]);
    // The agent itself, in the last round.
    let managers = &mut bench.world.node().label_managers;
    managers
        .values_mut()
        .for_each(|manager| "harvester-node-agent".clone_into(manager));
    assert_eq!(bench.codes(conflicts::findings), [""; 0]);
}

#[test]
fn twins_that_disagree_are_found_whatever_the_host_says() {
    let mut bench = Bench::new();
    bench
        .world
        .node()
        .labels
        .insert(ZONE_BETA.to_owned(), "rack-a".to_owned());
    let found = bench.found(conflicts::findings);
    assert_eq!(
        found[0],
        (
            "beta-labels-differ",
            format!("{ZONE} is missing, {ZONE_BETA} is rack-a")
        )
    );
    bench
        .world
        .node()
        .labels
        .insert(ZONE.to_owned(), "rack-a".to_owned());
    assert_eq!(bench.codes(conflicts::findings), [""; 0]);
}

#[test]
fn another_vm_with_hardware_of_ours_is_named_and_we_ourselves_are_not() {
    let mut bench = Bench::new();
    let own = bench.world.vmi().clone();
    let mut copy = own.clone();
    copy.name = VmName::parse("copy").unwrap();
    copy.firmware_uuid = None;
    let mut other = copy.clone();
    other.macs = [Mac::parse("6e:00:00:00:00:01").unwrap()].into();
    // The same VM, re-created since the round.
    let mut restarted = own.clone();
    restarted.uid = "new".to_owned();
    bench.examination.conflicts.namespace = Fact::Known(vec![own, restarted, other, copy]);
    let text = "VM default/copy has MAC address 6e:22:41:9c:0a:71".to_owned();
    assert_eq!(
        bench.found(conflicts::findings),
        [("hardware-shared", text)]
    );
}

#[test]
fn what_harvester_says_of_the_vm_is_passed_on() {
    let mut bench = Bench::new();
    bench.instance().agent_connected = false;
    bench.instance().creator = Some("harvester".to_owned());
    bench.instance().guest_cluster = None;
    let found = bench.found(conflicts::findings);
    let codes: Vec<&str> = found.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, ["vm-labels-missing", "guest-agent-not-connected"]);
    assert_eq!(
        found[0].1,
        "harvesterhci.io/creator is harvester, not docker-machine-driver-harvester; \
         guestcluster.harvesterhci.io/name is missing"
    );
}

#[test]
fn an_address_of_the_node_that_this_machine_lacks_is_stale() {
    let mut bench = Bench::new();
    bench.examination.conflicts.addresses =
        addresses(&[("eth0", "172.19.106.7"), ("cni0", "10.42.0.1")]);
    let found = bench.found(of_addresses::findings);
    assert_eq!(found[0].0, "address-differs");
    for part in [
        "the Node has InternalIP 172.19.106.159",
        "Harvester has 172.19.106.159",
        "this VM has eth0 172.19.106.7",
    ] {
        assert!(
            found[0].1.contains(part),
            "{part} is missing in {}",
            found[0].1
        );
    }
    // A stale address in addition to a correct one is ignored: it may be temporary.
    bench.examination.node.internal_ips = Fact::Known(vec!["172.19.106.7".parse().unwrap()]);
    bench.instance().interfaces[0]
        .addresses
        .push("172.19.106.7".parse().unwrap());
    assert_eq!(bench.found(of_addresses::findings), []);
    // An address on a bond, a bridge or a VLAN is still an address of this machine.
    let mut bench = Bench::new();
    bench.examination.conflicts.addresses = addresses(&[("bond0.7", ADDRESS)]);
    assert_eq!(bench.found(of_addresses::findings), []);
}

#[test]
fn where_this_machine_cannot_report_its_addresses_harvesters_word_counts() {
    let mut bench = Bench::new();
    bench.examination.conflicts.addresses = Fact::failed(UnavailableKind::NotAsked, "a tree");
    assert_eq!(bench.found(of_addresses::findings), []);
    bench.instance().interfaces = vec![Interface {
        name: "nic-0".to_owned(),
        addresses: vec!["172.19.106.7".parse().unwrap()],
    }];
    assert_eq!(bench.codes(of_addresses::findings), ["address-differs"]);
    // A guest agent that has not reported yet is ignored.
    for addresses in [vec![], vec!["fe80::1".parse().unwrap()]] {
        bench.instance().interfaces[0].addresses = addresses;
        assert_eq!(bench.found(of_addresses::findings), []);
    }
}

#[test]
fn a_node_without_internal_ip_is_one_finding() {
    let mut bench = Bench::new();
    bench.examination.node.internal_ips = Fact::Known(Vec::new());
    assert_eq!(bench.codes(of_addresses::findings), ["internal-ip-missing"]);
}

#[test]
fn texts_from_outside_are_escaped() {
    let mut bench = Bench::new();
    bench.world.node().provider_id = Some("x://\u{1b}[31m".to_owned());
    bench
        .world
        .node()
        .labels
        .insert(ZONE_BETA.to_owned(), "\u{202e}".to_owned());
    bench.instance().creator = Some("\n".to_owned());
    bench.examination.pods.cloud_provider = component("v0.1.4");
    for (code, text) in [node::findings, conflicts::findings, versions::findings]
        .iter()
        .flat_map(|question| bench.found(question))
    {
        assert!(
            !text.chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{code}: {text:?}"
        );
    }
}

#[test]
fn twins_that_disagree_are_reported_with_who_wrote_each() {
    let mut bench = Bench::new();
    let node = bench.world.node();
    for (key, value, manager) in [
        (ZONE, "rack-a", "terraform"),
        (ZONE_BETA, "rack-z", "kubelet"),
    ] {
        node.labels.insert(key.to_owned(), value.to_owned());
        let managers = &mut node.label_managers;
        managers.insert(key.to_owned(), manager.to_owned());
    }
    let found = bench.found(conflicts::findings);
    let text = format!("{ZONE} is rack-a (by `terraform`), {ZONE_BETA} is rack-z (by `kubelet`)");
    assert!(found.contains(&("beta-labels-differ", text)), "{found:?}");
}

#[test]
fn a_cloud_provider_that_ends_again_and_again_is_named_and_one_of_a_reboot_is_not() {
    let with = |image: &str, count, ended: i64, reason: &str| {
        let mut bench = Bench::new();
        bench.examination.pods.here = Fact::Known(vec![Pod {
            namespace: "kube-system".to_owned(),
            name: "p".to_owned(),
            images: vec![image.to_owned()],
            restarts: vec![Restarts {
                container: "main".to_owned(),
                count,
                ended: Some(NOW - ended),
                reason: reason.to_owned(),
                exit_code: Some(255),
            }],
            zone: None,
        }]);
        let codes = bench.codes(node::findings);
        codes
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<String>>()
    };
    let ccm = "rancher/harvester-cloud-provider:v0.2.4";
    for image in [ccm, "rancher/harvester-csi-driver:v0.2.4"] {
        assert_eq!(
            with(image, 7, 200, "Error"),
            ["component-restarting"],
            "{image}"
        );
    }
    for (image, count, ended, reason) in [
        (ccm, 2, 200, "Error"),
        (ccm, 7, 90_000, "Error"),
        (ccm, 7, 200, "Unknown"),
        ("rancher/hardened-coredns:v1.12.1", 7, 200, "Error"),
    ] {
        assert!(
            with(image, count, ended, reason).is_empty(),
            "{image} {count} {ended} {reason}"
        );
    }
}

#[test]
fn labels_of_harvester_are_not_missed_where_there_is_no_harvester() {
    let mut bench = Bench::new();
    bench.instance().creator = None;
    assert_eq!(bench.codes(conflicts::findings), ["vm-labels-missing"]);
    bench.examination.versions.harvester = Fact::Absent;
    assert_eq!(bench.codes(conflicts::findings), [""; 0]);
}
