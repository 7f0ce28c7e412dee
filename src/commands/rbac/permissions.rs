// SPDX-License-Identifier: Apache-2.0
//! The permissions of the Harvester credential, their purpose, the effect of a missing one, and whether each is allowed.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::agent::Round;
use crate::catalog::Api;
use crate::config::Settings;
use crate::facts::placement::Source;
use crate::facts::{Fact, UnavailableKind};
use crate::observe::api_access::Connections;
use crate::observe::why;
use crate::report::status::PermissionStatus;
use crate::wire::kubeapi::ResourceAttributes;

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

/// The time limit of one review.
const REVIEW_LIMIT: Duration = Duration::from_secs(3);

/// The resource of the VM instance.
pub const INSTANCES: &str = "virtualmachineinstances";

/// The resource of the VM.
pub const VIRTUAL_MACHINES: &str = "virtualmachines";

/// All requests that the agent sends to Harvester, except the access review, which all users may send, and two requests that
/// check, if nothing else can be read, whether the server is the guest cluster.
#[rustfmt::skip]
pub static USEFUL: &[PermissionUse] = &[
    PermissionUse {
        verb: "get", group: "kubevirt.io", resource: INSTANCES, place: PermissionPlace::Vm, source: None,
        purpose: "required: reads the VM and its host",
        without: "live migrations are not followed (finding harvester-forbidden)",
    },
    PermissionUse {
        verb: "list", group: "kubevirt.io", resource: INSTANCES, place: PermissionPlace::Vm, source: None,
        purpose: "finds the VM if no name matches, and its duplicates",
        without: "the VM is found only by a name of this node, or by [harvester] vm in its configuration",
    },
    PermissionUse {
        verb: "watch", group: "kubevirt.io", resource: INSTANCES, place: PermissionPlace::Vm, source: None,
        purpose: "detects a migration immediately",
        without: "a migration without a hint in the guest is detected within ten minutes (finding watch-unavailable)",
    },
    PermissionUse {
        verb: "get", group: "kubevirt.io", resource: VIRTUAL_MACHINES, place: PermissionPlace::Vm, source: None,
        purpose: "finds why the VM is stopped",
        without: "the scheduled event of a stop has the reason VMStopped, whatever stops the VM",
    },
    PermissionUse {
        verb: "get", group: "", resource: "nodes", place: PermissionPlace::Cluster, source: Some(Source::HostNode),
        purpose: "source host-node: all hosts",
        without: "region and zone come from the other sources, [labels.extra] only from the ConfigMap",
    },
    PermissionUse {
        verb: "list", group: "", resource: "pods", place: PermissionPlace::Vm, source: Some(Source::LauncherPod),
        purpose: "source launcher-pod, used if host-node and vmi-annotations provide nothing",
        without: "region and zone come from the other sources",
    },
    PermissionUse {
        verb: "get", group: "", resource: "configmaps", place: PermissionPlace::ConfigMap, source: Some(Source::ConfigMap),
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

/// Returns whether each of [`USEFUL`] is allowed; empty if there is no credential. A review that is not answered never takes the
/// answers of others away. None is requested if the round could not read the API: it would only fail once more.
pub async fn read(
    connections: &Connections,
    settings: &Settings,
    round: &Round,
    until: Instant,
) -> Vec<Permission> {
    let Ok(link) = connections.harvester.link() else {
        return Vec::new();
    };
    let failure = round.observation.read_failure(Api::Harvester);
    let failure = failure.filter(|why| why.kind.is_passing());
    let mut permissions = Vec::new();
    for (useful, attributes) in reviews(settings, round) {
        let limit = until.min(Instant::now() + REVIEW_LIMIT);
        let allowed = match failure {
            Some(why) => Fact::Failed(why.skipping()),
            None => match timeout_at(limit, link.client.may(&attributes)).await {
                Ok(Ok(review)) => Fact::Known(review.allowed),
                Ok(Err(error)) => Fact::Failed(why(&error)),
                Err(_) => Fact::failed(UnavailableKind::Unreachable, "timed out"),
            },
        };
        permissions.push(Permission { useful, allowed });
    }
    permissions
}

/// Returns the access review for each of [`USEFUL`]; none without a credential. A role may allow single names only, so a review
/// names the objects that are known.
pub fn reviews(
    settings: &Settings,
    round: &Round,
) -> Vec<(&'static PermissionUse, ResourceAttributes)> {
    let Some(harvester) = round.observation.harvester.known() else {
        return Vec::new();
    };
    let configmap = &settings.topology.configmap;
    let vm = round.identity.vmi().map(|vmi| vmi.name.as_str());
    let host = round.placement.as_ref();
    let host = host.map(|placement| placement.host.as_str());
    let review = |useful: &'static PermissionUse| {
        let (namespace, name) = match useful.place {
            PermissionPlace::Vm => (
                Some(harvester.namespace.as_str()),
                vm.filter(|_| useful.resource == INSTANCES),
            ),
            PermissionPlace::ConfigMap => (Some(configmap.namespace()), Some(configmap.name())),
            PermissionPlace::Cluster => (None, host),
        };
        let attributes = ResourceAttributes {
            namespace: namespace.map(str::to_owned),
            name: name.filter(|_| useful.verb != "list").map(str::to_owned),
            verb: useful.verb.to_owned(),
            group: useful.group.to_owned(),
            resource: useful.resource.to_owned(),
            ..ResourceAttributes::default()
        };
        (useful, attributes)
    };
    USEFUL.iter().map(review).collect()
}

impl From<&Permission> for PermissionStatus {
    fn from(permission: &Permission) -> Self {
        let useful = permission.useful;
        let group = match useful.group {
            "" => String::new(),
            group => format!(".{group}"),
        };
        let scope = match useful.place {
            PermissionPlace::Vm => "in the namespace of the VM",
            PermissionPlace::ConfigMap => "in the namespace of the ConfigMap",
            PermissionPlace::Cluster => "in the cluster",
        };
        let (allowed, error) = match &permission.allowed {
            Fact::Known(allowed) => (Some(*allowed), None),
            Fact::Absent => (Some(false), None),
            Fact::Failed(why) => (None, Some(why.text.clone())),
        };
        Self {
            request: format!("{} {}{group} {scope}", useful.verb, useful.resource),
            allowed,
            error,
            purpose: useful.purpose.to_owned(),
        }
    }
}
