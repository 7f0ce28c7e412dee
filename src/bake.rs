// SPDX-License-Identifier: Apache-2.0
//! Everything that can be wrong with an image that is being built: one catalogue for `bake-check`.
//!
//! An image becomes many machines. What belongs to one of them, or opens one of them, must not be in it; what each of them
//! needs must. The list follows <https://systemd.io/BUILDING_IMAGES/>, and adds what Harvester, Rancher and Kubernetes leave.
//!
//! A code never changes once released. To add a fault: a line in the table at the end. One that is nothing but a thing that
//! lies in the tree is done with its places; any other is raised in `decide/image.rs`.

use std::fmt;

/// What is known about one code.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// Its name: kebab-case, never changed.
    pub name: &'static str,
    /// One line: what it is.
    pub title: &'static str,
    /// Why it matters.
    pub consequence: &'static str,
    /// Where it lies, for faults that are a thing in the tree: paths with at most one `*` in each component. A file counts
    /// unless it is empty (of [`Code::CloudInitDisabled`] also then), a directory unless it has no entry.
    pub places: &'static [&'static str],
}

/// A fault of this image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The code.
    pub code: Code,
    /// What was seen, on which file. Never a secret.
    pub seen: String,
    /// A command for a shell.
    pub remedy: String,
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.entry().name)
    }
}

macro_rules! catalogue {
    ($($code:ident, $name:literal, $title:literal, why: $consequence:literal, places: [$($place:literal),* $(,)?];)*) => {
        /// The codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(
                #[doc = $title]
                $code,
            )*
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// What is known about it.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$code => {
                        static ENTRY: Entry = Entry {
                            code: Code::$code,
                            name: $name,
                            title: $title,
                            consequence: $consequence,
                            places: &[$($place),*],
                        };
                        &ENTRY
                    })*
                }
            }
        }
    };
}

catalogue! {
    // What each machine needs.
    AgentMissing, "agent-missing", "harvester-node-agent is not installed",
        why: "no machine made from this image has the agent",
        places: [];
    AgentMasked, "agent-masked", "the unit of harvester-node-agent is masked",
        why: "systemd refuses to start it, also where somebody enables it later",
        places: [];
    AgentNotEnabled, "agent-not-enabled", "nothing starts harvester-node-agent at boot",
        why: "the agent is in the image and does not run",
        places: [];
    ConfigurationFaults, "configuration-faults", "our own configuration has faults",
        why: "on every machine made from this image the service stays up, does nothing, and waits until the configuration is mended",
        places: [];
    GuestAgentMissing, "guest-agent-missing", "QEMU's guest agent is not installed",
        why: "Harvester shows no addresses and no hostname of the VM, and Rancher's node driver waits for an address in vain",
        places: [];
    GuestAgentMasked, "guest-agent-masked", "the unit of QEMU's guest agent is masked",
        why: "Harvester shows no addresses and no hostname of the VM, and Rancher's node driver waits for an address in vain",
        places: [];
    GuestAgentNotEnabled, "guest-agent-not-enabled", "nothing starts QEMU's guest agent at boot",
        why: "Harvester shows no addresses and no hostname of the VM, and Rancher's node driver waits for an address in vain",
        places: [];

    // What makes a machine this one.
    MachineId, "machine-id", "the image has a machine-id",
        why: "all machines made from it have the same one: DHCP gives them one address, and their journals cannot be told apart",
        places: [];
    Hostname, "hostname", "the image has a hostname",
        why: "a machine whose platform gives it no name registers under this one, and the second one takes the Node of the first",
        places: [];
    SshHostKey, "ssh-host-key", "the image has SSH host keys",
        why: "whoever has the image can pose as every machine made from it",
        places: ["/etc/ssh/ssh_host_*"];
    RandomSeed, "random-seed", "the image has a random seed",
        why: "all machines made from it begin with the same seed, and whoever has the image knows it",
        places: ["/var/lib/systemd/random-seed", "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/efi/loader/random-seed"];
    CredentialSecret, "credential-secret", "the image has systemd's key for encrypted credentials",
        why: "whoever has the image can decrypt the credentials of every machine made from it",
        places: ["/var/lib/systemd/credential.secret"];
    NetworkIdentity, "network-identity", "the image has the network identity of the build machine",
        why: "a DHCP lease or DUID makes machines ask for the same address; configuration for one MAC address fits no other machine",
        places: [
            "/var/lib/dhcp/*.leases", "/var/lib/dhcp/*.lease", "/var/lib/dhclient/*", "/var/lib/dhcpcd/*", "/var/lib/wicked/*.xml",
            "/var/lib/NetworkManager/*.lease", "/var/lib/NetworkManager/secret_key",
            "/etc/NetworkManager/system-connections/cloud-init-*", "/etc/netplan/50-cloud-init.yaml",
            "/etc/network/interfaces.d/50-cloud-init*", "/etc/udev/rules.d/70-persistent-net.rules",
        ];
    CloudInitInstance, "cloud-init-instance", "cloud-init remembers the build machine",
        why: "its user data may hold credentials, and what is done once for an instance may be left out on the next one",
        places: [
            "/var/lib/cloud/instance", "/var/lib/cloud/instances", "/var/lib/cloud/data", "/var/lib/cloud/sem",
            "/run/cloud-init",
        ];
    CloudInitSeed, "cloud-init-seed", "cloud-init finds its data in the image itself",
        why: "every machine made from it takes instance-id, hostname and user data from there, and not from Harvester",
        places: ["/var/lib/cloud/seed/*", "/etc/cloud/cloud.cfg.d/99-installer.cfg"];
    CloudInitDisabled, "cloud-init-disabled", "cloud-init is switched off",
        why: "a machine made from it gets neither hostname nor user data from Harvester, and so never joins a cluster",
        places: ["/etc/cloud/cloud-init.disabled"];
    AgentState, "agent-state", "our own state of the build machine",
        why: "it names another VM; a machine made from this image begins by throwing it away",
        places: [
            "/var/lib/harvester-node-agent", "/run/harvester-node-agent",
            "/var/lib/prometheus/node-exporter/harvester_node_agent.prom",
        ];
    ConfigurationOfOneVm, "configuration-of-one-vm", "our own configuration names one VM or one Node",
        why: "every machine made from this image takes itself for that one",
        places: [];
    RegistrationDropIn, "registration-drop-in", "labels of the build machine for its registration",
        why: "every machine made from this image registers with the zone and the host of the build machine",
        places: [
            "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml",
            "/etc/rancher/k3s/config.yaml.d/90-harvester-node-agent.yaml",
            "/etc/systemd/system/kubelet.service.d/05-harvester-node-agent.conf",
        ];
    NodeNameBaked, "node-name-baked", "the configuration of RKE2, K3s or the kubelet names the Node",
        why: "every machine made from this image registers under this name, and takes the Node of the one before",
        places: [];
    TopologyLabelBaked, "topology-label-baked", "the configuration of RKE2, K3s or the kubelet says where the machine is",
        why: "every machine made from this image registers with this place, wherever it runs",
        places: [];
    Logs, "logs", "the image has logs of the build machine",
        why: "they tell of another machine, and cloud-init's may hold what was in its user data",
        places: [
            "/var/log/cloud-init.log", "/var/log/cloud-init-output.log", "/var/log/journal/*", "/var/log/pods",
            "/var/log/containers", "/var/log/syslog", "/var/log/messages", "/var/log/auth.log", "/var/log/secure",
        ];

    // What opens a door.
    HarvesterCredential, "harvester-credential", "the image has a credential of Harvester",
        why: "whoever has the image can act on the VMs of its namespace; its token has no end",
        places: [];
    KubeletCredential, "kubelet-credential", "the image has a kubelet's credential or certificates",
        why: "a machine made from it joins as another Node or not at all, and whoever has the image can act as that Node",
        places: ["/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/pki"];
    ClusterKeys, "cluster-keys", "the image has keys, tokens, data or static pods of a cluster's server",
        why: "whoever has the image can make himself administrator of that cluster; a new server finds an old cluster",
        places: [
            "/etc/kubernetes/pki", "/etc/kubernetes/ssl", "/var/lib/etcd/member",
            "/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/manifests/kube-apiserver.yaml",
            "/etc/kubernetes/manifests/kube-controller-manager.yaml", "/etc/kubernetes/manifests/kube-scheduler.yaml",
        ];
    AdminKubeconfig, "admin-kubeconfig", "the image has the kubeconfig of an administrator or a controller",
        why: "whoever has the image has that cluster",
        places: [
            "/etc/rancher/rke2/rke2.yaml", "/etc/rancher/k3s/k3s.yaml", "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/controller-manager.conf",
            "/etc/kubernetes/scheduler.conf", "/root/.kube/config", "/home/*/.kube/config",
        ];
    ClusterToken, "cluster-token", "the configuration of RKE2 or K3s holds a secret",
        why: "whoever has the image can use it: join machines to that cluster, read its data or its images; give it to each machine by its user data",
        places: [];
    SshPrivateKey, "ssh-private-key", "the image has a user's private SSH key",
        why: "whoever has the image can log in wherever that key opens",
        places: ["/root/.ssh/id_*", "/home/*/.ssh/id_*"];
    SshAuthorizedKeys, "ssh-authorized-keys", "SSH keys open the machines",
        why: "whoever has such a key can log in to every machine made from this image; give keys by user data",
        places: ["/root/.ssh/authorized_keys", "/home/*/.ssh/authorized_keys"];
    NodePassword, "node-password", "the image has the node password of RKE2 or K3s",
        why: "all machines made from it share it: the server refuses a Node whose password differs, and trusts one whose password is known",
        places: ["/etc/rancher/node/password"];
    SystemAgentConnection, "system-agent-connection", "the image has the connection of rancher-system-agent",
        why: "a machine made from it takes orders for another one from Rancher, with that one's credential",
        places: [
            "/var/lib/rancher/agent/rancher2_connection_info.json", "/var/lib/rancher/agent/applied",
            "/var/lib/rancher/agent/work", "/etc/rancher/agent/rancher2_connection_info.json",
        ];

    // What is not known.
    Unreadable, "unreadable", "a place could not be looked at",
        why: "nothing is known of it, and so the image is not known to be clean",
        places: [];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_has_a_name_of_its_own_and_says_why_it_matters() {
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.entry().name).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            let entry = code.entry();
            assert_eq!(entry.code, *code);
            let is_kebab = |name: &str| {
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            };
            assert!(is_kebab(entry.name) && !entry.consequence.is_empty());
        }
    }

    #[test]
    fn every_file_that_the_agent_writes_for_the_kubelet_is_looked_for() {
        let places = Code::RegistrationDropIn.entry().places;
        for kind in crate::facts::registration::LabelFileKind::ALL {
            let path = kind.path().to_str().unwrap();
            assert!(places.contains(&path), "{path}");
        }
    }

    #[test]
    fn each_place_is_absolute_and_has_one_star_per_component_at_most() {
        for place in Code::ALL.iter().flat_map(|code| code.entry().places) {
            assert!(place.starts_with('/'), "{place}");
            assert!(
                place
                    .split('/')
                    .all(|part| part.matches('*').count() < 2 && part != "..")
            );
        }
    }
}
