// SPDX-License-Identifier: Apache-2.0
//! A kubelet whose flags set topology labels sets them again at each start.

use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::real::FLAGS_FILE;
use harvester_lab::world::{SOON, eventually};

use crate::{
    HOST, REGION, ZONE, all_is_well, beside_a_kubelet, kubelet, serve, status_updates, world,
};

beside_a_kubelet!(
    static_node_labels_are_corrected_after_each_start_without_a_conflict,
    a_start_that_resets_the_zone_alone_is_corrected_by_one_patch,
);

async fn static_node_labels_are_corrected_after_each_start_without_a_conflict(version: Kubernetes) {
    let world = world(version).await;
    let mut kubelet = kubelet(&world, &[]).await;
    let _agent = serve(&world).await;
    all_is_well(&world).await;
    assert_eq!(world.node_patches().await, 1);

    kubelet.set_node_labels(&[(ZONE, "stale"), (REGION, "stale")]);
    let both = |zone: &str, region: &str| vec![Some(zone.to_owned()), Some(region.to_owned())];
    let (stale, right) = (both("stale", "stale"), both("rack-a", "eu-1"));
    let mut expected = vec![vec![None, None], right.clone()];
    for start in 1..=2 {
        kubelet.restart().await;
        // Wrong once, right ever after: never a mixture, and no program writes again.
        expected.extend([stale.clone(), right.clone()]);
        eventually(2 * SOON, "the kubelet's labels are put right", || async {
            world.recorder.combinations(&[ZONE, REGION]).len() >= expected.len()
        })
        .await;
        world.findings_become(&["static-node-label"]).await;
        status_updates(&world, 3).await;
        assert_eq!(world.recorder.combinations(&[ZONE, REGION]), expected);
        assert_eq!(world.node_patches().await, 1 + start);
    }
    let status = world.guest.status().unwrap();
    let findings = status["findings"].as_array().unwrap();
    for key in [ZONE, REGION] {
        let text = format!("{key}=stale in {FLAGS_FILE}");
        let told = findings.iter().any(|finding| {
            let seen = finding["observed"].as_str().unwrap();
            finding["code"] == "static-node-label" && seen.contains(&text)
        });
        assert!(told, "{text}: {findings:#?}");
    }
    kubelet.set_node_labels(&[]);
    all_is_well(&world).await;
}

/// Of static labels a start sets only those again that kubelet knows: the zone, and not the label of the host.
async fn a_start_that_resets_the_zone_alone_is_corrected_by_one_patch(version: Kubernetes) {
    let world = world(version).await;
    let mut kubelet = kubelet(&world, &[]).await;
    let _agent = serve(&world).await;
    all_is_well(&world).await;
    let patches = world.node_patches().await;
    world.recorder.clear().await;

    kubelet.set_node_labels(&[(ZONE, "stale"), (HOST, "stale")]);
    kubelet.restart().await;
    let keys = [ZONE, HOST];
    let both = |zone: &str| vec![Some(zone.to_owned()), Some("hv-a".to_owned())];
    let end = [both("stale"), both("rack-a")];
    eventually(2 * SOON, "the zone is set and corrected", || async {
        world.recorder.combinations(&keys).ends_with(&end)
    })
    .await;
    status_updates(&world, 3).await;
    let seen = world.recorder.combinations(&keys);
    assert!(seen.ends_with(&end) && seen.len() <= 3, "{seen:?}");
    assert_eq!(world.node_patches().await, patches + 1);
}
