// SPDX-License-Identifier: Apache-2.0
//! Watches.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Client, Line, METADATA};
use crate::server::{GoneForm, Server, ServerOptions};
use crate::world::{SOON, eventually};

const NODES: &str = "/api/v1/nodes?watch=true";

async fn server_with(names: &[&str]) -> (Server, Client) {
    let options = ServerOptions {
        bookmark_interval: Duration::from_millis(50),
        ..ServerOptions::guest()
    };
    let server = Server::start(options).await;
    for name in names {
        server.create(node(name));
    }
    let admin = Client::admin(&server);
    (server, admin)
}

fn node(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"l": name}}})
}

fn label(server: &Server, name: &str, value: &str) {
    server.update(&format!("/api/v1/nodes/{name}"), |node| {
        node["metadata"]["labels"]["l"] = json!(value);
    });
}

#[tokio::test]
async fn a_watch_from_nowhere_begins_with_what_is_there() {
    let (server, admin) = server_with(&["n1", "n2"]).await;
    let mut watch = admin.watch(NODES).await;
    assert_eq!(watch.brief().await, "ADDED n1");
    assert_eq!(watch.brief().await, "ADDED n2");
    label(&server, "n1", "x");
    let (kind, object) = watch.event().await;
    assert_eq!(
        (kind.as_str(), &object["metadata"]["labels"]["l"]),
        ("MODIFIED", &json!("x"))
    );
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("Node"), &json!("v1"))
    );
    server.delete("/api/v1/nodes/n2");
    assert_eq!(watch.brief().await, "DELETED n2");
    assert_eq!(server.watch_count(), 1);
    drop(watch);
    let has_ended = async || server.watch_count() == 0;
    eventually(SOON, "a watch ends with its client", has_ended).await;
}

#[tokio::test]
async fn a_watch_from_a_resource_version_says_what_came_after() {
    let (server, admin) = server_with(&["n1"]).await;
    let revision = server.revision();
    label(&server, "n1", "x");
    label(&server, "n1", "y");
    let mut watch = admin
        .watch(&format!("{NODES}&resourceVersion={revision}"))
        .await;
    assert_eq!(watch.event().await.1["metadata"]["labels"]["l"], "x");
    assert_eq!(watch.event().await.1["metadata"]["labels"]["l"], "y");
    label(&server, "n1", "z");
    assert_eq!(watch.event().await.1["metadata"]["labels"]["l"], "z");
}

#[tokio::test]
async fn selectors_turn_changes_into_arrivals_and_departures() {
    let (server, admin) = server_with(&["n1", "n2"]).await;
    let mut by_label = admin.watch(&format!("{NODES}&labelSelector=l%3Dx")).await;
    let mut by_name = admin
        .watch(&format!("{NODES}&fieldSelector=metadata.name%3Dn2"))
        .await;
    assert_eq!(by_name.brief().await, "ADDED n2");
    label(&server, "n1", "x");
    assert_eq!(by_label.brief().await, "ADDED n1");
    label(&server, "n1", "y");
    let (kind, object) = by_label.event().await;
    assert_eq!(kind, "DELETED");
    assert_eq!(
        object["metadata"]["labels"]["l"], "x",
        "the last state that was selected"
    );
    assert_eq!(
        object["metadata"]["resourceVersion"],
        server.revision().to_string()
    );
    // What is not selected is not said: the next events are of what is.
    label(&server, "n1", "z");
    label(&server, "n2", "x");
    assert_eq!(by_label.brief().await, "ADDED n2");
    assert_eq!(by_name.brief().await, "MODIFIED n2");
}

#[tokio::test]
async fn bookmarks_come_to_those_who_allow_them_and_follow_foreign_changes() {
    let (server, _) = server_with(&["n1"]).await;
    let client = Client::admin(&server).accepting(METADATA);
    let path = format!("{NODES}&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dn1");
    let mut watch = client.watch(&path).await;
    let (kind, object) = watch.event().await;
    assert_eq!(
        (kind.as_str(), &object["kind"]),
        ("ADDED", &json!("PartialObjectMetadata"))
    );
    assert_eq!(object["status"], json!(null));
    server.create(node("n2"));
    let (kind, object) = watch.event().await;
    assert_eq!(
        (kind.as_str(), &object["kind"]),
        ("BOOKMARK", &json!("PartialObjectMetadata"))
    );
    assert_eq!(
        object["metadata"]["resourceVersion"],
        server.revision().to_string()
    );
    let mut plain = client
        .watch(&path.replace("&allowWatchBookmarks=true", ""))
        .await;
    assert_eq!(plain.brief().await, "ADDED n1");
    for name in ["n3", "n4"] {
        server.create(node(name));
        assert_eq!(watch.event().await.0, "BOOKMARK");
    }
    label(&server, "n1", "x");
    assert_eq!(plain.brief().await, "MODIFIED n1");
}

#[tokio::test]
async fn a_watch_ends_cleanly_after_its_time_or_on_request() {
    let (server, admin) = server_with(&[]).await;
    let begun = Instant::now();
    let mut watch = admin.watch(&format!("{NODES}&timeoutSeconds=1")).await;
    assert_eq!(watch.next().await, Line::End(String::new()));
    assert!(Instant::now() >= begun + Duration::from_secs(1));
    let mut watch = admin.watch(NODES).await;
    server.end_watches();
    assert_eq!(watch.next().await, Line::End(String::new()));
    let mut watch = admin.watch(NODES).await;
    server.write_to_watches(b"{\"type\":");
    server.drop_watches();
    assert_eq!(watch.next().await, Line::Cut("{\"type\":".to_owned()));
}

#[tokio::test]
async fn a_hushed_watch_stays_open_and_misses_all_and_a_new_one_does_not() {
    let (server, admin) = server_with(&[]).await;
    let mut hushed = admin.watch(NODES).await;
    server.hush_watches();
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    let mut new = admin.watch(NODES).await;
    assert_eq!(new.brief().await, "ADDED n1");
    assert!(hushed.is_quiet().await);
    assert_eq!(server.watch_count(), 2);
}

#[tokio::test]
async fn compaction_ends_open_watches_and_refuses_old_ones_in_either_form() {
    let (server, admin) = server_with(&["n1"]).await;
    let old = server.revision();
    let mut watch = admin.watch(&format!("{NODES}&resourceVersion={old}")).await;
    server.compact(GoneForm::Status);
    let (kind, status) = watch.event().await;
    assert_eq!(
        (kind.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert_eq!(watch.next().await, Line::End(String::new()));
    let from_old = format!("{NODES}&resourceVersion={old}");
    let refused = admin.get(&from_old).await;
    assert_eq!(
        (refused.status, refused.json()["reason"].clone()),
        (410, json!("Expired"))
    );
    server.compact(GoneForm::InStream);
    let mut watch = admin.watch(&from_old).await;
    assert_eq!(watch.status, 200);
    assert_eq!(watch.event().await.1["code"], 410);
    let now = server.revision();
    let mut watch = admin.watch(&format!("{NODES}&resourceVersion={now}")).await;
    label(&server, "n1", "x");
    assert_eq!(watch.brief().await, "MODIFIED n1");
}

#[tokio::test]
async fn the_time_of_a_watch_event_and_of_the_patch_that_answers_it_are_known() {
    let (server, admin) = server_with(&["n1"]).await;
    let mut watch = admin
        .watch(&format!("{NODES}&resourceVersion={}", server.revision()))
        .await;
    let before = Instant::now();
    label(&server, "n1", "x");
    watch.brief().await;
    admin
        .merge(
            "/api/v1/nodes/n1",
            &json!({"metadata": {"labels": {"l": "y"}}}),
        )
        .await;
    let write = &server.watch_writes()[0];
    assert_eq!(
        (write.event.as_str(), write.name.as_str()),
        ("MODIFIED", "n1")
    );
    let patch = server.writes().pop().unwrap();
    assert!(
        before <= write.at && write.at <= patch.at,
        "{before:?} {write:?} {patch:?}"
    );
}
