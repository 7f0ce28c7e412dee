// SPDX-License-Identifier: Apache-2.0
//! The table of all codes: group, severity, what it is, why it matters, what to do, and what it explains.

use std::borrow::Cow;

use super::declare::{catalogue, place};
use super::{Command, Entry, Group, Place, Severity};

catalogue! {
    NotKubevirt, "not-kubevirt", Machine, Error, "this machine is not a KubeVirt virtual machine",
        why: "there is no Harvester VM to compare with and no host to show",
        fix: "disable the service on this machine: systemctl disable --now harvester-node-agent; if the SMBIOS vendor was changed on purpose, set `[machine] assume_kubevirt = true`",
        run: [vm "systemctl disable --now harvester-node-agent"];

    NameOfAnotherVm, "name-of-another-vm", Identity, Error, "a name of this machine is the name of a different VM",
        why: "Harvester's CSI driver and cloud provider take this Node for that VM: volumes may be attached to it, and its topology is shown here",
        fix: "drain and delete this Node (of a server with etcd that takes its member away too: one machine at a time), set the VM's own name, and restart the distribution's service, so that it joins again; look for `hostname:` in the VM's cloud-init user-data and for a host name baked into the image",
        run: [vm "grep -rn 'hostname:' /var/lib/cloud/instance/user-data.txt", guest "kubectl drain <NODE> --ignore-daemonsets --delete-emptydir-data", guest "kubectl delete node <NODE>", vm "hostnamectl set-hostname <VM>"],
        silences: [HostnameDiffers, ProviderIdDiffers];
    HostnameDiffers, "hostname-differs", Identity, Warning, "a name of this machine is not the name of its VM",
        why: "Harvester's cloud provider looks for a VM of the Node's name: no providerID, and no topology after a migration; the CSI driver before 0.1.6 cannot attach volumes",
        fix: "a new node gets the VM's name before its kubelet starts for the first time: hostnamectl set-hostname NAME; a registered Node keeps its name, so drain it, delete it (of a server with etcd that takes its member away too: one machine at a time), then set the name and restart the distribution's service; look for `hostname:` in the VM's cloud-init user-data and for `node-name:` in /etc/rancher/*/config.yaml",
        run: [vm "grep -rn 'hostname:' /var/lib/cloud/instance/user-data.txt", vm "grep -rn 'node-name' /etc/rancher"];
    StaticHostnameDiffers, "static-hostname-differs", Identity, Warning, "/etc/hostname has another name than the running kernel",
        why: "the next boot brings the other name, and with it possibly a second Node",
        fix: "give both the name under which the Node is registered, or that of the VM where there is no Node yet: hostnamectl set-hostname NAME",
        run: [vm "hostnamectl"];
    IdentityAmbiguous, "identity-ambiguous", Identity, Error, "several VMs fit this machine equally well",
        why: "no label is written while it is not certain which of them this machine is",
        fix: "give each VM its own firmware UUID and MAC addresses (a VM made from a template may have copied them), or name this one in /etc/harvester-node-agent/config.toml: [harvester] vm = \"NAME\"",
        run: [harvester "kubectl -n <NAMESPACE> get vmi -o 'custom-columns=NAME:.metadata.name,UUID:.spec.domain.firmware.uuid,MAC:.status.interfaces[*].mac'"],
        silences: [NoTopologySource, HardwareShared];
    VmNotFound, "vm-not-found", Identity, Error, "no VM in the namespace fits this machine",
        why: "no label is written without knowing the VM",
        fix: "check that the Harvester credential is for the namespace of this VM (harvester-node-agent whoami shows both), or set [harvester] namespace and vm in /etc/harvester-node-agent/config.toml",
        run: [vm "harvester-node-agent whoami", harvester "kubectl -n <NAMESPACE> get vmi"],
        silences: [NoTopologySource];
    ProviderIdDiffers, "provider-id-differs", Identity, Warning, "the Node's providerID names a different VM",
        why: "the Node object was made for another VM; Harvester's cloud provider and CSI driver may act on that one",
        fix: "drain and delete the Node (of a server with etcd that takes its member away too: one machine at a time), restart the distribution's service, and the Node joins again",
        run: [guest "kubectl get node <NODE> -o custom-columns=ID:.spec.providerID", guest "kubectl drain <NODE> --ignore-daemonsets --delete-emptydir-data", guest "kubectl delete node <NODE>"];
    HardwareShared, "hardware-shared", Identity, Warning, "another VM of the namespace has a MAC address or firmware UUID of this one",
        why: "Harvester's CSI driver since 0.1.6 knows its VM by MAC address: volumes may be attached to the other one; on one network both lose packets",
        fix: "in Harvester, stop the VM that was made from a template or a copy, take the MAC address out of its network (Virtual Machines, Edit Config, Networks; the firmware UUID: Edit YAML, spec.template.spec.domain.firmware), and start it",
        run: [harvester "kubectl -n <NAMESPACE> get vmi -o 'custom-columns=NAME:.metadata.name,UUID:.spec.domain.firmware.uuid,MAC:.status.interfaces[*].mac'"];

    NoTopologySource, "no-topology-source", Placement, Error, "no source tells region and zone of the host",
        why: "the Node gets no topology labels; those that it has are kept",
        fix: "allow the credential to read the host: on Harvester, as an administrator, apply what `harvester-node-agent rbac` prints on this machine; or label the VM harvesterhci.io/creator=docker-machine-driver-harvester so that Harvester annotates it; or publish a ConfigMap in harvester-public",
        run: [vm "harvester-node-agent rbac > /root/rbac.yaml", harvester "kubectl apply -f rbac.yaml"];
    AnnotationsStale, "annotations-stale", Placement, Warning, "Harvester's topology annotations still speak of another host",
        why: "the labels of the Node stay those of the host before, until Harvester brings the annotations up to date",
        fix: "check that Harvester's controllers run: kubectl -n harvester-system get pods -l app.kubernetes.io/name=harvester; any change of the VM makes them look again",
        run: [harvester "kubectl -n harvester-system get pods -l app.kubernetes.io/name=harvester", harvester "kubectl -n <NAMESPACE> get vmi <VM> -o yaml"],
        silences: [NoTopologySource];
    HostWithoutTopology, "host-without-topology", Placement, Notice, "the host has neither region nor zone label",
        why: "the Node gets none either",
        fix: "label the host in Harvester (Hosts, Edit Config, Labels): topology.kubernetes.io/region and topology.kubernetes.io/zone",
        run: [harvester "kubectl label node <HOST> topology.kubernetes.io/region=<REGION> topology.kubernetes.io/zone=<ZONE>"];
    TopologyPartial, "topology-partial", Placement, Warning, "the host lacks a topology label that the Node has",
        why: "the labels of the Node are kept as they are, because changing a part of them would mix two hosts",
        fix: "label all hosts in Harvester alike, or set [topology] remove_stale = true to remove what the host does not have",
        run: [harvester "kubectl get nodes -L topology.kubernetes.io/region,topology.kubernetes.io/zone"];
    LabelValueInvalid, "label-value-invalid", Placement, Error, "a value cannot be written as a label",
        why: "the Node keeps the labels that it has",
        fix: "correct the value in Harvester: at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit",
        run: [harvester "kubectl get nodes -L topology.kubernetes.io/region,topology.kubernetes.io/zone"],
        silences: [NoTopologySource];

    HostsInOneZone, "hosts-in-one-zone", Placement, Notice, "all hosts are in one zone",
        why: "nothing can be spread over zones; and Harvester makes no host a management node while the label says that all are in one zone",
        fix: "where the hosts are in several racks or rooms, label them so (Hosts, Edit Config, Labels): topology.kubernetes.io/zone; where they are not, take the label away",
        run: [harvester "kubectl get nodes -L topology.kubernetes.io/region,topology.kubernetes.io/zone"];
    VmLabelsMissing, "vm-labels-missing", Placement, Notice, "the VM lacks labels by which Harvester knows a node of a guest cluster",
        why: "Harvester writes region and zone of the host only on VMs with that creator, and its cloud provider has nothing else to set on the Node; by the cluster's name VMs of several clusters in one namespace are told apart",
        fix: "in Harvester (Virtual Machines, Edit Config, Instance Labels) set harvesterhci.io/creator=docker-machine-driver-harvester and guestcluster.harvesterhci.io/name=CLUSTER, and restart the VM; with nodes that the credential may read (harvester-node-agent rbac) this agent needs neither",
        run: [harvester "kubectl -n <NAMESPACE> patch vm <VM> --type merge -p '{\"spec\":{\"template\":{\"metadata\":{\"labels\":{\"harvesterhci.io/creator\":\"docker-machine-driver-harvester\"}}}}}'"];
    NotLiveMigratable, "not-live-migratable", Placement, Notice, "the VM cannot be live-migrated",
        why: "when its host is drained or Harvester is upgraded, the VM is shut down, and the Node with it",
        fix: "in Harvester, take away what the reason names: a host device, a volume that only one host can reach (accessMode ReadWriteOnce), a CD-ROM, a node selector for one host",
        run: [harvester "kubectl -n <NAMESPACE> get vmi <VM> -o 'jsonpath={.status.conditions[?(@.type==\"LiveMigratable\")]}'"];

    PinnedByConfig, "pinned-by-config", Node, Warning, "the labels of the Node are not those of its host, by configuration",
        why: "pods that are spread by zone are spread by the labels, not by where the VM runs",
        fix: "nothing, if this is wanted; otherwise set [topology] on_change = \"follow\"",
        silences: [TopologyLabelOverwritten];
    LabelNotManaged, "label-not-managed", Node, Warning, "a label of the allow-list belongs to somebody else",
        why: "it is left as it is, although the host's value differs",
        fix: "remove the label from the Node (kubectl label node NODE KEY-) to let the agent set it, or take it out of [labels.extra]",
        run: [guest "kubectl get node <NODE> --show-managed-fields -o yaml"];
    LabelConflict, "label-conflict", Node, Error, "somebody else keeps changing the topology labels back",
        why: "the agent has stopped writing them, so that the Node does not flap; it tries again each hour",
        fix: "stop the named writer, or set [topology] on_change = \"report\"; a static `node-label` of the distribution must be taken out of its configuration",
        run: [guest "kubectl get node <NODE> --show-managed-fields -o yaml"],
        silences: [TopologyLabelOverwritten];
    StaticNodeLabel, "static-node-label", Node, Warning, "the distribution's configuration sets a topology label",
        why: "the kubelet writes that value again at each of its starts, whatever the host",
        fix: "take the topology keys out of `node-label` in the named file",
        run: [vm "grep -rn -e node-label -e topology /etc/rancher"];

    TopologyLabelOverwritten, "topology-label-overwritten", Node, Warning, "a topology label was last written by somebody else, and is not the host's",
        why: "pods are spread by a zone in which this Node is not; where the writer comes back, the label changes to and fro",
        fix: "systemctl status harvester-node-agent: while it runs it sets the label right within seconds, and where it does not, see its journal; then stop the named writer: kubectl-label, kubectl-edit and rancher are people, kubelet, rke2 and k3s a `node-label` in /etc/rancher/*/config.yaml, harvester-cloud-provider follows the VM's annotations",
        run: [guest "kubectl get node <NODE> --show-managed-fields -o yaml", vm "grep -rn -e node-label -e topology /etc/rancher", vm "systemctl --no-pager status harvester-node-agent"];
    BetaLabelsDiffer, "beta-labels-differ", Node, Warning, "a topology label and its failure-domain.beta twin disagree",
        why: "to the node controller of each cloud provider (reconcileNodeLabels) the beta label is the true one: at the next change of the Node it overwrites the other with it",
        fix: "a look of the running agent sets both; by hand set both at once, never one alone",
        run: [guest "kubectl get node <NODE> --show-labels", vm "systemctl restart harvester-node-agent"];
    NodeUninitialized, "node-uninitialized", Node, Error, "no cloud provider has taken the Node on",
        why: "the taint node.cloudprovider.kubernetes.io/uninitialized keeps pods away, charts of RKE2 wait for it (helm-install jobs hang), and providerID, region and zone and addresses are missing until the cloud provider's node controller has taken it away",
        fix: "see whether the cloud provider runs and what it says of this Node; do not take the taint away by hand, the rest would stay missing",
        run: [guest "kubectl -n kube-system get pods -o wide | grep cloud-provider", guest "kubectl -n kube-system logs deploy/harvester-cloud-provider --tail=50", harvester "kubectl get vm -A --field-selector metadata.name=<VM>"],
        silences: [InternalIpMissing];
    ComponentRestarting, "component-restarting", Node, Warning, "Harvester's cloud provider or CSI driver ends and is started again",
        why: "while the cloud provider is away, no Node is taken on, no address and no label changes; while the CSI driver is away, no volume is attached here",
        fix: "its own log tells why it ended; a role that it lacks on Harvester and a missing kubeconfig are found here as well",
        run: [guest "kubectl -n kube-system get pods -o wide | grep harvester", guest "kubectl -n kube-system logs deploy/harvester-cloud-provider --previous --tail=50"];
    ProviderIdNotHarvester, "provider-id-not-harvester", Node, Warning, "the Node's providerID was set by another cloud provider than the one that is asked for",
        why: "it is never changed: Harvester's cloud provider cannot set its own, and what goes by it (load balancers, Rancher's machines) does not find the VM",
        fix: "drain and delete the Node (of a server with etcd that takes its member away too: one machine at a time), restart the distribution's service, and the Node joins again; `rke2://` and `k3s://` come from a start without cloud-provider-name: harvester in /etc/rancher/*/config.yaml",
        run: [vm "grep -rn cloud-provider /etc/rancher", guest "kubectl drain <NODE> --ignore-daemonsets --delete-emptydir-data", guest "kubectl delete node <NODE>"];
    KubevirtCloudProvider, "kubevirt-cloud-provider", Node, Warning, "KubeVirt's own cloud provider looks after the Node",
        why: "it sets region and zone when the Node is new, and not after a migration; beside Harvester's cloud provider each writes its own",
        fix: "run one cloud provider: take cloud-provider-kubevirt away (kubectl get pods -A | grep kubevirt-cloud-controller-manager), or switch its zones off (instancesV2.zoneAndRegionEnabled: false); this agent keeps region and zone right",
        run: [guest "kubectl get pods -A -o wide | grep kubevirt-cloud-controller-manager"],
        silences: [ProviderIdNotHarvester];
    AddressDiffers, "address-differs", Node, Warning, "the Node, Harvester and this machine do not agree on its addresses",
        why: "the API server reaches the kubelet (logs, exec) and load balancers reach the Node at an address that is not this machine's; Harvester's cloud provider copies what Harvester has",
        fix: "see which of the three is wrong; after a new DHCP lease or from a restored disk: restart qemu-guest-agent, then rke2-server, rke2-agent or k3s; a `node-ip` in /etc/rancher/*/config.yaml must be an address of this machine",
        run: [vm "ip -brief address", guest "kubectl get node <NODE> -o wide", harvester "kubectl -n <NAMESPACE> get vmi <VM> -o wide", vm "grep -rn node-ip /etc/rancher", vm "systemctl restart qemu-guest-agent"];
    InternalIpMissing, "internal-ip-missing", Node, Warning, "the Node has no InternalIP",
        why: "the API server cannot reach the kubelet (kubectl logs, exec, metrics); Harvester's cloud provider sets only the host name while Harvester has no address of the VM (InstanceMetadata, NodeAddresses)",
        fix: "systemctl status qemu-guest-agent: Harvester has the addresses from it; with several networks set --management-network or node-ip (Harvester's cloud provider 0.2.6 or later)",
        run: [guest "kubectl get node <NODE> -o wide", vm "systemctl --no-pager status qemu-guest-agent", guest "kubectl -n kube-system logs deploy/harvester-cloud-provider --tail=50"];

    HarvesterCredentialMissing, "harvester-credential-missing", HarvesterCredential, Error, "no Harvester credential was found",
        why: "neither the VM nor its host can be read",
        fix: "make a kubeconfig for Harvester and put it at one of the named paths, or name it in /etc/harvester-node-agent/config.toml: [harvester] kubeconfig = \"PATH\"",
        run: [harvester "curl -sfL https://raw.githubusercontent.com/harvester/harvester-csi-driver/master/deploy/generate_addon_csi.sh | bash -s harvester-node-agent <NAMESPACE> RKE2"],
        silences: [NoTopologySource, VmNotFound];
    HarvesterCredentialInvalid, "harvester-credential-invalid", HarvesterCredential, Error, "the Harvester credential cannot be used",
        why: "neither the VM nor its host can be read",
        fix: "correct the named key of the named file; the agent reads it again when it changes",
        run: [vm "harvester-node-agent whoami"],
        silences: [NoTopologySource, VmNotFound];
    HarvesterIsOwnApi, "harvester-is-own-api", HarvesterCredential, Error, "the Harvester credential leads to this cluster's own API",
        why: "the guest cluster knows neither the VM nor its host, so nothing can be found there",
        fix: "set `server:` in the named kubeconfig to Harvester's address, https://VIP:6443 (a kubeconfig copied from rke2.yaml says 127.0.0.1)",
        run: [vm "grep -sn server: /var/lib/rancher/*/etc/config-files/cloud-provider-config /etc/kubernetes/cloud-config"],
        silences: [NoTopologySource, VmNotFound, HarvesterOnLoopback];
    HarvesterOnLoopback, "harvester-on-loopback", HarvesterCredential, Warning, "the Harvester credential points at a loopback address",
        why: "on a Kubernetes node that is usually the node's own API, not Harvester's",
        fix: "set `server:` in the named kubeconfig to Harvester's address, https://VIP:6443",
        run: [vm "grep -n server: <KUBECONFIG>"];
    KubeletCredentialMissing, "kubelet-credential-missing", KubeletCredential, Error, "no kubelet credential was found",
        why: "the Node can neither be read nor labelled; normal until the kubelet has started for the first time",
        fix: "wait for the node to join, or name the kubeconfig in /etc/harvester-node-agent/config.toml: [guest_cluster] kubeconfig = \"PATH\"",
        run: [vm "systemctl --no-pager status rke2-server rke2-agent k3s k3s-agent kubelet"],
        silences: [NodeMissing, NodeWriteFailed];
    KubeletCredentialInvalid, "kubelet-credential-invalid", KubeletCredential, Error, "the kubelet credential cannot be used",
        why: "the Node can neither be read nor labelled",
        fix: "correct the named key of the named file; on RKE2 and K3s a restart of the service writes it anew",
        run: [vm "journalctl --no-pager -b -n 50 -u rke2-server -u rke2-agent -u k3s -u k3s-agent -u kubelet"],
        silences: [NodeMissing, NodeWriteFailed];
    CredentialReloadFailed, "credential-reload-failed", HarvesterCredential, Warning, "a changed credential file cannot be used; the one before stays in use",
        why: "the credential in use may end",
        fix: "correct the named file; the agent reads it again when it changes",
        run: [vm "harvester-node-agent whoami"];
    CredentialExposed, "credential-exposed", HarvesterCredential, Warning, "a credential file can be read by every user of this machine",
        why: "whoever can log in here can act as the agent, the CSI driver or the kubelet; a token of Harvester usually never ends",
        fix: "chmod 0600 the named file";
    RancherTokenInUse, "rancher-token-in-use", HarvesterCredential, Warning, "the Harvester credential has a token of Rancher",
        why: "Rancher ends such a token after 30 or 90 days (its settings kubeconfig-default-token-ttl-minutes and auth-token-max-ttl-minutes), and at once when its user is removed; from then on the CSI driver attaches no volume and the cloud provider sees no VM. It is not the cloud credential that Rancher itself keeps to make machines, which ends in the same way and breaks other things",
        fix: "make a kubeconfig with the token of a service account, which does not end, and put it in place of the named file",
        run: [harvester "curl -sfL https://raw.githubusercontent.com/harvester/harvester-csi-driver/master/deploy/generate_addon_csi.sh | bash -s harvester-node-agent <NAMESPACE> RKE2"];
    RancherTokenRejected, "rancher-token-rejected", HarvesterCredential, Error, "the token of Rancher in the Harvester credential is not accepted",
        why: "it has ended, its user is gone, or the server is not the Rancher that made it; the CSI driver and the cloud provider are refused with the same file",
        fix: "make a kubeconfig with the token of a service account, which does not end and which Harvester's own API takes at https://VIP:6443",
        run: [harvester "curl -sfL https://raw.githubusercontent.com/harvester/harvester-csi-driver/master/deploy/generate_addon_csi.sh | bash -s harvester-node-agent <NAMESPACE> RKE2"],
        silences: [HarvesterUnauthorized, RancherTokenInUse];
    ServerIsHarvesterUi, "server-is-harvester-ui", HarvesterCredential, Error, "the Harvester credential names Harvester's web address and not its API",
        why: "the web address has a certificate of another authority than the one in the kubeconfig, so nothing that uses this file trusts it: neither the agent nor the CSI driver nor the cloud provider",
        fix: "set `server:` in the named kubeconfig to https://VIP:6443; generate_addon.sh copies the address of the administrator's kubeconfig, and that one is for the web address",
        run: [vm "grep -n server: <KUBECONFIG>", harvester "kubectl -n harvester-system get configmap vip -o 'jsonpath={.data.ip}'"],
        silences: [HarvesterTlsError, HarvesterBadResponse, ServerNotInCertificate];
    ServerIsRancher, "server-is-rancher", HarvesterCredential, Error, "the token of a service account is sent to a Rancher outside of Harvester",
        why: "that Rancher takes only tokens that it made itself, and answers 401 to this one, to the CSI driver and the cloud provider too",
        fix: "set `server:` in the named kubeconfig to Harvester's own API, https://VIP:6443, and `certificate-authority-data` to its authority",
        run: [vm "grep -n server: <KUBECONFIG>", harvester "kubectl -n harvester-system get configmap vip -o 'jsonpath={.data.ip}'", harvester "kubectl -n <NAMESPACE> get configmap kube-root-ca.crt -o 'jsonpath={.data.ca\\.crt}' | base64 -w0"],
        silences: [HarvesterUnauthorized];
    CredentialNamespaceDiffers, "credential-namespace-differs", HarvesterCredential, Error, "the Harvester credential is of another namespace than the one it is used for",
        why: "the agent and the cloud provider look for the VM in the namespace of the kubeconfig, where this token may read nothing or the VM is not",
        fix: "set `namespace:` of the context in the named kubeconfig to the namespace of the VM, and make the credential there",
        run: [vm "harvester-node-agent whoami", harvester "kubectl get vmi -A"],
        silences: [VmNotFound, HarvesterForbidden];
    CredentialIsDirectory, "credential-is-directory", HarvesterCredential, Error, "a directory stands where the Harvester credential belongs",
        why: "a container that mounts the missing file makes a directory in its place (a hostPath without `type: File`, as of old CSI and cloud provider charts); whoever writes the file after that fails, and both charts find no credential",
        fix: "remove the directory, put the kubeconfig in its place, and restart the pods of the CSI driver and the cloud provider",
        silences: [HarvesterCredentialInvalid];
    CredentialIsEmpty, "credential-is-empty", HarvesterCredential, Error, "the file of the Harvester credential is empty",
        why: "somebody made the file and wrote nothing: in Rancher the secret of the cluster's cloud-provider-config is empty or was removed",
        fix: "put a kubeconfig for Harvester there; in Rancher, choose the cloud credential of the cluster again, which writes it anew",
        run: [harvester "curl -sfL https://raw.githubusercontent.com/harvester/harvester-csi-driver/master/deploy/generate_addon_csi.sh | bash -s harvester-node-agent <NAMESPACE> RKE2"],
        silences: [HarvesterCredentialInvalid];
    CredentialNotAtNamedPath, "credential-not-at-named-path", HarvesterCredential, Warning, "the distribution's configuration names a Harvester credential that is not there",
        why: "the agent found another one, but the CSI driver and the cloud provider mount the named path: their pods wait with `hostPath type check failed`",
        fix: "put the kubeconfig at the named path, or correct `cloud-provider-config` in the named file and restart the distribution's service";
    CredentialWritableByOthers, "credential-writable-by-others", HarvesterCredential, Warning, "somebody besides root can change a file of a credential",
        why: "who can change it can send the agent, the kubelet or the CSI driver, with their secrets, to a server of his own",
        fix: "give the named file to root, and let nobody else write it";
    CredentialExpires, "credential-expires", HarvesterCredential, Warning, "a credential or certificate ends soon or has ended",
        why: "from then on one side refuses the other: the API our credential, or the kubelet, the CSI driver and the cloud provider the server's certificate",
        fix: "kubelet certificates: restart rke2-server, rke2-agent or k3s; for Harvester make a new kubeconfig, one with the token of a service account does not end";
    HarvesterCredentialExpired, "harvester-credential-expired", HarvesterCredential, Error, "the token of the Harvester credential has ended",
        why: "Harvester's API refuses it, to the CSI driver and the cloud provider too: neither the VM nor its host can be read, and no volume is attached",
        fix: "see that the clock of this machine is right; then make a kubeconfig with the token of a service account, which does not end, and put it in place of the named file",
        run: [vm "timedatectl", harvester "curl -sfL https://raw.githubusercontent.com/harvester/harvester-csi-driver/master/deploy/generate_addon_csi.sh | bash -s harvester-node-agent <NAMESPACE> RKE2"],
        silences: [HarvesterUnauthorized, NoTopologySource, VmNotFound];
    KubeletCredentialExpired, "kubelet-credential-expired", KubeletCredential, Error, "the client certificate of the kubelet has ended",
        why: "the guest cluster's API refuses it: the Node can be neither read nor labelled, and becomes NotReady",
        fix: "see that the clock of this machine is right; then restart rke2-server, rke2-agent or k3s, which makes a new one; with kubeadm: kubeadm certs renew all on the servers, and where a kubelet.conf holds the certificate itself, let it name /var/lib/kubelet/pki/kubelet-client-current.pem, to which the kubelet writes the new ones",
        run: [vm "timedatectl", vm "systemctl try-restart rke2-server rke2-agent k3s k3s-agent"],
        silences: [GuestApiUnauthorized, NodeMissing, NodeWriteFailed];

    HarvesterUnreachable, "harvester-unreachable", HarvesterApi, Warning, "Harvester's API does not answer",
        why: "a migration is not seen until it does; the labels stay as they are",
        fix: "curl -k https://VIP:6443/livez tells whether it answers to this machine; a VM network must have a route to Harvester's VIP; during an upgrade of Harvester this is normal",
        run: [vm "curl -k --max-time 5 <SERVER>/livez", vm "ip route"],
        silences: [NoTopologySource, VmNotFound];
    HarvesterUnauthorized, "harvester-unauthorized", HarvesterApi, Error, "Harvester's API does not accept the credential",
        why: "neither the VM nor its host can be read; the labels stay as they are",
        fix: "make a new kubeconfig: the service account or its token was deleted, Harvester was installed anew, or a Rancher token has ended",
        run: [vm "harvester-node-agent whoami", harvester "curl -sfL https://raw.githubusercontent.com/harvester/harvester-csi-driver/master/deploy/generate_addon_csi.sh | bash -s harvester-node-agent <NAMESPACE> RKE2"],
        silences: [NoTopologySource, VmNotFound];
    HarvesterForbidden, "harvester-forbidden", HarvesterApi, Error, "the Harvester credential may not read the VM",
        why: "the VM and its host stay unknown; the labels stay as they are",
        fix: "on Harvester, as an administrator, apply what `harvester-node-agent rbac` prints on this machine",
        run: [vm "harvester-node-agent rbac > /root/rbac.yaml", harvester "kubectl apply -f rbac.yaml"],
        silences: [NoTopologySource, VmNotFound];
    HarvesterTlsError, "harvester-tls-error", HarvesterApi, Error, "the certificate of Harvester's API is not accepted",
        why: "nothing is sent to a server that cannot prove who it is; the labels stay as they are",
        fix: "compare `certificate-authority-data` of the kubeconfig with the server's: openssl s_client -connect VIP:6443 -showcerts; if it is expired or not yet valid, check the clock first: timedatectl",
        run: [vm "timedatectl", vm "curl -vk --max-time 5 <SERVER>/livez"],
        silences: [NoTopologySource, VmNotFound];
    ServerNotInCertificate, "server-not-in-certificate", HarvesterApi, Error, "the server's certificate is not for the name that the kubeconfig has",
        why: "nobody who uses this kubeconfig trusts the server: `x509: certificate is valid for ..., not ...` in the logs of the CSI driver and the cloud provider",
        fix: "set `server:` in the kubeconfig to one of the named addresses (Harvester's API is at https://VIP:6443); or add the name to the server's certificate: `tls-san:` in /etc/rancher/rke2/config.yaml.d of the servers",
        run: [vm "curl -vk --max-time 5 <SERVER>/version"],
        silences: [HarvesterTlsError, GuestApiTlsError];
    CsiDriverForbidden, "csi-driver-forbidden", HarvesterApi, Warning, "the Harvester credential lacks the role of Harvester's CSI driver",
        why: "the CSI driver has the same credential and may not look at Harvester's storage classes: it takes a volume for one that needs nothing, so that volumes with accessMode ReadWriteMany are never mounted (ControllerPublishVolume), and says nothing of a storage class that is not there (CreateVolume)",
        fix: "bind the role to the service account of the credential, on Harvester, as an administrator; generate_addon_csi.sh and Rancher's own way of making the credential do so, generate_addon.sh does not",
        run: [harvester "kubectl get clusterrolebindings -o wide | grep harvesterhci.io:csi-driver"];
    WatchInterrupted, "watch-interrupted", HarvesterApi, Warning, "something between here and an API ends watches again and again",
        why: "each began well and was ended soon after: what changes in between is noticed late, and each program here that watches this API (kubelet, cloud provider, CSI driver) is cut off in the same way",
        fix: "look for what stands in between, a proxy or a load balancer that ends streams (HAProxy: timeout server, timeout tunnel; nginx: proxy_read_timeout; Rancher's ingress), and let it keep them for 10 minutes at least; or let the kubeconfig lead straight to the API, of Harvester https://VIP:6443",
        run: [vm "harvester-node-agent status"],
        silences: [WatchUnavailable];
    HarvesterBadResponse, "harvester-bad-response", HarvesterApi, Error, "Harvester's API gave an answer that cannot be used",
        why: "it is not believed; the labels stay as they are",
        fix: "check what answers at the named address: a proxy or a login page instead of the API?",
        run: [vm "curl -vk --max-time 5 <SERVER>/version"],
        silences: [NoTopologySource, VmNotFound];
    GuestApiUnreachable, "guest-api-unreachable", Node, Warning, "the guest cluster's API does not answer",
        why: "the Node can be neither read nor labelled until it does",
        fix: "systemctl status rke2-server rke2-agent k3s k3s-agent kubelet tells whether the distribution's service runs; normal while the cluster starts",
        run: [vm "systemctl --no-pager status rke2-server rke2-agent k3s k3s-agent kubelet"],
        silences: [NodeMissing, NodeWriteFailed];
    GuestApiUnauthorized, "guest-api-unauthorized", Node, Error, "the guest cluster's API does not accept the kubelet's credential",
        why: "the Node can be neither read nor labelled",
        fix: "the certificates may be those of another cluster or of the image: restart rke2-server, rke2-agent or k3s, and look at its journal",
        run: [vm "journalctl --no-pager -b -n 50 -u rke2-server -u rke2-agent -u k3s -u k3s-agent -u kubelet"],
        silences: [NodeMissing, NodeWriteFailed];
    GuestApiForbidden, "guest-api-forbidden", Node, Error, "the guest cluster's API forbids the kubelet's credential what is needed",
        why: "the Node can be neither read nor labelled",
        fix: "check that the credential is the kubelet's own: its certificate must be for system:node:NODE in group system:nodes",
        run: [guest "kubectl auth can-i patch nodes/<NODE> --as=system:node:<NODE> --as-group=system:nodes"],
        silences: [NodeMissing, NodeWriteFailed];
    GuestApiTlsError, "guest-api-tls-error", Node, Error, "the certificate of the guest cluster's API is not accepted",
        why: "the Node can be neither read nor labelled",
        fix: "check the clock (timedatectl), then the certificate authority that the kubelet's kubeconfig names",
        run: [vm "timedatectl", vm "curl -vk --max-time 5 <SERVER>/livez"],
        silences: [NodeMissing, NodeWriteFailed];
    GuestApiBadResponse, "guest-api-bad-response", Node, Error, "the guest cluster's API gave an answer that cannot be used",
        why: "it is not believed",
        fix: "check what answers at the named address: a proxy or a load balancer instead of the API?",
        run: [vm "curl -vk --max-time 5 <SERVER>/version"],
        silences: [NodeMissing, NodeWriteFailed];
    NodeMissing, "node-missing", Node, Warning, "our Node does not exist in the guest cluster",
        why: "there is nothing to label; normal until the kubelet has registered",
        fix: "kubectl get nodes tells under which name the kubelet has registered, the journal of rke2-server, rke2-agent, k3s or kubelet why it has not",
        run: [guest "kubectl get nodes", vm "journalctl --no-pager -b -n 50 -u rke2-server -u rke2-agent -u k3s -u k3s-agent -u kubelet"],
        silences: [NodeWriteFailed];
    NodeWriteFailed, "node-write-failed", Node, Error, "a change of our Node was refused",
        why: "its labels or conditions are not what they should be",
        fix: "read the refusal: a label key that NodeRestriction forbids, an admission webhook, or a Node of another name",
        run: [vm "journalctl --no-pager -b -n 50 -u harvester-node-agent"];

    GuestAgentNotInstalled, "guest-agent-not-installed", GuestAgent, Warning, "QEMU's guest agent is not installed",
        why: "Harvester's cloud provider asks it for the host name (guestosinfo) and falls back to the VM's name; Harvester shows no IP addresses of the machine, and takes backups without freezing its file systems",
        fix: "install qemu-guest-agent in the image, or name it in the VM's cloud-init user-data: packages: [qemu-guest-agent]",
        silences: [GuestAgentNotConnected];
    GuestAgentNotRunning, "guest-agent-not-running", GuestAgent, Warning, "QEMU's guest agent does not run",
        why: "Harvester's cloud provider asks it for the host name (guestosinfo) and falls back to the VM's name; Harvester shows no IP addresses of the machine, and takes backups without freezing its file systems",
        fix: "see why it ended, and start it",
        run: [vm "systemctl --no-pager status qemu-guest-agent", vm "journalctl --no-pager -b -n 50 -u qemu-guest-agent"],
        silences: [GuestAgentNotEnabled, GuestAgentNotConnected];
    GuestAgentNotEnabled, "guest-agent-not-enabled", GuestAgent, Warning, "QEMU's guest agent runs, but nothing starts it at the next boot",
        why: "after a reboot Harvester's cloud provider gets no host name, and the IP addresses are missing in Harvester",
        fix: "enable its unit",
        run: [vm "systemctl enable qemu-guest-agent"];
    GuestAgentRestarting, "guest-agent-restarting", GuestAgent, Warning, "QEMU's guest agent ends and is started again",
        why: "what Harvester asks it meanwhile is lost: a backup may leave file systems frozen until it answers, IP addresses come and go",
        fix: "see in its journal why it ends",
        run: [vm "journalctl --no-pager -b -n 50 -u qemu-guest-agent"],
        silences: [GuestAgentNotConnected];
    GuestAgentRpcsBlocked, "guest-agent-rpcs-blocked", GuestAgent, Warning, "QEMU's guest agent is told not to run commands that the host needs",
        why: "KubeVirt takes it for an unsupported version (condition AgentVersionNotSupported) and Harvester gets no host name and no IP addresses from it",
        fix: "take the named commands out of the named list, then systemctl restart qemu-guest-agent",
        silences: [GuestAgentNotConnected];
    GuestAgentHostNotAttached, "guest-agent-host-not-attached", GuestAgent, Warning, "nobody on the host listens to QEMU's guest agent",
        why: "it runs in vain: to Harvester it looks as if it did not run",
        fix: "on Harvester, look at the virt-launcher pod of the VM: kubectl -n NAMESPACE logs -l vm.kubevirt.io/name=NAME -c compute; a live migration or a restart of the VM makes a new one",
        run: [harvester "kubectl -n <NAMESPACE> logs -l vm.kubevirt.io/name=<VM> -c compute --tail=100"],
        silences: [GuestAgentNotConnected];
    GuestAgentChannelMissing, "guest-agent-channel-missing", GuestAgent, Notice, "the host offers no channel for QEMU's guest agent",
        why: "the agent cannot run, and nothing in this machine can change that; Harvester shows neither host name nor IP addresses from inside",
        fix: "modprobe virtio_console, if the kernel has it as a module; otherwise the VM's domain lacks the virtio-serial channel org.qemu.guest_agent.0, which KubeVirt gives to every VM: stop the VM and start it again in Harvester",
        run: [vm "modprobe virtio_console"],
        silences: [GuestAgentNotInstalled, GuestAgentNotRunning, GuestAgentNotConnected];

    GuestAgentNotConnected, "guest-agent-not-connected", GuestAgent, Warning, "Harvester does not hear QEMU's guest agent",
        why: "Harvester has no address and no host name of the VM: load balancers find no backend, Harvester's cloud provider finds no Node of another name, and backups are taken without freezing the file systems",
        fix: "systemctl restart qemu-guest-agent; where that does not help, restart the VM in Harvester (not only its system): the channel is made when the VM starts",
        run: [vm "systemctl restart qemu-guest-agent", harvester "kubectl -n <NAMESPACE> get vmi <VM> -o 'jsonpath={.status.conditions[?(@.type==\"AgentConnected\")]}'"];

    HarvesterTooOld, "harvester-too-old", Versions, Warning, "this Harvester is too old for what this cluster needs of it",
        why: "the named function of Harvester's cloud provider or CSI driver does not work, whatever is done in the guest",
        fix: "upgrade Harvester to the named release or a later one: https://docs.harvesterhci.io/latest/upgrade/index",
        run: [harvester "kubectl get settings.harvesterhci.io server-version"];
    CloudProviderTooOld, "cloud-provider-too-old", Versions, Warning, "Harvester's cloud provider is too old",
        why: "the named function does not work; this agent keeps region and zone right without it",
        fix: "upgrade RKE2, which brings a newer one, or in Rancher the app harvester-cloud-provider (Apps, Installed Apps, namespace kube-system)",
        run: [guest "kubectl -n kube-system get pods -o yaml | grep image: | sort -u | grep harvester-cloud-provider", guest "kubectl get nodes -o wide"];
    CsiDriverTooOld, "csi-driver-too-old", Versions, Warning, "Harvester's CSI driver is too old",
        why: "volumes are not attached (ControllerPublishVolume fails or does not end), and pods wait in ContainerCreating",
        fix: "upgrade RKE2, which brings a newer one, or in Rancher the app harvester-csi-driver (Apps, Installed Apps, namespace kube-system); or give the Node the name of its VM",
        run: [guest "kubectl -n kube-system get pods -o yaml | grep image: | sort -u | grep harvester-csi-driver", guest "kubectl get csinodes -o yaml | grep -B1 nodeID"];
    CsiAttachesToWrongVm, "csi-attaches-to-wrong-vm", Versions, Error, "this release of Harvester's CSI driver attaches volumes to the wrong VM",
        why: "a volume appears in another VM, perhaps of another cluster, and the pod that asked for it waits; two writers of one volume destroy it",
        fix: "upgrade Harvester's CSI driver to 0.2.2 or later: RKE2 1.29.12, 1.30.8, 1.31.4, 1.32.0 and later bring it, in Rancher the app harvester-csi-driver; the csinodes tell which VM each Node has become",
        run: [guest "kubectl get csinodes -o yaml | grep -B1 nodeID", guest "kubectl -n kube-system get pods -o yaml | grep image: | sort -u | grep harvester-csi-driver"];
    KubeletTooOld, "kubelet-too-old", Versions, Warning, "this RKE2 is too old for Harvester's topology",
        why: "the cloud provider that it brings sets no region and zone on a Node (InstanceMetadata); this agent does",
        fix: "upgrade RKE2 to 1.22.12, 1.23.9, 1.24.3 or later",
        run: [guest "kubectl get nodes -o wide"];
    DistributionEol, "distribution-eol", Versions, Warning, "this Kubernetes distribution gets no more releases",
        why: "no fault of it is repaired any more, and the cloud provider and CSI driver that it brings stay as they are",
        fix: "make a new cluster with RKE2 and move what runs here to it: RKE1 cannot be upgraded to it in place",
        run: [guest "kubectl get nodes -o wide"];
    KubeletVersionSkew, "kubelet-version-skew", Versions, Warning, "the versions of kubelet and API server do not go together",
        why: "Kubernetes supports no kubelet that is newer than its API server, or older by more than three minor versions (two before 1.28); which fields and labels either drops is not told",
        fix: "upgrade the servers of the cluster first, then this Node",
        run: [guest "kubectl version", guest "kubectl get nodes -o wide"];

    LabelFileNotManaged, "label-file-not-managed", Node, Notice, "a file that tells the kubelet its first labels is somebody else's",
        why: "it is left as it is, and the labels that it sets may be those of another host",
        fix: "nothing, if you keep the file; otherwise remove it: the agent needs none on a Node that is registered";
    LabelFileNotWritten, "label-file-not-written", Node, Warning, "the file that tells the kubelet its first labels cannot be changed",
        why: "the next start of the kubelet sets the labels that stand in it, until the agent sets the right ones again",
        fix: "systemctl restart harvester-node-agent: a directory that was made after its start is read-only to it; is it still refused, allow the named directory in the unit: systemctl edit harvester-node-agent, ReadWritePaths=DIRECTORY",
        run: [vm "systemctl restart harvester-node-agent"];
    LabelFileWithoutEffect, "label-file-without-effect", Node, Warning, "the kubelet does not see the file that tells it its first labels",
        why: "the Node registers without region, zone and host, and has them only when the agent has set them",
        fix: "remove the named variable from the named file";

    ConfigInvalid, "config-invalid", Machine, Error, "our configuration has faults",
        why: "a service that starts with them does nothing until they are corrected; what is said here of the rest was looked at with the defaults",
        fix: "correct the named lines; the service takes the new configuration as soon as it has no fault",
        run: [vm "harvester-node-agent config check"],
        silences: [ConfigReloadFailed, AgentNotRunning, HarvesterCredentialMissing, KubeletCredentialMissing, VmNotFound,
            IdentityAmbiguous, NoTopologySource];
    ConfigReloadFailed, "config-reload-failed", Machine, Warning, "the new configuration has faults; the one before stays in use",
        why: "what was changed has no effect yet",
        fix: "harvester-node-agent config check, then systemctl reload harvester-node-agent",
        run: [vm "harvester-node-agent config check", vm "systemctl reload harvester-node-agent"];
    DistributionFileBroken, "distribution-file-broken", Machine, Warning, "a configuration file of the distribution cannot be understood",
        why: "paths or names that it sets are not known to the agent",
        fix: "correct the named file";
    AgentNotRunning, "agent-not-running", Machine, Warning, "harvester-node-agent does not run as a service here",
        why: "nobody brings the labels up to date: after a live migration they stay those of the host before",
        fix: "start it, and see in its journal why it ended",
        run: [vm "systemctl enable --now harvester-node-agent", vm "journalctl --no-pager -b -n 50 -u harvester-node-agent"];
    ClockSkew, "clock-skew", Machine, Error, "the clock is wrong, and certificates or tokens are refused for it",
        why: "what is valid seems to have ended or not to have begun, here or at the server: the kubelet, the CSI driver and the cloud provider fail with x509 errors or 401, and new certificates do not help",
        fix: "compare the clock with that of another machine; set it right and keep it in step, then restart the distribution's service: certificates that were made meanwhile have the wrong dates",
        run: [vm "timedatectl", vm "timedatectl set-ntp true", vm "chronyc makestep"],
        silences: [CredentialExpires, HarvesterCredentialExpired, KubeletCredentialExpired, HarvesterTlsError, GuestApiTlsError, HarvesterUnauthorized, GuestApiUnauthorized, ClockDrift, ClockNotSynchronized];
    ClockDrift, "clock-drift", Machine, Warning, "the clock of this machine and that of a server differ",
        why: "new certificates and tokens are refused until both agree, leases of the cluster end early or late, and logs cannot be put in order",
        fix: "compare both clocks with a third, set the wrong one right and keep it in step",
        run: [vm "timedatectl", vm "timedatectl set-ntp true"],
        silences: [ClockNotSynchronized];
    ClockNotSynchronized, "clock-not-synchronized", Machine, Notice, "nothing keeps the clock of this machine in step",
        why: "it goes wrong slowly, and after a restore or a long pause of the VM at once; certificates are judged by it",
        fix: "install chrony or systemd-timesyncd and let it run",
        run: [vm "timedatectl set-ntp true"];
    StateDiscarded, "state-discarded", Machine, Notice, "the state of an earlier run was not used",
        why: "it belongs to another machine (a cloned image) or cannot be read; everything is found out again",
        fix: "nothing; for images, remove /var/lib/harvester-node-agent before taking the image";
    WatchUnavailable, "watch-unavailable", HarvesterApi, Warning, "a change is noticed late, because a watch cannot be kept open",
        why: "until it can, the agent looks again at intervals",
        fix: "allow verb watch for the named resource (`harvester-node-agent rbac` prints the roles for Harvester), or look for a proxy that ends idle connections",
        run: [vm "harvester-node-agent status", vm "harvester-node-agent rbac > /root/rbac.yaml", harvester "kubectl apply -f rbac.yaml"];
    SignalUnavailable, "signal-unavailable", Machine, Warning, "a change is noticed late, because a signal of this machine does not work",
        why: "until it does, the other signals and the poll must do",
        fix: "harvester-node-agent status lists all signals and why each does not work; what a sandbox forbids is allowed with systemctl edit harvester-node-agent (RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK, ProcSubset=all, DeviceAllow=char-virtio-portsdev rw), a port that another program holds by stopping that program (fuser -v /dev/virtio-ports/*)",
        run: [vm "harvester-node-agent status"];
    DownwardMetricsUnusable, "downward-metrics-unusable", Placement, Warning, "the host's downward metrics cannot be used",
        why: "without Harvester's API they are all that tells which host runs this VM; the labels stay as they are",
        fix: "if they are stale, compare the clocks (timedatectl here, date on the host); if another program holds the port, stop it (vm-dump-metrics, the SAP host agent); otherwise see that virt-handler runs on the host: kubectl -n harvester-system get pods -l kubevirt.io=virt-handler -o wide",
        run: [vm "timedatectl", harvester "kubectl -n harvester-system get pods -l kubevirt.io=virt-handler -o wide"];
    MetricsUnavailable, "metrics-unavailable", Machine, Warning, "metrics cannot be told where the configuration says",
        why: "a Prometheus that looks there gets nothing, or what once was, and no alert of this machine comes",
        fix: "for a port in use: ss -ltnp names who has it; choose another in [metrics] listen; for a socket or file that may not be made: put the socket into /run/harvester-node-agent and the file where node-exporter looks, or allow its directory to the unit with systemctl edit harvester-node-agent, ReadWritePaths=DIRECTORY; then systemctl reload harvester-node-agent",
        run: [vm "ss -ltnp", vm "systemctl reload harvester-node-agent"];
    AgentNotEnabled, "agent-not-enabled", Image, Warning, "nothing starts harvester-node-agent at the next boot",
        why: "after a reboot the labels stay what they are, wherever the VM runs then",
        fix: "enable the unit here, and in the image: the package does, unless a preset of the distribution forbids it",
        run: [vm "systemctl unmask harvester-node-agent", vm "systemctl enable harvester-node-agent"];
    IdentityFromImage, "identity-from-image", Image, Warning, "this machine has an identity that came with its image",
        why: "all machines of one image share it: with one machine-id DHCP gives them one address and their journals cannot be told apart, with one node password RKE2 and K3s refuse the second Node",
        fix: "empty the file in the image (harvester-node-agent bake-check finds all such files) and make the machines anew; of a machine-id alone: rm /etc/machine-id, then systemd-machine-id-setup, then reboot",
        run: [image "harvester-node-agent bake-check --root /mnt"];
    UnexpectedObject, "unexpected-object", HarvesterApi, Error, "an API delivered an object that was not asked for",
        why: "it was dropped; something between here and the API mixes up answers",
        fix: "look for a broken proxy or cache at the named address";
}
