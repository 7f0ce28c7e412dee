// SPDX-License-Identifier: Apache-2.0
//! One Node, two writers: what the agent writes stays through what its kubelet writes, and a Node made anew is labelled anew.

use harvester_lab::admin::paths;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::world::{Side, condition_of};

use crate::{
    HOST, IDENTITY, REGION, TOPOLOGY, ZONE, all_is_well, beside_a_kubelet, guest_api, kubelet,
    node_appears, serve, status_updates, world,
};

beside_a_kubelet!(
    labels_and_conditions_stay_through_the_status_updates_of_the_kubelet,
    status_updates_of_the_kubelet_cost_no_request,
    a_node_that_the_kubelet_registers_anew_is_labelled_anew,
    labels_given_at_registration_are_there_from_the_first_version_on,
);

async fn labels_and_conditions_stay_through_the_status_updates_of_the_kubelet(version: Kubernetes) {
    let world = world(version).await;
    let _agent = serve(&world).await;
    world.findings_become(&["node-missing"]).await;
    let _kubelet = kubelet(&world, &[]).await;
    all_is_well(&world).await;

    let registrations = guest_api(&world).requests_of("kubelet/").await;
    let registration = registrations
        .iter()
        .find(|request| request.path == paths::NODES && request.verb == "create");
    let writes = world.agent_requests(Side::Guest).await;
    let writes = writes.iter().filter(|request| request.is_write());
    let users: std::collections::BTreeSet<&str> = registration
        .into_iter()
        .chain(writes)
        .map(|request| request.user.as_str())
        .collect();
    let user = format!("system:node:{}", world.node_name());
    assert_eq!(Vec::from_iter(users), [user], "one credential for both");
    assert_eq!(registration.unwrap().status, 201);

    let from = world.recorder.versions().len();
    let writes = world.agent_writes().await.len();
    status_updates(&world, 3).await;
    for version in &world.recorder.versions()[from..] {
        assert_eq!(version.label(HOST).as_deref(), Some("hv-a"));
        assert_eq!(version.label(ZONE).as_deref(), Some("rack-a"));
        for kind in [IDENTITY, TOPOLOGY] {
            let status = &condition_of(&version.node, kind)["status"];
            assert_eq!(status, "True", "{kind}");
        }
    }
    assert_eq!(world.agent_writes().await.len(), writes);
}

/// More than requests that come by themselves.
const UPDATES: usize = 6;

async fn status_updates_of_the_kubelet_cost_no_request(version: Kubernetes) {
    let world = world(version).await;
    // However long the updates take, no poll is due meanwhile.
    let config = "[timing]\npoll_interval = \"24h\"\n";
    world.guest.agent_config("10-poll.toml", config);
    let _kubelet = kubelet(&world, &[]).await;
    let _agent = serve(&world).await;
    all_is_well(&world).await;
    let writes = world.agent_writes().await.len();
    for side in [Side::Guest, Side::Harvester] {
        let before = world.agent_requests(side).await.len();
        status_updates(&world, UPDATES).await;
        // What the agent wrote last is read once more, and each search of its start is made once.
        let more = world.agent_requests(side).await.len() - before;
        assert!(more < UPDATES / 2, "{side:?}: {more} requests");
    }
    assert_eq!(world.agent_writes().await.len(), writes);
}

async fn a_node_that_the_kubelet_registers_anew_is_labelled_anew(version: Kubernetes) {
    let world = world(version).await;
    let mut kubelet = kubelet(&world, &[]).await;
    let _agent = serve(&world).await;
    all_is_well(&world).await;
    let first = world.node().await["metadata"]["uid"].clone();

    let path = paths::node(world.node_name());
    world.guest_admin.delete(&path).await.unwrap();
    world.findings_become(&["node-missing"]).await;
    kubelet.restart().await;
    node_appears(&world).await;
    all_is_well(&world).await;
    assert_ne!(world.node().await["metadata"]["uid"], first);
    status_updates(&world, 2).await;
    all_is_well(&world).await;
}

async fn labels_given_at_registration_are_there_from_the_first_version_on(version: Kubernetes) {
    let world = world(version).await;
    assert!(world.recorder.versions().is_empty());
    let labels = [(REGION, "eu-1"), (ZONE, "rack-a"), (HOST, "hv-a")];
    let _kubelet = kubelet(&world, &labels).await;
    let _agent = serve(&world).await;
    all_is_well(&world).await;
    status_updates(&world, 2).await;

    let versions = world.recorder.versions();
    assert_eq!(versions[0].kind, "ADDED");
    let rights = world
        .recorder
        .combinations(&labels.map(|(key, _)| key))
        .into_iter();
    let wanted = labels.map(|(_, value)| Some(value.to_owned()));
    assert_eq!(Vec::from_iter(rights), [wanted], "never without them");
}
