// SPDX-License-Identifier: Apache-2.0
//! Are the releases of Harvester, RKE2 and the cloud provider new enough for each other? Unknown versions are gaps, not compatible
//! ones.
//!
//! To add a row to the table: a requirement of Harvester's documentation, the releases that do not meet it, and the page.

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::case::{Case, Checked};
use crate::commands::doctor::objects::{CLOUD_PROVIDER, CSI_DRIVER, Component, NodeObject, Pods};
use crate::commands::doctor::reads::Reads;
use crate::commands::doctor::release::{Rank, Release};
use crate::facts::{Fact, UnavailableKind};

/// The prerequisites of the cloud provider, and the features of its releases.
const CLOUD_PROVIDER_PAGE: &str = "https://docs.harvesterhci.io/latest/rancher/cloud-provider/";
/// The topology of the hosts for VMs of the node driver.
const NODE_DRIVER_PAGE: &str = "https://docs.harvesterhci.io/latest/rancher/node/rke2-cluster/";
const INHERIT_TOPOLOGY: &str = "https://github.com/harvester/harvester/issues/1418";
const RESYNC_TOPOLOGY: &str = "https://github.com/harvester/harvester/issues/3142";
const MASS_MIGRATION: &str = "https://github.com/harvester/harvester/issues/10349";
const OTHER_CLUSTERS: &str = "https://github.com/harvester/harvester/issues/4459";

/// The reason why a version is unknown on this Node.
const ELSEWHERE: &str = "it has no pod on this Node, and the kubelet credential cannot list pods of other Nodes; to find it: \
    kubectl -n kube-system get pods -o wide | grep harvester";

/// A fault in some releases: its finding, the first affected one, the first without it, when it matters, its effect, and the page
/// about it.
type Row = (Code, Rank, Rank, Only, &'static str, &'static str);

/// The condition under which a fault matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Only {
    Always,
    /// With a cloud provider of this release or a newer one.
    WithCloudProviderSince(Rank),
    /// The namespace has other VMs, or this is unknown.
    WhereOthersAre,
}

const FIRST: Rank = v(0, 0, 0);
const NO_TOPOLOGY: &str = "the bundled cloud provider sets neither region nor zone";

const fn v(major: u32, minor: u32, patch: u32) -> Rank {
    Rank::of(major, minor, patch)
}

/// Those of RKE2 matter only where it is configured for Harvester's cloud provider.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    (Code::HarvesterTooOld, FIRST, v(1, 0, 3), Only::Always,
        "it does not annotate the VM with region and zone of the host", NODE_DRIVER_PAGE),
    (Code::HarvesterTooOld, FIRST, v(1, 2, 0), Only::WithCloudProviderSince(v(0, 2, 0)),
        "the cloud provider of this cluster needs a newer Harvester to follow a migration", CLOUD_PROVIDER_PAGE),
    (Code::HarvesterTooOld, v(1, 7, 0), v(1, 7, 2), Only::Always,
        "it live-migrates all VMs at the same time after an upgrade", MASS_MIGRATION),
    (Code::CloudProviderTooOld, FIRST, v(0, 1, 4), Only::Always,
        "it sets neither region nor zone", INHERIT_TOPOLOGY),
    (Code::CloudProviderTooOld, v(0, 1, 4), v(0, 2, 0), Only::Always,
        "it sets region and zone only when the Node is created, not after a migration", RESYNC_TOPOLOGY),
    (Code::CloudProviderTooOld, v(0, 2, 0), v(0, 2, 2), Only::WhereOthersAre,
        "it fails on VMs in the namespace that are not Nodes of this cluster (`nodes \"VM\" not found`)", OTHER_CLUSTERS),
    (Code::KubeletTooOld, FIRST, v(1, 22, 12), Only::Always, NO_TOPOLOGY, NODE_DRIVER_PAGE),
    (Code::KubeletTooOld, v(1, 23, 0), v(1, 23, 9), Only::Always, NO_TOPOLOGY, NODE_DRIVER_PAGE),
    (Code::KubeletTooOld, v(1, 24, 0), v(1, 24, 3), Only::Always, NO_TOPOLOGY, NODE_DRIVER_PAGE),
];

/// Compares the versions, and adds them to the summary.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let (case, harvester) = (&reads.case, reads.release.known());
    let kubelet = reads.node.known();
    let kubelet = kubelet.map_or(Fact::Absent, NodeObject::kubelet);
    let what = "the version of the kubelet";
    let kubelet = checked.need(Group::Versions, what, &kubelet);
    let pods = reads.pods.known();
    let unreadable = pods.and_then(|pods| pods.unreadable.as_ref());
    let unreadable: Fact<()> = unreadable.map_or(Fact::Absent, |error| {
        Fact::failed(UnavailableKind::Malformed, error)
    });
    checked.need(Group::Versions, "a pod of this Node", &unreadable);
    let cloud_provider = pods.map_or(Fact::Absent, |pods| cloud_provider(case, pods));
    let what = "the version of the Harvester cloud provider";
    let cloud_provider = checked.need(Group::Versions, what, &cloud_provider);
    // It is only shown: no check needs it.
    let csi_driver = pods.map_or(Fact::Absent, |pods| pods.component(CSI_DRIVER));
    let neighbors = reads.namespace.known();
    let may_have_neighbors = neighbors.is_none_or(|all| all.len() > 1);
    let found = judge(case, harvester, kubelet, cloud_provider, may_have_neighbors);
    checked.findings.extend(found);
    let known = [
        ("Harvester", harvester),
        ("kubelet", kubelet),
        ("cloud provider", cloud_provider.map(|one| &one.release)),
        ("CSI driver", csi_driver.known().map(|one| &one.release)),
    ];
    for (name, release) in known {
        if let Some(release) = release {
            checked.note(Group::Versions, format!("{name} {release}"));
        }
    }
}

/// Returns Harvester's cloud provider. Absent if there is no sign of it.
fn cloud_provider(case: &Case<'_>, pods: &Pods) -> Fact<Component> {
    let node = case.observation.node.known();
    // It has initialized our Node, or it is configured.
    let is_somewhere =
        case.asks_for_cloud_provider() || node.is_some_and(|node| node.vm_uid().is_some());
    match pods.component(CLOUD_PROVIDER) {
        Fact::Absent if is_somewhere => Fact::failed(UnavailableKind::NotAsked, ELSEWHERE),
        component => component,
    }
}

/// Returns a finding for each row of the table that matches. `may_have_neighbors`: the namespace has VMs other than ours, or this is
/// unknown.
fn judge(
    case: &Case<'_>,
    harvester: Option<&Release>,
    kubelet: Option<&Release>,
    cloud_provider: Option<&Component>,
    may_have_neighbors: bool,
) -> Vec<Finding> {
    let provider = cloud_provider.map(|one| &one.release);
    let pod = cloud_provider.map(|one| format!(" (pod {})", one.pod));
    let is_concerned = |kubelet: &&Release| kubelet.is_rke2() && case.asks_for_cloud_provider();
    let rke2 = kubelet.filter(is_concerned);
    let findings = ROWS.iter().filter_map(|row| {
        let (code, from, below, only, fault, source) = row;
        let (title, release, pod) = match code {
            Code::HarvesterTooOld => ("Harvester", harvester?, None),
            Code::KubeletTooOld => ("RKE2", rke2?, None),
            _ => ("Harvester cloud provider", provider?, pod.as_deref()),
        };
        let applies = match *only {
            Only::Always => true,
            Only::WithCloudProviderSince(least) => provider?.rank() >= least,
            Only::WhereOthersAre => may_have_neighbors,
        };
        let pod = pod.unwrap_or_default();
        let text = format!("{title} {release}{pod}: {fault}; fixed in {below}, see {source}");
        let is_affected = applies && (*from..*below).contains(&release.rank());
        is_affected.then(|| Finding::new(*code, text))
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::testing::{Bench, release};

    /// The file has the releases of Harvester, the kubelet and the cloud provider, on a node that is configured for the latter unless
    /// that is `elsewhere`, and whether its VM is alone in its namespace.
    #[test]
    fn releases_are_judged_by_what_each_does() {
        let file = "src/commands/doctor/checks/versions.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let words: Vec<&str> = case.split(' ').collect();
            let [harvester, kubelet, provider] = [0, 1, 2].map(|index| release(words[index]));
            let (harvester, kubelet) = (Some(&harvester), Some(&kubelet));
            let provider = Component {
                release: provider,
                pod: "kube-system/p".to_owned(),
            };
            assert!(matches!(words[3..], [] | ["alone" | "elsewhere"]), "{case}");
            let others = words.last() != Some(&"alone");
            let mut bench = Bench::new();
            if words.last() == Some(&"elsewhere") {
                bench.world.observation.distributions.clear();
            }
            let found =
                bench.texts(|case| judge(case, harvester, kubelet, Some(&provider), others));
            found.join("\n")
        });
    }

    #[test]
    fn every_row_can_be_violated() {
        for (_, from, below, only, fault, source) in ROWS {
            assert!(from < below, "{fault}");
            assert!(source.starts_with("https://"), "{fault}");
            if let Only::WithCloudProviderSince(least) = only {
                assert!(least > from);
            }
        }
    }

    #[test]
    fn a_cloud_provider_on_another_node_is_a_gap_and_one_that_is_not_configured_is_not() {
        let mut bench = Bench::new();
        let of = |bench: &Bench| bench.ask(|case| cloud_provider(case, &Pods::default()));
        bench.world.observation.distributions.clear();
        bench.world.node().provider_id = None;
        assert_eq!(of(&bench), Fact::Absent);
        bench.world.node().provider_id = Some("harvester://vm-uid".to_owned());
        let found = of(&bench);
        let why = found.why().unwrap();
        assert!(why.text.contains("kubectl"), "{}", why.text);
    }
}
