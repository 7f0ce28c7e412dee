// SPDX-License-Identifier: Apache-2.0
//! The files and directories that an image must not contain, and the programs that it must.

use super::unit;
use crate::catalog::Code;
use crate::facts::guest_agent::UNITS;
use crate::observe::guest_agent;

/// The programs that each machine needs: the findings that they or their units are missing, masked and disabled, their possible paths,
/// and the possible names of their units.
#[rustfmt::skip]
pub(super) const PROGRAMS: [([Code; 3], &[&str], &[&str]); 2] = [
    ([Code::ImageAgentMissing, Code::ImageAgentMasked, Code::ImageAgentNotEnabled], &[unit::PROGRAM], &[unit::OURS]),
    ([Code::ImageGuestAgentMissing, Code::ImageGuestAgentMasked, Code::ImageGuestAgentNotEnabled], &guest_agent::PROGRAMS, &UNITS),
];

/// What RKE2 and K3s create in their data directory: the kubelet, a server, and CNI plugins. Images for air-gapped installation and
/// manifests are in the same directories, and are allowed.
#[rustfmt::skip]
pub(super) const DATA: [(Code, &str); 9] = [
    (Code::ImageKubeletCredential, "agent/*.kubeconfig"), (Code::ImageKubeletCredential, "agent/*.key"),
    (Code::ImageKubeletCredential, "agent/*.crt"), (Code::ImageClusterKeys, "server/tls"), (Code::ImageClusterKeys, "server/cred"),
    (Code::ImageClusterKeys, "server/db"), (Code::ImageClusterKeys, "server/*token"),
    (Code::ImageAdminKubeconfig, "agent/etc/cni/net.d/*kubeconfig"), (Code::ImageAdminKubeconfig, "agent/etc/cni/net.d/*/*kubeconfig"),
];

/// The findings that are only files or directories in the tree, with at most one `*` in each component of a path. Empty files (except
/// for [`Code::ImageCloudInitDisabled`]) and empty directories are ignored.
#[rustfmt::skip]
pub const PLACES: &[(Code, &[&str])] = &[
    (Code::ImageSshHostKey, &["/etc/ssh/ssh_host_*"]),
    (Code::ImageRandomSeed, &[
        "/var/lib/systemd/random-seed", "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/efi/loader/random-seed",
    ]),
    (Code::ImageCredentialSecret, &["/var/lib/systemd/credential.secret"]),
    (Code::ImageNetworkIdentity, &[
        "/var/lib/dhcp/*.leases", "/var/lib/dhcp/*.lease", "/var/lib/dhclient/*", "/var/lib/dhcpcd/*", "/var/lib/wicked/*.xml",
        "/var/lib/NetworkManager/*.lease", "/var/lib/NetworkManager/secret_key",
        "/etc/NetworkManager/system-connections/cloud-init-*", "/etc/netplan/50-cloud-init.yaml",
        "/etc/network/interfaces.d/50-cloud-init*", "/etc/udev/rules.d/70-persistent-net.rules",
    ]),
    (Code::ImageCloudInitInstance, &["/var/lib/cloud/instance*", "/var/lib/cloud/data", "/var/lib/cloud/sem", "/run/cloud-init"]),
    (Code::ImageCloudInitSeed, &["/var/lib/cloud/seed/*", "/etc/cloud/cloud.cfg.d/99-installer.cfg"]),
    (Code::ImageCloudInitDisabled, &["/etc/cloud/cloud-init.disabled"]),
    (Code::ImageAgentState, &[
        "/var/lib/harvester-node-agent", "/run/harvester-node-agent", "/run/harvester-node-agent-gate",
        "/var/lib/prometheus/node-exporter/harvester_node_agent.prom",
    ]),
    (Code::ImageRegistrationDropIn, &["/etc/rancher/*/config.yaml.d/90-harvester-node-agent.yaml"]),
    (Code::ImageLogs, &[
        "/var/log/cloud-init.log", "/var/log/cloud-init-output.log", "/var/log/journal/*", "/var/log/pods",
        "/var/log/containers", "/var/log/syslog", "/var/log/messages", "/var/log/auth.log", "/var/log/secure",
    ]),
    // Copies: where `doctor` puts one, and beside the file.
    (Code::ImageHarvesterCredential, &[
        "/root/kubeconfig.*", "/etc/kubernetes/cloud-config.*", "/var/lib/rancher/*/etc/config-files/cloud-provider-config.*",
    ]),
    (Code::ImageKubeletCredential, &[
        "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/pki", "/etc/kubernetes/bootstrap-kubelet.conf.*",
        "/etc/kubernetes/kubelet.conf.*", "/var/lib/rancher/*/agent/kubelet.kubeconfig.*",
    ]),
    (Code::ImageClusterKeys, &[
        "/etc/kubernetes/pki", "/etc/kubernetes/ssl", "/var/lib/etcd/member", "/etc/kubernetes/manifests/etcd.yaml",
        "/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/manifests/kube-controller-manager.yaml",
        "/etc/kubernetes/manifests/kube-scheduler.yaml",
    ]),
    (Code::ImageAdminKubeconfig, &[
        "/etc/rancher/rke2/rke2.yaml", "/etc/rancher/k3s/k3s.yaml", "/etc/kubernetes/admin.conf",
        "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf",
        "/root/.kube/config", "/home/*/.kube/config", "/etc/rancher/rke2/rke2.yaml.*", "/etc/rancher/k3s/k3s.yaml.*",
        "/etc/kubernetes/admin.conf.*", "/etc/kubernetes/super-admin.conf.*", "/root/.kube/config.*", "/home/*/.kube/config.*",
        "/root/*kubeconfig", "/root/rke2.yaml", "/root/k3s.yaml", "/home/*/*kubeconfig", "/home/*/kubeconfig.*",
        "/home/*/rke2.yaml", "/home/*/k3s.yaml", "/etc/cni/net.d/*kubeconfig", "/etc/cni/net.d/*/*kubeconfig",
    ]),
    (Code::ImageSshPrivateKey, &["/root/.ssh/id_*", "/home/*/.ssh/id_*"]),
    (Code::ImageSshAuthorizedKeys, &["/root/.ssh/authorized_keys*", "/home/*/.ssh/authorized_keys*"]),
    (Code::ImageOsRegistration, &[
        "/etc/zypp/credentials.d/*CCcredentials", "/etc/pki/consumer/*.pem", "/etc/pki/entitlement/*.pem",
        "/var/lib/ubuntu-advantage/private/machine-token.json", "/etc/apt/auth.conf.d/90ubuntu-advantage",
    ]),
    (Code::ImageNodePassword, &["/etc/rancher/node/password"]),
    (Code::ImageSystemAgentConnection, &[
        "/var/lib/rancher/agent/rancher2_connection_info.json", "/var/lib/rancher/agent/applied",
        "/var/lib/rancher/agent/work", "/etc/rancher/agent/rancher2_connection_info.json",
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static &'static str> {
        PLACES.iter().flat_map(|(_, places)| *places)
    }

    #[test]
    fn every_file_that_the_agent_writes_for_the_kubelet_is_looked_for() {
        for kind in crate::facts::registration::LabelFileKind::ALL {
            let path = kind.path();
            let name = path.components().nth(3).unwrap().as_os_str();
            let place = |place: &str| place.replace('*', name.to_str().unwrap());
            assert!(all().any(|one| path.starts_with(place(one))), "{path:?}");
        }
    }

    #[test]
    fn each_place_is_absolute_and_has_one_star_per_component_at_most() {
        for place in all() {
            assert!(place.starts_with('/'), "{place}");
            let mut parts = place.split('/');
            let is_plain = parts.all(|part| part.matches('*').count() < 2 && part != "..");
            assert!(is_plain, "{place}");
        }
    }
}
