// SPDX-License-Identifier: Apache-2.0
//! What the Harvester credential may do, what each of it is good for, and what is lost without it.

use super::Fact;
use super::placement::Source;

/// A request that would be of use.
#[derive(Debug, PartialEq, Eq)]
pub struct PermissionUse {
    /// Verb.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// Where its objects are.
    pub place: PermissionPlace,
    /// The source of region and zone that sends it; `None` for what finds and follows the VM.
    pub source: Option<Source>,
    /// What it is good for.
    pub purpose: &'static str,
    /// What is lost without it.
    pub without: &'static str,
}

/// Where the objects of a request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionPlace {
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
pub static USEFUL: &[PermissionUse] = &[
    PermissionUse {
        verb: "get",
        group: "kubevirt.io",
        resource: INSTANCES,
        place: PermissionPlace::Vm,
        source: None,
        purpose: "required: reads the VM and its host",
        without: "live migrations are not followed (finding harvester-forbidden)",
    },
    PermissionUse {
        verb: "list",
        group: "kubevirt.io",
        resource: INSTANCES,
        place: PermissionPlace::Vm,
        source: None,
        purpose: "finds the VM if no name matches, and its duplicates",
        without: "the VM is found only by a name of this node, or by [harvester] vm in its configuration",
    },
    PermissionUse {
        verb: "watch",
        group: "kubevirt.io",
        resource: INSTANCES,
        place: PermissionPlace::Vm,
        source: None,
        purpose: "detects a migration immediately",
        without: "a migration without a hint in the guest is detected within ten minutes (finding watch-unavailable)",
    },
    PermissionUse {
        verb: "get",
        group: "",
        resource: "nodes",
        place: PermissionPlace::Cluster,
        source: Some(Source::HostNode),
        purpose: "source host-node: any VM, any host label",
        without: "region and zone come from the other sources, [labels.extra] only from the ConfigMap",
    },
    PermissionUse {
        verb: "list",
        group: "",
        resource: "pods",
        place: PermissionPlace::Vm,
        source: Some(Source::LauncherPod),
        purpose: "source launcher-pod, used if host-node and vmi-annotations provide nothing",
        without: "region and zone come from the other sources",
    },
    PermissionUse {
        verb: "get",
        group: "",
        resource: "configmaps",
        place: PermissionPlace::ConfigMap,
        source: Some(Source::ConfigMap),
        purpose: "source configmap, used if the earlier sources provide nothing",
        without: "region and zone come from the other sources",
    },
];

/// The answer to one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The request.
    pub useful: &'static PermissionUse,
    /// Whether it would be let through.
    pub allowed: Fact<bool>,
}
