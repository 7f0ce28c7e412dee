// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;

use super::table::{LINES, Only, Part};
use super::{PodOrigin, findings};
use crate::commands::doctor::facts::pods::{Component, Pod};
use crate::commands::doctor::judge::fixtures::{Bench, component, release};
use crate::facts::distribution::{Distribution, DistributionKind};
use crate::facts::release::Release;
use crate::facts::{Fact, UnavailableKind};

/// Returns the codes for this release of a component, with all others up to date.
fn codes(part: Part, text: &str, change: impl FnOnce(&mut Bench)) -> Vec<String> {
    let mut bench = Bench::new();
    let examination = &mut bench.examination;
    match part {
        Part::Harvester => examination.versions.harvester = release(text),
        Part::CloudProvider => examination.pods.cloud_provider = component(text),
        Part::CsiDriver => examination.pods.csi_driver = component(text),
        Part::Rke2 | Part::Rke1 => {
            examination.node.kubelet = release(text);
            examination.versions.guest_kubernetes = release(text);
        }
    }
    change(&mut bench);
    let codes = bench.codes(findings);
    codes.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_cloud_provider_is_judged_by_what_each_release_does() {
    let beside = |bench: &mut Bench| {
        bench.examination.conflicts.namespace =
            Fact::failed(UnavailableKind::Forbidden, "not listed");
    };
    let judged = |text| codes(Part::CloudProvider, text, beside);
    for text in [
        "v0.1.3",
        "v0.1.4",
        "v0.1.5",
        "v0.2.0",
        "v0.2.1",
        "v0.2.0-rc1",
    ] {
        assert_eq!(judged(text), ["cloud-provider-too-old"], "{text}");
    }
    for text in ["v0.2.2", "v0.2.4", "v0.2.8", "v0.3.0", "v1.0.0"] {
        assert_eq!(judged(text), [""; 0], "{text}");
    }
    let renamed = codes(Part::CloudProvider, "v0.2.0", Bench::rename_node);
    assert_eq!(renamed, ["cloud-provider-too-old"]);
    // As the only VM in its namespace, it cannot be confused with another.
    for text in ["v0.2.0", "v0.2.1"] {
        assert_eq!(codes(Part::CloudProvider, text, |_| {}), [""; 0], "{text}");
    }
}

#[test]
fn a_csi_driver_that_takes_calicos_address_for_its_vms_is_an_error_where_calico_may_be() {
    let calico = |bench: &mut Bench| {
        bench.examination.pods.here = Fact::Known(vec![Pod {
            namespace: "kube-system".to_owned(),
            name: "rke2-canal-x".to_owned(),
            images: vec!["rancher/hardened-calico:v3.30.2-build20250711".to_owned()],
            restarts: Vec::new(),
            zone: None,
        }]);
    };
    for text in ["v0.1.6", "v0.1.7", "v0.2.0", "v0.2.1"] {
        let expected = ["csi-attaches-to-wrong-vm"];
        assert_eq!(codes(Part::CsiDriver, text, calico), expected, "{text}");
        // The pods are known, and none is from Calico.
        assert_eq!(codes(Part::CsiDriver, text, |_| {}), [""; 0], "{text}");
        let unknown = |bench: &mut Bench| {
            bench.examination.pods.here =
                Fact::failed(UnavailableKind::Forbidden, "pods is forbidden");
        };
        assert_eq!(codes(Part::CsiDriver, text, unknown), expected, "{text}");
    }
    for text in ["v0.1.5", "v0.1.8", "v0.2.2", "v0.2.9"] {
        assert_eq!(codes(Part::CsiDriver, text, calico), [""; 0], "{text}");
    }
}

#[test]
fn a_csi_driver_that_knows_names_only_matters_where_the_names_differ() {
    for text in ["v0.1.5", "v0.1.8"] {
        assert_eq!(codes(Part::CsiDriver, text, |_| {}), [""; 0], "{text}");
        let renamed = codes(Part::CsiDriver, text, Bench::rename_node);
        assert_eq!(renamed, ["csi-driver-too-old"], "{text}");
    }
    assert_eq!(
        codes(Part::CsiDriver, "v0.2.3", Bench::rename_node),
        [""; 0]
    );
}

#[test]
fn harvester_is_too_old_for_what_the_cluster_asks_of_it() {
    for (harvester, cloud_provider, lines) in [
        ("v1.0.2", "v0.2.4", 3),
        ("v1.0.3", "v0.2.4", 2),
        ("v1.2.0", "v0.2.4", 1),
        ("v1.2.2", "v0.2.4", 1),
        ("v1.3.0", "v0.2.4", 0),
        ("v1.3.0-rc1", "v0.2.4", 1),
        ("v1.9.0-rc6", "v0.2.4", 0),
    ] {
        let found = codes(Part::Harvester, harvester, |bench| {
            bench.examination.pods.cloud_provider = component(cloud_provider);
        });
        assert_eq!(found, vec!["harvester-too-old"; lines], "{harvester}");
    }
    // A CSI driver 0.2.1 requires 1.4.0.
    for (harvester, expected) in [("v1.3.2", vec!["csi-driver-too-old"]), ("v1.4.0", vec![])] {
        let found = codes(Part::Harvester, harvester, |bench| {
            bench.examination.pods.csi_driver = component("v0.2.1");
        });
        assert_eq!(found, expected, "{harvester}");
    }
}

#[test]
fn rke2_before_its_first_cloud_provider_with_topology_is_too_old() {
    for text in [
        "v1.21.14+rke2r1",
        "v1.22.11+rke2r2",
        "v1.23.8+rke2r1",
        "v1.24.2+rke2r1",
    ] {
        assert_eq!(
            codes(Part::Rke2, text, |_| {}),
            ["kubelet-too-old"],
            "{text}"
        );
        let other = |bench: &mut Bench| bench.world.observation.distributions.clear();
        assert_eq!(codes(Part::Rke2, text, other), [""; 0], "{text}");
    }
    for text in [
        "v1.22.12+rke2r1",
        "v1.23.9+rke2r1",
        "v1.24.3+rke2r1",
        "v1.36.0+rke2r1",
        "v1.24.1+k3s1",
    ] {
        assert_eq!(codes(Part::Rke2, text, |_| {}), [""; 0], "{text}");
    }
}

#[test]
fn a_distribution_that_has_ended_is_named_whatever_its_release() {
    let rke1 = |bench: &mut Bench| {
        bench.world.observation.distributions = vec![Distribution::new(DistributionKind::Rke1)];
    };
    for text in ["v1.20.15", "v1.32.5", "v1.99.0"] {
        assert_eq!(
            codes(Part::Rke1, text, rke1),
            ["distribution-eol"],
            "{text}"
        );
        assert_eq!(codes(Part::Rke1, text, |_| {}), [""; 0], "{text}");
    }
}

#[test]
fn a_kubelet_is_as_old_as_its_api_server_supports() {
    for (kubelet, server, is_fine) in [
        ("v1.33.5", "v1.33.1", true),
        ("v1.30.0", "v1.33.1", true),
        ("v1.29.9", "v1.33.1", false),
        ("v1.34.0", "v1.33.9", false),
        ("v1.25.0", "v1.27.3", true),
        ("v1.24.0", "v1.27.3", false),
        ("v1.25.0", "v1.28.0", true),
    ] {
        let mut bench = Bench::new();
        bench.examination.node.kubelet = release(kubelet);
        bench.examination.versions.guest_kubernetes = release(server);
        let expected: &[&str] = if is_fine {
            &[]
        } else {
            &["kubelet-version-skew"]
        };
        assert_eq!(bench.codes(findings), expected, "{kubelet} at {server}");
    }
}

#[test]
fn a_finding_names_the_release_who_reports_it_since_when_it_is_mended_and_the_source() {
    let mut bench = Bench::new();
    let rke2 = Release::parse("v1.27.1+rke2r1").unwrap();
    bench.examination.pods.cloud_provider = Fact::Known(Component {
        release: Release::parse("v0.1.5").unwrap(),
        origin: PodOrigin::BundledWith(rke2),
    });
    let found = bench.found(findings);
    for part in [
        "cloud provider v0.1.5 (bundled with v1.27.1+rke2r1, not detected on this node)",
        "fixed in v0.2.0",
        "https://github.com/harvester/harvester/issues/3142",
    ] {
        assert!(
            found[0].1.contains(part),
            "{part} is missing in {}",
            found[0].1
        );
    }
}

#[test]
fn every_line_can_be_violated_and_no_line_stands_twice() {
    let mut lines = BTreeSet::new();
    for line in LINES {
        let is_range = line.below.is_none_or(|below| line.from < below);
        assert!(is_range, "{}", line.fault);
        assert!(line.source.starts_with("https://"), "{}", line.fault);
        let key = (line.part.title(), line.from, line.code, line.fault);
        assert!(lines.insert(key), "{key:?}");
        if let Only::WithCloudProviderSince(least) | Only::WithHarvesterBefore(least) = line.only {
            assert!(least > line.from);
        }
    }
}
