// SPDX-License-Identifier: Apache-2.0
//! The permissions of the Harvester credential, their purpose, and the effect of a missing one.

use super::Fact;
use super::placement::Source;

/// A request that the agent can use.
#[derive(Debug, PartialEq, Eq)]
pub struct PermissionUse {
    /// The verb.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural name of the resource.
    pub resource: &'static str,
    /// The location of its objects.
    pub place: PermissionPlace,
    /// The source of region and zone that sends it; `None` for requests that find and watch the VM.
    pub source: Option<Source>,
    /// The purpose of the request.
    pub purpose: &'static str,
    /// The effect if it is not allowed.
    pub without: &'static str,
}

/// The location of the objects of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionPlace {
    /// The namespace of the VM.
    Vm,
    /// The namespace of the ConfigMap with the topology of the hosts.
    ConfigMap,
    /// The cluster scope.
    Cluster,
}

/// The resource of the VM instance.
pub const INSTANCES: &str = "virtualmachineinstances";

/// The resource of the VM.
pub const VIRTUAL_MACHINES: &str = "virtualmachines";

/// All requests that the agent sends to Harvester, except the access review, which all users may send, and two requests that
/// check, if nothing else can be read, whether the server is the guest cluster.
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
        group: "kubevirt.io",
        resource: VIRTUAL_MACHINES,
        place: PermissionPlace::Vm,
        source: None,
        purpose: "finds why the VM is stopped",
        without: "the scheduled event of a stop has the reason VMStopped, whatever stops the VM",
    },
    PermissionUse {
        verb: "get",
        group: "",
        resource: "nodes",
        place: PermissionPlace::Cluster,
        source: Some(Source::HostNode),
        purpose: "source host-node: all hosts",
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

/// The result of an access review for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The request.
    pub useful: &'static PermissionUse,
    /// Whether the request is allowed.
    pub allowed: Fact<bool>,
}
