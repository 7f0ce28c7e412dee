// SPDX-License-Identifier: Apache-2.0
//! The objects that the two simulated APIs serve: VirtualMachineInstances and hosts on Harvester's side, Nodes on the guest cluster's.

use harvester_lab::names::{REGION, ZONE};
use serde_json::{Map, Value, json};

use crate::facts::names::firmware_uuid;

/// VMs on one host, as far as there are so many.
pub(super) const VMS_PER_HOST: usize = 200;

/// VMs in one namespace.
pub(super) const VMS_PER_NAMESPACE: usize = 50;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Which API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Side {
    /// Harvester's.
    Harvester,
    /// The guest cluster's.
    Guest,
}

impl Side {
    /// Both.
    pub(super) const BOTH: [Self; 2] = [Self::Harvester, Self::Guest];

    /// The position in arrays of both.
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// The name of a VM, its hostname and its Node.
pub(super) fn vm_name(agent: usize) -> String {
    format!("vm-{agent:05}")
}

/// The namespace of a VM.
pub(super) fn namespace(agent: usize) -> String {
    format!("tenant-{:03}", agent / VMS_PER_NAMESPACE)
}

/// The number in the name of a VM or a host.
pub(super) fn number(name: &str) -> Option<usize> {
    name.rsplit('-').next()?.parse().ok()
}

struct Vm {
    host: usize,
    /// The host that Harvester's annotations name: for a moment after a migration the one before.
    annotated: usize,
    /// How many migrations have started, and whether the last one has ended.
    migrations: usize,
    is_migrated: bool,
    version: u64,
}

struct Node {
    object: Value,
    version: u64,
}

/// The objects of both sides, and the versions of both stores.
pub(super) struct Store {
    vms: Vec<Vm>,
    zones: Vec<String>,
    nodes: Vec<Node>,
    /// The last version of each side.
    versions: [u64; 2],
    /// Versions before this one are compacted.
    pub(super) compacted: [u64; 2],
}

/// A request for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The VMI of this agent.
    Vmi(usize),
    /// All VMIs of a namespace.
    Namespace(String),
    /// The Node of a host.
    Host(usize),
    /// The Node of this agent.
    Node(usize),
    /// The status of the Node of this agent.
    NodeStatus(usize),
    /// Events.
    Events,
    /// A collection that is watched by the name of an object.
    Collection,
    /// Anything else.
    Unknown,
}

impl Wanted {
    /// What a path of one side leads to.
    pub(super) fn parse(side: Side, path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let found = match (side, &parts[..]) {
            (Side::Guest, ["api", "v1", "nodes"]) => Some(Self::Collection),
            (Side::Guest, ["api", "v1", "nodes", name]) => number(name).map(Self::Node),
            (Side::Guest, ["api", "v1", "nodes", name, "status"]) => {
                number(name).map(Self::NodeStatus)
            }
            (Side::Guest, [.., "namespaces", _, "events"]) => Some(Self::Events),
            (Side::Harvester, ["api", "v1", "nodes", name]) => number(name).map(Self::Host),
            (Side::Harvester, [.., "namespaces", space, "virtualmachineinstances"]) => {
                Some(Self::Namespace((*space).to_owned()))
            }
            (Side::Harvester, [.., "virtualmachineinstances", name]) => number(name).map(Self::Vmi),
            _ => None,
        };
        found.unwrap_or(Self::Unknown)
    }
}

impl Store {
    /// VMs spread over hosts, their Nodes not labeled yet.
    pub(super) fn new(agents: usize) -> Self {
        let hosts = agents.div_ceil(VMS_PER_HOST).max(3);
        let vm = |agent: usize| Vm {
            host: agent % hosts,
            annotated: agent % hosts,
            migrations: 0,
            is_migrated: false,
            version: 1_000_000,
        };
        Self {
            vms: (0..agents).map(vm).collect(),
            zones: (0..hosts).map(|host| format!("rack-{host}")).collect(),
            nodes: (0..agents)
                .map(|agent| registered(agent, agent % hosts))
                .collect(),
            versions: [2_000_000; 2],
            compacted: [0; 2],
        }
    }

    /// The number of hosts.
    pub(super) fn hosts(&self) -> usize {
        self.zones.len()
    }

    /// The agents whose VMs run on a host.
    pub(super) fn on_host(&self, host: usize) -> Vec<usize> {
        let vms = self.vms.iter().enumerate();
        vms.filter(|(_, vm)| vm.host == host)
            .map(|(agent, _)| agent)
            .collect()
    }

    /// The last version of a side.
    pub(super) fn version(&self, side: Side) -> u64 {
        self.versions[side.index()]
    }

    /// The version of what an agent watches on a side.
    pub(super) fn version_of(&self, side: Side, agent: usize) -> u64 {
        match side {
            Side::Harvester => self.vms[agent].version,
            Side::Guest => self.nodes[agent].version,
        }
    }

    fn next(&mut self, side: Side) -> u64 {
        self.versions[side.index()] += 1;
        self.versions[side.index()]
    }

    /// The versions go back, as after a restore of etcd from a backup.
    pub(super) fn restore(&mut self, side: Side, by: u64) {
        let version = &mut self.versions[side.index()];
        *version = version.saturating_sub(by);
        let last = *version;
        match side {
            Side::Harvester => {
                for vm in &mut self.vms {
                    vm.version = vm.version.min(last);
                }
            }
            Side::Guest => {
                for node in &mut self.nodes {
                    node.version = node.version.min(last);
                }
            }
        }
    }

    /// Starts a migration.
    pub(super) fn start_migration(&mut self, agent: usize) {
        let version = self.next(Side::Harvester);
        let vm = &mut self.vms[agent];
        vm.migrations += 1;
        vm.is_migrated = false;
        vm.version = version;
    }

    /// Moves a VM to another host, as the end of its migration.
    pub(super) fn migrate(&mut self, agent: usize) {
        let hosts = self.hosts();
        let version = self.next(Side::Harvester);
        let vm = &mut self.vms[agent];
        vm.host = (vm.host + 1) % hosts;
        vm.is_migrated = true;
        vm.version = version;
    }

    /// Harvester annotates a VM for the host that runs it.
    pub(super) fn annotate(&mut self, agent: usize) {
        let version = self.next(Side::Harvester);
        let vm = &mut self.vms[agent];
        vm.annotated = vm.host;
        vm.version = version;
    }

    /// Moves a host to another rack. Harvester copies that to the annotations of each VMI on it.
    pub(super) fn relabel(&mut self, host: usize) -> Vec<usize> {
        self.zones[host].push_str("-new");
        let agents = self.on_host(host);
        for agent in &agents {
            self.vms[*agent].version = self.next(Side::Harvester);
        }
        agents
    }

    /// Another writer, such as the kubelet, changes the status of a Node.
    pub(super) fn touch(&mut self, agent: usize) {
        let version = self.next(Side::Guest);
        self.nodes[agent].version = version;
    }

    /// Whether the zone of an agent's Node is that of the host that runs its VM.
    pub(super) fn is_labeled(&self, agent: usize) -> bool {
        let zone = &self.zones[self.vms[agent].host];
        self.nodes[agent].object["metadata"]["labels"][ZONE] == zone.as_str()
    }

    /// The text of what an agent watches on a side.
    pub(super) fn watched(&self, side: Side, agent: usize, is_metadata_only: bool) -> String {
        match side {
            Side::Harvester => self.vmi(agent),
            Side::Guest => self.node(agent, is_metadata_only),
        }
    }

    /// The text of a VMI.
    pub(super) fn vmi(&self, agent: usize) -> String {
        let vm = &self.vms[agent];
        let (name, namespace, host) = (vm_name(agent), namespace(agent), vm.host);
        let (uuid, version) = (firmware_uuid(&name), vm.version);
        let (annotated, zone) = (vm.annotated, &self.zones[vm.annotated]);
        let migration = match (vm.migrations, vm.is_migrated) {
            (0, _) => String::new(),
            (count, false) => {
                format!(r#","migrationState":{{"migrationUid":"migration-{agent}-{count}"}}"#)
            }
            (count, true) => format!(
                r#","migrationState":{{"migrationUid":"migration-{agent}-{count}","completed":true,"endTimestamp":"2026-01-01T00:00:00Z"}}"#
            ),
        };
        format!(
            r#"{{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"vmi-{agent}","resourceVersion":"{version}","labels":{{"harvesterhci.io/creator":"docker-machine-driver-harvester"}},"annotations":{{"{HOSTNAME}":"hv-{annotated}","{REGION}":"eu-1","{ZONE}":"{zone}"}},"ownerReferences":[{{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"{name}","uid":"uid-vm-{agent}"}}]}},"spec":{{"domain":{{"firmware":{{"uuid":"{uuid}"}},"devices":{{}}}}}},"status":{{"nodeName":"hv-{host}","phase":"Running","conditions":[{{"type":"AgentConnected","status":"True"}}],"activePods":{{"pod-{agent}":"hv-{host}"}}{migration}}}}}"#
        )
    }

    /// The text of all VMIs of a namespace, and how many they are.
    pub(super) fn vmis(&self, space: &str) -> (String, usize) {
        let of_space = |agent: &usize| namespace(*agent) == space;
        let first = number(space).unwrap_or_default() * VMS_PER_NAMESPACE;
        let last = (first + VMS_PER_NAMESPACE).min(self.vms.len());
        let items: Vec<String> = (first..last)
            .filter(of_space)
            .map(|agent| self.vmi(agent))
            .collect();
        let version = self.version(Side::Harvester);
        let text = format!(
            r#"{{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstanceList","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
            items.join(",")
        );
        (text, items.len())
    }

    /// The text of a host's Node.
    pub(super) fn host(&self, host: usize) -> Option<String> {
        let zone = self.zones.get(host)?;
        let labels = json!({REGION: "eu-1", ZONE: zone, HOSTNAME: format!("hv-{host}")});
        let metadata = json!({"name": format!("hv-{host}"), "uid": format!("host-{host}"), "resourceVersion": "1", "labels": labels});
        Some(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}).to_string())
    }

    /// The text of an agent's Node.
    pub(super) fn node(&self, agent: usize, is_metadata_only: bool) -> String {
        let Node { object, version } = &self.nodes[agent];
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        match is_metadata_only {
            true => json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
                .to_string(),
            false => object.to_string(),
        }
    }

    /// Patches an agent's Node or its status.
    pub(super) fn patch(&mut self, agent: usize, patch: &Value) {
        let version = self.next(Side::Guest);
        let node = &mut self.nodes[agent];
        node.version = version;
        for field in ["/metadata/labels", "/metadata/annotations", "/spec"] {
            let (Some(Value::Object(changes)), Some(Value::Object(target))) =
                (patch.pointer(field), node.object.pointer_mut(field))
            else {
                continue;
            };
            merge(target, changes);
        }
        let target = node.object["status"]["conditions"].as_array_mut();
        if let (Some(changes), Some(target)) = (patch["status"]["conditions"].as_array(), target) {
            for change in changes {
                let same = target
                    .iter_mut()
                    .find(|condition| condition["type"] == change["type"]);
                match (same, change.as_object()) {
                    (Some(Value::Object(same)), Some(change)) => merge(same, change),
                    _ => target.push(change.clone()),
                }
            }
        }
    }
}

fn merge(target: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, value) in changes {
        match value {
            Value::Null => target.remove(key),
            value => target.insert(key.clone(), value.clone()),
        };
    }
}

/// A Node as the kubelet registers it and Harvester's cloud provider initializes it.
fn registered(agent: usize, host: usize) -> Node {
    let (name, zone) = (vm_name(agent), format!("rack-{host}"));
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("node-{agent}"),
            "labels": {
                HOSTNAME: name, "kubernetes.io/os": "linux", REGION: "eu-1", ZONE: zone,
                "failure-domain.beta.kubernetes.io/region": "eu-1", "failure-domain.beta.kubernetes.io/zone": zone,
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"providerID": format!("harvester://uid-vm-{agent}")},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}]},
    });
    Node {
        object,
        version: 1_000_000,
    }
}
