// SPDX-License-Identifier: Apache-2.0
//! The same requests to this server and to a real kube-apiserver, which must answer alike: those that the agent and the players send.

use std::collections::BTreeMap;

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use super::Server;
use crate::Endpoint;
use crate::admin::Admin;
use crate::kubernetes::Kubernetes;
use crate::pki::Authority;
use crate::real::{RealApi, RealOptions};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Administrator,
    Kubelet,
    Anonymous,
    Nobody,
}
use Who::{Administrator, Anonymous, Kubelet, Nobody};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// In this order; each may build on those before it. The media type of a GET is what it accepts.
#[rustfmt::skip]
const REQUESTS: &[(Who, &str, &str, &str, &str)] = &[
    (Kubelet, "POST", "/api/v1/nodes", JSON, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"a":"b"}}}"#),
    (Administrator, "POST", "/api/v1/nodes", JSON, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}"#),
    (Administrator, "POST", "/api/v1/nodes", JSON, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}"#),
    (Kubelet, "PATCH", "/api/v1/nodes/n1", MERGE,
        r#"{"metadata":{"labels":{"a":"c","topology.kubernetes.io/zone":"z"},"annotations":{"x":"y"}}}"#),
    (Kubelet, "PATCH", "/api/v1/nodes/n1", MERGE, r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":null}}}"#),
    (Kubelet, "PATCH", "/api/v1/nodes/n9", MERGE, r#"{"metadata":{"labels":{"a":"c"}}}"#),
    (Administrator, "PATCH", "/api/v1/nodes/n1", MERGE, r#"{"spec":{"providerID":"harvester://1"},"status":{"phase":"Pending"}}"#),
    (Administrator, "PATCH", "/api/v1/nodes/n1", STRATEGIC, r#"{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}"#),
    (Kubelet, "PATCH", "/api/v1/nodes/n1/status", STRATEGIC,
        r#"{"status":{"conditions":[{"type":"X","status":"True","reason":"R"}]}}"#),
    (Kubelet, "PATCH", "/api/v1/nodes/n1/status", STRATEGIC,
        r#"{"status":{"conditions":[{"type":"X","status":"False"},{"type":"Y","status":"True"}]}}"#),
    (Kubelet, "PATCH", "/api/v1/nodes/n1/status", MERGE, r#"{"metadata":{"labels":{"via":"status"}},"spec":{"unschedulable":true}}"#),
    (Administrator, "PATCH", "/api/v1/nodes/n1", MERGE, r#"{"metadata":{"resourceVersion":"1","labels":{"z":"1"}}}"#),
    (Administrator, "PUT", "/api/v1/nodes/n2", JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2","resourceVersion":"1"}}"#),
    (Administrator, "PUT", "/api/v1/nodes/n9", JSON,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n9","resourceVersion":"1"}}"#),
    (Administrator, "GET", "/api/v1/nodes", JSON, ""),
    (Administrator, "GET", "/api/v1/nodes?labelSelector=a%3Dc", JSON, ""),
    (Administrator, "GET", "/api/v1/nodes", METADATA_LIST, ""),
    (Administrator, "GET", "/api/v1/nodes/n1", METADATA, ""),
    (Administrator, "GET", "/api/v1/nodes/nope", JSON, ""),
    (Administrator, "GET", "/api/v1/foos", JSON, ""),
    (Administrator, "GET", "/apis/nowhere.example/v1/things", JSON, ""),
    (Administrator, "GET", "/api/v1/nodes?watch=1&timeoutSeconds=1", JSON, ""),
    (Anonymous, "GET", "/api/v1/nodes", JSON, ""),
    (Nobody, "GET", "/api/v1/nodes", JSON, ""),
    (Kubelet, "GET", "/api/v1/nodes/n1", METADATA, ""),
    (Kubelet, "GET", "/api/v1/nodes/n2", JSON, ""),
    (Kubelet, "GET", "/api/v1/nodes/absent", JSON, ""),
    (Kubelet, "GET", "/api/v1/nodes", JSON, ""),
    (Kubelet, "GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn1", JSON, ""),
    (Kubelet, "GET", "/api/v1/nodes?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dn1", METADATA, ""),
    (Kubelet, "GET",
        "/api/v1/nodes?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion=0&fieldSelector=metadata.name%3Dn1", JSON, ""),
    (Kubelet, "GET", "/api/v1/pods", JSON, ""),
    (Kubelet, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", JSON, ""),
    (Kubelet, "GET", "/api/v1/namespaces/kube-system", JSON, ""),
    (Kubelet, "DELETE", "/api/v1/nodes/n1", JSON, ""),
    (Kubelet, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", JSON,
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"patch","resource":"nodes","subresource":"status","name":"n1"}}}"#),
    (Kubelet, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", JSON,
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"delete","resource":"nodes","name":"n1"}}}"#),
    (Kubelet, "POST", "/api/v1/namespaces/default/events", JSON,
        r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e1","namespace":"default"},"involvedObject":{"apiVersion":"v1","kind":"Node","name":"n1","uid":"n1"},"reason":"r","message":"m","type":"Normal","count":1}"#),
    (Kubelet, "POST", "/apis/events.k8s.io/v1/namespaces/default/events", JSON,
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e2","namespace":"default"},"regarding":{"kind":"Node","name":"n1"},"eventTime":"2025-01-01T00:00:00.000000Z","reportingController":"a.io/b","reportingInstance":"n1","action":"x","reason":"r","type":"Normal","note":"hello"}"#),
    (Administrator, "GET", "/apis/events.k8s.io/v1/events", JSON, ""),
    (Administrator, "POST", VMIS, JSON,
        r#"{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"v1","labels":{"a":"b"}},"spec":{"x":1},"status":{"phase":"Running"}}"#),
    (Administrator, "PATCH", V1, MERGE, r#"{"metadata":{"annotations":{"c":"d"}},"status":{"phase":"Failed"}}"#),
    (Administrator, "GET", VMIS, JSON, ""),
    (Administrator, "GET", V1, METADATA, ""),
    (Administrator, "GET", "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/none", JSON, ""),
    (Administrator, "GET",
        "/apis/kubevirt.io/v1/virtualmachineinstances?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dv1", JSON, ""),
    (Kubelet, "GET", V1, JSON, ""),
    (Administrator, "DELETE", V1, JSON, ""),
    (Administrator, "DELETE", V1, JSON, ""),
    (Administrator, "DELETE", "/api/v1/nodes/n1", JSON, ""),
];

const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const V1: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/v1";

#[tokio::test]
async fn answers_are_those_of_a_real_kube_apiserver_of_kubernetes_1_36() {
    let (version, test) = (
        Kubernetes::V1_36,
        "answers_are_those_of_a_real_kube_apiserver",
    );
    if !RealApi::available(version, test) {
        return;
    }
    let real = RealApi::borrow("parity", RealOptions::of(version)).await;
    real.install_kubevirt_crds().await.unwrap();
    let lab = Server::start(true).await;
    let mut differences = Vec::new();
    for (number, (who, method, path, media, body)) in REQUESTS.iter().enumerate() {
        let ask = async |endpoint: Endpoint, authority: &Authority| {
            let client = client(*who, &endpoint, authority);
            essence(client.send(method, path, media, body).await).await
        };
        let expected = ask(real.endpoint(), real.authority()).await;
        let found = ask(lab.endpoint(), lab.authority()).await;
        if expected != found {
            differences.push(format!(
                "{number} {who:?} {method} {path} {body}\n  real {expected}\n  lab  {found}"
            ));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

fn client(who: Who, endpoint: &Endpoint, authority: &Authority) -> Admin {
    match who {
        Administrator => Admin::named(endpoint, "probe/1"),
        Kubelet => {
            let identity = authority.client_identity("system:node:n1", &["system:nodes"]);
            Admin::with_identity(endpoint, "probe/1", &identity)
        }
        Anonymous => Admin::anonymous(endpoint),
        Nobody => Admin::with_token(endpoint, "probe/1", "nobody"),
    }
}

/// What of an answer must be equal: all of a failure but repeated causes, and of objects what the requests changed.
async fn essence(answer: Response) -> Value {
    let status = answer.status();
    let media = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    let text = answer.text().await.unwrap();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let lines: Vec<Value> = lines.collect();
    let body = match lines.as_slice() {
        // A watch: one event per line. The first ones come in no order: the real server keeps objects in a hash map.
        [first, ..] if first["type"].is_string() => {
            let events = lines.iter();
            let events =
                events.map(|event| json!([event["type"], essence_of_object(&event["object"])]));
            let mut events: Vec<Value> = events.collect();
            events.sort_by_key(|event| event[1]["name"].to_string());
            Value::from(events)
        }
        [body] if body["kind"] == "Status" => essence_of_status(body.clone()),
        [body] => match body["items"].as_array() {
            Some(items) => json!([
                body["kind"],
                body["apiVersion"],
                items.iter().map(essence_of_object).collect::<Value>()
            ]),
            None => essence_of_object(body),
        },
        _ => {
            assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
            Value::from(text.trim_end())
        }
    };
    json!([status.as_u16(), media, body])
}

fn essence_of_status(mut status: Value) -> Value {
    for field in ["causes", "uid"] {
        if let Some(details) = status["details"].as_object_mut() {
            details.remove(field);
        }
    }
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
    let mut conditions: Vec<String> = conditions.collect();
    conditions.sort();
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
        "namespace": metadata["namespace"], "labels": metadata["labels"], "annotations": metadata["annotations"], "owners": owners,
        "providerID": object["spec"]["providerID"], "taints": taints, "phase": object["status"]["phase"],
        "conditions": conditions, "count": object["count"], "allowed": object["status"]["allowed"], "reason": object["status"]["reason"],
        "note": object["note"], "message": object["message"],
    })
}
