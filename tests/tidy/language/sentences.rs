// SPDX-License-Identifier: Apache-2.0
//! Sentences that were in texts, each as far as it is distinctive, and what the texts say now.

/// What a text said, and what it says now.
pub(super) const SENTENCES: &[(&str, &str)] = &[
    (
        "a credential or certificate ends soon or has ended",
        "certificate or token expires within 30 days",
    ),
    (
        "from then on one side refuses the other",
        "After expiry, authentication or TLS verification between this node and the API server fails.",
    ),
    (
        "the token of the Harvester credential has ended",
        "Harvester token has expired",
    ),
    (
        "somebody else keeps changing the topology labels back",
        "another writer keeps reverting the agent's labels or annotations",
    ),
    (
        "pods are spread by a zone in which this Node is not",
        "The scheduler uses a zone this Node is not in; if the writer returns, the label flaps.",
    ),
    (
        "by hand set both at once, never one alone",
        "If you change them manually, set both in one command.",
    ),
    (
        "no cloud provider has taken the Node on",
        "Node has not been initialized by a cloud provider",
    ),
    (
        "ends and is started again",
        "Harvester cloud provider or CSI driver is crash-looping",
    ),
    (
        "beside Harvester's cloud provider each writes its own",
        "It sets region and zone only when the Node is created, not after a migration, and conflicts with the Harvester cloud provider.",
    ),
    (
        "names Harvester's web address and not its API",
        "Harvester kubeconfig points to the UI (port 443) instead of the API server (port 6443)",
    ),
    (
        "is of another namespace than the one it is used for",
        "Harvester credential belongs to a different namespace than the VM",
    ),
    (
        "who can change it can send the agent",
        "Anyone who can write this file can redirect the agent, kubelet or CSI driver, and their credentials, to another server.",
    ),
    (
        "the Harvester credential may not read the VM",
        "Harvester credential is not allowed to read the VM (403)",
    ),
    (
        "it takes a volume for one that needs nothing",
        "It cannot tell that a ReadWriteMany volume needs extra steps, so the volume is never mounted; a missing StorageClass is not reported.",
    ),
    (
        "something between here and an API ends watches again and again",
        "watch connections are repeatedly closed, probably by a proxy or load balancer",
    ),
    (
        "gave an answer that cannot be used",
        "unexpected response from the Harvester API",
    ),
    (
        "forbids the kubelet's credential what is needed",
        "kubelet credential lacks required permissions in the guest cluster",
    ),
    (
        "is told not to run commands that the host needs",
        "qemu-guest-agent blocks RPCs that the host needs",
    ),
    (
        "Harvester does not hear QEMU's guest agent",
        "qemu-guest-agent is not connected (VMI condition AgentConnected is not True)",
    ),
    (
        "which fields and labels either drops is not told",
        "Unsupported skew can silently drop fields and labels.",
    ),
    (
        "a file that tells the kubelet its first labels is somebody else's",
        "kubelet registration-label file is not managed by the agent",
    ),
    (
        "nobody brings the labels up to date",
        "Topology labels are not updated; after a live migration they still show the previous host.",
    ),
    (
        "the clock is wrong",
        "clock skew makes certificates or tokens invalid",
    ),
    (
        "metrics cannot be told where the configuration says",
        "metrics cannot be exported (listener or textfile failed)",
    ),
    ("for a user that it does not tell", "user unknown"),
    (
        "a virtual NIC announced itself anew",
        "possible live migration (link: virtio NIC sent GUEST_ANNOUNCE); querying current host",
    ),
    (
        "and it is asked again until it is known",
        "Harvester API unavailable; labels unchanged, retrying",
    ),
    (
        "configuration has faults, nothing is done until it is mended",
        "invalid configuration; idle until it is fixed (run: harvester-node-agent config check)",
    ),
    (
        "no agent runs here now",
        "agent is not running; showing last status",
    ),
    (
        "End with 3 when all that is found are warnings",
        "Exit with status 3 if there are only warnings",
    ),
    (
        "Look, write what is to be written, and end",
        "Reconcile the Node once and exit",
    ),
    (
        "Hold the kubelet's first start until its name is the VM's",
        "Wait for the VM name before the kubelet starts",
    ),
    (
        "which only hosts with Kubernetes 1.35 or later give a use",
        "Omit the rule for pods (only used if the hosts run Kubernetes 1.35 or later)",
    ),
    (
        "the kernel gives no event loop",
        "failed to create event loop",
    ),
    (
        "the credential did not reach the server, which took us for nobody",
        "request was treated as anonymous: the credential did not reach the server (403)",
    ),
    (
        "not there for one without an end",
        "absent if it does not expire",
    ),
    (
        "has labels of region and zone that are not known to be its host's",
        "Topology labels are not in sync with its Harvester host",
    ),
    (
        "a file that is not there it does not make",
        "The agent keeps an existing file in sync with the Node's labels but never creates it.",
    ),
    (
        "Description=Harvester node agent: the first start of the kubelet",
        "Description=Harvester Node Name Check before Kubelet Start",
    ),
    (
        "a file that nobody keeps goes on telling the labels of today",
        "otherwise the stale file keeps registering the node with outdated labels",
    ),
    (
        "a configuration with faults is not used, and the one before stays",
        "On reload, an invalid configuration is rejected and the previous one stays in effect.",
    ),
    (
        "an API that says nothing is given up after 3 seconds",
        "Requests time out after 3s; checks that did not finish are reported as skipped.",
    ),
];
