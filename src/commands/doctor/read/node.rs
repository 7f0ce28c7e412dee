// SPDX-License-Identifier: Apache-2.0
//! Reads the status of our Node and its pods.
//!
//! The pods are listed with a field selector: a kubelet is not allowed to list others.

use super::{Given, read_object, request};
use crate::commands::doctor::facts::node::NodeDetails;
use crate::commands::doctor::facts::pods::{ListedPod, Pods, Provision};
use crate::facts::distribution::DistributionKind;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::wire::kubeapi::Selectors;

/// Reads the Node and its pods.
pub(super) async fn read(given: &Given<'_>) -> (NodeDetails, Pods) {
    let observation = given.observation;
    let Some(kubelet) = observation.kubelet.known() else {
        let why = Unavailable::new(
            UnavailableKind::NotAsked,
            "the name of this Node is unknown",
        );
        return (NodeDetails::unseen(&why), Pods::unseen(&why));
    };
    let name = &kubelet.node_name;
    let node = match read_object(&given.guest, &format!("/api/v1/nodes/{name}")).await {
        Fact::Known(node) => node,
        Fact::Absent => NodeDetails::unseen(&Unavailable::new(
            UnavailableKind::Missing,
            "the Node does not exist",
        )),
        Fact::Failed(why) => NodeDetails::unseen(&why),
    };
    let mut unreadable = None;
    let here = pods(given, name.as_str()).await.map(|listed| {
        let pods = listed.into_iter().filter_map(|ListedPod(pod)| {
            pod.map_err(|error| {
                unreadable.get_or_insert(Unavailable::new(UnavailableKind::Malformed, error));
            })
            .ok()
        });
        pods.collect()
    });
    let mut distributions = observation.distributions.iter();
    let asking = distributions.find(|distribution| distribution.asks_for_harvester());
    let is_rke2 = asking.is_some_and(|asking| asking.kind == DistributionKind::Rke2);
    let provision = Provision {
        rke2: node
            .kubelet
            .known()
            .filter(|release| is_rke2 && release.is_rke2()),
        has_cloud_provider: asking.is_some()
            || observation
                .node
                .known()
                .is_some_and(|node| node.vm_uid().is_some()),
    };
    let pods = Pods {
        unreadable,
        ..Pods::new(here, provision)
    };
    (node, pods)
}

async fn pods(given: &Given<'_>, node: &str) -> Fact<Vec<ListedPod>> {
    let selectors = Selectors {
        field: Some(format!("spec.nodeName={node}")),
        label: None,
    };
    request(&given.guest, async |client| {
        client.list("/api/v1/pods", &selectors, |_| true).await
    })
    .await
}
