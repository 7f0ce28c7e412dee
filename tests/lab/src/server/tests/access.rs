// SPDX-License-Identifier: Apache-2.0
//! Authentication, RBAC, the Node authorizer and NodeRestriction.

use serde_json::json;

use super::client::Client;
use crate::kubernetes::Kubernetes;
use crate::pki::{Authority, Validity};
use crate::server::{Grant, Rule, Server, ServerOptions, Subject, User};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

#[tokio::test]
async fn bad_credentials_are_401_and_none_at_all_is_anonymous() {
    let mut server = Server::start(ServerOptions::guest()).await;
    let endpoint = server.endpoint();
    let status = |client: Client| async move { client.get("/api/v1/nodes").await };
    assert_eq!(
        status(Client::anonymous(&endpoint).with_token("nobody"))
            .await
            .status,
        401
    );
    let nobody = status(Client::anonymous(&endpoint)).await;
    assert_eq!(nobody.status, 403);
    assert_eq!(
        nobody.message(),
        "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let masters = ["system:masters"];
    let expired = server
        .authority()
        .client_identity_with("x", &masters, Validity::expired());
    assert_eq!(
        status(Client::anonymous(&endpoint).with_identity(expired))
            .await
            .status,
        401
    );
    let foreign = Authority::new("guest-server-ca").client_identity("x", &masters);
    assert_eq!(
        status(Client::anonymous(&endpoint).with_identity(foreign))
            .await
            .status,
        401
    );
    server.add_token("good", User::new("x", &["system:masters"]));
    assert_eq!(
        status(Client::anonymous(&endpoint).with_token("good"))
            .await
            .status,
        200
    );
    server.remove_token("good");
    assert_eq!(
        status(Client::anonymous(&endpoint).with_token("good"))
            .await
            .status,
        401
    );
    server = Server::start(ServerOptions {
        anonymous: false,
        ..ServerOptions::guest()
    })
    .await;
    assert_eq!(
        status(Client::anonymous(&server.endpoint())).await.status,
        401
    );
}

#[tokio::test]
async fn a_grant_holds_in_its_namespace_for_its_names_and_verbs() {
    let server = Server::start(ServerOptions::harvester()).await;
    server.add_token("sa", User::service_account("default", "gc8"));
    let account = Client::anonymous(&server.endpoint()).with_token("sa");
    assert_eq!(account.get(VMIS).await.status, 403);
    server.grant(Grant {
        namespace: Some("default".to_owned()),
        subjects: vec![Subject::Group("system:serviceaccounts:default".to_owned())],
        rules: vec![
            Rule::new(
                "kubevirt.io",
                &["virtualmachineinstances"],
                &["get", "list"],
            )
            .named("v1"),
        ],
    });
    assert_eq!(account.get(VMIS).await.status, 403);
    assert_eq!(
        account
            .get(&format!("{VMIS}?fieldSelector=metadata.name%3Dv1"))
            .await
            .status,
        200
    );
    assert_eq!(
        account
            .get(&format!(
                "{VMIS}?watch=true&fieldSelector=metadata.name%3Dv1"
            ))
            .await
            .status,
        403
    );
    assert_eq!(account.get(&format!("{VMIS}/v1")).await.status, 404);
    assert_eq!(account.get(&format!("{VMIS}/v2")).await.status, 403);
    let elsewhere = format!("{}/v1", VMIS.replace("default", "kube-system"));
    assert_eq!(account.get(&elsewhere).await.status, 403);
    let everywhere = account
        .get("/apis/kubevirt.io/v1/virtualmachineinstances")
        .await;
    assert!(
        everywhere.message().ends_with("at the cluster scope"),
        "{}",
        everywhere.message()
    );
    server.revoke_all();
    assert_eq!(account.get(&format!("{VMIS}/v1")).await.status, 403);
}

#[tokio::test]
async fn roles_and_bindings_made_through_the_api_grant_too() {
    let server = Server::start(ServerOptions::harvester()).await;
    let admin = Client::admin(&server);
    server.add_token("sa", User::service_account("default", "gc8"));
    let account = Client::anonymous(&server.endpoint()).with_token("sa");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "harvesterhci.io:cloudprovider"},
        "rules": [{"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]});
    assert_eq!(
        admin
            .create(&format!("{rbac}/clusterroles"), &role)
            .await
            .status,
        201
    );
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "default-gc8"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "harvesterhci.io:cloudprovider"},
        "subjects": [{"kind": "ServiceAccount", "name": "gc8", "namespace": "default"}]});
    assert_eq!(account.get(VMIS).await.status, 403);
    assert_eq!(
        admin
            .create(&format!("{rbac}/namespaces/default/rolebindings"), &binding)
            .await
            .status,
        201
    );
    assert_eq!(account.get(VMIS).await.status, 200);
    assert_eq!(
        account
            .get(&VMIS.replace("default", "kube-system"))
            .await
            .status,
        403
    );
    assert_eq!(
        account
            .get("/apis/kubevirt.io/v1/virtualmachineinstances")
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn a_review_says_what_the_authorizer_would() {
    let server = Server::start(ServerOptions::guest()).await;
    let kubelet = Client::kubelet(&server, "n1");
    let ask = |attributes: serde_json::Value| {
        let kubelet = &kubelet;
        async move {
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes}});
            let answer = kubelet.create(REVIEWS, &review).await;
            assert_eq!(answer.status, 201);
            answer.json()["status"].clone()
        }
    };
    let own = ask(json!({"verb": "get", "resource": "nodes", "name": "n1"})).await;
    assert_eq!(own, json!({"allowed": true}));
    let other = ask(json!({"verb": "get", "resource": "nodes", "name": "n2"})).await;
    assert_eq!(
        other,
        json!({"allowed": false, "reason": "node 'n1' cannot read 'n2', only its own Node object"})
    );
    let status =
        ask(json!({"verb": "patch", "resource": "nodes", "subresource": "status", "name": "n1"}))
            .await;
    assert_eq!(status["allowed"], true);
    let events =
        ask(json!({"verb": "create", "group": "events.k8s.io", "resource": "events"})).await;
    assert_eq!(events["allowed"], true);
}

#[tokio::test]
async fn a_kubelet_reads_its_own_node_by_name_only() {
    let server = Server::start(ServerOptions::guest()).await;
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    let kubelet = Client::kubelet(&server, "n1");
    let selected = "/api/v1/nodes?fieldSelector=metadata.name%3Dn1";
    assert_eq!(kubelet.get(selected).await.status, 200);
    let all = kubelet.get("/api/v1/nodes").await;
    assert_eq!(
        all.message(),
        "nodes is forbidden: User \"system:node:n1\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: node 'n1' cannot read all nodes, only its own Node object"
    );
    let older = Server::start(ServerOptions {
        kubernetes: Kubernetes::V1_20,
        ..ServerOptions::guest()
    })
    .await;
    let of_older = Client::kubelet(&older, "n1");
    assert_eq!(of_older.get("/api/v1/nodes").await.status, 200);
    assert_eq!(
        kubelet.get("/api/v1/namespaces/kube-system").await.status,
        403
    );
}

#[tokio::test]
async fn node_restriction_lets_a_kubelet_change_what_it_may_and_nothing_else() {
    let server = Server::start(ServerOptions::guest()).await;
    for name in ["n1", "n2"] {
        server.create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
            "labels": {"node-role.kubernetes.io/worker": "true"}}}),
        );
    }
    let kubelet = Client::kubelet(&server, "n1");
    let labels = |labels: serde_json::Value| json!({"metadata": {"labels": labels}});
    let allowed = labels(json!({
        "topology.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/zone": "z",
        "topology.harvesterhci.io/host": "hv-a", "x.node.kubernetes.io/y": "1", "plain": "1",
    }));
    assert_eq!(
        kubelet.merge("/api/v1/nodes/n1", &allowed).await.status,
        200
    );
    let removed = labels(json!({"topology.kubernetes.io/zone": null}));
    assert_eq!(
        kubelet.merge("/api/v1/nodes/n1", &removed).await.status,
        200
    );
    let refusals = [
        (
            "n1",
            labels(json!({"foo.k8s.io/x": "1", "node-restriction.kubernetes.io/a": "1"})),
            "nodes \"n1\" is forbidden: is not allowed to modify labels: foo.k8s.io/x, node-restriction.kubernetes.io/a",
        ),
        (
            "n1",
            labels(json!({"node-role.kubernetes.io/worker": null})),
            "nodes \"n1\" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/worker",
        ),
        (
            "n1",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints",
        ),
        (
            "n1",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u"}]}}),
            "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify ownerReferences",
        ),
        (
            "n2",
            labels(json!({"plain": "1"})),
            "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"",
        ),
    ];
    let before = server.revision();
    for (node, patch, text) in refusals {
        let answer = kubelet
            .merge(&format!("/api/v1/nodes/{node}"), &patch)
            .await;
        assert_eq!((answer.status, answer.message().as_str()), (403, text));
    }
    assert_eq!(server.revision(), before);
    let patch = labels(json!({"foo.k8s.io/x": "1"}));
    assert_eq!(
        kubelet
            .merge("/api/v1/nodes/n1/status", &patch)
            .await
            .status,
        403
    );
    assert_eq!(
        Client::admin(&server)
            .merge("/api/v1/nodes/n1", &patch)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn kubevirts_version_is_reported_to_those_who_may_list_it() {
    let server = Server::start(ServerOptions::harvester()).await;
    let user = User::service_account("default", "gc8");
    server.add_token("t", user.clone());
    let client = Client::anonymous(&server.endpoint()).with_token("t");
    let path = "/apis/subresources.kubevirt.io/v1/version";
    let refused = client.get(path).await;
    assert_eq!(
        (refused.status, refused.message()),
        (
            403,
            "version.subresources.kubevirt.io is forbidden: User \"system:serviceaccount:default:gc8\" cannot list resource \"version\" in API group \"subresources.kubevirt.io\" at the cluster scope"
                .to_owned()
        )
    );
    server.grant(Grant {
        namespace: None,
        subjects: vec![Subject::User(user.name)],
        rules: vec![Rule::new(
            "subresources.kubevirt.io",
            &["version"],
            &["get", "list"],
        )],
    });
    assert_eq!(client.get(path).await.json()["gitVersion"], "v1.5.2");
}
