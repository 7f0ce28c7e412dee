// SPDX-License-Identifier: Apache-2.0
//! What newer versions of Kubernetes do differently, as far as an agent meets it.

use std::time::Duration;

use harvester_lab::admin::paths;
use harvester_lab::guest::{Distribution, KubeconfigForm, harvester_kubeconfig_text};
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::real::{RealApi, RealOptions, StaticToken};
use harvester_lab::world::{ACCOUNT, Side, VM_NAME, World, WorldOptions};
use serde_json::json;

use crate::{
    HOST, On, TOPOLOGY, ZONE, ZONE_BETA, condition_becomes, findings_become, label_becomes,
    node_patches, on_both, serve,
};

on_both!(
    a_kubelet_that_sets_only_the_newer_key_again_is_corrected_in_one_patch,
    an_event_is_created_once_and_in_the_newer_api_where_that_is_allowed;
    real:
    a_credential_for_another_node_is_a_wrong_node_name,
);

/// Where Harvester's credential is.
const HARVESTER: &str = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";

async fn a_kubelet_that_sets_only_the_newer_key_again_is_corrected_in_one_patch(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let before = node_patches(&world).await;
    world.recorder.clear().await;

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
    assert_eq!(node_patches(&world).await, before + 1);
}

async fn an_event_is_created_once_and_in_the_newer_api_where_that_is_allowed(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    for to in ["hv-b", "hv-c"] {
        world.migrate(to).await;
        label_becomes(&world, HOST, to).await;
    }
    let moves = || async {
        let mut events = world.events().await;
        events.retain(|event| event["reason"] == "HostChanged");
        events
    };
    harvester_lab::world::eventually(crate::SOON, "two Events", || async {
        moves().await.len() == 2
    })
    .await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    for event in moves().await {
        assert_eq!(event["reportingController"], "harvester-node-agent");
        assert_eq!(event["regarding"]["uid"], world.node_name());
    }
    let requests = world.agent_requests(Side::Guest).await;
    let creations = requests.iter().filter(|request| request.verb == "create");
    let creations: Vec<(bool, u16)> = creations
        .filter(|request| request.path.ends_with("/events"))
        .map(|request| {
            (
                request.path.starts_with("/apis/events.k8s.io/v1/"),
                request.status,
            )
        })
        .collect();
    // Also those of the scheduled events.
    let (newer, refused, core) = ((true, 201), (true, 403), (false, 201));
    let (first, others) = match on {
        On::Real(Kubernetes::V1_20) => (refused, core),
        On::Real(Kubernetes::V1_36) | On::Lab => (newer, newer),
    };
    assert_eq!(creations[0], first, "{creations:?}");
    assert!(creations.len() >= 3, "{creations:?}");
    assert!(
        creations[1..].iter().all(|one| *one == others),
        "{creations:?}"
    );
}

/// What the controller of tokens of an older Kubernetes has left: a Secret with a token that does not expire.
async fn token_of_a_secret(world: &World, name: &str) -> String {
    let (admin, namespace) = (world.harvester.admin(), &world.vm.spec.namespace);
    let accounts = paths::core(namespace, "serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    admin.create_if_absent(&accounts, &account).await.unwrap();
    let account = admin.get(&format!("{accounts}/{name}")).await.unwrap();
    let uid = account["metadata"]["uid"].as_str().unwrap();
    let secret = format!("{name}-token");
    let token = world.harvester_api.real().sign_token(&json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    }));
    let body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": secret, "annotations": {
            "kubernetes.io/service-account.name": name,
            "kubernetes.io/service-account.uid": uid,
        }},
        "stringData": {"token": token},
    });
    let secrets = paths::core(namespace, "secrets");
    admin.create(&secrets, &body).await.unwrap();
    token
}

/// Kubernetes labels the Secret of a token that was not used for a year. The answer is a bare 401.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_kubernetes_has_invalidated_is_named_with_its_secret() {
    let test = "a_token_that_kubernetes_has_invalidated_is_named_with_its_secret";
    if !RealApi::available(Kubernetes::V1_36, test) {
        return;
    }
    // A server of its own: no other test may find the Secret on it.
    let servers = RealOptions {
        flags: vec!["--service-account-lookup=true".to_owned()],
        ..RealOptions::of(Kubernetes::V1_36)
    };
    let world = World::on_real(servers, WorldOptions::default()).await;
    let token = token_of_a_secret(&world, ACCOUNT).await;
    let endpoint = world.harvester_api.endpoint();
    let kubeconfig = harvester_kubeconfig_text(
        KubeconfigForm::HarvesterApi,
        &endpoint.url,
        &endpoint.authority_pem,
        &token,
        &world.vm.spec.namespace,
    );
    world.guest.write_secret(HARVESTER, kubeconfig);
    let agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    findings_become(&world, &[]).await;
    // Its open watch would outlive the token.
    drop(agent);

    let namespace = &world.vm.spec.namespace;
    let secret = format!("{}/{ACCOUNT}-token", paths::core(namespace, "secrets"));
    let label = "kubernetes.io/legacy-token-invalid-since";
    let labeled = |value: serde_json::Value| json!({"metadata": {"labels": {label: value}}});
    let admin = world.harvester.admin();
    admin
        .merge_patch(&secret, &labeled(json!("2026-01-01")))
        .await
        .unwrap();
    // The server keeps the result of an authentication for 10 s.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let _agent = serve(&world).await;
    world.migrate("hv-b").await;
    findings_become(&world, &["harvester-unauthorized"]).await;
    let status = world.guest.status().unwrap();
    let finding = status["findings"][0].to_string();
    let remedy = format!("kubectl -n {namespace} label secret {ACCOUNT}-token {label}-");
    assert!(finding.contains(&remedy), "{finding}");

    // The remedy.
    let unlabeled = labeled(serde_json::Value::Null);
    admin.merge_patch(&secret, &unlabeled).await.unwrap();
    label_becomes(&world, HOST, "hv-b").await;
    findings_become(&world, &[]).await;
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
    let watches = async || -> Vec<bool> {
        let requests = world.agent_requests(Side::Guest).await;
        let watches = requests.iter().filter(|request| request.verb == "watch");
        watches
            .map(|request| request.query.contains("allowWatchBookmarks"))
            .collect()
    };
    harvester_lab::world::eventually(crate::SOON, "another watch", async || {
        watches().await.len() > 1
    })
    .await;
    world.relabel_node("admin", &[(ZONE, Some("wrong"))]).await;
    label_becomes(world, ZONE, "rack-a").await;
    assert_eq!(watches().await, [true, false], "no more than one try");
    assert_eq!(world.findings(), ["watch-progress-missing"]);
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

async fn a_credential_for_another_node_is_a_wrong_node_name(on: On) {
    let On::Real(version) = on else { return };
    let token = StaticToken {
        token: "of-a-kubelet".to_owned(),
        user: format!("system:node:{VM_NAME}"),
        groups: vec!["system:nodes".to_owned()],
    };
    let servers = RealOptions {
        tokens: vec![token],
        ..RealOptions::of(version)
    };
    let world = World::on_real(servers, WorldOptions::default()).await;
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
    let writes = world.agent_writes().await;
    assert!(writes.is_empty(), "{writes:#?}");
}
