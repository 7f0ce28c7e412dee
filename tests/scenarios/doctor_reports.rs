// SPDX-License-Identifier: Apache-2.0
//! Forty reports of people who suffered from a wrong name, a wrong label or a credential in the wrong place: each that can be
//! seen from inside the guest is made again, and `doctor` names it; the others say why not.
//!
//! To add a report: a row of the table, and in `causes` the scenario that makes it, where none does yet.

mod causes;

use harvester_lab::world::World;
use harvester_node_agent::findings::{Code, Severity};
use serde_json::Value;

use crate::doctor::doctor;

/// What somebody reported.
#[derive(Debug)]
struct Report {
    number: usize,
    /// What happened, in words with `_` between them: the name of its test.
    what: &'static str,
    /// The issues, as `owner/repository#number`.
    issues: &'static [&'static str],
    outcome: Outcome,
}

/// Whether its cause can be seen from inside the guest.
#[derive(Debug)]
enum Outcome {
    /// It can: the function in `causes` that makes it, and the finding that names it.
    Seen { scenario: &'static str, code: Code },
    /// It cannot.
    Unseen { why: &'static str },
}

/// The table, and a test for each row that can be seen: `seen(scenario, code, part of what the finding must say)`.
macro_rules! reports {
    ($($number:literal $what:ident [$($issue:literal),+ $(,)?] $outcome:ident $details:tt;)*) => {
        const REPORTS: [Report; 40] = [$(Report {
            number: $number,
            what: stringify!($what),
            issues: &[$($issue),+],
            outcome: outcome!($outcome $details),
        }),*];

        mod report {
            $(test_of!($what $outcome $details);)*
        }
    };
}

macro_rules! outcome {
    (seen ($scenario:ident, $code:ident, $says:literal $(,)?)) => {
        Outcome::Seen {
            scenario: stringify!($scenario),
            code: Code::$code,
        }
    };
    (unseen ($why:literal $(,)?)) => {
        Outcome::Unseen { why: $why }
    };
}

macro_rules! test_of {
    ($what:ident seen ($scenario:ident, $code:ident, $says:literal $(,)?)) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $what() {
            let scene = super::causes::$scenario().await;
            super::is_named(&scene.world, super::Code::$code, $says).await;
        }
    };
    ($what:ident unseen $why:tt) => {};
}

reports! {
    1 host_labels_do_not_reach_the_nodes
        ["harvester/harvester#1417", "harvester/harvester#1418"]
        seen(cloud_provider_before_topology, CloudProviderTooOld, "neither region nor zone");
    2 labels_stay_those_of_the_host_before_after_a_migration
        ["harvester/harvester#3142"]
        seen(cloud_provider_that_looks_once, CloudProviderTooOld, "not after a migration");
    3 the_cloud_provider_stumbles_over_vms_of_other_clusters
        ["harvester/harvester#4459", "harvester/harvester#4432"]
        seen(cloud_provider_that_meets_other_clusters, CloudProviderTooOld, "not found");
    4 the_cloud_provider_restarts_whenever_a_vm_is_made
        ["harvester/harvester#9502"]
        unseen("it shows in the logs of one pod, which no kubelet may read, and no release without it is known to compare with");
    5 vms_of_several_clusters_in_one_namespace_are_not_told_apart
        ["harvester/harvester#10906"]
        seen(vm_without_cluster, VmLabelsMissing, "guestcluster.harvesterhci.io/name is missing");
    6 a_custom_cluster_gets_no_topology
        ["harvester/harvester#10399"]
        seen(vm_of_a_custom_cluster, TopologyUnknown, "vmi-annotations");
    7 volumes_need_a_node_with_the_name_of_its_vm
        ["harvester/harvester#4396"]
        seen(csi_driver_that_knows_names_only, CsiDriverTooOld, "issues/4396");
    8 nobody_says_that_the_hostname_must_be_the_name_of_the_vm
        ["harvester/harvester#4291"]
        seen(hostname_from_user_data, HostnameDiffers, "`renamed` (mismatch)");
    9 a_hostname_in_the_user_data_leaves_the_node_tainted
        ["harvester/harvester#4947"]
        seen(renamed_node_that_nobody_takes_on, NodeUninitialized, "the Node is called `renamed`");
    10 a_cluster_with_hostnames_of_its_own_cannot_be_upgraded
        ["harvester/harvester#11682"]
        seen(hostname_from_user_data, HostnameDiffers, "`renamed` (mismatch)");
    11 rancher_cuts_a_long_name
        ["rancher/rancher#40901", "rancher/rancher#41581"]
        seen(name_cut_by_rancher, HostnameDiffers, "rancher-truncated");
    12 a_volume_is_attached_to_the_wrong_vm
        ["harvester/harvester#6981"]
        seen(csi_driver_that_takes_calicos_mac, CsiAttachesToWrongVm, "ee:ee:ee:ee:ee:ee");
    13 vms_of_one_template_have_one_mac_address
        ["harvester/harvester#9798", "harvester/harvester#9788", "harvester/harvester#4893"]
        seen(two_vms_of_one_template, IdentityAmbiguous, "default/gc8-pool1-copy");
    14 the_token_of_rancher_has_ended
        [
            "harvester/harvester#5827", "rancher/rancher#44912", "rancher/rancher#47491", "rancher/rancher#47492",
            "rancher/rancher#49685",
        ]
        seen(token_of_rancher_that_ended, RancherTokenRefused, "`kubeconfig-u-abcde`");
    15 kubeconfigs_of_rancher_end_by_default
        ["harvester/harvester#5868", "harvester/harvester#5874", "harvester/harvester#5669"]
        seen(token_of_rancher_that_works, CredentialOfRancher, "`kubeconfig-u-abcde`");
    16 the_mount_of_the_cloud_config_fails
        [
            "harvester/harvester#6286", "harvester/harvester#4077", "harvester/harvester#6821", "rancher/rancher#47501",
            "rancher/rancher#34969", "harvester/harvester#3162", "harvester/harvester#4568", "harvester/harvester#2042",
        ]
        seen(directory_instead_of_credential, CredentialIsDirectory, "cloud-provider-config is a directory");
    17 the_cloud_config_is_a_secret_and_no_file
        ["harvester/harvester#9503", "harvester/harvester#10225"]
        seen(credential_that_is_no_file, HarvesterCredentialMissing, "cloud-provider-config");
    18 on_k3s_no_role_is_bound_to_the_credential
        ["harvester/harvester#10298"]
        seen(k3s_without_roles, HarvesterForbidden, "virtualmachineinstances");
    19 an_address_of_rancher_stands_beside_the_authority_of_harvester
        ["harvester/harvester#4446"]
        seen(address_of_rancher, HarvesterTls, "the credential trusts only");
    20 the_name_of_the_vip_is_not_in_the_certificate
        ["harvester/harvester#4700", "harvester/harvester#1475"]
        seen(server_of_another_name, ServerNotInCertificate, "the certificate is for");
    21 the_node_has_no_internal_ip
        ["harvester/harvester#10079"]
        seen(node_without_address, InternalIpMissing, "Harvester has no address");
    22 the_guest_agent_is_not_in_the_image
        ["harvester/harvester#1235", "harvester/harvester#8915"]
        seen(image_without_guest_agent, GuestAgentNotInstalled, "qemu-ga");
    23 helm_jobs_hang_and_the_taint_stays
        ["harvester/harvester#10188"]
        seen(no_cloud_provider, NodeUninitialized, "does not run");
    24 one_zone_on_all_hosts_blocks_promotion
        ["harvester/harvester#6546"]
        seen(hosts_in_one_zone, HostsInOneZone, "3 hosts, all in zone rack-a");
    25 labels_of_pool_and_cluster_are_not_on_the_vms
        [
            "harvester/harvester#7193", "harvester/harvester#8391", "rancher/rancher#45840", "rancher/dashboard#16018",
        ]
        unseen("the labels that were asked for stand in Rancher; those that Harvester itself needs are looked at, see 26");
    26 nobody_knows_which_cluster_a_vm_belongs_to
        ["harvester/harvester#4089"]
        seen(vm_without_cluster, VmLabelsMissing, "guestcluster.harvesterhci.io/name is missing");
    27 an_upgrade_of_harvester_cannot_move_the_vm
        ["harvester/harvester#5756", "harvester/harvester#10462", "harvester/harvester#8950"]
        seen(vm_that_cannot_move, NotLiveMigratable, "HostDeviceNotLiveMigratable");
    28 a_machine_waits_for_its_address_in_vain
        ["harvester/harvester#7018"]
        seen(guest_agent_that_is_not_heard, GuestAgentUnseen, "AgentConnected");
    29 credentials_lie_in_plain_sight
        ["harvester/harvester#1440"]
        seen(credential_for_everybody, CredentialExposed, "0644");
    30 the_vip_is_lost_during_an_upgrade
        [
            "harvester/harvester#11374", "harvester/harvester#11440", "harvester/harvester#11634",
            "harvester/harvester#11338",
        ]
        seen(vip_that_is_away, HarvesterUnreachable, "refused");
    31 kubevirt_puts_no_zone_on_the_instance
        ["kubevirt/kubevirt#8063"]
        seen(vm_of_a_custom_cluster, TopologyUnknown, "vmi-annotations");
    32 kubevirts_cloud_provider_leaves_the_zone_of_the_host_before
        ["kubevirt/cloud-provider-kubevirt#225"]
        seen(cloud_provider_of_kubevirt, KubevirtCloudProvider, "kube-system/kccm");
    33 zones_need_the_right_to_read_nodes
        ["kubevirt/cloud-provider-kubevirt#89"]
        seen(vm_of_a_custom_cluster, TopologyUnknown, "host-node");
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
        seen(watch_that_dies, WatchUnavailable, "502");
    37 labels_of_other_clouds_are_not_updated_after_a_live_migration
        [
            "kubernetes/cloud-provider-openstack#2579", "kubernetes/cloud-provider-openstack#1801",
            "sergelogvinov/proxmox-cloud-controller-manager#110", "sergelogvinov/proxmox-cloud-controller-manager#265",
        ]
        seen(labels_of_the_host_before, TopologyRival, "the host has rack-b");
    38 the_csi_driver_of_kubevirt_knows_no_zones
        ["kubevirt/csi-driver#66"]
        unseen("another project's driver, which has it since its pull request 174; nothing of it is on a Harvester node");
    39 a_physical_machine_in_the_cluster_stays_tainted
        ["harvester/harvester#6305"]
        seen(machine_outside_of_harvester, NotKubevirt, "QEMU");
    40 addresses_of_a_node_are_those_of_before
        ["harvester/harvester#10381"]
        seen(node_with_an_address_of_before, AddressDiffers, "192.0.2.77");
}

/// Holds that `doctor` names the cause, that nothing else is an error, and that what follows from it is not said.
async fn is_named(world: &World, code: Code, says: &str) {
    let said = doctor(world, &[]).await;
    let all = || format!("{:#}", said.document);
    let is_it = |finding: &&Value| {
        finding["code"] == code.as_str() && finding["seen"].as_str().unwrap().contains(says)
    };
    let finding = said.findings().find(is_it).cloned().unwrap_or_default();
    assert!(finding.is_object(), "no {code} with `{says}` in {}", all());
    assert_ne!(finding["remedy"], "", "{}", all());
    assert_ne!(finding["commands"], serde_json::json!([]), "{}", all());

    let is_error = code.entry().severity == Severity::Error;
    let errors = if is_error {
        vec![code.as_str()]
    } else {
        vec![]
    };
    assert_eq!(said.codes("error"), errors, "{}", all());
    let exit = said.code.unwrap();
    assert_eq!([1, 4].contains(&exit), is_error, "{}", all());
    assert!([0, 1, 4, 75].contains(&exit), "{}", all());

    let found = || {
        said.findings()
            .map(|finding| Code::parse(finding["code"].as_str().unwrap()).unwrap())
    };
    for cause in found() {
        let silenced = cause.entry().silences;
        let consequence = found().find(|code| silenced.contains(code));
        assert_eq!(consequence, None, "although there is {cause}: {}", all());
    }
}

/// The page of an issue.
fn page(issue: &str) -> String {
    let (repository, number) = issue.split_once('#').unwrap();
    format!("https://github.com/{repository}/issues/{number}")
}

#[test]
fn explain_leads_to_every_report_that_a_code_names() {
    for report in &REPORTS {
        if let Outcome::Seen { code, .. } = report.outcome {
            let links = code.links();
            let is_missing = |page: &String| !links.contains(&page.as_str());
            let missing: Vec<String> = report.issues.iter().map(|issue| page(issue)).collect();
            let missing: Vec<String> = missing.into_iter().filter(is_missing).collect();
            assert!(missing.is_empty(), "{code} lacks {missing:#?}");
        }
    }
}

#[test]
fn every_report_has_a_scenario_and_a_code_or_the_reason_why_not() {
    println!("number | reports | scenario | code");
    for (report, number) in REPORTS.iter().zip(1..) {
        assert_eq!(report.number, number);
        let what = report.what.replace('_', " ");
        let issues = report.issues.join(", ");
        let row = match report.outcome {
            Outcome::Seen { scenario, code, .. } => format!("{scenario} | {code}"),
            Outcome::Unseen { why } => {
                assert!(why.contains(' '), "report {number} has no reason");
                format!("cannot be seen from a guest | {why}")
            }
        };
        println!("{number} | {what} ({issues}) | {row}");
    }
}
