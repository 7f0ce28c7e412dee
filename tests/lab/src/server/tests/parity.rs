// SPDX-License-Identifier: Apache-2.0
//! The same requests to this server and to a real kube-apiserver, which must answer alike.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Answer, Client, MERGE, METADATA, STRATEGIC};
use crate::Endpoint;
use crate::kubernetes::Kubernetes;
use crate::pki::Authority;
use crate::real::{RealApi, RealOptions};
use crate::server::{Server, ServerOptions};
use crate::world::{SOON, eventually};

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
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const V1: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"virtualmachineinstances.kubevirt.io"},"spec":{"group":"kubevirt.io","scope":"Namespaced","names":{"plural":"virtualmachineinstances","singular":"virtualmachineinstance","kind":"VirtualMachineInstance"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// In this order; each may build on those before it. The media type of a GET is what it accepts.
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
    (Admin, "GET", "/api/v1/nodes", "", ""),
    (Admin, "GET", "/api/v1/nodes?limit=1", "", ""),
    (Admin, "GET", "/api/v1/nodes?labelSelector=a%3Dc", "", ""),
    (Admin, "GET", "/api/v1/nodes?limit=1", METADATA, ""),
    (Admin, "GET", "/api/v1/nodes?limit=1", METADATA_LIST, ""),
    (Admin, "GET", N1, METADATA, ""),
    (Admin, "GET", N1, METADATA_LIST, ""),
    (
        Kubelet,
        "GET",
        "/api/v1/nodes?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dn1",
        METADATA,
        "",
    ),
    (Kubelet, "GET", "/api/v1/nodes/n2", "", ""),
    (Kubelet, "GET", "/api/v1/nodes/absent", "", ""),
    (Kubelet, "GET", "/api/v1/nodes", "", ""),
    (Kubelet, "GET", "/api/v1/nodes?labelSelector=a%3Dc", "", ""),
    (
        Kubelet,
        "GET",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
        "",
        "",
    ),
    (
        Kubelet,
        "GET",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn2",
        "",
        "",
    ),
    (
        Kubelet,
        "GET",
        "/api/v1/nodes?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dn2",
        "",
        "",
    ),
    (
        Kubelet,
        "GET",
        "/api/v1/nodes?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion=0&fieldSelector=metadata.name%3Dn1",
        "",
        "",
    ),
    (Kubelet, "GET", "/api/v1/pods", "", ""),
    (
        Kubelet,
        "GET",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/api/v1/nodes?watch=1&timeoutSeconds=1",
        "",
        "",
    ),
    (
        Admin,
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        JSON,
        DEFINITION,
    ),
    (
        Admin,
        "POST",
        VMIS,
        JSON,
        r#"{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"v1","labels":{"a":"b"}},"spec":{"x":1},"status":{"phase":"Running"}}"#,
    ),
    (
        Admin,
        "PATCH",
        V1,
        MERGE,
        r#"{"metadata":{"annotations":{"c":"d"}},"status":{"phase":"Failed"}}"#,
    ),
    (Admin, "PATCH", V1, STRATEGIC, "{}"),
    (
        Admin,
        "PUT",
        V1,
        JSON,
        r#"{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"v1"}}"#,
    ),
    (Admin, "GET", VMIS, "", ""),
    (Admin, "GET", V1, METADATA, ""),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/none",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/v1/status",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v1/namespaces/default/foos",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v2/namespaces/default/foos",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v1/virtualmachineinstances?fieldSelector=metadata.name%3Dv1",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v1/virtualmachineinstances?fieldSelector=spec.x%3Dv1",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v1/virtualmachineinstances?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dv1",
        "",
        "",
    ),
    (
        Admin,
        "GET",
        "/apis/kubevirt.io/v1/virtualmachineinstances?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dv1",
        "",
        "",
    ),
    (
        Admin,
        "POST",
        VMIS,
        JSON,
        r#"{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"Bad_Name"}}"#,
    ),
    (Kubelet, "GET", V1, "", ""),
    (Admin, "DELETE", V1, "", ""),
    (Admin, "DELETE", V1, "", ""),
    (Admin, "DELETE", "/api/v1/nodes/n2", "", ""),
    (Admin, "DELETE", N1, "", ""),
];

crate::on_each_kubernetes!(
    crate::real::RealApi::available, std::convert::identity;
    answers_are_those_of_a_real_kube_apiserver,
);

async fn answers_are_those_of_a_real_kube_apiserver(version: Kubernetes) {
    let real = RealApi::start("parity", RealOptions::of(version)).await;
    let options = ServerOptions {
        kubernetes: version,
        ..ServerOptions::guest()
    };
    let lab = Server::start(options).await;
    let mut differences = Vec::new();
    for (number, (who, method, path, media, body)) in REQUESTS.iter().enumerate() {
        let ask = |endpoint: Endpoint, authority: &Authority| {
            let client = client(*who, &endpoint, authority);
            async move {
                if *method == "GET" && !media.is_empty() {
                    client.accepting(media).get(path).await
                } else {
                    client.send(method, path, media, body).await
                }
            }
        };
        if path.starts_with(VMIS) {
            until_served(&real, VMIS).await;
        }
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

/// A real server takes a moment from the definition of a resource to serving it.
async fn until_served(real: &RealApi, path: &str) {
    let client = client(Admin, &real.endpoint(), real.authority());
    eventually(SOON, path, async || client.get(path).await.status == 200).await;
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

/// What of an answer must be equal: all of a failure but repeated causes, and of objects what the requests changed.
fn essence(answer: &Answer) -> Value {
    let text = String::from_utf8_lossy(&answer.body);
    let lines: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let body = match lines.as_slice() {
        // A watch: one event per line. The first ones come in no order: the real server keeps objects in a hash map.
        [first, ..] if first["type"].is_string() => {
            let mut events: Vec<Value> = lines
                .iter()
                .map(|event| json!([event["type"], essence_of_object(&event["object"])]))
                .collect();
            events.sort_by_key(|event| event[1]["name"].to_string());
            Value::from(events)
        }
        _ => match answer.json() {
            Value::Null => Value::from(text.trim_end()),
            body if body["kind"] == "Status" => essence_of_status(body),
            body if body["items"].is_array() => {
                let items = body["items"].as_array().into_iter().flatten();
                let next = body["metadata"]["continue"].as_str().unwrap_or_default();
                json!({
                    "kind": body["kind"], "apiVersion": body["apiVersion"], "more": !next.is_empty(),
                    "items": items.map(essence_of_object).collect::<Value>(),
                })
            }
            body => essence_of_object(&body),
        },
    };
    json!([
        answer.status,
        answer.headers["content-type"].to_str().unwrap(),
        body
    ])
}

fn essence_of_status(mut status: Value) -> Value {
    for field in ["causes", "uid"] {
        if let Some(details) = status["details"].as_object_mut() {
            details.remove(field);
        }
    }
    // The two count resource versions apart.
    let message = status["message"].as_str().unwrap_or_default();
    let message = message
        .split(", current: ")
        .next()
        .unwrap_or_default()
        .to_owned();
    status["message"] = Value::from(message);
    status
}

fn essence_of_object(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    // The real one adds this taint to each new Node.
    let mut taints = list(&object["spec"]["taints"]);
    taints.retain(|taint| taint["key"] != "node.kubernetes.io/not-ready");
    let conditions = list(&object["status"]["conditions"]);
    let conditions = conditions
        .iter()
        .map(|own| format!("{}={}", own["type"], own["status"]));
    let mut owners = BTreeMap::new();
    for entry in list(&metadata["managedFields"]) {
        let keys = entry["fieldsV1"]["f:metadata"]["f:labels"].as_object();
        for key in keys.into_iter().flat_map(|keys| keys.keys()) {
            owners.insert(key.clone(), entry["manager"].clone());
        }
    }
    owners.remove(".");
    json!({
        "kind": object["kind"], "apiVersion": object["apiVersion"], "name": metadata["name"],
        "namespace": metadata["namespace"], "generation": metadata["generation"],
        "labels": metadata["labels"], "annotations": metadata["annotations"], "owners": owners,
        "providerID": object["spec"]["providerID"], "taints": taints, "phase": object["status"]["phase"],
        "conditions": conditions.collect::<Value>(), "count": object["count"],
        "allowed": object["status"]["allowed"], "reason": object["status"]["reason"],
        "note": object["note"], "message": object["message"],
    })
}
