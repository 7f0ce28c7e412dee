// SPDX-License-Identifier: Apache-2.0
//! The same requests to this server and to a real kube-apiserver, which must answer alike.

use serde_json::Value;

use super::client::{Answer, Client, MERGE, STRATEGIC};
use crate::Endpoint;
use crate::pki::Authority;
use crate::real::{RealApi, RealOptions};
use crate::server::{Server, ServerOptions};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Admin,
    Kubelet,
    Anonymous,
    Nobody,
}
use Who::{Admin, Anonymous, Kubelet, Nobody};

const JSON: &str = "application/json";
const N1: &str = "/api/v1/nodes/n1";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// In this order; each may build on those before it.
const REQUESTS: &[(Who, &str, &str, &str, &str)] = &[
    (
        Kubelet,
        "POST",
        "/api/v1/nodes",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"a":"b"}}}"#,
    ),
    (
        Kubelet,
        "POST",
        "/api/v1/nodes",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}"#,
    ),
    (
        Admin,
        "POST",
        "/api/v1/nodes",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}"#,
    ),
    (
        Admin,
        "POST",
        "/api/v1/nodes",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}"#,
    ),
    (
        Admin,
        "POST",
        "/api/v1/nodes",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"Bad_Name"}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        N1,
        MERGE,
        r#"{"metadata":{"labels":{"a":"c","topology.kubernetes.io/zone":"z"},"annotations":{"x":"y"}}}"#,
    ),
    (
        Admin,
        "PATCH",
        N1,
        MERGE,
        r#"{"spec":{"providerID":"harvester://1"}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        N1,
        MERGE,
        r#"{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"c","foo.k8s.io/x":"1"}}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        N1,
        MERGE,
        r#"{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        "/api/v1/nodes/n2",
        MERGE,
        r#"{"metadata":{"labels":{"a":"c"}}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        "/api/v1/nodes/n9",
        MERGE,
        r#"{"metadata":{"labels":{"a":"c"}}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        "/api/v1/nodes/n1/status",
        STRATEGIC,
        r#"{"status":{"conditions":[{"type":"X","status":"True","reason":"R"}]}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        "/api/v1/nodes/n1/status",
        STRATEGIC,
        r#"{"status":{"conditions":[{"type":"Y","status":"True"},{"type":"X","status":"False"}]}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        "/api/v1/nodes/n1/status",
        STRATEGIC,
        r#"{"status":{"conditions":[{"type":"X","$patch":"delete"}]}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        "/api/v1/nodes/n1/status",
        MERGE,
        r#"{"metadata":{"labels":{"via":"status"}},"spec":{"unschedulable":true}}"#,
    ),
    (
        Kubelet,
        "PATCH",
        N1,
        MERGE,
        r#"{"status":{"phase":"Pending"}}"#,
    ),
    (
        Admin,
        "PATCH",
        N1,
        STRATEGIC,
        r#"{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}"#,
    ),
    (
        Admin,
        "PATCH",
        N1,
        STRATEGIC,
        r#"{"spec":{"taints":[{"key":"b","effect":"NoExecute"}]}}"#,
    ),
    (
        Admin,
        "PATCH",
        N1,
        MERGE,
        r#"{"metadata":{"resourceVersion":"1","labels":{"z":"1"}}}"#,
    ),
    (
        Admin,
        "PATCH",
        N1,
        MERGE,
        r#"{"metadata":{"labels":{"b d":"x"}}}"#,
    ),
    (
        Admin,
        "PATCH",
        N1,
        MERGE,
        r#"{"metadata":{"labels":{"z":"a b"}}}"#,
    ),
    (
        Admin,
        "PATCH",
        N1,
        MERGE,
        r#"{"metadata":{"labels":{"z":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}}"#,
    ),
    (Admin, "PATCH", N1, MERGE, r#"{"metadata":{"uid":"1"}}"#),
    (Admin, "PATCH", N1, MERGE, r#"{"metadata":{"name":"q"}}"#),
    (
        Admin,
        "PUT",
        "/api/v1/nodes/n2",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n3"}}"#,
    ),
    (
        Admin,
        "PUT",
        "/api/v1/nodes/n2",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2","resourceVersion":"1"}}"#,
    ),
    (
        Admin,
        "PUT",
        "/api/v1/nodes/n9",
        JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n9","resourceVersion":"1"}}"#,
    ),
    (Admin, "PUT", "/api/v1/nodes", JSON, "{}"),
    (Admin, "POST", N1, JSON, "{}"),
    (Admin, "GET", "/api/v1/nodes/nope", "", ""),
    (Admin, "DELETE", "/api/v1/nodes/nope", "", ""),
    (Admin, "GET", "/api/v1/foos", "", ""),
    (Admin, "GET", "/api/v1/nodes/n1/foo", "", ""),
    (Admin, "GET", "/api/v1/namespaces/default/nodes/n1", "", ""),
    (Admin, "GET", "/apis/nowhere.example/v1/things", "", ""),
    (Admin, "GET", "/apis/nowhere.example/v1", "", ""),
    (
        Admin,
        "GET",
        "/api/v1/nodes?fieldSelector=spec.foo%3Dn2",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/api/v1/nodes?resourceVersion=99999999",
        "",
        "",
    ),
    (Admin, "GET", "/api/v1/nodes?resourceVersion=abc", "", ""),
    (
        Admin,
        "POST",
        "/api/v1/namespaces/nons/configmaps",
        JSON,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n2"}}"#,
    ),
    (
        Admin,
        "POST",
        CONFIGMAPS,
        JSON,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n2","namespace":"kube-system"}}"#,
    ),
    (
        Admin,
        "POST",
        CONFIGMAPS,
        JSON,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#,
    ),
    (Anonymous, "GET", "/api/v1/nodes", "", ""),
    (Anonymous, "GET", "/version/nothing", "", ""),
    (Nobody, "GET", "/api/v1/nodes", "", ""),
    (
        Kubelet,
        "GET",
        "/api/v1/namespaces/default/configmaps/x",
        "",
        "",
    ),
    (Kubelet, "GET", CONFIGMAPS, "", ""),
    (
        Kubelet,
        "GET",
        "/api/v1/namespaces/default/secrets/x",
        "",
        "",
    ),
    (Kubelet, "GET", "/api/v1/namespaces", "", ""),
    (Kubelet, "GET", "/api/v1/namespaces/kube-system", "", ""),
    (Kubelet, "DELETE", N1, "", ""),
    (Kubelet, "GET", "/foo", "", ""),
    (
        Kubelet,
        "POST",
        REVIEWS,
        JSON,
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"secrets","namespace":"d","name":"x"}}}"#,
    ),
    (
        Kubelet,
        "POST",
        REVIEWS,
        JSON,
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"patch","resource":"nodes","subresource":"status","name":"n1"}}}"#,
    ),
    (
        Kubelet,
        "POST",
        EVENTS,
        JSON,
        r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e1"},"involvedObject":{"apiVersion":"v1","kind":"Node","name":"n1","uid":"n1"},"reason":"r","message":"m","type":"Normal"}"#,
    ),
    (
        Kubelet,
        "PATCH",
        "/api/v1/namespaces/default/events/e1",
        STRATEGIC,
        r#"{"count":2}"#,
    ),
    (
        Kubelet,
        "POST",
        "/api/v1/namespaces/kube-system/events",
        JSON,
        r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e2"},"involvedObject":{"apiVersion":"v1","kind":"Node","name":"n1","uid":"n1"},"reason":"r","message":"m","type":"Normal"}"#,
    ),
    (
        Kubelet,
        "POST",
        EVENTS,
        JSON,
        r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e3"},"involvedObject":{"kind":"Node","name":"n1"},"reason":"r","message":"m","type":"Normal","eventTime":"2025-01-01T00:00:00.000000Z"}"#,
    ),
    (
        Kubelet,
        "POST",
        NEW_EVENTS,
        JSON,
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e4"},"regarding":{"kind":"Node","name":"n1"}}"#,
    ),
    (
        Admin,
        "POST",
        NEW_EVENTS,
        JSON,
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e5"},"regarding":{"kind":"Node","name":"n1"},"eventTime":"2025-01-01T00:00:00.000000Z","reportingController":"a.io/b","reportingInstance":"n1","action":"x","reason":"r","type":"Normal","note":"hello"}"#,
    ),
    (
        Admin,
        "POST",
        "/apis/events.k8s.io/v1/namespaces/kube-system/events",
        JSON,
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e6"},"regarding":{"kind":"Node","name":"n1"},"eventTime":"2025-01-01T00:00:00.000000Z","reportingController":"a.io/b","reportingInstance":"n1","action":"x","reason":"r","type":"Normal","note":"hello"}"#,
    ),
    (Admin, "DELETE", "/api/v1/nodes/n2", "", ""),
    (Admin, "DELETE", N1, "", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_a_real_kube_apiserver() {
    if !RealApi::available("answers_are_those_of_a_real_kube_apiserver") {
        return;
    }
    let real = RealApi::start("parity", RealOptions::default()).await;
    let options = ServerOptions {
        // The real one is older than 1.32.
        node_reads_restricted: false,
        ..ServerOptions::guest()
    };
    let lab = Server::start(options).await;
    let mut differences = Vec::new();
    for (number, (who, method, path, media, body)) in REQUESTS.iter().enumerate() {
        let ask = |endpoint: Endpoint, authority: &Authority| {
            let client = client(*who, &endpoint, authority);
            async move { client.send(method, path, media, body).await }
        };
        let expected = essence(&ask(real.endpoint(), real.authority()).await);
        let found = essence(&ask(lab.endpoint(), lab.authority()).await);
        if expected != found {
            differences.push(format!(
                "{number} {who:?} {method} {path} {body}\n  real {expected}\n  lab  {found}"
            ));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

fn client(who: Who, endpoint: &Endpoint, authority: &Authority) -> Client {
    let client = Client::anonymous(endpoint);
    match who {
        Admin => client.with_identity(endpoint.admin.clone()),
        Kubelet => {
            client.with_identity(authority.client_identity("system:node:n1", &["system:nodes"]))
        }
        Anonymous => client,
        Nobody => client.with_token("nobody"),
    }
}

/// What of an answer must be equal: all of a failure but repeated causes, and of an object what the requests changed.
fn essence(answer: &Answer) -> Value {
    let body = answer.json();
    let mut essence = serde_json::json!({"status": answer.status});
    if body["kind"] == "Status" {
        essence["body"] = body;
        for field in ["causes", "uid"] {
            if let Some(details) = essence["body"]["details"].as_object_mut() {
                details.remove(field);
            }
        }
        // The two count resource versions apart.
        let message = essence["body"]["message"].as_str().unwrap_or_default();
        let message = message
            .split(", current: ")
            .next()
            .unwrap_or_default()
            .to_owned();
        essence["body"]["message"] = Value::from(message);
    } else if body.is_null() {
        essence["body"] = Value::from(String::from_utf8_lossy(&answer.body).trim_end());
    } else {
        essence["kind"] = body["kind"].clone();
        essence["labels"] = body["metadata"]["labels"].clone();
        essence["annotations"] = body["metadata"]["annotations"].clone();
        essence["allowed"] = body["status"]["allowed"].clone();
        essence["reason"] = body["status"]["reason"].clone();
        essence["providerID"] = body["spec"]["providerID"].clone();
        essence["phase"] = body["status"]["phase"].clone();
        essence["count"] = body["count"].clone();
        let own_taints = body["spec"]["taints"].as_array().into_iter().flatten();
        // The real one adds this taint to each new Node.
        essence["taints"] = own_taints
            .filter(|taint| taint["key"] != "node.kubernetes.io/not-ready")
            .cloned()
            .collect();
        let conditions = body["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        essence["conditions"] = conditions
            .map(|condition| format!("{}={}", condition["type"], condition["status"]))
            .collect();
    }
    essence
}
