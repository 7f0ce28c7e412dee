// SPDX-License-Identifier: Apache-2.0
//! Forty reports of people who suffered from a wrong name, a wrong label or a credential in the wrong place: each that can be
//! seen from inside the guest is made again, and `doctor` names it; the others say why not.
//!
//! To add a report: a row of the table, and in `causes` the scenario that makes it, where none does yet.

mod causes;

use harvester_node_agent::catalog::{Code, Severity};
use serde_json::Value;

use crate::doctor::doctor;

/// Documents that say how many reports are recreated.
const DOCUMENTS: [(&str, &str); 2] = [
    ("README.md", include_str!("../../README.md")),
    (
        "development.md",
        include_str!("../../packaging/docs/pages/development.md"),
    ),
];

/// What a user reported.
#[derive(Debug)]
struct Report {
    number: usize,
    /// What happened, in words with `_` between them: the name of its tests.
    what: &'static str,
    /// The issues, as `owner/repository#number`.
    issues: &'static [&'static str],
    /// What of it cannot be seen from inside the guest, and why not.
    unseen: Option<&'static str>,
    /// What of it can.
    sights: &'static [Sight],
}

/// A cause that can be seen: the function in `causes` that makes it, and the finding that names it.
#[derive(Debug)]
struct Sight {
    scenario: &'static str,
    code: Code,
}

/// The table, and a test for each cause that can be seen: `seen(scenario, code, part of what the finding must say)`. What
/// `doctor` finds besides stands behind `beside`: what the scenario makes as well, and is no consequence.
macro_rules! reports {
    ($($number:literal $what:ident [$($issue:literal),+ $(,)?]
        $(unseen($why:literal $(,)?))?
        $(seen($scenario:ident, $code:ident, $says:literal $(, beside [$($beside:ident),+])? $(,)?))*;)*) => {
        const REPORTS: [Report; 40] = [$(Report {
            number: $number,
            what: stringify!($what),
            issues: &[$($issue),+],
            unseen: reports!(@why $($why)?),
            sights: &[$(Sight {
                scenario: stringify!($scenario),
                code: Code::$code,
            }),*],
        }),*];

        mod report {
            $(mod $what {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    use super::super::{Code, causes, is_named};
                    let scene = causes::$scenario().await;
                    is_named(&scene, Code::$code, $says, &[$($(Code::$beside),+)?]).await;
                })*
            })*
        }
    };
    (@why) => { None };
    (@why $why:literal) => { Some($why) };
}

reports! {
    1 host_labels_do_not_reach_the_nodes
        ["harvester/harvester#1417", "harvester/harvester#1418"]
        seen(cloud_provider_before_topology, CloudProviderTooOld, "neither region nor zone");
    2 labels_stay_those_of_the_host_before_after_a_migration
        ["harvester/harvester#3142"]
        seen(cloud_provider_that_looks_once, CloudProviderTooOld, "not after a migration", beside [TopologyLabelOverwritten]);
    3 the_cloud_provider_stumbles_over_vms_of_other_clusters
        ["harvester/harvester#4459", "harvester/harvester#4432"]
        seen(cloud_provider_that_meets_other_clusters, CloudProviderTooOld, "not found");
    4 the_cloud_provider_restarts_whenever_a_vm_is_made
        ["harvester/harvester#9502"]
        unseen("which VM made it restart stands in its log, which no kubelet may read; that it restarts, `kubectl get pods` shows");
    5 vms_of_several_clusters_in_one_namespace_are_not_told_apart
        ["harvester/harvester#10906"]
        seen(vm_without_cluster, VmLabelsMissing, "guestcluster.harvesterhci.io/name is missing");
    6 a_custom_cluster_gets_no_topology
        ["harvester/harvester#10399"]
        seen(vm_of_a_custom_cluster, NoTopologySource, "vmi-annotations", beside [VmLabelsMissing]);
    7 volumes_need_a_node_with_the_name_of_its_vm
        ["harvester/harvester#4396"]
        seen(hostname_from_user_data, HostnameDiffers, "`renamed` (differs)");
    8 nothing_says_that_the_hostname_must_be_the_name_of_the_vm
        ["harvester/harvester#4291"]
        seen(hostname_from_user_data, HostnameDiffers, "`renamed` (differs)");
    9 a_hostname_in_the_user_data_leaves_the_node_tainted
        ["harvester/harvester#4947"]
        seen(renamed_node_without_a_cloud_provider, NodeUninitialized, "the Node is `renamed`",
            beside [HostnameDiffers]);
    10 a_cluster_with_hostnames_of_its_own_cannot_be_upgraded
        ["harvester/harvester#11682"]
        unseen("that the next machine of the pool gets the same hostname shows only when it is made")
        seen(hostname_from_user_data, HostnameDiffers, "`renamed` (differs)");
    11 rancher_cuts_a_long_name
        ["rancher/rancher#40901", "rancher/rancher#41581"]
        seen(name_cut_by_rancher, HostnameDiffers, "rancher-truncated");
    12 a_volume_is_attached_to_the_wrong_vm
        ["harvester/harvester#6981"]
        unseen("a fault of some releases of the CSI driver: the notes of Harvester's releases say which");
    13 vms_of_one_template_have_one_mac_address
        ["harvester/harvester#9798", "harvester/harvester#9788", "harvester/harvester#4893"]
        seen(two_vms_with_one_mac_address, HardwareShared, "default/gc8-pool1-copy has MAC address")
        seen(two_vms_of_one_template, IdentityAmbiguous, "default/gc8-pool1-copy");
    14 the_token_of_rancher_has_ended
        [
            "harvester/harvester#5827", "rancher/rancher#44912", "rancher/rancher#47491", "rancher/rancher#47492",
            "rancher/rancher#49685",
        ]
        unseen("the cloud credential with which Rancher makes and deletes machines stays in Rancher; a token of Rancher in the guest's own file ends in the same way")
        seen(token_of_rancher_that_ended, RancherTokenRejected, "`kubeconfig-u-abcde`");
    15 kubeconfigs_of_rancher_end_by_default
        ["harvester/harvester#5868", "harvester/harvester#5874", "harvester/harvester#5669"]
        seen(token_of_rancher_that_works, RancherTokenInUse, "`kubeconfig-u-abcde`");
    16 the_mount_of_the_cloud_config_fails
        [
            "harvester/harvester#6286", "harvester/harvester#4077", "harvester/harvester#6821", "rancher/rancher#47501",
            "rancher/rancher#34969", "harvester/harvester#3162", "harvester/harvester#4568", "harvester/harvester#2042",
        ]
        seen(directory_instead_of_credential, CredentialIsDirectory, "is not a regular file")
        seen(credential_without_content, CredentialIsEmpty, "is empty")
        seen(credential_at_another_path, CredentialNotAtNamedPath, "the kubeconfig in use is /etc/kubernetes/cloud-config");
    17 the_cloud_config_is_a_secret_and_no_file
        ["harvester/harvester#9503", "harvester/harvester#10225"]
        unseen("what SELinux denies to a pod it does not deny to the agent, and says only in the audit log")
        seen(credential_that_is_no_file, HarvesterCredentialMissing, "cloud-provider-config");
    18 on_k3s_no_role_is_bound_for_the_csi_driver
        ["harvester/harvester#10298"]
        unseen("a role that the CSI driver needs and the agent does not; the driver's log says that it is missing");
    19 an_address_of_rancher_stands_beside_the_authority_of_harvester
        ["harvester/harvester#4446"]
        seen(address_of_rancher, ServerIsHarvesterUi, "/k8s/clusters/local");
    20 the_name_of_the_vip_is_not_in_the_certificate
        ["harvester/harvester#4700", "harvester/harvester#1475"]
        seen(server_of_another_name, ServerNotInCertificate, "the certificate is valid for");
    21 the_node_has_no_internal_ip
        ["harvester/harvester#10079"]
        seen(node_without_address, InternalIpMissing, "Harvester has no address", beside [GuestAgentNotConnected]);
    22 the_guest_agent_is_not_in_the_image
        ["harvester/harvester#1235", "harvester/harvester#8915"]
        seen(image_without_guest_agent, GuestAgentNotInstalled, "qemu-ga");
    23 helm_jobs_hang_and_the_taint_stays
        ["harvester/harvester#10188"]
        seen(no_cloud_provider, NodeUninitialized, "is not running");
    24 one_zone_on_all_hosts_blocks_promotion
        ["harvester/harvester#6546"]
        unseen("the zones of the other hosts are no business of one VM, and its credential may not list them");
    25 labels_of_pool_and_cluster_are_not_on_the_vms
        [
            "harvester/harvester#7193", "harvester/harvester#8391", "rancher/rancher#45840", "rancher/dashboard#16018",
        ]
        unseen("the labels that were asked for stand in Rancher; those that Harvester itself needs are looked at, see 26");
    26 it_is_unknown_which_cluster_a_vm_belongs_to
        ["harvester/harvester#4089"]
        seen(vm_without_cluster, VmLabelsMissing, "guestcluster.harvesterhci.io/name is missing");
    27 an_upgrade_of_harvester_cannot_move_the_vm
        ["harvester/harvester#5756", "harvester/harvester#10462", "harvester/harvester#8950"]
        seen(vm_that_cannot_move, NotLiveMigratable, "HostDeviceNotLiveMigratable");
    28 a_machine_waits_for_its_address_in_vain
        ["harvester/harvester#7018"]
        seen(guest_agent_that_is_not_heard, GuestAgentNotConnected, "AgentConnected");
    29 credentials_lie_in_plain_sight
        ["harvester/harvester#1440"]
        seen(credential_for_everybody, CredentialExposed, "0644");
    30 the_vip_is_lost_during_an_upgrade
        [
            "harvester/harvester#11374", "harvester/harvester#11440", "harvester/harvester#11634",
            "harvester/harvester#11338",
        ]
        seen(vip_that_is_away, HarvesterUnreachable, "refused")
        seen(vip_with_another_certificate, HarvesterTlsError, "which has the same name but another key");
    31 kubevirt_puts_no_zone_on_the_instance
        ["kubevirt/kubevirt#8063"]
        seen(kubevirt_without_harvester, NoTopologySource, "vmi-annotations");
    32 kubevirts_cloud_provider_leaves_the_zone_of_the_host_before
        ["kubevirt/cloud-provider-kubevirt#225"]
        seen(cloud_provider_of_kubevirt, KubevirtCloudProvider, "kube-system/kccm", beside [TopologyLabelOverwritten]);
    33 zones_need_the_right_to_read_nodes
        ["kubevirt/cloud-provider-kubevirt#89"]
        seen(kubevirt_without_harvester, NoTopologySource, "host-node");
    34 a_guest_cannot_learn_the_name_of_its_host
        ["kubevirt/kubevirt#11535", "kubevirt/kubevirt#10427"]
        unseen("a wish, and nothing that is broken: `whoami` answers it");
    35 two_controllers_write_the_state_of_a_migration
        ["kubevirt/kubevirt#18604"]
        unseen("it is between KubeVirt's controllers; of what they write only status.nodeName is believed here");
    36 a_watch_dies_again_and_again
        [
            "rancher-sandbox/cluster-api-provider-harvester#237", "rancher-sandbox/cluster-api-provider-harvester#40",
            "rancher-sandbox/cluster-api-provider-harvester#55",
        ]
        seen(watches_that_are_cut, WatchInterrupted, "4 times within 10 minutes")
        seen(watch_that_is_refused, WatchUnavailable, "502");
    37 labels_of_other_clouds_are_not_updated_after_a_live_migration
        [
            "kubernetes/cloud-provider-openstack#2579", "kubernetes/cloud-provider-openstack#1801",
            "sergelogvinov/proxmox-cloud-controller-manager#110", "sergelogvinov/proxmox-cloud-controller-manager#265",
        ]
        unseen("on other platforms this agent does not run; the same is made here on Harvester")
        seen(labels_of_the_host_before, TopologyLabelOverwritten, "the host has rack-b");
    38 the_csi_driver_of_kubevirt_knows_no_zones
        ["kubevirt/csi-driver#66"]
        unseen("another project's driver, which has it since its pull request 174; nothing of it is on a Harvester node");
    39 a_physical_machine_in_the_cluster_stays_tainted
        ["harvester/harvester#6305"]
        seen(machine_outside_of_harvester, NotKubevirt, "QEMU");
    40 addresses_of_a_node_are_those_of_before
        ["harvester/harvester#10381"]
        unseen("the copy of the addresses that Rancher's pages show is Rancher's own; the Node's are looked at")
        seen(node_with_an_address_of_before, AddressDiffers, "192.0.2.77");
}

/// Holds that `doctor` names the cause and finds nothing else, be it an error, a warning or a notice, but for what the
/// scenario makes as well.
async fn is_named(scene: &causes::Scene, code: Code, says: &str, beside: &[Code]) {
    let said = doctor(&scene.world, &[]).await;
    let all = || format!("{:#}", said.document);
    let is_it = |finding: &&Value| {
        finding["code"] == code.as_str() && finding["observed"].as_str().unwrap().contains(says)
    };
    let finding = said.findings().find(is_it).cloned().unwrap_or_default();
    assert!(finding.is_object(), "no {code} with `{says}` in {}", all());
    assert_ne!(finding["fix"], serde_json::json!([]), "{}", all());
    assert_ne!(finding["commands"], serde_json::json!([]), "{}", all());

    let found = said
        .findings()
        .map(|finding| Code::parse(finding["code"].as_str().unwrap()).unwrap());
    // No service runs in these worlds, but where only one that does meets the trouble.
    let mut found: Vec<Code> = found
        .filter(|code| *code != Code::AgentNotRunning || scene.is_served())
        .collect();
    let mut expected: Vec<Code> = beside.iter().copied().chain([code]).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{}", all());

    let is_error = code.entry().severity == Severity::Error;
    let exit = said.code.unwrap();
    assert_eq!([1, 4].contains(&exit), is_error, "{}", all());
    assert!([0, 1, 4, 75].contains(&exit), "{}", all());
}

/// The page of an issue.
fn page(issue: &str) -> String {
    let (repository, number) = issue.split_once('#').unwrap();
    format!("https://github.com/{repository}/issues/{number}")
}

#[test]
fn explain_leads_from_each_code_to_a_report_that_it_names() {
    let codes = REPORTS.iter().flat_map(|report| report.sights);
    for code in codes.map(|sight| sight.code) {
        let names = |report: &&Report| report.sights.iter().any(|sight| sight.code == code);
        let issues = REPORTS
            .iter()
            .filter(names)
            .flat_map(|report| report.issues);
        let pages: Vec<String> = issues.map(|issue| page(issue)).collect();
        let mut links = code.links().into_iter();
        let leads = links.any(|link| pages.iter().any(|page| page == link));
        assert!(leads, "{code} leads to none of {pages:#?}");
    }
}

#[test]
fn every_report_has_a_scenario_and_a_code_or_the_reason_why_not() {
    println!("number | reports | scenario | code");
    for (report, number) in REPORTS.iter().zip(1..) {
        assert_eq!(report.number, number);
        let what = report.what.replace('_', " ");
        let issues = report.issues.join(", ");
        let row = format!("{number} | {what} ({issues})");
        for Sight { scenario, code } in report.sights {
            println!("{row} | {scenario} | {code}");
        }
        match report.unseen {
            Some(why) if why.contains(' ') => println!("{row} | not seen from a guest | {why}"),
            Some(why) => panic!("report {number}: `{why}` is no reason"),
            None => assert!(!report.sights.is_empty(), "report {number}"),
        }
    }
    let whole = REPORTS.iter().filter(|report| report.unseen.is_none());
    let out_of_sight = REPORTS.iter().filter(|report| report.sights.is_empty());
    let (whole, none) = (whole.count(), out_of_sight.count());
    let part = REPORTS.len() - whole - none;
    let counts = format!("{whole} are recreated, {part} in part and {none} not at all");
    println!("{counts}");
    let shown = format!("Of {} published reports, {counts}", REPORTS.len());
    for (name, document) in DOCUMENTS {
        let words: Vec<&str> = document.split_whitespace().collect();
        assert!(words.join(" ").contains(&shown), "{name} lacks `{shown}`");
    }
}
