// SPDX-License-Identifier: Apache-2.0
//! A service account of the guest cluster instead of the kubelet's credential: `packaging/kubernetes/service-account.yaml` allows
//! all that the agent writes, and nothing else.

use std::os::unix::fs::PermissionsExt;

use harvester_lab::admin::{Admin, ApiError, paths};
use harvester_lab::world::{Side, WorldOptions, eventually};
use serde_json::{Value, json};

use crate::{
    HOST, IDENTITY, On, SOON, TOPOLOGY, ZONE, agent, condition_becomes, label_becomes, serve,
};

harvester_lab::on_each_kubernetes!(
    @ kubernetes_1_36 V1_36, harvester_lab::real::RealApi::available, crate::On::Real;
    a_service_account_writes_what_the_agent_writes_and_nothing_else
);

const NAMESPACE: &str = "harvester-node-agent";
const DIRECTORY: &str = "/etc/harvester-node-agent/guest";

/// The objects of the manifest, each with the path of its collection.
fn objects() -> Vec<(String, Value)> {
    let path = "packaging/kubernetes/service-account.yaml";
    let text = std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let objects = text.split("\n---\n").map(|text| {
        let object: Value = yaml_serde::from_str(text).unwrap();
        let plural = match object["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let group = match object["apiVersion"].as_str().unwrap() {
            "v1" => "/api/v1".to_owned(),
            group => format!("/apis/{group}"),
        };
        let collection = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
            None => format!("{group}/{plural}"),
        };
        (collection, object)
    });
    objects.collect()
}

/// A token of the account with the name of a Node.
async fn token(admin: &Admin, node: &str) -> String {
    let accounts = paths::core(NAMESPACE, "serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": node}});
    admin.create_if_absent(&accounts, &account).await.unwrap();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 365 * 24 * 3600},
    });
    let path = format!("{accounts}/{node}/token");
    let made = admin.create(&path, &request).await.unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn kubeconfig(server: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "guest",
        "clusters": [{"name": "guest", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "guest", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "guest", "context": {"cluster": "guest", "user": "guest"}}],
    })
    .to_string()
}

fn event(node: &str, reporter: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("test-{reporter}-{node}"), "namespace": "default"},
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Test", "action": "Test",
        "reportingController": reporter, "reportingInstance": node,
    })
}

fn is_refused<T: std::fmt::Debug>(what: &str, result: Result<T, ApiError>, why: &str) {
    println!("{what}: {result:?}");
    let error = result.unwrap_err();
    assert!(matches!(error.code(), Some(403 | 422)), "{what}: {error}");
    assert!(error.to_string().contains(why), "{what}: {error}");
}

async fn a_service_account_writes_what_the_agent_writes_and_nothing_else(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let (admin, node) = (&world.guest_admin, world.node_name().to_owned());
    let objects = objects();
    for (collection, object) in &objects {
        admin.create_if_absent(collection, object).await.unwrap();
    }
    let token = token(admin, &node).await;
    let endpoint = world.guest_api.endpoint();
    let files = [
        ("kubeconfig", kubeconfig(&endpoint.url)),
        ("ca.crt", endpoint.authority_pem.clone()),
        ("token", token.clone()),
    ];
    for (name, text) in files {
        let path = format!("{DIRECTORY}/{name}");
        world.guest.write(&path, &text);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(world.guest.path(&path), mode).unwrap();
    }
    let config = format!(
        "[guest_cluster]\nkubeconfig = \"{DIRECTORY}/kubeconfig\"\nnode_name = \"{node}\"\n[report]\nlifecycle_conditions = true\n"
    );
    world.guest.agent_config("50-guest.toml", &config);

    // The policies are in force a moment later.
    let client = Admin::with_token(&endpoint, "kubectl", &token);
    let own = paths::node(&node);
    let label = |key: &str, value: Option<&str>| json!({"metadata": {"labels": {key: value}}});
    let mut count = 0;
    eventually(SOON, "the policy", || {
        // Unchanged labels are allowed.
        count += 1;
        let (client, own, patch) = (&client, &own, label("team", Some(&count.to_string())));
        async move {
            let result = client.merge_patch(own, &patch).await;
            result.is_err_and(|error| error.code() == Some(422))
        }
    })
    .await;

    let _daemon = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    world.settles_on("hv-b", &[]).await;
    let is_sent = async || {
        let events = world.events().await;
        events.iter().any(|event| event["reason"] == "HostChanged")
    };
    eventually(SOON, "an Event", is_sent).await;
    let requests = world.agent_requests(Side::Guest).await;
    let status = world
        .guest
        .read("/run/harvester-node-agent/status.json")
        .unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let used = &status["credentials"]["kubelet"];
    let user = format!("system:serviceaccount:{NAMESPACE}:{node}");
    assert_eq!(used["user"], user, "{used}");
    assert!(used["expirationTime"].is_string(), "{used}");
    let doctor = agent(&world, &["doctor", "-v"]).await;
    println!("{}", doctor.stdout);
    assert_eq!(doctor.code, Some(0), "{}", doctor.stderr);
    let refused: Vec<_> = requests
        .iter()
        .filter(|request| request.status >= 400)
        .collect();
    println!("{} requests of the agent", requests.len());
    assert!(refused.is_empty(), "{refused:#?}");
    let writes = requests.iter().filter(|request| request.verb == "patch");
    // The labels of two hosts, and the conditions.
    assert!(writes.count() >= 3);

    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}});
    admin.create_if_absent(paths::NODES, &other).await.unwrap();
    let zone = label(ZONE, Some("x"));
    let result = client.merge_patch(&paths::node("other"), &zone).await;
    is_refused("another Node", result, "name of another Node");
    let labels = "labels other than";
    for (what, patch, why) in [
        ("another label", label("team", Some("a")), labels),
        (
            "a new label",
            label("node-role.kubernetes.io/x", Some("")),
            labels,
        ),
        (
            // One that the Node has: the removal of another one changes nothing.
            "no other label",
            label("rke.cattle.io/machine", None),
            labels,
        ),
        (
            "another annotation",
            json!({"metadata": {"annotations": {"team": "a"}}}),
            "annotations other than",
        ),
        (
            "a taint",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            "spec, ownerReferences",
        ),
        (
            "cordon",
            json!({"spec": {"unschedulable": true}}),
            "spec, ownerReferences",
        ),
        (
            "a finalizer",
            json!({"metadata": {"finalizers": ["a.b/c"]}}),
            "spec, ownerReferences",
        ),
    ] {
        is_refused(what, client.merge_patch(&own, &patch).await, why);
    }
    for (what, patch, why) in [
        ("a label by status", label("team", Some("a")), labels),
        (
            "another condition",
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
            "conditions other than",
        ),
        (
            "capacity",
            json!({"status": {"capacity": {"cpu": "99"}}}),
            "beyond the conditions",
        ),
        (
            "no other condition",
            json!({"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}),
            "conditions other than",
        ),
    ] {
        is_refused(what, client.strategic_patch_status(&own, &patch).await, why);
    }
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let reporter = "harvester-node-agent";
    client
        .create(events, &event(&node, reporter))
        .await
        .unwrap();
    let result = client.create(events, &event("other", reporter)).await;
    is_refused("an Event about another Node", result, "another object");
    let result = client.create(events, &event(&node, "kubelet")).await;
    is_refused(
        "an Event of another controller",
        result,
        "reporting controller",
    );
    is_refused("deletion", client.delete(&own).await, "forbidden");
    is_refused(
        "a new Node",
        client.create(paths::NODES, &other).await,
        "forbidden",
    );
    let secrets = paths::core("default", "secrets");
    is_refused("Secrets", client.get(&secrets).await, "forbidden");
    let taken = json!({"metadata": {"labels": {ZONE: "rack-b"}, "annotations": {"node-agent.harvesterhci.io/x": null}}});
    client.merge_patch(&own, &taken).await.unwrap();

    // The server may serve another world.
    admin.delete(&paths::node("other")).await.unwrap();
    for (collection, object) in objects.iter().rev() {
        let name = object["metadata"]["name"].as_str().unwrap();
        admin.delete(&format!("{collection}/{name}")).await.unwrap();
    }
}
