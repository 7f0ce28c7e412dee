// SPDX-License-Identifier: Apache-2.0
//! The table of all codes: group, severity, flags, title, links, impact, steps that fix it, commands, and which findings it
//! suppresses.

use super::command::{CommandPlace, FixCommand};
use super::declare::catalog;
use super::group::Group;
use super::links::{
    CHRONY, CLOUD_PROVIDER, CPU_MANAGER, CSI_DRIVER, GUEST_AGENT, IMAGES, KUBELET_CERTIFICATES,
    LIVE_MIGRATION, NODE_AUTHORIZATION, NODE_DRIVER, NODE_LABELS, NODE_SHUTDOWN,
    RKE2_CONFIGURATION, SANDBOX, SYSTEMCTL, TEXTFILE, TIMEDATECTL, TOML, issue,
};
use crate::sys::named::named;

named! {
    /// The severity of a finding. It decides where the finding is reported: each one in the journal, in `status` and in `doctor`, and
    /// an error or a warning on the Node too, where it is an Event, and a condition that has it as its reason is `False` or `Unknown`.
    /// One that may pass by itself is an Event only as the reason of a condition.
    Severity {
        /// Useful to know; nothing is wrong.
        Notice = "notice",
        /// Something is degraded, or will fail.
        Warning = "warning",
        /// The agent cannot do its main task.
        Error = "error",
    }
}

impl Severity {
    /// Reports whether such a finding is reported on the Node.
    pub fn is_on_node(self) -> bool {
        self > Self::Notice
    }
}

/// The catalog entry of one code.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// Its name in CamelCase: the reason of conditions and Events.
    pub reason: &'static str,
    /// The group.
    pub group: Group,
    /// The severity.
    pub severity: Severity,
    /// When it can be detected, and what its observation is.
    pub flags: &'static [Flag],
    /// The title, in one line.
    pub title: &'static str,
    /// Pages about it, and issue reports, at most two; none: the page about the group.
    pub see: &'static [&'static str],
    /// The impact, in sentences.
    pub impact: &'static str,
    /// The steps of the fix.
    pub fix: &'static [&'static str],
    /// Commands to paste, in their order.
    pub commands: &'static [FixCommand],
    /// Findings that are only consequences of this one and are not shown with it.
    pub suppresses: &'static [Code],
}

/// What is true of some codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// It requires a VM and a host that were read. While these cannot be read, its absence proves nothing.
    NeedsPlacement,
    /// Only the running service can detect it: a single round has no history, listens to nothing, writes nothing, and does not
    /// run in the service's sandbox.
    NeedsMemory,
    /// It is about the names of this machine.
    OfNames,
    /// The observation is an error text, which may differ at each retry. Only a new or resolved one is reported.
    ErrorText,
    /// The agent, the kubelet, RKE2 or Harvester may resolve it without intervention. It has an Event only as the reason of a condition.
    MayPass,
    /// It is why labels that differ from those of the host stay as they are.
    LabelsStay,
    /// It is why it is not known which labels are right, or which the Node has.
    LabelsUnknown,
}

/// Prints the objects that the agent, the cloud provider and the CSI driver need on Harvester: a service account, token and roles.
const RBAC: &str = "harvester-node-agent rbac --subject <NAMESPACE>:harvester-node-agent --create-account --addons > /root/rbac.yaml";
/// Prints the roles for the service account in use.
const ROLES: &str = "harvester-node-agent rbac > /root/rbac.yaml";
/// Copies the file from this node and shows what would change: root of the node wrote it, and an administrator of Harvester applies
/// it.
const REVIEW: &str =
    "ssh <USER>@<NODE_ADDRESS> sudo cat /root/rbac.yaml > rbac.yaml && kubectl diff -f rbac.yaml";
const APPLY: &str = "kubectl apply -f rbac.yaml";
/// Writes a kubeconfig with the token of the service account to this node.
const KUBECONFIG: &str = "kubectl -n <NAMESPACE> get secret harvester-node-agent-token -o json | ssh <USER>@<NODE_ADDRESS> sudo harvester-node-agent kubeconfig --server <HARVESTER_API> --write <KUBECONFIG>";
/// A kernel that denies what root may do with all capabilities.
const NOT_PERMITTED: &str = "If it is not permitted to read the file: the service runs as root without capabilities. Set the owner root and mode 0600 (`chown root:root`, `chmod 0600`), and let root enter its directories. SELinux or AppArmor may deny it too: see the audit log.";
const NAME_RESOLUTION: &str = "If the name of the server cannot be resolved: correct `server:` in the kubeconfig, or the DNS servers of this node. Ask them with `getent ahosts NAME`, and with systemd-resolved `resolvectl query NAME`.";
/// Before a kubeconfig is overwritten. A name with the time: a second run must not lose the first copy.
const BACKUP: &str = "install -m 0600 <KUBECONFIG> /root/kubeconfig.$(date +%s)";
/// The same, for a kubeconfig that does not work.
const REPLACE: &str = "kubectl -n <NAMESPACE> get secret harvester-node-agent-token -o json | ssh <USER>@<NODE_ADDRESS> sudo harvester-node-agent kubeconfig --server <HARVESTER_API> --write <KUBECONFIG> --replace";
const VIP: &str = "kubectl -n harvester-system get configmap vip -o 'jsonpath={.data.ip}'";
const DRAIN: &str = "kubectl drain <NODE> --ignore-daemonsets --delete-emptydir-data";
const DELETE_NODE: &str = "kubectl delete node <NODE>";
const STOP: &str = "systemctl stop 'rke2-*' 'k3s*' 'kubelet*'";
/// Starts the service that is enabled on this node.
const START: &str = "systemctl start $(systemctl list-unit-files --state=enabled 'rke2-*' 'k3s*' 'kubelet*' | grep -o '^[rk][^ ]*')";
/// Prints the HTTP status: a server that accepts no anonymous request responds with 401.
const RESPONSE: &str = "curl -ksS -o /dev/null -w '%{http_code}\\n' --max-time 5 <SERVER>/livez";
const SERVICES: &str = "systemctl --no-pager status 'rke2-*' 'k3s*' 'kubelet*'";
const JOURNAL: &str =
    "journalctl --no-pager -b -n 50 -u rke2-server -u rke2-agent -u k3s -u k3s-agent -u kubelet";
/// RKE2 starts the kubelet with a log file of its own.
const KUBELET_LOG: &str =
    "test ! -e /var/lib/rancher/rke2 || tail -n 50 /var/lib/rancher/rke2/agent/logs/kubelet.log";
/// The certificate of the kubelet on RKE2, K3s or kubeadm.
const KUBELET_ISSUER: &str = "for file in /var/lib/rancher/*/agent/client-kubelet.crt /var/lib/kubelet/pki/kubelet-client-current.pem; do test ! -e $file || openssl x509 -noout -subject -issuer -dates -in $file; done";
const TOPOLOGY: &str =
    "kubectl get nodes -L topology.kubernetes.io/region,topology.kubernetes.io/zone";
const MANAGERS: &str = "kubectl get node <NODE> --show-managed-fields -o yaml";
const CLOUD_PROVIDER_LOG: &str = "kubectl -n kube-system logs -l app.kubernetes.io/name=harvester-cloud-provider --prefix --tail=50";
const VM_HARDWARE: &str = "kubectl -n <NAMESPACE> get vmi -o 'custom-columns=NAME:.metadata.name,UUID:.spec.domain.firmware.uuid,MAC:.status.interfaces[*].mac,STARTED:.metadata.creationTimestamp,HOST:.status.nodeName'";
/// The server of a kubeconfig, and the files that it names.
const NAMED_FILES: &str = "grep -nE '(server|tokenFile|proxy-url|certificate-authority|client-certificate|client-key):' <KUBECONFIG>";
/// The age and the volumes of VMs. A VMI is created at each start.
const VM_AGES: &str = "kubectl -n <NAMESPACE> get vm -o 'custom-columns=NAME:.metadata.name,CREATED:.metadata.creationTimestamp,VOLUMES:.spec.template.spec.volumes[*].persistentVolumeClaim.claimName'";

/// Steps that several findings share.
pub const REJOIN: &str = "Drain the Node, stop the Kubernetes service, delete the Node, and start the service: the Node registers again.";
/// The commands of it.
pub static REJOIN_COMMANDS: [FixCommand; 4] = [
    FixCommand::of_catalog(CommandPlace::Guest, DRAIN),
    FixCommand::of_catalog(CommandPlace::Vm, STOP),
    FixCommand::of_catalog(CommandPlace::Guest, DELETE_NODE),
    FixCommand::of_catalog(CommandPlace::Vm, START),
];
/// The exceptions from a deletion of the Node.
pub const REJOIN_SERVERS: &str = "The next steps are for a worker only. Never delete the Node of a server: with etcd, RKE2 and K3s then remove its etcd member, and its service may not start again. Join a new server first, then remove this one. If Rancher provisions the cluster, replace the node in Rancher instead.";
/// The exception of kubeadm.
pub const REJOIN_KUBEADM: &str = "With kubeadm, the kubelet keeps the credential of the old Node: after you deleted the Node, run `kubeadm reset`, set the hostname, and run `kubeadm join` with a new token (`kubeadm token create --print-join-command` on a server).";
/// Where these steps are, as far as they apply. In its own step: `doctor` does not show it.
pub const DOCTOR_REPLACES: &str = "`harvester-node-agent doctor` shows the steps that replace the Node, if the kubelet of this VM reports it.";
/// What to do after the Node was deleted.
pub const NODE_DELETED: &str = "If the Node was not deleted on purpose, and this is not a server of RKE2 or K3s with etcd: restart rke2-agent, k3s-agent, k3s or kubelet on this node. A running kubelet does not register its Node again.";
/// The same on a server.
pub const ETCD_NODE_DELETED: &str = "If the Node of a server of RKE2 or K3s with etcd was deleted, its etcd member was removed too, and a restart does not bring it back: take a snapshot on another server (`rke2 etcd-snapshot save` or `k3s etcd-snapshot save`) and replace this server.";
const RANCHER_FIRST: &str = "If Rancher provisioned the cluster, change its cloud credential in Rancher first: it writes the file again. The next steps overwrite the kubeconfig (--replace): the copy in /root is a credential, so keep it only until the new one works.";
/// How to make a Harvester kubeconfig, whose commands follow.
pub const USE_SERVICE_ACCOUNT: &str = "Create a service account on Harvester, whose token does not expire, and its kubeconfig. Read rbac.yaml before you apply it.";
/// What to do if the token or the CA in a Harvester kubeconfig expires.
pub const NEW_HARVESTER_KUBECONFIG: &str = "Token or CA of Harvester: create a new kubeconfig, with a token that does not expire and the current CA (`harvester-node-agent explain harvester-credential-missing`). If that CA itself expires, plan its rotation with the Harvester documentation first.";
/// The same for the certificate of Harvester's server.
pub const RESTART_HARVESTER: &str = "Server of Harvester: on its management nodes, restart rke2-server, one at a time. With the setting auto-rotate-rke2-certs (off by default), Harvester 1.3 and later renews the certificate automatically.";
/// The same for the CA of the guest cluster.
pub const ROTATE_CA: &str = "CA of the guest cluster: rotate it on the servers (`rke2 certificate rotate-ca --path DIR`, `k3s certificate rotate-ca --path DIR`) with new CA files, prepared as in https://docs.rke2.io/security/certificates. Then restart the servers, one at a time, and then the agents.";
/// The same for the certificate of its servers.
pub const RESTART_SERVERS: &str = "Server of the guest cluster: on its servers, restart rke2-server or k3s, one at a time; with kubeadm: `kubeadm certs renew all`, then restart the pods of the control plane, one node at a time.";
const OTHER_NODES: &str = "Write the kubeconfig of the other nodes in the same way. Then restart the CSI driver and the cloud provider: `kubectl -n kube-system rollout restart` for each one that `kubectl -n kube-system get deployments,daemonsets -o name | grep harvester` lists.";
/// The components that use the same kubeconfig as the agent.
const ADDONS: &str = "kubectl -n kube-system get deployments,daemonsets -o name | grep harvester";
const SYSTEM_UUID: &str =
    "kubectl get node <NODE> -o custom-columns=UUID:.status.nodeInfo.systemUUID";
const PRODUCT_UUID: &str = "cat /sys/class/dmi/id/product_uuid";

/// The fixes of findings of `bake-check`: the one of an entry without another, and that of a setting.
const CLEAN: &str = "Remove or empty the files that `harvester-node-agent bake-check` names, in the image build, never on a node in use.";
const UNSET: &str =
    "Remove the setting from its file in the image build, and provide it with user data instead.";

catalog! {
    NotKubevirt, "not-kubevirt", Machine, Error, "not running in a KubeVirt virtual machine",
        see: [NODE_DRIVER, issue!("harvester/harvester", 6305)],
        impact: "The agent cannot run here.",
        fix: [
            "Disable the service on this node.",
            "If the SMBIOS vendor was changed intentionally, set `[machine] assume_kubevirt = true` in /etc/harvester-node-agent/config.toml and restart the service.",
        ],
        run: [Vm "systemctl disable --now harvester-node-agent"];

    NameOfAnotherVm, "name-of-another-vm", Identity, Error [NeedsPlacement, OfNames, LabelsUnknown], "hostname or Node name is the name of a different VM",
        see: [CSI_DRIVER, issue!("harvester/harvester", 6981)],
        impact: "The Harvester components treat this Node as the other VM. If this Node is not ready while that VM is stopped, CSI driver 0.2.3 and later taints this Node `out-of-service`, which deletes its pods, and removes the hot-plugged volumes of that VM. The agent writes no labels.",
        fix: [
            "Find where the name comes from: `hostname:` in the VM's cloud-init user data, a hostname baked into the image, or a disk that was copied from the other VM.",
            "If only the hostname has the name of the other VM, or the Node is not registered yet: set the hostname to the VM name. Do not delete the Node.",
            "Compare the systemUUID of the Node with the product_uuid of this VM, several times in five minutes. If they ever differ, the kubelet of the other VM reports the Node: do not drain or delete it. Stop the Kubernetes service here, and follow `harvester-node-agent explain node-of-another-vm`.",
            "If they are always equal, this VM reports the Node. Keep the other VM from joining under its name before this node is replaced by one with its own name.",
        ],
        run: [Vm "grep -rn 'hostname:' /var/lib/cloud/instance/user-data.txt", Guest SYSTEM_UUID, Vm PRODUCT_UUID],
        suppresses: [HostnameOfSeveralVms, HostnameDiffers, StaticHostnameDiffers, ConfiguredOverride, ProviderIdDiffers];
    HostnameOfSeveralVms, "hostname-of-several-vms", Identity, Error [NeedsPlacement, OfNames], "KubeVirt gives this hostname to several VMs",
        see: [NODE_DRIVER, issue!("rancher/rancher", 34997)],
        impact: "KubeVirt truncates a VM name at its first dot and at 63 characters. The second VM that registers with this hostname takes over the Node of the first one, and the Harvester cloud provider and CSI driver find no VM with that name.",
        fix: [
            "Before the kubelet starts, set the hostname to one that only this VM has, or `node-name:` in the RKE2/K3s configuration.",
            "For new VMs, use names without dots (in Rancher: the name of the machine pool), or set `spec.template.spec.hostname` of each VM.",
            "If the Node is registered, check which VM reports it before any change: it may be the other one.",
        ],
        run: [Harvester VM_HARDWARE, Guest SYSTEM_UUID, Vm PRODUCT_UUID],
        suppresses: [HostnameDiffers];
    HostnameDiffers, "hostname-differs", Identity, Warning [OfNames], "hostname or Node name differs from the VM name",
        see: [CSI_DRIVER, issue!("harvester/harvester", 11682)],
        impact: "Cloud provider and CSI driver look up the VM by the whole Node name. If that differs, they find none: no providerID, no topology after a migration, no release of the volumes of a stopped VM. If only the hostname differs, the kubelet may register a second Node.",
        fix: [
            "Find where the name comes from: `hostname:` or `fqdn:` in the VM's cloud-init user data, `node-name:` in /etc/rancher/*/config.yaml, or a flag in the unit of the service.",
            "If the Node name matches, or the Node is not registered yet: set the hostname to the VM name. Do not delete the Node.",
            "If the name has a domain: set `prefer_fqdn_over_hostname: false` in the cloud-init user data of new VMs.",
            "If the Node name was chosen, keep the Node, and set the name as `node-name:` in the configuration of RKE2/K3s.",
            "Otherwise a new Node is necessary: a Node name cannot change.",
            DOCTOR_REPLACES,
        ],
        run: [Vm "grep -rnE 'hostname:|fqdn' /var/lib/cloud/instance/user-data.txt", Vm "grep -rn 'node-name' /etc/rancher"];
    ConfiguredOverride, "configured-override", Identity, Notice [OfNames], "Node name is configured and differs from the VM name",
        impact: "RKE2/K3s or the kubelet is configured with another Node name. Cloud provider 0.2.1 and later finds the VM by the hostname from qemu-guest-agent, if that is the Node name; older ones and the CSI driver look it up by the Node name.",
        fix: [
            "If the name was chosen, nothing is necessary: keep the Node, and keep qemu-guest-agent running.",
            "For new nodes, set `node-name:` to the VM name, or remove it, before the Node registers.",
        ],
        run: [Vm "grep -rn 'node-name' /etc/rancher", Vm "systemctl --no-pager status qemu-guest-agent"];
    NodeMayBeDeleted, "node-may-be-deleted", Identity, Error [OfNames], "Harvester cloud provider may delete this Node",
        see: [issue!("harvester/harvester", 11682), issue!("harvester/harvester", 11683)],
        impact: "The cloud provider finds a VM by the Node name or by the hostname from qemu-guest-agent. Here it can do neither, so it deletes the Node, with its labels and taints, once the Node is not ready. Without the permission to delete Nodes it logs an error.",
        fix: [
            "Until this is fixed, do not reboot the VM and do not stop its kubelet: the Node is deleted while it is not ready. If it was deleted, follow `harvester-node-agent explain node-missing`.",
            "Start qemu-guest-agent; install or unmask it first, if necessary. The cloud provider then finds the VM by the hostname, if that is the Node name.",
        ],
        run: [Vm "systemctl enable --now qemu-guest-agent", Guest "kubectl get events -A --field-selector involvedObject.kind=Node,involvedObject.name=<NODE>", Vm "grep -rn 'hostname:' /var/lib/cloud/instance/user-data.txt", Guest CLOUD_PROVIDER_LOG],
        suppresses: [HostnameDiffers];
    StaticHostnameDiffers, "static-hostname-differs", Identity, Warning [OfNames], "/etc/hostname differs from the hostname of the running kernel",
        impact: "The name changes at the next boot, and the kubelet may register a second Node.",
        fix: ["If the kubelet of this VM alone reports the Node, set both to the name of the Node. If there is no Node yet, set both to the VM name: `hostnamectl set-hostname <NAME>`."],
        run: [Vm "hostnamectl"];
    IdentityAmbiguous, "identity-ambiguous", Identity, Error [NeedsPlacement, LabelsUnknown], "several VMs match this node equally well",
        see: [CSI_DRIVER, issue!("harvester/harvester", 9798)],
        impact: "It is not certain in which VM this node runs. The agent writes labels only if it finds its VM by name, without a search of the namespace.",
        fix: [
            "Find the copy: STARTED in the first command is only the last start of a VM, CREATED in the second one is its age. Stop it only if its disks and its Node show that it is not in use, give it its own firmware UUID and MAC addresses, and start it.",
            "If you know for certain which VM this is, set it in /etc/harvester-node-agent/config.toml: `[harvester] vm = \"NAME\"`.",
        ],
        run: [Harvester VM_HARDWARE, Harvester VM_AGES],
        suppresses: [NoTopologySource, HardwareShared];
    VmNotFound, "vm-not-found", Identity, Error [NeedsPlacement, LabelsUnknown], "no VM in the namespace matches this node",
        impact: "No label is written while the VM is unknown.",
        fix: [
            "Check that the Harvester kubeconfig is for the namespace of this VM; `harvester-node-agent whoami -v` shows it.",
            "If the closest match has another firmware UUID, this disk is a copy, or the VM was created anew: compare both. `[harvester] vm` does not change that.",
            "Otherwise set `[harvester] namespace` and `vm` in /etc/harvester-node-agent/config.toml.",
        ],
        run: [Vm "harvester-node-agent whoami -v", Vm "cat /sys/class/dmi/id/product_uuid", Harvester "kubectl -n <NAMESPACE> get vmi -o custom-columns=NAME:.metadata.name,UUID:.spec.domain.firmware.uuid"],
        suppresses: [NoTopologySource];
    VmMovedAway, "vm-moved-away", Identity, Warning, "VMI no longer exists in its namespace, but the VM still runs",
        impact: "It was probably live-migrated to another cluster or namespace. Labels are unchanged: its new host and topology are unknown here. Do not create or start the VM again on Harvester: two copies would write to the same volumes.",
        fix: [
            "Write the kubeconfig of the new cluster to this node: `harvester-node-agent explain harvester-credential-missing` shows how. The agent then uses it without a restart.",
            "If only the namespace is new, set `[harvester] namespace` in /etc/harvester-node-agent/config.toml, and reload the service.",
            "The cloud provider and the CSI driver need the new kubeconfig, too. Until they have it, do not reboot the VM and do not delete the old VM object: volumes cannot be attached, and the cloud provider may delete this Node.",
        ],
        run: [Harvester "kubectl get vmi -A --field-selector metadata.name=<VM>", Vm "harvester-node-agent whoami"],
        suppresses: [VmNotFound, NoTopologySource];
    ProviderIdDiffers, "provider-id-differs", Identity, Warning [NeedsPlacement], "providerID of the Node belongs to a different VM",
        impact: "The Node object was created for another VM; the Harvester cloud provider and CSI driver may act on that VM.",
        fix: [
            "Compare the systemUUID of the Node with the product_uuid of this VM, several times in five minutes. If they ever differ, the kubelet of the other VM reports the Node: do not drain or delete it, and follow `harvester-node-agent explain node-of-another-vm`.",
            "If they are always equal, the VM was created again under its name, or migrated to another cluster, and a new Node is necessary.",
            DOCTOR_REPLACES,
        ],
        run: [Guest "kubectl get node <NODE> -o custom-columns=ID:.spec.providerID", Guest SYSTEM_UUID, Vm PRODUCT_UUID];
    NodeOfAnotherVm, "node-of-another-vm", Identity, Error [NeedsMemory, LabelsUnknown], "Node belongs to a different VM",
        impact: "The kubelet that reports this Node runs in a VM with another firmware UUID: this VM has a copy of its disk or credential, or that VM has one of this. Nothing is written to the Node until only this VM has reported it for some minutes.",
        fix: [
            "Find the copy. STARTED in the first command is only the last start of a VM. CREATED in the second one is the age of the VM: a copy is later than its original, unless it was restored under the old name. If that is not certain, change nothing.",
            "On the copy, never on the original, and after a snapshot of that VM: uninstall the Kubernetes service, set the hostname to the VM name, install the service again, and join it as a new node.",
            "rke2-uninstall.sh, k3s-uninstall.sh and k3s-agent-uninstall.sh delete the service and all cluster data of the VM. With kubeadm, use `kubeadm reset --skip-phases=remove-etcd-member`: without the option, it may remove the etcd member of the original.",
            "Only if you changed the firmware UUID of this VM yourself, and no VM in the first command has the systemUUID of the Node: restart rke2-server, rke2-agent, k3s, k3s-agent or kubelet, which then reports the new UUID.",
        ],
        run: [Harvester VM_HARDWARE, Harvester VM_AGES, Guest SYSTEM_UUID, Vm PRODUCT_UUID, Vm SERVICES],
        // Their remedies drain or delete that Node, which belongs to the other VM, or give its name to this one.
        suppresses: [NameOfAnotherVm, HostnameDiffers, StaticHostnameDiffers, ProviderIdDiffers, ProviderIdNotHarvester, KubevirtCloudProvider, NodeUninitialized, InternalIpMissing,
            AddressDiffers, TopologyLabelOverwritten, BetaLabelsDiffer];
    HardwareShared, "hardware-shared", Identity, Warning, "another VM in the namespace has the same MAC address or firmware UUID",
        see: [CSI_DRIVER, issue!("harvester/harvester", 9798)],
        impact: "CSI driver 0.1.6 and later finds its VM by MAC address: volumes may be attached to the other VM. On one network, both lose packets.",
        fix: [
            "Find the copy: STARTED in the first command is only the last start of a VM, CREATED in the second one is its age. Stop it only if its disks and its Node show that it is not in use.",
            "Remove its MAC address in Harvester (Virtual Machines, Edit Config, Networks), or its firmware UUID (Edit YAML, spec.template.spec.domain.firmware).",
            "Start the VM.",
        ],
        run: [Harvester VM_HARDWARE, Harvester VM_AGES];

    NoTopologySource, "no-topology-source", Placement, Error [NeedsPlacement, MayPass, LabelsUnknown], "no source provides region and zone of the host",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 10399)],
        impact: "The Node gets no new topology labels; existing labels are kept.",
        fix: [
            "Allow the credential to read the host: apply the output of `harvester-node-agent rbac` on Harvester.",
            "Or, unless the VM has it, set its label `harvesterhci.io/creator=docker-machine-driver-harvester`, so that Harvester annotates it. At the next maintenance, drain the Node, then restart the VM.",
            "Or publish region and zone of each host in the ConfigMap harvester-public/topology (`[topology] configmap`); man 7 harvester-node-agent-topology describes it.",
        ],
        run: [Vm ROLES, Harvester REVIEW, Harvester APPLY];
    AnnotationsStale, "annotations-stale", Placement, Warning [NeedsPlacement, MayPass, LabelsStay], "topology annotations of the VM are not known to be those of its host",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 3142)],
        impact: "The labels of the Node are unchanged until Harvester updates the annotations.",
        fix: [
            "Check that the Harvester controllers are running.",
            "Annotate the VMI, which does not restart the VM: the controllers then reconcile it.",
        ],
        run: [Harvester "kubectl -n harvester-system get pods -l app.kubernetes.io/name=harvester", Harvester "kubectl -n <NAMESPACE> annotate vmi <VM> --overwrite reconcile=$(date +%s)"],
        suppresses: [NoTopologySource];
    HostWithoutTopology, "host-without-topology", Placement, Notice [NeedsPlacement], "host has neither a region nor a zone label",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 6546)],
        impact: "The Node gets no region and zone labels either.",
        fix: ["Label the host in Harvester (Hosts, Edit Config, Labels)."],
        run: [Harvester "kubectl label node <HOST> topology.kubernetes.io/region=<REGION> topology.kubernetes.io/zone=<ZONE>"];
    TopologyPartial, "topology-partial", Placement, Warning [NeedsPlacement, LabelsStay], "host lacks a label that the Node has, or it was not read",
        impact: "The label of the Node is unchanged, and may be that of another host. Updating only region or zone would mix two hosts.",
        fix: [
            "If the label was not read, `whoami -v` shows why. To permit it, apply the output of `harvester-node-agent rbac` on Harvester.",
            "Otherwise set the same topology labels on all hosts in Harvester, or set `[topology] remove_stale = true` to remove labels that the host does not have.",
        ],
        run: [Harvester TOPOLOGY];
    LabelValueInvalid, "label-value-invalid", Placement, Error [NeedsPlacement, LabelsStay], "value of the host is not a valid label value",
        impact: "The Node gets no label with this value.",
        fix: [
            "Correct the value at its source, which `whoami -v` shows: at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.",
            "Or, for the name of a host that is longer, set `[topology] host_label = \"off\"`; for an extra label, remove its key.",
        ],
        run: [Vm "harvester-node-agent whoami -v"],
        suppresses: [NoTopologySource];

    VmLabelsMissing, "vm-labels-missing", Placement, Notice, "VM lacks the labels of a guest cluster node",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 10906)],
        impact: "Harvester annotates only VMs with that creator label with region and zone, so its cloud provider has nothing to set. Without the cluster name, VMs of several clusters in one namespace cannot be distinguished.",
        fix: [
            "Not needed by this agent if the credential is allowed to read hosts (`harvester-node-agent rbac`).",
            "Otherwise set harvesterhci.io/creator=docker-machine-driver-harvester and guestcluster.harvesterhci.io/name=<CLUSTER> on the VM (Virtual Machines, Edit Config, Instance Labels). At the next maintenance, drain the Node, then restart the VM.",
        ],
        run: [Harvester "kubectl -n <NAMESPACE> patch vm <VM> --type merge -p '{\"spec\":{\"template\":{\"metadata\":{\"labels\":{\"harvesterhci.io/creator\":\"docker-machine-driver-harvester\",\"guestcluster.harvesterhci.io/name\":\"'<CLUSTER>'\"}}}}}'"];
    NotLiveMigratable, "not-live-migratable", Placement, Warning, "VM cannot be live-migrated and blocks maintenance mode of its host",
        see: [LIVE_MIGRATION, issue!("harvester/harvester", 10462)],
        impact: "Maintenance mode of the host cannot be enabled unless it is forced; the VM and its Node are then shut down and not restarted. An upgrade of Harvester shuts them down or does not start.",
        fix: [
            "In Harvester, remove what the reason shows: a host device, a CD-ROM, or a node selector for one host. Do not remove a volume: if it is ReadWriteOnce, plan to copy its data to a StorageClass with ReadWriteMany; until then, use the next step.",
            "If the VM cannot migrate, allow Harvester to shut it down: set the label harvesterhci.io/maintain-mode-strategy of the VM to ShutdownAndRestartAfterEnable (it starts on another host), ShutdownAndRestartAfterDisable (it waits for its host) or Shutdown.",
            "Drain the Node before the maintenance, if the VM is shut down.",
        ],
        run: [Harvester "kubectl -n <NAMESPACE> get vmi <VM> -o 'jsonpath={.status.conditions[?(@.type==\"LiveMigratable\")]}'", Harvester "kubectl -n <NAMESPACE> get vm <VM> --show-labels"];
    NotMigratedAtMaintenance, "not-migrated-at-maintenance", Placement, Notice, "VM will not be live-migrated at the next maintenance of its host",
        impact: "The VM and its Node are shut down, or the maintenance waits for them.",
        fix: [
            "No action is needed if this is intended. Drain the Node before the maintenance.",
            "Otherwise remove the label harvesterhci.io/maintain-mode-strategy of the VM, or set it to Migrate.",
            "With evictionStrategy None: set spec.template.spec.evictionStrategy of the VM to LiveMigrate. At the next maintenance, drain the Node, then restart the VM. A controller sets External, as Cluster API does: change it there.",
        ],
        run: [Harvester "kubectl -n <NAMESPACE> get vm <VM> -o 'jsonpath={.metadata.labels}{.spec.template.spec.evictionStrategy}'"];

    PinnedByConfig, "pinned-by-config", Node, Warning [NeedsPlacement, LabelsStay], "topology labels differ from the host, pinned by configuration",
        see: [NODE_LABELS, issue!("kubevirt/cloud-provider-kubevirt", 225)],
        impact: "The scheduler spreads pods by the labels, not by where the VM runs.",
        fix: [
            "No action is needed if this is intended.",
            "Otherwise set `[topology] on_change = \"follow\"` in the file that `harvester-node-agent config show` names, and reload the service.",
        ],
        run: [Vm "harvester-node-agent config show", Vm "systemctl reload harvester-node-agent"],
        suppresses: [TopologyLabelOverwritten];
    LabelNotManaged, "label-not-managed", Node, Warning [NeedsPlacement], "configured label is not managed by the agent",
        impact: "The label is unchanged, although the value on the host differs.",
        fix: [
            "Remove the label from the Node, so that the agent can set it: `kubectl label node <NODE> <KEY>-`.",
            "Or remove the key from `[labels.extra]`.",
        ],
        run: [Guest MANAGERS];
    LabelConflict, "label-conflict", Node, Error [NeedsPlacement, NeedsMemory, LabelsStay], "another writer keeps reverting the agent's labels or annotations",
        see: [NODE_LABELS, issue!("kubevirt/cloud-provider-kubevirt", 225)],
        impact: "The agent stopped writing them, so that the Node does not flap. It retries every hour, and after a migration.",
        fix: [
            "Find out why the writer sets another value. kubelet, rke2 and k3s apply a `node-label` from /etc/rancher/*/config.yaml: remove it there. harvester-cloud-provider follows the annotations of the VM: do not stop it.",
            "Or set `[topology] on_change = \"report\"`.",
        ],
        run: [Guest MANAGERS],
        suppresses: [TopologyLabelOverwritten, BetaLabelsDiffer];
    TopologyFlapping, "topology-flapping", Node, Warning, "host, region or zone of the VM changes too often",
        impact: "After a burst of 240 updates of the Node, the agent sends at most one every 30 seconds, so that the API server and the scheduler are not flooded. Labels are updated late.",
        fix: [
            "Find what changes the host, the annotations of the VM, or the labels of the host; `.metadata.managedFields` names the writer.",
            "Or set `[topology] on_change = \"hold\"` until it is fixed.",
        ],
        run: [Harvester "kubectl -n <NAMESPACE> get vmi <VM> -o yaml --show-managed-fields", Vm "journalctl --no-pager -b -n 50 -u harvester-node-agent"];
    StaticNodeLabel, "static-node-label", Node, Warning [NeedsPlacement], "RKE2/K3s or kubelet configuration sets a topology label",
        impact: "The kubelet resets the label to that value at every start, whatever the host. On Kubernetes 1.35 and later a pod takes the zone of the Node at its creation and keeps it, also when the agent corrects the Node.",
        fix: ["Remove the topology keys from `node-label` in the reported file."],
        run: [Vm "grep -rn -e node-label -e topology /etc/rancher"];

    TopologyLabelOverwritten, "topology-label-overwritten", Node, Warning, "another writer set a topology label to a value that is not the host's",
        see: [NODE_LABELS, issue!("kubernetes/cloud-provider-openstack", 1801)],
        impact: "The scheduler uses a zone this Node is not in; if the writer returns, the label flaps.",
        fix: [
            "Check that the agent is running: it corrects the label within seconds. If it does not, see its journal.",
            "If it runs, find out why the writer sets another value. Managers kubectl-label, kubectl-edit and rancher are users; kubelet, rke2 and k3s apply a `node-label` from /etc/rancher/*/config.yaml; harvester-cloud-provider follows the annotations of the VM: do not stop it.",
        ],
        run: [Guest MANAGERS, Vm "grep -rn -e node-label -e topology /etc/rancher", Vm "systemctl --no-pager status harvester-node-agent"];
    BetaLabelsDiffer, "beta-labels-differ", Node, Warning, "topology label and its deprecated beta label differ",
        impact: "Node controllers of cloud providers (reconcileNodeLabels) overwrite the label with the value of its failure-domain.beta label at the next change of the Node.",
        fix: ["The running agent corrects both on its next reconcile. If you change them manually, set both in one command."],
        run: [Guest "kubectl get node <NODE> --show-labels", Vm "systemctl restart harvester-node-agent"];
    NodeUninitialized, "node-uninitialized", Node, Error, "Node has not been initialized by a cloud provider",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 4947)],
        impact: "The taint node.cloudprovider.kubernetes.io/uninitialized prevents pods from being scheduled, helm-install jobs of RKE2 wait, and providerID, topology and addresses are missing.",
        fix: [
            "Check that the cloud provider is running, and what it logs about this Node. In a cluster of Cluster API, the Harvester infrastructure provider (CAPHV 0.4 and later) sets providerID and removes the taint itself: check its controller in the management cluster.",
            "Do not remove the taint manually: providerID and addresses would remain missing.",
        ],
        run: [Guest "kubectl -n kube-system get pods -o wide | grep cloud-provider", Guest CLOUD_PROVIDER_LOG, Harvester "kubectl get vm -A --field-selector metadata.name=<VM>"],
        suppresses: [InternalIpMissing];
    CapacityStale, "capacity-stale", Node, Warning, "kubelet does not count all CPUs or memory of this VM",
        see: [CPU_MANAGER],
        impact: "The scheduler does not use what was added while the VM runs: the kubelet reads CPUs and memory only when it starts.",
        fix: [
            "If CPUs are offline, `echo 1 >` each file that the first command prints.",
            "If a state file names the policy `static` or `Static`, the kubelet does not start after such a change: drain the Node, stop the service, delete both state files, and start it again. If a file is missing, look for `root-dir` in the configuration of the kubelet first.",
            "If both files name another policy, restart rke2-server, rke2-agent, k3s or the kubelet, one server at a time. Running pods continue.",
        ],
        run: [Vm "grep -lx 0 /sys/devices/system/cpu/cpu*/online", Vm "grep -io 'policyName[^,]*' /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state"];
    PodsInOtherZone, "pods-in-other-zone", Node, Notice, "pods keep the labels of another zone",
        impact: "On Kubernetes 1.35 and later a pod takes region and zone of its Node as labels when it is bound to the Node, and keeps them. Applications that read them use the wrong zone.",
        fix: [
            "Recreate these pods, if they use the labels. Check first that no volume or node selector ties them to the previous zone: a new pod would stay pending.",
            "To label a new Node before its first pod, enable harvester-node-agent-gate.service and set `[registration] node_labels = true`.",
        ],
        run: [Guest "kubectl get pods -A -L topology.kubernetes.io/region,topology.kubernetes.io/zone --field-selector spec.nodeName=<NODE>"];
    StopGraceTooShort, "stop-grace-too-short", Node, Warning, "VM is powered off before its shutdown can finish",
        see: [NODE_SHUTDOWN],
        impact: "At a stop of the VM, pods are killed without their own grace period, and file systems are not unmounted.",
        fix: [
            "If qemu-guest-agent is not connected, fix that first.",
            "Set spec.template.spec.terminationGracePeriodSeconds of the VM to more than the delay of systemd-logind. Harvester's default is 120. The next stop still has the old value: drain the Node before you restart the VM.",
            "Or reduce shutdownGracePeriod of the kubelet, delete /etc/systemd/logind.conf.d/99-kubelet.conf, in which the kubelet raises the delay, signal systemd-logind (`systemctl kill -s HUP systemd-logind`) and restart the kubelet.",
        ],
        run: [Vm "loginctl show-session --property InhibitDelayMaxUSec", Harvester "kubectl -n <NAMESPACE> get vm <VM> -o 'jsonpath={.spec.template.spec.terminationGracePeriodSeconds}'"];
    MacvlanMissing, "macvlan-missing", Node, Notice, "kernel has no module macvlan",
        impact: "Load balancers of the Harvester cloud provider get no address by DHCP on this node. Those with an address pool work.",
        fix: ["No action is needed without such load balancers. Otherwise install the kernel package with all modules (kernel-default, linux-modules-extra, linux-image-amd64, linux-image-arm64 or kernel-modules-extra) on this node and in the image. If that is another kernel, drain the Node and reboot."],
        run: [Vm "modprobe -n -v macvlan"];
    OverlayMtuTooLarge, "overlay-mtu-too-large", Node, Warning, "MTU of the pod network does not fit the NIC",
        impact: "Large packets between pods of different nodes are fragmented or lost: connections open, and large transfers stall.",
        fix: [
            "If the MTU of the NIC is wrong, correct it in the network configuration of this VM. It must not exceed that of the cluster network in Harvester.",
            "Otherwise reduce the MTU of the interface. At the next start of the VM, the CNI plugin creates it with an MTU that fits, unless its configuration sets one.",
            "Pods keep the MTU that they started with: restart the CNI pod of this node, or k3s, one server at a time. Then drain the Node and uncordon it, so that its other pods are created again.",
        ],
        run: [Vm "ip -details link show type vxlan"];
    ProviderIdNotHarvester, "provider-id-not-harvester", Node, Warning, "providerID of the Node was set by another cloud provider",
        impact: "A providerID never changes: the Harvester cloud provider cannot set its own, and load balancers and Rancher do not find the VM.",
        fix: [
            "Check the configured cloud provider: `rke2://` and `k3s://` come from a start without `cloud-provider-name: harvester` in /etc/rancher/*/config.yaml.",
            "Only a new Node gets another providerID.",
            DOCTOR_REPLACES,
        ],
        run: [Vm "grep -rn cloud-provider /etc/rancher"];
    KubevirtCloudProvider, "kubevirt-cloud-provider", Node, Warning, "KubeVirt cloud provider manages this Node",
        see: [NODE_LABELS, issue!("kubevirt/cloud-provider-kubevirt", 225)],
        impact: "It sets region and zone only when the Node is created, not after a migration, and conflicts with the Harvester cloud provider.",
        fix: [
            "Disable its zones (instancesV2.zoneAndRegionEnabled: false); this agent keeps region and zone in sync.",
            "Remove cloud-provider-kubevirt only if the Harvester cloud provider runs and no Service of type LoadBalancer depends on it (`kubectl get services -A`). Nodes keep their `kubevirt://` providerID until they are replaced.",
        ],
        run: [Guest "kubectl get pods -A -o wide | grep kubevirt-cloud-controller-manager"],
        suppresses: [ProviderIdNotHarvester];
    AddressDiffers, "address-differs", Node, Warning, "addresses of the Node, the VMI and this VM differ",
        see: [NODE_LABELS, issue!("harvester/harvester", 10381)],
        impact: "The API server (logs, exec) and load balancers use an address that this VM does not have. The Harvester cloud provider copies the address from the VMI.",
        fix: [
            "Find out which of the three is wrong.",
            "On a worker, after a new DHCP lease or from a restored disk: restart qemu-guest-agent, then rke2-agent, k3s-agent or kubelet.",
            "On a server with etcd, do not restart the service: its etcd member has the old address, and it would not start. Give the VM its old address again, or replace the server.",
            "A `node-ip` in /etc/rancher/*/config.yaml must be an address of this VM.",
        ],
        run: [Vm "ip -brief address", Guest "kubectl get node <NODE> -o wide", Harvester "kubectl -n <NAMESPACE> get vmi <VM> -o wide", Vm "grep -rn node-ip /etc/rancher", Vm "systemctl restart qemu-guest-agent"];
    InternalIpMissing, "internal-ip-missing", Node, Warning, "Node has no InternalIP",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 10079)],
        impact: "The API server cannot reach the kubelet (kubectl logs, exec, metrics). The Harvester cloud provider sets only the hostname while the VMI has no address.",
        fix: [
            "Check qemu-guest-agent: it reports the addresses to Harvester.",
            "With several networks, set --management-network (Harvester cloud provider 0.2.6 or later) or `node-ip`.",
        ],
        run: [Guest "kubectl get node <NODE> -o wide", Vm "systemctl --no-pager status qemu-guest-agent", Guest CLOUD_PROVIDER_LOG];

    HarvesterCredentialMissing, "harvester-credential-missing", HarvesterCredential, Error [MayPass, LabelsUnknown], "no Harvester kubeconfig found",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 9503)],
        impact: "The VM and its host cannot be read. Where the CSI driver and the cloud provider mount the same path, their new pods do not start, and no volume is attached. On a new node this is expected until Rancher has written the file.",
        fix: [
            "If Rancher provisioned the cluster, select its cloud credential again: Rancher writes the file. Otherwise use the next steps.",
            USE_SERVICE_ACCOUNT,
            "If there is one at another path, set `[harvester] kubeconfig` in /etc/harvester-node-agent/config.toml. If a path is a link to a missing file, mount its file system or restore the file first.",
        ],
        run: [Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester KUBECONFIG],
        suppresses: [NoTopologySource, VmNotFound];
    HarvesterCredentialInvalid, "harvester-credential-invalid", HarvesterCredential, Error [LabelsUnknown], "Harvester kubeconfig is invalid",
        impact: "The VM and its host cannot be read.",
        fix: [
            "Correct the key, the file or the link that the error names: the agent reloads it automatically.",
            NOT_PERMITTED,
            "If it cannot be corrected, create another kubeconfig with the next steps. If the CSI driver and the cloud provider work with the present file, leave it: use another path, and set it in `[harvester] kubeconfig`.",
            RANCHER_FIRST,
            USE_SERVICE_ACCOUNT,
            OTHER_NODES,
            "If the file is no kubeconfig at all: move it away before you write the new one; --replace refuses it.",
        ],
        run: [Vm BACKUP, Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester REPLACE, Guest ADDONS],
        suppresses: [NoTopologySource, VmNotFound];
    HarvesterIsOwnApi, "harvester-is-own-api", HarvesterCredential, Error [LabelsUnknown], "Harvester kubeconfig points to the API of this guest cluster",
        impact: "The guest cluster has neither the VM nor its host, so nothing can be found there.",
        fix: [
            "If only the address is wrong, set `server:` in the reported file to the Harvester API, https://VIP:6443.",
            "If the file is a copy of a kubeconfig of the guest cluster, such as rke2.yaml, replace it: its CA certificate and credential are those of the guest cluster. `harvester-node-agent explain harvester-credential-missing` shows how to create one.",
        ],
        run: [Vm "grep -sn server: /var/lib/rancher/*/etc/config-files/cloud-provider-config /etc/kubernetes/cloud-config", Harvester VIP],
        suppresses: [NoTopologySource, VmNotFound, HarvesterOnLoopback];
    HarvesterOnLoopback, "harvester-on-loopback", HarvesterCredential, Warning, "Harvester kubeconfig points to a loopback address",
        impact: "On a Kubernetes node that is usually the API of the node itself, not the Harvester API.",
        fix: ["Set `server:` in the reported file to the Harvester API, https://VIP:6443."],
        run: [Vm "grep -n server: <KUBECONFIG>", Harvester VIP];
    KubeletCredentialMissing, "kubelet-credential-missing", KubeletCredential, Error [MayPass, LabelsUnknown], "no kubelet kubeconfig found",
        impact: "The Node can be neither read nor labeled. This is expected until the kubelet has started for the first time.",
        fix: [
            "Wait for the node to join, or set `[guest_cluster] kubeconfig` in /etc/harvester-node-agent/config.toml.",
            "If the journal says `Node password rejected`, another node has or had this name. Check first that no other VM uses it. Only then delete the Secret of the earlier node, <NODE>.node-password.rke2 or .k3s in kube-system.",
        ],
        run: [Vm SERVICES, Vm JOURNAL, Guest "kubectl get node <NODE> -o wide", Guest "kubectl -n kube-system get secrets | grep node-password"],
        suppresses: [NodeMissing, NodeWriteFailed];
    KubeletCredentialInvalid, "kubelet-credential-invalid", KubeletCredential, Error [LabelsUnknown], "kubelet kubeconfig is invalid",
        impact: "The Node can be neither read nor labeled.",
        fix: [
            "See in the journal whether the kubelet works: if only the agent cannot read or use the file, correct its permissions, the key that the error names, or the path in `[guest_cluster] kubeconfig`.",
            NOT_PERMITTED,
            "If the kubelet fails as well: on RKE2 and K3s, restart the service, one server at a time: it writes the kubeconfig and the certificate again. For kubeadm, `harvester-node-agent explain kubelet-credential-expired` shows the steps.",
        ],
        run: [Vm JOURNAL, Vm KUBELET_ISSUER],
        suppresses: [NodeMissing, NodeWriteFailed];
    CredentialReloadFailed, "credential-reload-failed", HarvesterCredential, Warning [NeedsMemory], "changed kubeconfig is invalid; the previous one stays in use",
        impact: "The credential in use may expire.",
        fix: ["Correct the reported file. The agent reloads it automatically."],
        run: [Vm "harvester-node-agent whoami"];
    CredentialExposed, "credential-exposed", HarvesterCredential, Warning, "credential file is readable by all users",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 1440)],
        impact: "Anyone who can log in here can act as the agent, the CSI driver or the kubelet. A Harvester token usually does not expire.",
        fix: ["Set mode 0600 on the reported file. If others may have read it, replace its token or key."],
        run: [Vm "chmod 0600 <KUBECONFIG>"];
    RancherTokenInUse, "rancher-token-in-use", HarvesterCredential, Warning, "Harvester kubeconfig contains a Rancher token",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 5868)],
        impact: "Rancher expires such a token after 30 or 90 days (kubeconfig-default-token-ttl-minutes, auth-token-max-ttl-minutes), or when its user is deleted. If the CSI driver and the cloud provider use the same file, volumes are then not attached and the VM is not found.",
        fix: [RANCHER_FIRST, USE_SERVICE_ACCOUNT, OTHER_NODES],
        run: [Vm BACKUP, Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester REPLACE, Guest ADDONS];
    RancherTokenRejected, "rancher-token-rejected", HarvesterCredential, Error, "Rancher token in the Harvester kubeconfig is rejected",
        see: [CLOUD_PROVIDER, issue!("rancher/rancher", 44912)],
        impact: "The token has expired, its user was deleted, or the server is not the Rancher that issued it. If the CSI driver and the cloud provider use the same file, they fail as well.",
        fix: [RANCHER_FIRST, USE_SERVICE_ACCOUNT, OTHER_NODES],
        run: [Vm BACKUP, Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester REPLACE, Guest ADDONS],
        suppresses: [HarvesterUnauthorized, RancherTokenInUse];
    ServerIsHarvesterUi, "server-is-harvester-ui", HarvesterCredential, Error, "Harvester kubeconfig points to the UI (port 443) instead of the API server (port 6443)",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 4446)],
        impact: "The UI has a certificate from another CA than the one in the kubeconfig: the agent, the CSI driver and the cloud provider cannot verify it.",
        fix: ["Set `server:` in the reported file to https://VIP:6443. generate_addon.sh copies the address from the administrator's kubeconfig, which is the UI."],
        run: [Vm "grep -n server: <KUBECONFIG>", Harvester VIP],
        suppresses: [HarvesterTlsError, HarvesterBadResponse, ServerNotInCertificate];
    ServerIsRancher, "server-is-rancher", HarvesterCredential, Error, "service account token is sent to Rancher instead of the Harvester API",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 4446)],
        impact: "Rancher accepts only tokens that it issued, and returns 401 to the agent, the CSI driver and the cloud provider.",
        fix: [
            "Set `server:` in the reported file to the Harvester API, https://VIP:6443.",
            "Set `certificate-authority-data` to the CA certificate of Harvester.",
        ],
        run: [Vm "grep -n server: <KUBECONFIG>", Harvester VIP, Harvester "kubectl -n <NAMESPACE> get configmap kube-root-ca.crt -o 'jsonpath={.data.ca\\.crt}' | base64 -w0"],
        suppresses: [HarvesterUnauthorized];
    CredentialNamespaceDiffers, "credential-namespace-differs", HarvesterCredential, Error, "Harvester credential belongs to a different namespace than the VM",
        impact: "The agent and the cloud provider look for the VM in the namespace of the kubeconfig, where the token has no permissions or the VM does not exist.",
        fix: [
            "Set `namespace:` of the context in the reported file to the namespace of the VM.",
            "If the token has no permissions there, create a service account in that namespace: `harvester-node-agent explain harvester-credential-missing` shows how.",
        ],
        run: [Vm "harvester-node-agent whoami", Harvester "kubectl get vmi -A"],
        suppresses: [VmNotFound, HarvesterForbidden];
    CredentialIsDirectory, "credential-is-directory", HarvesterCredential, Error [LabelsUnknown], "path of the Harvester kubeconfig is a directory",
        see: [CLOUD_PROVIDER, issue!("rancher/rancher", 34969)],
        impact: "A container that mounts a missing file creates a directory in its place (hostPath without `type: File`, as in old CSI driver and cloud provider charts). The file can then not be written, and both charts find no credential.",
        fix: [
            "If a setting names the wrong path, correct it. Otherwise look at the directory, remove it if it is empty, and put the kubeconfig in its place, or create a new one.",
            "Restart the pods of the CSI driver and the cloud provider.",
        ],
        run: [Vm "ls -la <KUBECONFIG>", Vm "rmdir <KUBECONFIG>", Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester KUBECONFIG],
        suppresses: [NoTopologySource, VmNotFound];
    CredentialIsEmpty, "credential-is-empty", HarvesterCredential, Error [LabelsUnknown], "Harvester kubeconfig is an empty file",
        see: [CLOUD_PROVIDER, issue!("rancher/rancher", 34969)],
        impact: "The VM and its host cannot be read. Rancher writes an empty file if the secret of the cluster's cloud-provider-config is empty or was deleted.",
        fix: [
            "In Rancher, select the cloud credential of the cluster again, which rewrites the file.",
            "Or create a service account, whose token does not expire, and write its kubeconfig to this node.",
            OTHER_NODES,
        ],
        run: [Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester KUBECONFIG, Guest ADDONS],
        suppresses: [NoTopologySource, VmNotFound];
    CredentialNotAtNamedPath, "credential-not-at-named-path", HarvesterCredential, Warning, "cloud-provider-config in the RKE2/K3s configuration points to a missing file",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 3162)],
        impact: "The agent uses another kubeconfig, but the pods of the CSI driver and the cloud provider mount the missing path and wait with `hostPath type check failed`.",
        fix: [
            "Put the kubeconfig at the missing path. If that is a symbolic link, put it at the target of the link, as the command does: it keeps the link.",
            "Or correct `cloud-provider-config` in the reported file, and restart rke2-server, rke2-agent, k3s or k3s-agent.",
        ],
        run: [Vm "grep -rn cloud-provider-config /etc/rancher"];
    CredentialWritableByOthers, "credential-writable-by-others", HarvesterCredential, Warning, "credential file is writable by users other than root",
        impact: "Anyone who can write this file can redirect the agent, kubelet or CSI driver, and their credentials, to another server.",
        fix: [
            "Another user may have written it: compare the server and the paths in it with the same file on another node. If that is not certain, write it anew.",
            "For Harvester, `harvester-node-agent explain harvester-credential-missing` shows how; copy the file first (`install -m 0600`), and add --replace to the last command. For the kubelet, restart rke2-server, rke2-agent, k3s or k3s-agent, which writes it.",
            "Only then set the owner of the reported file to root, and remove write permission for others. If a directory is reported, find out what it is for: move the file to a directory of root, rather than change the owner.",
        ],
        run: [Vm NAMED_FILES, Vm BACKUP, Vm "chown -h root:root <KUBECONFIG>", Vm "chmod go-w <KUBECONFIG>"];
    CredentialExpires, "credential-expires", HarvesterCredential, Warning, "certificate or token expires within 30 days",
        see: [CLOUD_PROVIDER, issue!("rancher/rancher", 44912)],
        impact: "After expiry, authentication or TLS verification fails.",
        fix: [
            "Kubelet certificate: restart rke2-server, rke2-agent, k3s or k3s-agent, one server at a time. With kubeadm, the kubelet renews it.",
            NEW_HARVESTER_KUBECONFIG,
            RESTART_HARVESTER,
            ROTATE_CA,
            RESTART_SERVERS,
        ],
        run: [Vm SERVICES];
    HarvesterCredentialExpired, "harvester-credential-expired", HarvesterCredential, Error, "Harvester token has expired",
        see: [CLOUD_PROVIDER, issue!("rancher/rancher", 44912)],
        impact: "Migrations are not detected; labels are unchanged. If the CSI driver and the cloud provider use the same file, volumes are not attached and the VM is not found.",
        fix: [
            "Check the clock of this node first.",
            RANCHER_FIRST,
            USE_SERVICE_ACCOUNT,
            OTHER_NODES,
        ],
        run: [Vm "timedatectl", Vm BACKUP, Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester REPLACE, Guest ADDONS],
        suppresses: [HarvesterUnauthorized, NoTopologySource, VmNotFound];
    KubeletCredentialExpired, "kubelet-credential-expired", KubeletCredential, Error, "kubelet client certificate has expired",
        see: [NODE_AUTHORIZATION, KUBELET_CERTIFICATES],
        impact: "The API server rejects the kubelet: the Node can be neither read nor labeled, and becomes NotReady.",
        fix: [
            "Check the clock of this node first.",
            "Restart rke2-server, rke2-agent, k3s or k3s-agent, one server at a time: that renews the certificate.",
            "With kubeadm: move kubelet.conf and /var/lib/kubelet/pki/kubelet-client* away, write /etc/kubernetes/kubelet.conf anew from a control plane node (`kubeadm kubeconfig user --org system:nodes --client-name system:node:<NODE> > kubelet.conf`), and restart the kubelet.",
        ],
        run: [Vm "timedatectl", Vm JOURNAL],
        suppresses: [GuestApiUnauthorized, NodeMissing, NodeWriteFailed];

    HarvesterUnreachable, "harvester-unreachable", HarvesterApi, Warning [ErrorText, MayPass, LabelsUnknown], "Harvester API is unreachable or returns server errors",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 11440)],
        impact: "Unless another source has the host, migrations are not detected until it is reachable; labels are unchanged.",
        fix: [
            "If the connection is refused, the route works, but nothing listens on the port, or a firewall rejects it: check the port in `server:`, and rke2-server on the management nodes.",
            "Otherwise test the API. 000: no response, check the route to the Harvester VIP. 401 or 403: it responds. 500 or higher: check rke2-server and etcd on the management nodes of Harvester.",
            NAME_RESOLUTION,
            "During an upgrade of Harvester this is expected.",
        ],
        run: [Vm RESPONSE, Vm "ip route", Vm "cat /etc/resolv.conf"],
        suppresses: [NoTopologySource, VmNotFound];
    HarvesterUnauthorized, "harvester-unauthorized", HarvesterApi, Error [ErrorText, LabelsUnknown], "Harvester API rejects the credential",
        see: [CLOUD_PROVIDER, issue!("rancher/rancher", 44912)],
        impact: "The VM and its host cannot be read; labels are unchanged. If the CSI driver and the cloud provider use the same file, volumes are not attached.",
        fix: [
            "Find the cause: the service account or its token was deleted, Harvester was reinstalled, or a Rancher token has expired.",
            "After one year without use, Kubernetes 1.29 and later invalidate a token without expiry; the first command lists such Secrets. On Harvester, `kubectl -n <NAMESPACE> label secret <SECRET> kubernetes.io/legacy-token-invalid-since-` makes it valid again.",
            RANCHER_FIRST,
            "Otherwise create a service account on Harvester, whose token does not expire, and its kubeconfig. Read rbac.yaml before you apply it.",
            OTHER_NODES,
        ],
        run: [Harvester "kubectl get secrets -A -l kubernetes.io/legacy-token-invalid-since", Vm BACKUP, Vm RBAC, Harvester REVIEW, Harvester APPLY, Harvester REPLACE, Guest ADDONS],
        suppresses: [NoTopologySource, VmNotFound];
    HarvesterForbidden, "harvester-forbidden", HarvesterApi, Error [LabelsUnknown], "Harvester credential is not allowed to read the VM (403)",
        impact: "The VM and its host are unknown; labels are unchanged.",
        fix: ["Apply the output of `harvester-node-agent rbac` on Harvester, as an administrator."],
        run: [Vm ROLES, Harvester REVIEW, Harvester APPLY],
        suppresses: [NoTopologySource, VmNotFound];
    HarvesterTlsError, "harvester-tls-error", HarvesterApi, Error [ErrorText, LabelsUnknown], "certificate of the Harvester API cannot be verified",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 11338)],
        impact: "No request is sent to a server that cannot be verified; labels are unchanged.",
        fix: [
            "If the certificate is expired or not yet valid, check the clock first. If it is right: `harvester-node-agent explain credential-expires`.",
            "If the CA in the kubeconfig has another name or key, ask the administrator of Harvester whether it was reinstalled or its CA was rotated. If so, create a new kubeconfig: `harvester-node-agent explain harvester-credential-missing` shows how.",
            "Otherwise find out whether another server responds at this address.",
        ],
        run: [Vm "timedatectl", Vm "curl -vk --max-time 5 <SERVER>/livez"],
        suppresses: [NoTopologySource, VmNotFound];
    ServerNotInCertificate, "server-not-in-certificate", HarvesterApi, Error, "server certificate is not valid for the address in the kubeconfig",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 4700)],
        impact: "TLS verification fails for everything that uses this kubeconfig: `x509: certificate is valid for ..., not ...` in the logs of the CSI driver and the cloud provider.",
        fix: [
            "Set `server:` in the kubeconfig to https://VIP:6443 if VIP is among the reported names. Others may belong to another machine of the cluster.",
            "Or add the name to the certificate: `tls-san:` in /etc/rancher/rke2/config.yaml.d on the servers.",
        ],
        run: [Vm "curl -vk --max-time 5 <SERVER>/version"],
        suppresses: [HarvesterTlsError, GuestApiTlsError];
    WatchInterrupted, "watch-interrupted", HarvesterApi, Warning [NeedsMemory], "watch connections are repeatedly closed, probably by a proxy or load balancer",
        see: [CLOUD_PROVIDER, issue!("rancher-sandbox/cluster-api-provider-harvester", 40)],
        impact: "Changes are detected late. Other clients of that API lose their watches in the same way.",
        fix: [
            "Find the proxy or load balancer that closes streams (HAProxy: timeout server, timeout tunnel; nginx: proxy_read_timeout; the ingress of Rancher), and raise its timeout to at least 10 minutes.",
            "Or set `server:` in the kubeconfig to the API server itself; for Harvester https://VIP:6443.",
        ],
        run: [Vm "harvester-node-agent status -v"],
        suppresses: [WatchUnavailable];
    HarvesterBadResponse, "harvester-bad-response", HarvesterApi, Error [ErrorText, LabelsUnknown], "unexpected response from the Harvester API",
        impact: "The response is ignored; labels are unchanged.",
        fix: ["Check what responds at the reported address: a proxy, a login page, or a service without TLS instead of the API?"],
        run: [Vm "curl -vk --max-time 5 <SERVER>/version"],
        suppresses: [NoTopologySource, VmNotFound];
    GuestApiUnreachable, "guest-api-unreachable", Node, Warning [ErrorText, MayPass, LabelsUnknown], "guest cluster API is unreachable or returns server errors",
        impact: "The Node can be neither read nor labeled until it is reachable. This is expected while the cluster starts.",
        fix: [
            "If no service of RKE2, K3s or kubeadm runs, find out in its journal why it stopped. Do not start it if it was stopped on purpose, or if this VM may be a copy of another one. Otherwise start it.",
            "If it runs, test the API: 000 is no response (refused: nothing listens on the port); 401 or 403 is one; 500 or higher is an error of the server. On an agent node of RKE2 or K3s, 127.0.0.1 forwards to the servers: check rke2-server or k3s, etcd and the disks there.",
            NAME_RESOLUTION,
        ],
        run: [Vm SERVICES, Vm JOURNAL, Vm RESPONSE, Vm "cat /etc/resolv.conf"],
        suppresses: [NodeMissing, NodeWriteFailed];
    GuestApiUnauthorized, "guest-api-unauthorized", Node, Error [ErrorText, LabelsUnknown], "guest cluster API rejects the kubelet credential",
        impact: "The Node can be neither read nor labeled. The kubelet uses the same certificate: if it is rejected as well, the Node becomes NotReady.",
        fix: [
            "See in the log of the kubelet whether it is rejected as well, and check the clock. RKE2 has this log in a file, K3s and kubeadm have it in the journal.",
            "Compare the issuer that the last command prints with the client CA on a server, not with its server CA: `openssl x509 -noout -subject -in /var/lib/rancher/*/server/tls/client-ca.crt`. If they differ, the certificate is from another cluster or from the image.",
            "Only if the kubelet is rejected and this node belongs to this cluster: restart rke2-server, rke2-agent, k3s, k3s-agent or kubelet, one server at a time.",
        ],
        run: [Vm JOURNAL, Vm KUBELET_LOG, Vm "timedatectl", Vm KUBELET_ISSUER],
        suppresses: [NodeMissing, NodeWriteFailed];
    GuestApiForbidden, "guest-api-forbidden", Node, Error [LabelsUnknown], "kubelet credential lacks required permissions in the guest cluster",
        impact: "The Node can be neither read nor labeled.",
        fix: ["The certificate must be for system:node:<NODE> in group system:nodes; the first command prints its subject (CN: user, O: group)."],
        run: [Vm KUBELET_ISSUER, Guest "kubectl auth can-i patch nodes/<NODE> --as=system:node:<NODE> --as-group=system:nodes"],
        suppresses: [NodeMissing, NodeWriteFailed];
    GuestApiTlsError, "guest-api-tls-error", Node, Error [ErrorText, LabelsUnknown], "certificate of the guest cluster API cannot be verified",
        impact: "The Node can be neither read nor labeled.",
        fix: [
            "Check the clock.",
            "If the clock is right, compare the issuer in the output of curl with the CA of the kubelet kubeconfig. If they differ, another server responds, or the CA was rotated: in the latter case restart rke2-server, rke2-agent, k3s or k3s-agent, one server at a time.",
        ],
        run: [Vm "timedatectl", Vm "curl -vk --max-time 5 <SERVER>/livez"],
        suppresses: [NodeMissing, NodeWriteFailed];
    GuestApiBadResponse, "guest-api-bad-response", Node, Error [ErrorText, LabelsUnknown], "unexpected response from the guest cluster API",
        impact: "The response is ignored; the Node can be neither read nor labeled.",
        fix: ["Check what responds at the reported address: a proxy, a load balancer, or a service without TLS instead of the API?"],
        run: [Vm "curl -vk --max-time 5 <SERVER>/version"],
        suppresses: [NodeMissing, NodeWriteFailed];
    NodeMissing, "node-missing", Node, Warning [MayPass, LabelsUnknown], "Node does not exist in the guest cluster",
        impact: "There is nothing to label. This is expected until the kubelet has registered.",
        fix: [
            "Check under which name the kubelet has registered.",
            NODE_DELETED,
            ETCD_NODE_DELETED,
            "If the credential is for another Node, set `[guest_cluster] node_name` to its name.",
            "If it has not registered, see the log of the kubelet.",
        ],
        run: [Guest "kubectl get nodes", Vm JOURNAL, Vm KUBELET_LOG],
        suppresses: [NodeWriteFailed];
    NodeWriteFailed, "node-write-failed", Node, Error [NeedsMemory, ErrorText, MayPass, LabelsStay], "update of the Node failed",
        impact: "Labels or conditions of the Node may be outdated.",
        fix: ["Read the reported error: a label key that NodeRestriction forbids, an admission webhook, or a Node of another name. Without a response, the update may have taken effect; it is sent again."],
        run: [Vm "journalctl --no-pager -b -n 50 -u harvester-node-agent"];

    GuestAgentNotInstalled, "guest-agent-not-installed", GuestAgent, Warning, "qemu-guest-agent is not installed",
        see: [GUEST_AGENT, issue!("harvester/harvester", 1235)],
        impact: "Harvester shows no IP addresses, takes backups without freezing file systems, and its cloud provider falls back to the VM name (guestosinfo). KubeVirt 1.5 and later waits 60 s for it at each stop: with a grace period of 60 s or less, the VM is powered off.",
        fix: ["Install the package on this VM, and in the image for new VMs. User data (`packages: [qemu-guest-agent]`) has an effect only at the first boot of a VM, and needs a package repository."],
        run: [Vm "apt-get update && apt-get install qemu-guest-agent || zypper install qemu-guest-agent || dnf install qemu-guest-agent"],
        suppresses: [GuestAgentNotConnected];
    GuestAgentNotRunning, "guest-agent-not-running", GuestAgent, Warning, "qemu-guest-agent is not running",
        see: [GUEST_AGENT, issue!("harvester/harvester", 1235)],
        impact: "Harvester shows no IP addresses, takes backups without freezing file systems, and its cloud provider falls back to the VM name (guestosinfo). KubeVirt 1.5 and later waits 60 s for it at each stop: with a grace period of 60 s or less, the VM is powered off.",
        fix: ["Check why it stopped, and start it: `systemctl start qemu-guest-agent`."],
        run: [Vm "systemctl --no-pager status qemu-guest-agent", Vm "journalctl --no-pager -b -n 50 -u qemu-guest-agent"],
        suppresses: [GuestAgentNotEnabled, GuestAgentNotConnected];
    GuestAgentNotEnabled, "guest-agent-not-enabled", GuestAgent, Warning, "qemu-guest-agent is running, but does not start at boot",
        impact: "After a reboot, Harvester shows no IP addresses, and its cloud provider gets no hostname.",
        fix: ["Enable its unit."],
        run: [Vm "systemctl enable qemu-guest-agent"];
    GuestAgentRestarting, "guest-agent-restarting", GuestAgent, Warning [NeedsMemory], "qemu-guest-agent keeps restarting",
        impact: "Requests from Harvester are lost: a backup may leave file systems frozen until it responds, and IP addresses appear and disappear.",
        fix: ["Check its journal for the reason."],
        run: [Vm "journalctl --no-pager -b -n 50 -u qemu-guest-agent"],
        suppresses: [GuestAgentNotConnected];
    GuestAgentNotSupported, "guest-agent-not-supported", GuestAgent, Warning [NeedsMemory], "qemu-guest-agent is not supported (VMI condition AgentVersionNotSupported)",
        impact: "It lacks or blocks RPCs that KubeVirt requires: Harvester may get no hostname and no IP addresses, and probes, SSH keys or passwords that are set through it fail.",
        fix: [
            "KubeVirt requires guest-ping, guest-info, guest-shutdown, guest-get-time, guest-get-timezone, guest-get-osinfo, guest-get-host-name, guest-get-users, guest-get-fsinfo and guest-network-get-interfaces, and for probes guest-exec and guest-exec-status.",
            "Remove these from the lists of blocked RPCs, or add them to the list of allowed ones, in the files that the first command searches; then restart qemu-guest-agent.",
            "If they are not blocked, update the package qemu-guest-agent.",
        ],
        run: [Vm "grep -rnsiE 'block|black|allow' /etc/qemu /etc/sysconfig/qemu-ga /usr/etc/sysconfig/qemu-ga /etc/default/qemu-guest-agent", Vm "systemctl restart qemu-guest-agent"];
    GuestAgentChannelMissing, "guest-agent-channel-missing", GuestAgent, Warning, "VM has no channel for qemu-guest-agent",
        impact: "qemu-guest-agent cannot run. Harvester shows neither hostname nor IP addresses.",
        fix: [
            "Load the kernel module virtio_console, if the kernel has it as a module.",
            "Otherwise the domain of the VM lacks the virtio-serial channel org.qemu.guest_agent.0, which KubeVirt adds to every VM: at the next maintenance, drain the Node, then stop and start the VM in Harvester.",
        ],
        run: [Vm "modprobe virtio_console"],
        suppresses: [GuestAgentNotInstalled, GuestAgentNotRunning, GuestAgentNotConnected];

    GuestAgentNotConnected, "guest-agent-not-connected", GuestAgent, Warning, "qemu-guest-agent is not connected (VMI condition AgentConnected is not True)",
        see: [GUEST_AGENT, issue!("harvester/harvester", 7018)],
        impact: "Harvester has no address and no hostname of the VM: load balancers find no backend, and backups are taken without freezing file systems.",
        fix: [
            "Restart qemu-guest-agent.",
            "If that does not help: the channel is created when the VM starts. At the next maintenance, drain the Node, then restart the VM in Harvester, not only its OS.",
        ],
        run: [Vm "systemctl restart qemu-guest-agent", Harvester "kubectl -n <NAMESPACE> get vmi <VM> -o 'jsonpath={.status.conditions[?(@.type==\"AgentConnected\")]}'"];

    HarvesterTooOld, "harvester-too-old", Versions, Warning, "Harvester release is too old for this cluster",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 4947)],
        impact: "The reported function of Harvester or of its cloud provider does not work, regardless of the configuration of the guest.",
        fix: ["Upgrade Harvester to the reported release or later: https://docs.harvesterhci.io/latest/upgrade/index."],
        run: [Harvester "kubectl get settings.harvesterhci.io server-version"];
    CloudProviderTooOld, "cloud-provider-too-old", Versions, Warning, "Harvester cloud provider is too old",
        see: [CLOUD_PROVIDER, issue!("harvester/harvester", 3142)],
        impact: "The reported function does not work. This agent keeps region and zone in sync without it.",
        fix: ["Upgrade RKE2, which bundles a newer one, or the app harvester-cloud-provider in Rancher (Apps, Installed Apps, namespace kube-system)."],
        run: [Guest "kubectl -n kube-system get pods -o yaml | grep image: | sort -u | grep harvester-cloud-provider", Guest "kubectl get nodes -o wide"];
    KubeletTooOld, "kubelet-too-old", Versions, Warning, "RKE2 release is too old for Harvester topology",
        see: [NODE_DRIVER],
        impact: "The bundled cloud provider sets no region and zone on a Node (InstanceMetadata); this agent does.",
        fix: ["Upgrade RKE2 to 1.22.12, 1.23.9, 1.24.3 or later."],
        run: [Guest "kubectl get nodes -o wide"];

    ConfigInvalid, "config-invalid", Machine, Error, "agent configuration is invalid",
        see: [TOML],
        impact: "A service that starts with it stays idle until it is fixed. `doctor` uses the defaults meanwhile.",
        fix: ["Correct the lines. A service that is idle loads the corrected files automatically; any other one when it is reloaded or started."],
        run: [Vm "harvester-node-agent config check", Vm "systemctl reload harvester-node-agent"],
        suppresses: [ConfigReloadFailed, HarvesterCredentialMissing, KubeletCredentialMissing, VmNotFound,
            IdentityAmbiguous, NoTopologySource];
    ConfigWarning, "config-warning", Machine, Notice, "agent configuration is valid, but has a probable mistake",
        see: [TOML],
        impact: "A file or a value has no effect, or another one than expected.",
        fix: ["Correct the reported lines, and reload the service if it is running. If they are intended, nothing is necessary."],
        run: [Vm "harvester-node-agent config check", Vm "systemctl reload harvester-node-agent"];
    ConfigReloadFailed, "config-reload-failed", Machine, Warning [NeedsMemory], "new configuration is invalid; the previous one stays in effect",
        see: [TOML],
        impact: "The change has no effect yet.",
        fix: ["Correct the configuration, then reload the service."],
        run: [Vm "harvester-node-agent config check", Vm "systemctl reload harvester-node-agent"];
    DistributionFileBroken, "distribution-file-broken", Machine, Warning, "configuration file of RKE2, K3s or the kubelet cannot be parsed",
        see: [RKE2_CONFIGURATION],
        impact: "The agent does not use the paths and names that it sets.",
        fix: ["Correct the reported file. RKE2, K3s and the kubelet log the error as well."],
        run: [Vm JOURNAL];
    AgentNotRunning, "agent-not-running", Machine, Warning, "harvester-node-agent is not running as a service",
        see: [SYSTEMCTL],
        impact: "Topology labels are not updated; after a live migration they still show the previous host.",
        fix: ["Start the service, and check in its journal why it stopped."],
        run: [Vm "systemctl enable --now harvester-node-agent", Vm "journalctl --no-pager -b -n 50 -u harvester-node-agent"];
    ClockSkew, "clock-skew", Machine, Error, "clock skew makes certificates or tokens invalid",
        see: [TIMEDATECTL, CHRONY],
        impact: "Valid certificates and tokens appear expired or not yet valid, here or on the server: kubelet, CSI driver and cloud provider fail with x509 errors or 401, and new certificates do not help.",
        fix: [
            "Compare the clock with another node.",
            "If the clock of this node is wrong, set it and synchronize it (NTP): `timedatectl set-ntp true` starts systemd-timesyncd or chrony, whichever is installed. If chrony runs already, `chronyc makestep` corrects the clock immediately.",
            "If a certificate of this node was created while its clock was wrong, restart rke2-server, rke2-agent, k3s, k3s-agent or kubelet, one server at a time.",
        ],
        run: [Vm "timedatectl", Vm "timedatectl set-ntp true", Vm "chronyc makestep  # only with chrony"],
        // Never the TLS errors: date and certificate may come from a server that cannot be verified.
        suppresses: [CredentialExpires, HarvesterCredentialExpired, KubeletCredentialExpired, HarvesterUnauthorized, GuestApiUnauthorized, ClockDrift, ClockNotSynchronized];
    ClockDrift, "clock-drift", Machine, Warning, "clocks of this node and of a server differ",
        see: [TIMEDATECTL],
        impact: "New certificates and tokens are rejected until both agree, leases expire early or late, and logs cannot be correlated.",
        fix: [
            "Compare both clocks with an NTP server.",
            "Synchronize the wrong one (NTP). If it is this node, `timedatectl set-ntp true` starts systemd-timesyncd or chrony, whichever is installed.",
        ],
        run: [Vm "timedatectl", Vm "timedatectl set-ntp true"],
        suppresses: [ClockNotSynchronized];
    ClockNotSynchronized, "clock-not-synchronized", Machine, Notice, "clock of this node is not synchronized (NTP)",
        see: [TIMEDATECTL, CHRONY],
        impact: "It drifts, and is wrong immediately after a restore or a long pause of the VM. Certificates are validated with it.",
        fix: ["Install chrony or systemd-timesyncd if neither is installed, then start it: `timedatectl set-ntp true`."],
        run: [Vm "timedatectl set-ntp true"];
    StateDiscarded, "state-discarded", Machine, Notice [NeedsMemory], "state of an earlier run was discarded",
        see: [IMAGES],
        impact: "It belongs to another VM (a cloned image) or cannot be read. The agent detects everything again.",
        fix: ["No action is needed. In images, remove /var/lib/harvester-node-agent before the image is taken."],
        run: [Vm "harvester-node-agent whoami"];
    WatchUnavailable, "watch-unavailable", HarvesterApi, Warning [NeedsMemory, ErrorText, MayPass], "watch cannot be established; changes are detected late",
        see: [CLOUD_PROVIDER, issue!("rancher-sandbox/cluster-api-provider-harvester", 40)],
        impact: "The agent polls instead: a migration without another hint is detected up to 11 minutes late.",
        fix: [
            "If the error is `forbidden` (403), allow the verb watch for the reported resource; `harvester-node-agent rbac` prints the roles for Harvester. The agent retries within 20 minutes, and when it is restarted.",
            "Otherwise find the proxy or load balancer between this node and the API that rejects or closes the connection.",
        ],
        run: [Vm "harvester-node-agent status -v", Vm ROLES, Harvester REVIEW, Harvester APPLY];
    WatchProgressMissing, "watch-progress-missing", Node, Warning [NeedsMemory], "etcd is too old for this API server: watches have no bookmarks",
        impact: "The agent watches without bookmarks. kube-apiserver 1.36 ends the watches of other clients that ask for bookmarks with the error `RequestWatchProgress is disabled`.",
        fix: ["Update etcd to 3.4.31, 3.5.13 or later, then restart the API server."],
        run: [Guest "kubectl -n kube-system get pods -l component=etcd -o wide"];
    EventSourceUnavailable, "event-source-unavailable", Machine, Warning [NeedsMemory, ErrorText], "event source is inactive; changes are detected late",
        see: [SANDBOX],
        impact: "Until it is active, the agent relies on the other event sources and on polling.",
        fix: [
            "`harvester-node-agent status -v` lists all event sources and why one is inactive.",
            "If the sandbox of the unit denies access, allow it with `systemctl edit harvester-node-agent` (RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK, ProcSubset=all, DeviceAllow=char-virtio-portsdev rw).",
            "If another program uses the port io.harvesterhci.node_agent.0, stop that program (`fuser -v /dev/virtio-ports/io.harvesterhci.node_agent.0`). Never stop qemu-guest-agent, which has a port of its own.",
        ],
        run: [Vm "harvester-node-agent status -v"];
    DownwardMetricsUnusable, "downward-metrics-unusable", Placement, Warning [NeedsMemory, ErrorText], "downward metrics of the host cannot be used",
        impact: "While the Harvester API is not available, this source for the host is missing. Labels are unchanged, unless another source has the host.",
        fix: [
            "If they are stale, compare the clocks of this node and of the host.",
            "If another program, such as the SAP host agent, holds the port, no action is needed while the Harvester API is available.",
            "Otherwise check that virt-handler is running on the host.",
        ],
        run: [Vm "timedatectl", Harvester "kubectl -n harvester-system get pods -l kubevirt.io=virt-handler -o wide"];
    PodInfoUnusable, "pod-info-unusable", Placement, Warning [NeedsMemory, ErrorText], "files about the virt-launcher pod cannot be used",
        impact: "While the Harvester API is not available, this source for the host is missing. Labels are unchanged, unless another source has the host.",
        fix: [
            "Check the virtiofs mount and its files `labels`, `name` and `namespace`. A copy of the files, or an ISO image with them, shows the host of the boot only.",
            "If reads time out, check that virtiofsd runs in the virt-launcher pod.",
            "If the VM has no such file system, set `[pod_info] path = \"off\"` in /etc/harvester-node-agent/config.toml, and reload the service.",
        ],
        run: [Vm "findmnt -t virtiofs", Harvester "kubectl -n <NAMESPACE> get pods -l kubevirt.io=virt-launcher,harvesterhci.io/vmName=<VM> -o wide"];
    MetricsUnavailable, "metrics-unavailable", Machine, Warning [NeedsMemory, ErrorText], "metrics cannot be exported (listener or textfile failed)",
        see: [TEXTFILE],
        impact: "Prometheus gets no metrics or stale ones. Of the alerts for this node, only HarvesterGuestNodeAgentDown fires.",
        fix: [
            "Port in use: find its owner with `ss -ltnp`, or set another one in `[metrics] listen`.",
            "File that cannot be created: use the textfile directory of node-exporter, or allow the directory with `systemctl edit harvester-node-agent`, ReadWritePaths=DIRECTORY.",
            "Restart the service: it can write only to directories that exist and are configured when it starts.",
        ],
        run: [Vm "ss -ltnp", Vm "systemctl restart harvester-node-agent"];
    FileNotWritten, "file-not-written", Machine, Warning [NeedsMemory], "file of the agent is not up to date",
        impact: "Labels do not depend on these files. Until they are written, `status`, `events` or the metrics are outdated, and the last migration is unknown after a restart.",
        fix: [
            "Disk full or read-only: `df` and `findmnt` show it.",
            "Disk that does not respond: a backup freezes file systems for some seconds. If it lasts, check in Harvester whether a backup or snapshot of this VM is in progress, and look for errors of the disk in the kernel log.",
        ],
        run: [Vm "df -h /var/lib/harvester-node-agent /run/harvester-node-agent", Vm "findmnt --target /var/lib/harvester-node-agent", Vm "journalctl --no-pager -k -p warning -n 20"];
    FileNotRead, "file-not-read", Machine, Warning, "files of this node cannot be read",
        impact: "The agent uses what it read before: a new hostname is not detected. Labels do not depend on it.",
        fix: [
            "If the disk does not respond, look for its errors in the kernel log, and for those of its volume in Harvester.",
            "If too many files are open, look for the process that has them. The limits are `LimitNOFILE=` of the service, and the sysctl fs.file-max: `/proc/sys/fs/file-nr` has the open files and this maximum.",
        ],
        run: [Vm "journalctl --no-pager -k -p warning -n 20", Vm "cat /proc/sys/fs/file-nr", Harvester "kubectl -n <NAMESPACE> get vmi <VM> -o 'jsonpath={.status.volumeStatus}'"];
    HookFailed, "hook-failed", Machine, Warning [NeedsMemory], "hook for a scheduled event was rejected or failed",
        impact: "What the hook prepares for a live migration or a stop of the VM may be missing.",
        fix: [
            "If it failed, the journal of its unit has its output and the reason. systemd ends a hook after 60 s.",
            "If it was rejected, it must be a file, not a symbolic link, and only root may be able to change it and its directories.",
            "The finding is resolved when the hooks of this state succeed, or when the service restarts.",
        ],
        run: [Vm "journalctl --no-pager -b -n 50 -u 'harvester-node-agent-hook-*'", Vm "find /etc/harvester-node-agent/hooks.d -ls"];
    AgentNotEnabled, "agent-not-enabled", Image, Warning, "harvester-node-agent does not start at boot",
        see: [SYSTEMCTL],
        impact: "After a reboot the labels are not updated.",
        fix: ["Enable the unit here and in the image. The package enables it, unless a preset of the OS forbids it."],
        run: [Vm "systemctl unmask harvester-node-agent", Vm "systemctl enable harvester-node-agent"];
    IdentityFromImage, "identity-from-image", Image, Warning, "machine-specific state comes from the image",
        impact: "All VMs from this image share it: with one machine-id, DHCP assigns them one address and their journals cannot be distinguished; with one node password, whoever knows it can register as any of these Nodes on RKE2 and K3s.",
        fix: [
            "Compare the checksums of the file with those on another VM of this image. If they differ, the file is not from the image (`cloud-init clean` also makes it older than the first boot): nothing needs to be done.",
            "If they are the same, empty the file in the image, and create new VMs from it. `harvester-node-agent bake-check --root /mnt`, run where the image is built, finds all such files.",
        ],
        run: [Vm "sha256sum /etc/machine-id /etc/rancher/node/password", Image "harvester-node-agent bake-check --root /mnt"];
    UnexpectedObject, "unexpected-object", HarvesterApi, Error [NeedsMemory, LabelsUnknown], "API returned an object that was not requested",
        impact: "The object was discarded. Something between this node and the API mixes up responses.",
        fix: ["Check for a broken proxy or cache at the reported address."],
        run: [Vm "curl -vk --max-time 5 <SERVER>/version"];

    // Programs that each machine needs.
    ImageAgentMissing, "image-agent-missing", Image, Error, "harvester-node-agent is not installed",
        impact: "VMs created from this image have no agent.",
        fix: ["Install the package of harvester-node-agent in the image build."];
    ImageAgentMasked, "image-agent-masked", Image, Error, "unit of harvester-node-agent is masked",
        impact: "systemd does not start it, even if it is enabled later.",
        fix: ["Unmask the unit in the image build."];
    ImageAgentNotEnabled, "image-agent-not-enabled", Image, Error, "harvester-node-agent does not start at boot",
        impact: "The agent is installed, but does not run.",
        fix: ["Enable the unit in the image build."];
    ImageConfigInvalid, "image-config-invalid", Image, Error, "agent configuration is invalid",
        impact: "On every VM created from this image the service is idle until the configuration is fixed.",
        fix: ["Correct the file. The command shows all errors."];
    ImageGuestAgentMissing, "image-guest-agent-missing", Image, Error, "qemu-guest-agent is not installed",
        impact: "Harvester shows no addresses and no hostname of the VM, and the Rancher node driver waits for an address indefinitely.",
        fix: ["Install the package qemu-guest-agent in the image build."];
    ImageGuestAgentMasked, "image-guest-agent-masked", Image, Error, "unit of qemu-guest-agent is masked",
        impact: "Harvester shows no addresses and no hostname of the VM, and the Rancher node driver waits for an address indefinitely.",
        fix: ["Unmask the unit in the image build."];
    ImageGuestAgentNotEnabled, "image-guest-agent-not-enabled", Image, Error, "qemu-guest-agent does not start at boot",
        impact: "Harvester shows no addresses and no hostname of the VM, and the Rancher node driver waits for an address indefinitely.",
        fix: ["Enable the unit in the image build."];

    // The identity of a machine.
    ImageMachineId, "image-machine-id", Image, Error, "image contains a machine-id",
        impact: "All VMs created from it share it: DHCP assigns them one address, and their journals cannot be distinguished.";
    ImageHostname, "image-hostname", Image, Error, "image contains or preserves a hostname",
        impact: "VMs that keep it register under one name, and the second VM takes over the Node of the first.";
    ImageSshHostKey, "image-ssh-host-key", Image, Error, "image contains SSH host keys",
        impact: "Anyone with the image can impersonate every VM created from it.";
    ImageRandomSeed, "image-random-seed", Image, Error, "image contains a random seed",
        impact: "All VMs created from it start with the same seed, which anyone with the image knows.";
    ImageCredentialSecret, "image-credential-secret", Image, Error, "image contains systemd's key for encrypted credentials",
        impact: "Anyone with the image can decrypt the credentials of every VM created from it.";
    ImageNetworkIdentity, "image-network-identity", Image, Error, "image contains the network identity of the build VM",
        impact: "A DHCP lease or DUID makes VMs request the same address; configuration for one MAC address matches no other VM.";
    ImageCloudInitInstance, "image-cloud-init-instance", Image, Error, "image contains cloud-init state of the build VM",
        impact: "Its user data may contain credentials, and per-instance steps may be skipped on the next VM.";
    ImageCloudInitSeed, "image-cloud-init-seed", Image, Error, "image contains a cloud-init seed",
        impact: "Every VM created from it uses instance-id, hostname and user data from there instead of Harvester.";
    ImageCloudInitDisabled, "image-cloud-init-disabled", Image, Error, "cloud-init is disabled",
        impact: "A VM created from it gets neither hostname nor user data from Harvester, and never joins a cluster.";
    ImageAgentState, "image-agent-state", Image, Error, "image contains agent state of the build VM",
        impact: "It belongs to another VM and is discarded at the first start.";
    ImageConfigurationOfOneVm, "image-configuration-of-one-vm", Image, Error, "agent configuration is for one VM or one Node",
        impact: "Every VM created from this image identifies as that one.",
        fix: [UNSET];
    ImageRegistrationDropIn, "image-registration-drop-in", Image, Error, "image contains registration labels of the build VM",
        impact: "Every VM created from this image registers with zone and host of the build VM.";
    ImageNodeName, "image-node-name", Image, Error, "configuration of RKE2, K3s or the kubelet sets a node name",
        impact: "Every VM created from this image registers under this name, and takes over the Node of the previous one.",
        fix: [UNSET];
    ImageTopologyLabel, "image-topology-label", Image, Error, "configuration of RKE2, K3s or the kubelet sets topology labels",
        impact: "Every VM created from this image registers with these labels, wherever it runs.",
        fix: [UNSET];
    ImageLogs, "image-logs", Image, Error, "image contains logs of the build VM",
        impact: "They belong to another VM, and cloud-init logs may contain its user data.";

    // Credentials and keys.
    ImageHarvesterCredential, "image-harvester-credential", Image, Error, "image contains a Harvester credential",
        impact: "Anyone with the image can act on the VMs of its namespace, until the token expires or is revoked.";
    ImageKubeletCredential, "image-kubelet-credential", Image, Error, "image contains a kubelet credential or certificates",
        impact: "A VM created from it joins as another Node or not at all, and anyone with the image can act as that Node.";
    ImageClusterKeys, "image-cluster-keys", Image, Error, "image contains keys, tokens, data or static pods of a cluster server",
        impact: "Anyone with the image can become administrator of that cluster; a new server starts with an old cluster.";
    ImageAdminKubeconfig, "image-admin-kubeconfig", Image, Error, "image contains the kubeconfig of an administrator or a component",
        impact: "Anyone with the image can act on that cluster with its permissions.";
    ImageClusterToken, "image-cluster-token", Image, Error, "configuration of RKE2 or K3s contains a secret",
        impact: "Anyone with the image can use it: join nodes to that cluster, read its data or its images. Provide it with user data instead.",
        fix: [UNSET];
    ImageSshPrivateKey, "image-ssh-private-key", Image, Error, "image contains a private SSH key",
        impact: "Anyone with the image can log in wherever that key is authorized.";
    ImageSshAuthorizedKeys, "image-ssh-authorized-keys", Image, Error, "image contains authorized SSH keys",
        impact: "Anyone with such a key can log in to every VM created from this image. Provide keys with user data instead.";
    ImageOsRegistration, "image-os-registration", Image, Error, "image contains the registration of the OS",
        impact: "Anyone with the image can use it; the registration server takes all VMs created from it for one system.",
        fix: [
            "Deregister the image: `SUSEConnect --root DIRECTORY -d`, or in the running image: SL Micro `transactional-update register -d`, RHEL `subscription-manager unregister`, Ubuntu `pro detach`. Without `--root`, a command is for the machine on which it runs.",
            "Only then remove the files that are left: without them, the image cannot be deregistered.",
        ];
    ImageNodePassword, "image-node-password", Image, Error, "image contains the node password of RKE2 or K3s",
        impact: "All VMs created from it share it: the server rejects a Node with a different password, and trusts one with a known password.";
    ImageSystemAgentConnection, "image-system-agent-connection", Image, Error, "image contains the connection of rancher-system-agent",
        impact: "A VM created from it receives the plans of another one from Rancher, with its credential.";

    // Incomplete checks.
    ImageUnreadable, "image-unreadable", Image, Error, "path could not be checked",
        impact: "The image is not known to be clean.",
        fix: ["Run the check as root. Correct or remove what root cannot read, or has a syntax error."];
}
