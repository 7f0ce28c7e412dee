// SPDX-License-Identifier: Apache-2.0
//! What newer versions of Kubernetes do differently, as far as an agent meets it.

use std::time::Duration;

use harvester_lab::guest::{Distribution, KubeconfigForm, harvester_kubeconfig_text};
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::real::{RealApi, RealOptions};
use harvester_lab::server::{ServerOptions, User};
use harvester_lab::world::{AGENT, Side, VM_NAME, World, WorldOptions};

use crate::{
    HOST, On, TOPOLOGY, ZONE, ZONE_BETA, condition_becomes, findings_become, label_becomes,
    node_patches, on_both, serve,
};

on_both!(a_kubelet_that_sets_only_the_newer_key_again_is_corrected_in_one_patch);

/// Longer than a mixture of two zones may be visible.
const MIXTURE: Duration = Duration::from_secs(1);

async fn a_kubelet_that_sets_only_the_newer_key_again_is_corrected_in_one_patch(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let before = node_patches(&world).await;
    world.recorder.clear();

    // What a kubelet does at its start with `--node-labels=topology.kubernetes.io/zone=stale,topology.harvesterhci.io/host=stale`.
    let kubelet = harvester_lab::admin::Admin::with_identity(
        &world.guest_api.endpoint(),
        "kubelet",
        &world.kubelet,
    );
    let stale = serde_json::json!({"metadata": {"labels": {ZONE: "stale"}}});
    let node = harvester_lab::admin::paths::node(world.node_name());
    kubelet.merge_patch(&node, &stale).await.unwrap();
    label_becomes(&world, ZONE, "rack-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;

    let keys = [ZONE, ZONE_BETA, HOST];
    let seen = |zone: &str| [zone, "rack-a", "hv-a"].map(|value| Some(value.to_owned()));
    let expected = [seen("stale").to_vec(), seen("rack-a").to_vec()];
    // The recorder may see the end of the earlier write late.
    let changes = || {
        let all = world.recorder.combinations(&keys).into_iter();
        let is_before = |labels: &Vec<Option<String>>| *labels == seen("rack-a");
        all.skip_while(is_before).collect::<Vec<_>>()
    };
    harvester_lab::world::eventually(crate::SOON, "the recorder sees both", || async {
        changes().len() >= expected.len()
    })
    .await;
    assert_eq!(changes(), expected);
    let when = |zone: &str| {
        let versions = world.recorder.versions();
        let mut since = versions
            .iter()
            .skip_while(|version| version.label(ZONE).as_deref() != Some("stale"));
        let version = since.find(|version| version.label(ZONE).as_deref() == Some(zone));
        version.unwrap().at
    };
    let visible = when("rack-a") - when("stale");
    assert!(visible < MIXTURE, "a mixture for {visible:?}");
    assert_eq!(node_patches(&world).await, before + 1);
}

/// Starts the agent on a guest cluster whose storage is older than its API server expects.
async fn old_storage(world: &World) {
    let _agent = serve(world).await;
    label_becomes(world, HOST, "hv-a").await;
    world.findings_become(&["watch-progress-missing"]).await;
    // Of a world of real servers Harvester's has the same storage.
    let server = world.guest_api.endpoint().url;
    let told = || -> Option<serde_json::Value> {
        let status = world.guest.status()?;
        let mut findings = status["findings"].as_array()?.iter();
        let of_guest = |finding: &&serde_json::Value| {
            finding["code"] == "watch-progress-missing"
                && finding["observed"].as_str().unwrap().contains(&server)
        };
        findings.find(of_guest).cloned()
    };
    harvester_lab::world::eventually(crate::SOON, "the guest cluster is named", || async {
        told().is_some()
    })
    .await;
    let fix = told().unwrap()["fix"].to_string();
    assert!(fix.contains("3.4.31") && fix.contains("3.5.13"), "{fix}");

    // The watch without bookmarks delivers.
    world.relabel_node("admin", &[(ZONE, Some("wrong"))]).await;
    label_becomes(world, ZONE, "rack-a").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let requests = world.agent_requests(Side::Guest).await;
    let watches: Vec<bool> = requests
        .iter()
        .filter(|request| request.verb == "watch")
        .map(|request| request.query.contains("allowWatchBookmarks"))
        .collect();
    assert_eq!(watches, [true, false], "no more than one try");
    assert_eq!(world.findings(), ["watch-progress-missing"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_without_watch_progress_is_named_in_the_lab() {
    let world = World::lab(WorldOptions {
        guest_server: ServerOptions {
            storage_is_old: true,
            ..ServerOptions::guest()
        },
        ..WorldOptions::default()
    })
    .await;
    old_storage(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_1_36_on_the_etcd_of_debian_is_named() {
    let test = "kubernetes_1_36_on_the_etcd_of_debian_is_named";
    if !RealApi::available(Kubernetes::V1_36, test) {
        return;
    }
    let servers = RealOptions {
        etcd_on_path: true,
        ..RealOptions::of(Kubernetes::V1_36)
    };
    let world = World::on_real(servers, WorldOptions::default()).await;
    old_storage(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_for_another_node_is_a_wrong_node_name_on_both_versions() {
    for version in Kubernetes::ALL {
        let world = World::lab(WorldOptions {
            guest_server: ServerOptions {
                kubernetes: version,
                ..ServerOptions::guest()
            },
            ..WorldOptions::default()
        })
        .await;
        let server = crate::lab(&world.guest_api);
        let user = format!("system:node:{VM_NAME}");
        server.add_token("of-a-kubelet", User::new(&user, &["system:nodes"]));
        // A certificate would name the Node, whatever the configuration says.
        let endpoint = world.guest_api.endpoint();
        let kubeconfig = harvester_kubeconfig_text(
            KubeconfigForm::AddOnScript,
            &endpoint.url,
            &endpoint.authority_pem,
            "of-a-kubelet",
            "default",
        );
        let path = Distribution::Rke2.kubeconfig();
        world.guest.write_secret(path, kubeconfig);
        let wrong = "[guest_cluster]\nnode_name = \"wrong\"\n";
        world.guest.agent_config("20-wrong.toml", wrong);
        let _agent = serve(&world).await;
        findings_become(&world, &["hostname-differs", "node-missing"]).await;
        let status = world.guest.status().unwrap();
        let findings = status["findings"].as_array().unwrap();
        let missing = findings.iter().find(|one| one["code"] == "node-missing");
        let seen = missing.unwrap()["observed"].as_str().unwrap();
        assert!(seen.contains("wrong"), "{seen}");
        if version >= Kubernetes::V1_36 {
            let own = format!("the credential is for Node `{VM_NAME}`");
            assert!(seen.contains(&own), "{seen}");
        }
        assert_eq!(status["labels"]["state"], "node-missing");
        let writes = server.writes();
        assert!(
            writes
                .iter()
                .all(|write| !write.user_agent.starts_with(AGENT))
        );
    }
}
