// SPDX-License-Identifier: Apache-2.0
//! Pages of documentation, and issue reports.

pub(super) const CHRONY: &str = "https://chrony-project.org/documentation.html";
pub(super) const CLOUD_PROVIDER: &str =
    "https://docs.harvesterhci.io/latest/rancher/cloud-provider/";
pub(super) const CPU_MANAGER: &str =
    "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/";
pub(super) const CSI_DRIVER: &str = "https://docs.harvesterhci.io/latest/rancher/csi-driver/";
pub(super) const GUEST_AGENT: &str =
    "https://kubevirt.io/user-guide/user_workloads/guest_agent_information/";
pub(super) const IMAGES: &str = "https://systemd.io/BUILDING_IMAGES/";
pub(super) const KUBELET_CERTIFICATES: &str =
    "https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/kubeadm-certs/";
pub(super) const LIVE_MIGRATION: &str = "https://docs.harvesterhci.io/latest/vm/live-migration/";
pub(super) const NODE_AUTHORIZATION: &str =
    "https://kubernetes.io/docs/reference/access-authn-authz/node/";
pub(super) const NODE_DRIVER: &str =
    "https://docs.harvesterhci.io/latest/rancher/node/node-driver/";
pub(super) const NODE_LABELS: &str =
    "https://kubernetes.io/docs/reference/labels-annotations-taints/";
pub(super) const NODE_SHUTDOWN: &str =
    "https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/";
pub(super) const RKE2_CONFIGURATION: &str = "https://docs.rke2.io/install/configuration";
pub(super) const SANDBOX: &str =
    "https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html";
pub(super) const SYSTEMCTL: &str =
    "https://www.freedesktop.org/software/systemd/man/latest/systemctl.html";
pub(super) const TEXTFILE: &str = "https://github.com/prometheus/node_exporter#textfile-collector";
pub(super) const TIMEDATECTL: &str =
    "https://www.freedesktop.org/software/systemd/man/latest/timedatectl.html";
pub(super) const TOML: &str = "https://toml.io/en/v1.0.0";

/// Returns the URL of an issue.
macro_rules! issue {
    ($repository:literal, $number:literal) => {
        concat!("https://github.com/", $repository, "/issues/", $number)
    };
}

pub(super) use issue;
