// SPDX-License-Identifier: Apache-2.0
//! The catalog of faults in an image that is being built, for `bake-check`.
//!
//! One image becomes many machines. It must not contain what is unique to one machine or gives access to one, and must contain
//! what each machine needs. The list follows <https://systemd.io/BUILDING_IMAGES/>, with additions for Harvester, Rancher and
//! Kubernetes.
//!
//! A code never changes after its release. To add a fault: a row in the table at the end. For a fault that is only a file or
//! directory in the tree, the row with its places is sufficient; any other fault is reported in `judge.rs`.

use std::fmt;

/// The catalog entry of one code.
#[derive(Debug, Clone, Copy)]
pub struct BakeRule {
    /// The code.
    pub code: FaultCode,
    /// The name: kebab-case, never changed.
    pub name: &'static str,
    /// The title: one line.
    pub title: &'static str,
    /// The impact.
    pub impact: &'static str,
    /// The paths, for faults that are a file or directory in the tree: at most one `*` in each component. Empty files (except for
    /// [`FaultCode::CloudInitDisabled`]) and empty directories are ignored.
    pub places: &'static [&'static str],
}

/// A fault in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The code.
    pub code: FaultCode,
    /// The observation, with the path. Never contains a secret.
    pub seen: String,
    /// The fix: a shell command.
    pub remedy: String,
}

impl fmt::Display for FaultCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.entry().name)
    }
}

macro_rules! catalog {
    ($($code:ident, $name:literal, $title:literal, impact: $impact:literal, places: [$($place:literal),* $(,)?];)*) => {
        /// The codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultCode {
            $(
                #[doc = $title]
                $code,
            )*
        }

        impl FaultCode {
            /// All codes, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// Returns the catalog entry.
            pub fn entry(self) -> &'static BakeRule {
                match self {
                    $(Self::$code => {
                        static ENTRY: BakeRule = BakeRule {
                            code: FaultCode::$code,
                            name: $name,
                            title: $title,
                            impact: $impact,
                            places: &[$($place),*],
                        };
                        &ENTRY
                    })*
                }
            }
        }
    };
}

catalog! {
    // Programs that each machine needs.
    AgentMissing, "image-agent-missing", "harvester-node-agent is not installed",
        impact: "VMs created from this image have no agent.",
        places: [];
    AgentMasked, "image-agent-masked", "unit of harvester-node-agent is masked",
        impact: "systemd does not start it, even if it is enabled later.",
        places: [];
    AgentNotEnabled, "image-agent-not-enabled", "harvester-node-agent does not start at boot",
        impact: "The agent is installed, but does not run.",
        places: [];
    ConfigurationFaults, "image-config-invalid", "agent configuration is invalid",
        impact: "On every VM created from this image the service is idle until the configuration is fixed.",
        places: [];
    GuestAgentMissing, "image-guest-agent-missing", "qemu-guest-agent is not installed",
        impact: "Harvester shows no addresses and no hostname of the VM, and the Rancher node driver waits for an address indefinitely.",
        places: [];
    GuestAgentMasked, "image-guest-agent-masked", "unit of qemu-guest-agent is masked",
        impact: "Harvester shows no addresses and no hostname of the VM, and the Rancher node driver waits for an address indefinitely.",
        places: [];
    GuestAgentNotEnabled, "image-guest-agent-not-enabled", "qemu-guest-agent does not start at boot",
        impact: "Harvester shows no addresses and no hostname of the VM, and the Rancher node driver waits for an address indefinitely.",
        places: [];

    // The identity of a machine.
    MachineId, "image-machine-id", "image contains a machine-id",
        impact: "All VMs created from it share it: DHCP assigns them one address, and their journals cannot be distinguished.",
        places: [];
    Hostname, "image-hostname", "image contains a hostname",
        impact: "A VM without a name from its platform registers under this one, and the second VM takes over the Node of the first.",
        places: [];
    SshHostKey, "image-ssh-host-key", "image contains SSH host keys",
        impact: "Anyone with the image can impersonate every VM created from it.",
        places: ["/etc/ssh/ssh_host_*"];
    RandomSeed, "image-random-seed", "image contains a random seed",
        impact: "All VMs created from it start with the same seed, which anyone with the image knows.",
        places: ["/var/lib/systemd/random-seed", "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/efi/loader/random-seed"];
    CredentialSecret, "image-credential-secret", "image contains systemd's key for encrypted credentials",
        impact: "Anyone with the image can decrypt the credentials of every VM created from it.",
        places: ["/var/lib/systemd/credential.secret"];
    NetworkIdentity, "image-network-identity", "image contains the network identity of the build VM",
        impact: "A DHCP lease or DUID makes VMs request the same address; configuration for one MAC address matches no other VM.",
        places: [
            "/var/lib/dhcp/*.leases", "/var/lib/dhcp/*.lease", "/var/lib/dhclient/*", "/var/lib/dhcpcd/*", "/var/lib/wicked/*.xml",
            "/var/lib/NetworkManager/*.lease", "/var/lib/NetworkManager/secret_key",
            "/etc/NetworkManager/system-connections/cloud-init-*", "/etc/netplan/50-cloud-init.yaml",
            "/etc/network/interfaces.d/50-cloud-init*", "/etc/udev/rules.d/70-persistent-net.rules",
        ];
    CloudInitInstance, "image-cloud-init-instance", "image contains cloud-init state of the build VM",
        impact: "Its user data may contain credentials, and per-instance steps may be skipped on the next VM.",
        places: [
            "/var/lib/cloud/instance", "/var/lib/cloud/instances", "/var/lib/cloud/data", "/var/lib/cloud/sem",
            "/run/cloud-init",
        ];
    CloudInitSeed, "image-cloud-init-seed", "image contains a cloud-init seed",
        impact: "Every VM created from it uses instance-id, hostname and user data from there instead of Harvester.",
        places: ["/var/lib/cloud/seed/*", "/etc/cloud/cloud.cfg.d/99-installer.cfg"];
    CloudInitDisabled, "image-cloud-init-disabled", "cloud-init is disabled",
        impact: "A VM created from it gets neither hostname nor user data from Harvester, and never joins a cluster.",
        places: ["/etc/cloud/cloud-init.disabled"];
    AgentState, "image-agent-state", "image contains agent state of the build VM",
        impact: "It belongs to another VM and is discarded at the first start.",
        places: [
            "/var/lib/harvester-node-agent", "/run/harvester-node-agent",
            "/var/lib/prometheus/node-exporter/harvester_node_agent.prom",
        ];
    ConfigurationOfOneVm, "image-configuration-of-one-vm", "agent configuration is for one VM or one Node",
        impact: "Every VM created from this image identifies as that one.",
        places: [];
    RegistrationDropIn, "image-registration-drop-in", "image contains registration labels of the build VM",
        impact: "Every VM created from this image registers with zone and host of the build VM.",
        places: [
            "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml",
            "/etc/rancher/k3s/config.yaml.d/90-harvester-node-agent.yaml",
            "/etc/systemd/system/kubelet.service.d/05-harvester-node-agent.conf",
        ];
    NodeNameBaked, "image-node-name", "configuration of RKE2, K3s or the kubelet sets a node name",
        impact: "Every VM created from this image registers under this name, and takes over the Node of the previous one.",
        places: [];
    TopologyLabelBaked, "image-topology-label", "configuration of RKE2, K3s or the kubelet sets topology labels",
        impact: "Every VM created from this image registers with these labels, wherever it runs.",
        places: [];
    Logs, "image-logs", "image contains logs of the build VM",
        impact: "They belong to another VM, and cloud-init logs may contain its user data.",
        places: [
            "/var/log/cloud-init.log", "/var/log/cloud-init-output.log", "/var/log/journal/*", "/var/log/pods",
            "/var/log/containers", "/var/log/syslog", "/var/log/messages", "/var/log/auth.log", "/var/log/secure",
        ];

    // Credentials and keys.
    HarvesterCredential, "image-harvester-credential", "image contains a Harvester credential",
        impact: "Anyone with the image can act on the VMs of its namespace, until the token expires or is revoked.",
        places: [];
    KubeletCredential, "image-kubelet-credential", "image contains a kubelet credential or certificates",
        impact: "A VM created from it joins as another Node or not at all, and anyone with the image can act as that Node.",
        places: ["/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/pki"];
    ClusterKeys, "image-cluster-keys", "image contains keys, tokens, data or static pods of a cluster server",
        impact: "Anyone with the image can become administrator of that cluster; a new server starts with an old cluster.",
        places: [
            "/etc/kubernetes/pki", "/etc/kubernetes/ssl", "/var/lib/etcd/member",
            "/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/manifests/kube-apiserver.yaml",
            "/etc/kubernetes/manifests/kube-controller-manager.yaml", "/etc/kubernetes/manifests/kube-scheduler.yaml",
        ];
    AdminKubeconfig, "image-admin-kubeconfig", "image contains the kubeconfig of an administrator or a controller",
        impact: "Anyone with the image controls that cluster.",
        places: [
            "/etc/rancher/rke2/rke2.yaml", "/etc/rancher/k3s/k3s.yaml", "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/controller-manager.conf",
            "/etc/kubernetes/scheduler.conf", "/root/.kube/config", "/home/*/.kube/config",
        ];
    ClusterToken, "image-cluster-token", "configuration of RKE2 or K3s contains a secret",
        impact: "Anyone with the image can use it: join nodes to that cluster, read its data or its images. Provide it with user data instead.",
        places: [];
    SshPrivateKey, "image-ssh-private-key", "image contains a private SSH key",
        impact: "Anyone with the image can log in wherever that key is authorized.",
        places: ["/root/.ssh/id_*", "/home/*/.ssh/id_*"];
    SshAuthorizedKeys, "image-ssh-authorized-keys", "image contains authorized SSH keys",
        impact: "Anyone with such a key can log in to every VM created from this image. Provide keys with user data instead.",
        places: ["/root/.ssh/authorized_keys", "/home/*/.ssh/authorized_keys"];
    NodePassword, "image-node-password", "image contains the node password of RKE2 or K3s",
        impact: "All VMs created from it share it: the server rejects a Node with a different password, and trusts one with a known password.",
        places: ["/etc/rancher/node/password"];
    SystemAgentConnection, "image-system-agent-connection", "image contains the connection of rancher-system-agent",
        impact: "A VM created from it receives the plans of another one from Rancher, with its credential.",
        places: [
            "/var/lib/rancher/agent/rancher2_connection_info.json", "/var/lib/rancher/agent/applied",
            "/var/lib/rancher/agent/work", "/etc/rancher/agent/rancher2_connection_info.json",
        ];

    // Incomplete checks.
    Unreadable, "image-unreadable", "path could not be checked",
        impact: "The image is not known to be clean.",
        places: [];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_has_a_name_of_its_own_and_says_why_it_matters() {
        let names: BTreeSet<&str> = FaultCode::ALL
            .iter()
            .map(|code| code.entry().name)
            .collect();
        assert_eq!(names.len(), FaultCode::ALL.len());
        for code in FaultCode::ALL {
            let entry = code.entry();
            assert_eq!(entry.code, *code);
            let is_kebab = |name: &str| {
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            };
            assert!(is_kebab(entry.name) && !entry.impact.is_empty());
        }
    }

    #[test]
    fn every_file_that_the_agent_writes_for_the_kubelet_is_looked_for() {
        let places = FaultCode::RegistrationDropIn.entry().places;
        for kind in crate::facts::registration::LabelFileKind::ALL {
            let path = kind.path().to_str().unwrap();
            assert!(places.contains(&path), "{path}");
        }
    }

    #[test]
    fn each_place_is_absolute_and_has_one_star_per_component_at_most() {
        for place in FaultCode::ALL.iter().flat_map(|code| code.entry().places) {
            assert!(place.starts_with('/'), "{place}");
            assert!(
                place
                    .split('/')
                    .all(|part| part.matches('*').count() < 2 && part != "..")
            );
        }
    }
}
