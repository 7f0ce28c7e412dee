// SPDX-License-Identifier: Apache-2.0
//! What the Harvester credential may do, what each of it is good for, and what is lost without it.

use super::Seen;
use super::placement::Source;

/// A request that would be of use.
#[derive(Debug, PartialEq, Eq)]
pub struct Useful {
    /// Verb.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// Where its objects are.
    pub place: Place,
    /// The source of region and zone that sends it; `None` for what finds and follows the VM.
    pub source: Option<Source>,
    /// What it is good for.
    pub purpose: &'static str,
    /// What is lost without it.
    pub without: &'static str,
}

/// Where the objects of a request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the VM's namespace.
    Vm,
    /// In the namespace of the ConfigMap with the hosts' topology.
    ConfigMap,
    /// In none.
    Cluster,
}

/// The resource of the VM itself.
pub const INSTANCES: &str = "virtualmachineinstances";

/// All requests that the agent sends to Harvester, beside the question what it may do, which everybody may ask, and two
/// that find out, when nothing else can be read, whether the credential leads to the guest cluster.
pub static USEFUL: &[Useful] = &[
    Useful {
        verb: "get",
        group: "kubevirt.io",
        resource: INSTANCES,
        place: Place::Vm,
        source: None,
        purpose: "required: reads the VM and its host",
        without: "live migrations are not followed (finding harvester-forbidden)",
    },
    Useful {
        verb: "list",
        group: "kubevirt.io",
        resource: INSTANCES,
        place: Place::Vm,
        source: None,
        purpose: "finds the VM if no name matches, and its duplicates",
        without: "the VM is found only by a name of this node, or by [harvester] vm in its configuration",
    },
    Useful {
        verb: "watch",
        group: "kubevirt.io",
        resource: INSTANCES,
        place: Place::Vm,
        source: None,
        purpose: "detects a migration immediately",
        without: "a migration without a hint in the guest is detected within ten minutes (finding watch-unavailable)",
    },
    Useful {
        verb: "get",
        group: "",
        resource: "nodes",
        place: Place::Cluster,
        source: Some(Source::HostNode),
        purpose: "source host-node: any VM, any host label",
        without: "region and zone come from the other sources, [labels.extra] only from the ConfigMap",
    },
    Useful {
        verb: "list",
        group: "",
        resource: "pods",
        place: Place::Vm,
        source: Some(Source::LauncherPod),
        purpose: "source launcher-pod, used if host-node and vmi-annotations provide nothing",
        without: "region and zone come from the other sources",
    },
    Useful {
        verb: "get",
        group: "",
        resource: "configmaps",
        place: Place::ConfigMap,
        source: Some(Source::ConfigMap),
        purpose: "source configmap, used if the earlier sources provide nothing",
        without: "region and zone come from the other sources",
    },
];

/// The answer to one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The request.
    pub useful: &'static Useful,
    /// Whether it would be let through.
    pub allowed: Seen<bool>,
}
