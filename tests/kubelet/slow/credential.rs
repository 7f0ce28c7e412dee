// SPDX-License-Identifier: Apache-2.0
//! The kubelet gets a new client certificate by itself, and the agent goes on with it.

use std::time::Duration;

use harvester_lab::admin::{Admin, paths};
use harvester_lab::guest::Distribution;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::pki::Validity;
use harvester_lab::world::{HOSTS, Side};

use crate::{HOST, ZONE, beside_a_kubelet, guest_api, kubelet, serve, status_updates, world};

beside_a_kubelet!(the_agent_goes_on_with_the_certificate_that_the_kubelet_gets);

/// Kubelet asks for a new certificate in the last tenth of the old one's life at the latest, and this one has begun an hour ago.
const REMAINING: Duration = Duration::from_secs(60);

const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

async fn the_agent_goes_on_with_the_certificate_that_the_kubelet_gets(version: Kubernetes) {
    let world = world(version).await;
    let user = format!("system:node:{}", world.node_name());
    let validity = Validity::from_now(REMAINING.try_into().unwrap());
    let authority = guest_api(&world).authority();
    let old = authority.client_identity_with(&user, &["system:nodes"], validity);
    world
        .guest
        .rotate_kubelet_certificate(Distribution::Kubeadm, &old);
    let link = || std::fs::read_link(world.guest.path(CURRENT)).ok();
    let before = link();
    assert!(before.is_some());
    let _kubelet = kubelet(&world, &[]).await;
    let _agent = serve(&world).await;
    world.label_becomes(HOST, "hv-a").await;
    world.findings_become(&["credential-expires"]).await;

    let _signer = guest_api(&world).sign_kubelet_certificates();
    let bearer_of_old = Admin::with_identity(&guest_api(&world).endpoint(), "old", &old);
    let path = paths::node(world.node_name());
    let is_refused = || async {
        let answer = bearer_of_old.get(&path).await;
        answer.is_err_and(|error| error.code() == Some(401))
    };
    // Something to write every second, from before the change until after the end of the old one.
    let mut hosts = HOSTS.iter().cycle().skip(1);
    let mut is_last = false;
    while !is_last {
        is_last = is_refused().await;
        let (host, _, zone) = hosts.next().unwrap();
        world.migrate(host).await;
        world.label_becomes(ZONE, zone).await;
        world.label_becomes(HOST, host).await;
        status_updates(&world, 1).await;
    }
    assert!(link().is_some() && link() != before, "a new certificate");
    world.findings_become(&[]).await;
    status_updates(&world, 2).await;

    let refused: Vec<_> = world
        .agent_requests(Side::Guest)
        .await
        .into_iter()
        // Kubernetes 1.20 refuses the newer API for Events once.
        .filter(|request| {
            request.status >= 400 && !request.path.starts_with("/apis/events.k8s.io/")
        })
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}
