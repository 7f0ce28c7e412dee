// SPDX-License-Identifier: Apache-2.0
//! The verbs on objects.

use serde_json::{Value, json};

use super::client::{Client, METADATA, STRATEGIC};
use crate::server::{GoneForm, Server, ServerOptions};

const NODE: &str = "/api/v1/nodes/n1";
const VMI: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/v1";

async fn guest() -> (Server, Client) {
    let server = Server::start(ServerOptions::guest()).await;
    server.create(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }));
    let admin = Client::admin(&server);
    (server, admin)
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_patch_that_changes_nothing_costs_no_resource_version() {
    let (server, admin) = guest().await;
    let before = revision(&server.get(NODE).unwrap());
    let same = admin
        .merge(
            NODE,
            &json!({"metadata": {"labels": {"a": "b", "x": null}}}),
        )
        .await;
    assert_eq!((same.status, revision(&same.json())), (200, before));
    let other = admin
        .merge(NODE, &json!({"metadata": {"labels": {"a": "c"}}}))
        .await;
    assert!(revision(&other.json()) > before);
}

#[tokio::test]
async fn the_main_resource_keeps_the_status_and_the_subresource_keeps_the_spec() {
    let (_server, admin) = guest().await;
    let patch = json!({"spec": {"unschedulable": true}, "status": {"phase": "X"}});
    let main = admin.merge(NODE, &patch).await.json();
    assert_eq!(main["spec"]["unschedulable"], true);
    assert_eq!(main["status"]["phase"], Value::Null);
    let patch = json!({"metadata": {"labels": {"via": "status"}}, "spec": {"unschedulable": false},
        "status": {"phase": "X"}});
    let status = admin.merge(&format!("{NODE}/status"), &patch).await.json();
    assert_eq!(status["spec"]["unschedulable"], true);
    assert_eq!(status["status"]["phase"], "X");
    assert_eq!(status["metadata"]["labels"]["via"], "status");
}

#[tokio::test]
async fn a_condition_patch_leaves_the_conditions_of_others() {
    let (_server, admin) = guest().await;
    let patch = json!({"status": {"conditions": [{"type": "Mine", "status": "True"}]}}).to_string();
    let node = admin
        .send("PATCH", &format!("{NODE}/status"), STRATEGIC, &patch)
        .await
        .json();
    let types: Vec<&str> = node["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["Ready", "Mine"]);
}

#[tokio::test]
async fn a_key_belongs_to_whoever_wrote_it_last() {
    let (_server, admin) = guest().await;
    let agent = Client::admin(&_server).called("harvester-node-agent/0.1 (x)");
    agent
        .merge(
            NODE,
            &json!({"metadata": {"labels": {"zone": "1", "region": "1"}}}),
        )
        .await;
    let rival = format!("{NODE}?fieldManager=rival");
    let node = admin
        .merge(&rival, &json!({"metadata": {"labels": {"zone": "2"}}}))
        .await
        .json();
    let owner = |key: &str| -> Vec<String> {
        let entries = node["metadata"]["managedFields"].as_array().unwrap();
        let owns = |entry: &&Value| !entry["fieldsV1"]["f:metadata"]["f:labels"][key].is_null();
        let names = entries
            .iter()
            .filter(owns)
            .map(|entry| entry["manager"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    assert_eq!(owner("f:zone"), ["rival"]);
    assert_eq!(owner("f:region"), ["harvester-node-agent"]);
    assert_eq!(owner("f:a"), ["lab"]);
    let entries = node["metadata"]["managedFields"].as_array().unwrap();
    assert!(
        entries
            .iter()
            .all(|entry| entry["time"].is_string() && entry["fieldsType"] == "FieldsV1")
    );
    let node = agent
        .merge(NODE, &json!({"metadata": {"labels": {"zone": null}}}))
        .await
        .json();
    let managers: Vec<&Value> = node["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["manager"])
        .collect();
    assert!(
        !managers.contains(&&json!("rival")),
        "an entry without fields goes"
    );
}

#[tokio::test]
async fn custom_objects_count_generations_and_know_no_strategic_merge() {
    let server = Server::start(ServerOptions::harvester()).await;
    let admin = Client::admin(&server);
    let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "v1"}, "status": {"nodeName": "hv-a"}});
    let collection = VMI.strip_suffix("/v1").unwrap();
    let created = admin.create(collection, &vmi).await;
    assert_eq!(
        (created.status, &created.json()["metadata"]["generation"]),
        (201, &json!(1))
    );
    let moved = admin
        .merge(VMI, &json!({"status": {"nodeName": "hv-b"}}))
        .await
        .json();
    assert_eq!(moved["status"]["nodeName"], "hv-b");
    assert_eq!(moved["metadata"]["generation"], 2);
    let labelled = admin
        .merge(VMI, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .json();
    assert_eq!(labelled["metadata"]["generation"], 2);
    let refused = admin.send("PATCH", VMI, STRATEGIC, "{}").await;
    assert_eq!(refused.status, 415);
    let blind = admin
        .send("PUT", VMI, "application/json", &vmi.to_string())
        .await;
    assert_eq!(blind.status, 422);
    let status = admin
        .merge(
            &format!("{VMI}/status"),
            &json!({"status": {"phase": "Running"}, "spec": {"x": 1}}),
        )
        .await
        .json();
    assert_eq!(
        (&status["status"]["phase"], &status["spec"]),
        (&json!("Running"), &Value::Null)
    );
}

#[tokio::test]
async fn a_definition_brings_its_kind() {
    let server = Server::start(ServerOptions::guest()).await;
    let admin = Client::admin(&server);
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
    let unknown = admin.get(path).await;
    assert_eq!(
        (unknown.status, &unknown.body[..]),
        (404, &b"404 page not found\n"[..])
    );
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "virtualmachines.kubevirt.io"},
        "spec": {"group": "kubevirt.io", "scope": "Namespaced",
            "names": {"plural": "virtualmachines", "kind": "VirtualMachine"},
            "versions": [{"name": "v1", "served": true, "storage": true}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(admin.create(definitions, &definition).await.status, 201);
    assert_eq!(admin.get(path).await.json()["kind"], "VirtualMachineList");
    assert_eq!(
        admin.get("/apis/kubevirt.io/v1").await.json()["resources"][0]["name"],
        "virtualmachines"
    );
}

#[tokio::test]
async fn lists_come_in_pages_and_an_old_page_is_gone() {
    let (server, admin) = guest().await;
    for name in ["n2", "n3"] {
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"a": name}}}));
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = admin.get("/api/v1/nodes?limit=2").await.json();
    assert_eq!(names(&first), ["n1", "n2"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    assert_eq!(first["items"][0]["kind"], Value::Null);
    let next = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/nodes?limit=2&continue={next}");
    let second = admin.get(&path).await.json();
    assert_eq!(names(&second), ["n3"]);
    assert_eq!(second["metadata"]["continue"], Value::Null);
    server.compact(GoneForm::Status);
    assert_eq!(admin.get(&path).await.status, 410);
    let selected = |query: &str| {
        let path = format!("/api/v1/nodes?{query}");
        let admin = &admin;
        async move { names(&admin.get(&path).await.json()) }
    };
    assert_eq!(selected("fieldSelector=metadata.name%3Dn2").await, ["n2"]);
    assert_eq!(selected("labelSelector=a%3Dn3").await, ["n3"]);
    assert_eq!(selected("labelSelector=a+in+(n2,n3),a!%3Dn2").await, ["n3"]);
    assert_eq!(selected("labelSelector=!a").await, [""; 0]);
    assert_eq!(selected("labelSelector=a").await, ["n1", "n2", "n3"]);
}

#[tokio::test]
async fn metadata_alone_is_served_to_those_who_ask_for_it() {
    let (server, _) = guest().await;
    let client = Client::admin(&server).accepting(METADATA);
    let node = client.get(NODE).await.json();
    assert_eq!(
        (&node["kind"], &node["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(node["metadata"]["labels"]["a"], "b");
    assert_eq!(node.as_object().unwrap().len(), 3);
    assert_eq!(client.get("/api/v1/nodes").await.status, 406);
    let patched = client
        .merge(NODE, &json!({"metadata": {"labels": {"a": "c"}}}))
        .await
        .json();
    assert_eq!(patched["kind"], "PartialObjectMetadata");
    let lists = Client::admin(&server).accepting(&METADATA.replace("Metadata;", "MetadataList;"));
    let list = lists.get("/api/v1/nodes").await.json();
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (
            &json!("PartialObjectMetadataList"),
            &json!("PartialObjectMetadata")
        )
    );
    let tables = Client::admin(&server)
        .accepting("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    assert_eq!(tables.get(NODE).await.json()["kind"], "Node");
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let (server, admin) = guest().await;
    server.update(NODE, |node| node["metadata"]["finalizers"] = json!(["x/y"]));
    let held = admin.send("DELETE", NODE, "", "").await.json();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    assert!(server.get(NODE).is_some());
    admin
        .merge(NODE, &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(server.get(NODE), None);
}

#[tokio::test]
async fn events_of_both_groups_are_one_set_of_objects() {
    let (server, admin) = guest().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "n1."},
        "involvedObject": {"kind": "Node", "name": "n1"}, "reason": "R", "message": "m", "type": "Normal"});
    let created = admin
        .create("/api/v1/namespaces/default/events", &event)
        .await;
    assert_eq!(created.status, 201, "{}", created.message());
    let list = admin
        .get("/apis/events.k8s.io/v1/namespaces/default/events")
        .await
        .json();
    assert_eq!(list["items"][0]["note"], "m");
    assert_eq!(list["items"][0]["regarding"]["name"], "n1");
    let found = admin
        .get("/api/v1/events?fieldSelector=involvedObject.name%3Dn1")
        .await
        .json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    drop(server);
}

#[tokio::test]
async fn the_log_keeps_what_clients_asked() {
    let (server, admin) = guest().await;
    server.clear_requests();
    admin.get(NODE).await;
    let agent = Client::kubelet(&server, "n1").called("harvester-node-agent/0.1");
    agent.merge(NODE, &json!({"spec": {"taints": []}})).await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}});
    agent
        .create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            &review,
        )
        .await;
    assert_eq!(server.requests().len(), 3);
    let own = server.requests_of("harvester-node-agent");
    assert_eq!(own.len(), 2);
    assert_eq!(
        (own[0].verb.as_str(), own[0].status, own[0].user.as_str()),
        ("patch", 403, "system:node:n1")
    );
    assert_eq!(own[0].body, json!({"spec": {"taints": []}}));
    assert!(own[0].at <= own[1].at);
    let writes = server.writes();
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].path, NODE);
}
