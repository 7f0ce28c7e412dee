// SPDX-License-Identifier: Apache-2.0
//! Tests the requests that are sent, and the results of valid responses.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{
    Client, INSTANCES, Kind, NODES, ObjectPath, PODS, PartialObjectMetadata, PatchKind,
    ResourceAttributes, Tally, Timeouts, WatchRequest,
};
use super::server::{Server, Step, json as answer_json, status, stream_head};
use super::{HOUR, LONG, TOKEN, VERSION, client, credential, is, printed, received};
use crate::wire::backoff::Backoff;

const THINGS: ObjectPath = ObjectPath::all("/apis/kubevirt.io/v1", "things", None);

#[tokio::test]
async fn a_request_carries_the_token_our_name_and_no_wish_for_compression() {
    let server = Server::saying(answer_json(200, "{}")).await;
    let client = client(&server.url());
    client.get::<Value>(&VERSION).await.unwrap();
    let request = server.request();
    assert_eq!(
        request.header("authorization"),
        Some(format!("Bearer {TOKEN}").as_str())
    );
    let agent = concat!("harvester-node-agent/", env!("CARGO_PKG_VERSION"));
    assert_eq!(request.header("user-agent"), Some(agent));
    assert_eq!(request.header("accept"), Some("application/json"));
    assert_eq!(
        request.header("host"),
        Some(server.address.to_string().as_str())
    );
    assert_eq!(request.header("accept-encoding"), None);
    assert_eq!(request.header("referer"), None);
}

#[tokio::test]
async fn a_wait_for_a_watch_of_ours_says_nothing_of_the_api() {
    let server = Server::saying(vec![stream_head(), Step::Stay]).await;
    let timeouts = Timeouts {
        connect: HOUR / 2,
        ..LONG
    };
    let backoff = Backoff::new(|| crate::decide::schedule::Random::from_bits(0));
    let (tally, shared) = (Tally::default(), backoff.clone());
    let client = Client::counting(&credential(&server.url()), timeouts, tally, shared).unwrap();
    let request = WatchRequest::new(&NODES);
    let _first = client.watch::<Value>(&request).await.unwrap();
    let _second = client.watch::<Value>(&request).await.unwrap();
    tokio::time::pause();
    let error = client.watch::<Value>(&request).await.unwrap_err();
    is(&error, Kind::TimedOut, "waiting for the previous watch");
    assert_eq!(backoff.left(), None, "no other request waits for it");
}

#[tokio::test]
async fn a_metadata_read_says_so() {
    let server = Server::saying(answer_json(
        200,
        r#"{"metadata":{"name":"n"},"spec":{"big":1}}"#,
    ))
    .await;
    let client = client(&server.url());
    let object = client.get_metadata(&NODES.named("n")).await.unwrap();
    assert_eq!(object.metadata.name.as_deref(), Some("n"));
    let requests = server.requests();
    assert_eq!(requests[0].line, "GET /api/v1/nodes/n HTTP/1.1");
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(requests[0].header("accept"), Some(accept));
}

#[tokio::test]
async fn a_list_of_metadata_asks_for_nothing_more() {
    let list = r#"{"metadata":{},"items":[{"metadata":{"name":"a","labels":{"k":"v"}}},{"metadata":{"name":"b"}}]}"#;
    let server = Server::saying(answer_json(200, list)).await;
    let client = client(&server.url());
    let list = client
        .list_metadata::<PartialObjectMetadata>(&NODES)
        .await
        .unwrap();
    let names = list.iter().map(|item| item.metadata.name.as_deref());
    assert_eq!(names.collect::<Vec<_>>(), [Some("a"), Some("b")]);
    assert_eq!(list[0].metadata.labels["k"], "v");
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(server.requests()[0].header("accept"), Some(accept));
}

#[tokio::test]
async fn an_object_that_cannot_be_read_costs_a_list_that_object_alone() {
    let list = r#"{"metadata":{"resourceVersion":"7"},"items":[1,"x",300,2]}"#;
    let server = Server::saying(answer_json(200, list)).await;
    let client = client(&server.url());
    let picked = client
        .list::<u16>(&THINGS, &[], |number| {
            Some(number).filter(|number| *number != 1)
        })
        .await;
    assert_eq!(picked.unwrap(), [300, 2]);
    let metadata = client.list_metadata::<u8>(&THINGS).await.unwrap();
    assert_eq!(metadata, [1, 2]);
}

#[tokio::test]
async fn requests_share_one_connection_and_wait_for_their_turn() {
    let server = Server::saying(answer_json(200, "{}")).await;
    let client = client(&server.url());
    let get = async || client.get::<Value>(&VERSION).await;
    for result in <[_; 4]>::from(tokio::join!(get(), get(), get(), get())) {
        result.unwrap();
    }
    assert_eq!((server.requests().len(), server.connections()), (4, 1));
}

#[tokio::test]
async fn a_request_that_was_given_up_does_not_block_the_next() {
    let server = Server::start(|position, _| match position {
        0 => vec![stream_head(), Step::Stay],
        _ => answer_json(200, "{}"),
    })
    .await;
    let client = client(&server.url());
    let path = VERSION;
    tokio::select! {
        result = client.get::<Value>(&path) => panic!("{result:?}"),
        () = received(&server, 1) => {}
    }
    client.get::<Value>(&VERSION).await.unwrap();
}

#[tokio::test]
async fn a_list_is_read_to_its_last_page() {
    let server = Server::start(|position, _| {
        answer_json(
            200,
            match position {
                0 => r#"{"metadata":{"resourceVersion":"5","continue":"a/b+c="},"items":[1,2]}"#,
                1 => r#"{"metadata":{"resourceVersion":"5","continue":"d"},"items":null}"#,
                _ => r#"{"metadata":{"resourceVersion":"5","continue":""},"items":[3]}"#,
            },
        )
    })
    .await;
    let selectors = [
        ("fieldSelector", "metadata.name=vm".to_owned()),
        ("labelSelector", "a in (b,c)".to_owned()),
    ];
    let list = client(&server.url())
        .list::<u8>(&THINGS, &selectors, Some)
        .await
        .unwrap();
    assert_eq!(list, [1, 2, 3]);
    let lines: Vec<String> = server
        .requests()
        .into_iter()
        .map(|request| request.line)
        .collect();
    let first = format!(
        "GET {THINGS}?limit=200&fieldSelector=metadata.name%3Dvm&labelSelector=a+in+%28b%2Cc%29"
    );
    assert_eq!(lines[0], format!("{first} HTTP/1.1"));
    assert_eq!(lines[1], format!("{first}&continue=a%2Fb%2Bc%3D HTTP/1.1"));
    assert_eq!(lines[2], format!("{first}&continue=d HTTP/1.1"));
}

#[tokio::test]
async fn a_list_without_end_is_given_up_at_its_caps() {
    let items = vec!["1"; 4000].join(",");
    let mib = |number: usize| format!("{}1", " ".repeat(number * 1024 * 1024));
    let (page, beyond) = (mib(7), mib(9));
    for (items, limit, pages) in [
        (items.as_str(), 10_000, 3),
        ("", 200, 200),
        (page.as_str(), 32 * 1024 * 1024, 5),
        (beyond.as_str(), 8 * 1024 * 1024, 4),
    ] {
        let page = format!(r#"{{"metadata":{{"continue":"x"}},"items":[{items}]}}"#);
        let server = Server::saying(answer_json(200, &page)).await;
        let error = client(&server.url())
            .list::<u8>(&THINGS, &[], Some)
            .await
            .unwrap_err();
        is(&error, Kind::TooLarge, &format!("more than {limit} "));
        assert_eq!(server.requests().len(), pages);
    }
}

#[tokio::test]
async fn a_page_that_is_too_large_is_requested_in_smaller_ones() {
    let large = format!(r#"{{"items":[{}1]}}"#, " ".repeat(9 * 1024 * 1024));
    let server = Server::start(move |position, _| {
        let page = match position {
            0 | 1 => large.as_str(),
            2 => r#"{"metadata":{"continue":"a"},"items":[1,2]}"#,
            _ => r#"{"items":[3]}"#,
        };
        answer_json(200, page)
    })
    .await;
    let list = client(&server.url()).list::<u8>(&THINGS, &[], Some).await;
    assert_eq!(list.unwrap(), [1, 2, 3]);
    let lines = server.requests().into_iter().map(|request| request.line);
    let lines: Vec<String> = lines.collect();
    let expected = ["200", "25", "4", "8&continue=a"];
    assert_eq!(
        lines,
        expected.map(|query| format!("GET {THINGS}?limit={query} HTTP/1.1"))
    );
}

#[tokio::test]
async fn an_object_that_was_not_asked_for_is_refused_by_each_kind_of_request() {
    let vmis = INSTANCES.within("ns");
    let vmi = |kind: &str, namespace: &str, uid: &str| {
        format!(
            r#"{{"kind":"{kind}","metadata":{{"namespace":"{namespace}","name":"vm","uid":"{uid}"}}}}"#
        )
    };
    let path = vmis.clone().named("vm");
    let body = json!({"metadata": {"uid": "u"}});
    let (whole, partial) = ("VirtualMachineInstance", "PartialObjectMetadata");
    for (kind, namespace, uid, is_object, is_metadata, is_patched) in [
        (whole, "ns", "u", true, true, true),
        (whole, "other", "u", false, false, false),
        (whole, "ns", "v", true, true, false),
        // Of a VM without its status, nothing says where it runs.
        (partial, "ns", "u", false, true, false),
    ] {
        let object = vmi(kind, namespace, uid);
        let server = Server::saying(answer_json(200, &object)).await;
        let client = client(&server.url());
        let results = [
            (client.get::<Value>(&path).await.err(), is_object),
            (client.get_metadata(&path).await.err(), is_metadata),
            (
                client
                    .patch::<Value>(&path, PatchKind::MERGE, &body)
                    .await
                    .err(),
                is_patched,
            ),
        ];
        for (error, is_right) in results {
            match error {
                None => assert!(is_right, "{object}"),
                Some(error) => {
                    assert!(!is_right, "{error}");
                    let asked = "requested VirtualMachineInstance `ns/vm`";
                    is(&error, Kind::UnexpectedObject, asked);
                }
            }
        }
        let list = format!(r#"{{"items":[{object}]}}"#);
        let server = Server::saying(answer_json(200, &list)).await;
        let list = self::client(&server.url())
            .list::<Value>(&vmis, &[], Some)
            .await;
        match list {
            Ok(_) => assert!(is_object, "{object}"),
            Err(error) => {
                assert!(
                    !is_object && error.kind == Kind::UnexpectedObject,
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_list_of_another_kind_is_not_an_empty_list() {
    for (kind, is_right) in [("PodList", true), ("NodeList", false)] {
        let list = format!(r#"{{"kind":"{kind}","items":[]}}"#);
        let server = Server::saying(answer_json(200, &list)).await;
        let list = client(&server.url()).list::<Value>(&PODS, &[], Some).await;
        match list {
            Ok(_) => assert!(is_right, "{kind}"),
            Err(error) => {
                assert!(!is_right, "{error}");
                let words = "requested Pod, got a `NodeList`";
                is(&error, Kind::UnexpectedObject, words);
            }
        }
    }
}

#[tokio::test]
async fn a_label_that_comes_twice_is_named_with_its_object() {
    let object =
        r#"{"kind":"Node","metadata":{"name":"n","uid":"u","labels":{"zone":"a","zone":"EVIL"}}}"#;
    let server = Server::saying(answer_json(200, object)).await;
    let error = client(&server.url())
        .get::<crate::facts::node::Node>(&NODES.named("n"))
        .await
        .unwrap_err();
    let text = error.to_string();
    for part in [
        "`/api/v1/nodes/n`",
        "`metadata.labels`: duplicate key `zone`",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_list_whose_token_is_too_old_is_gone() {
    let server = Server::saying(status(410, "The provided continue parameter is too old")).await;
    let error = client(&server.url())
        .list::<u8>(&THINGS, &[], Some)
        .await
        .unwrap_err();
    is(
        &error,
        Kind::Gone,
        "The provided continue parameter is too old",
    );
}

#[tokio::test]
async fn a_patch_names_its_kind_and_its_manager() {
    let server = Server::saying(answer_json(200, r#"{"metadata":{"name":"n"}}"#)).await;
    let client = client(&server.url());
    let body = json!({"metadata": {"labels": {"a": null}}});
    let path = &NODES.named("n").status();
    client
        .patch::<Value>(path, PatchKind::MERGE, &body)
        .await
        .unwrap();
    client
        .patch::<Value>(path, PatchKind::STRATEGIC_MERGE, &body)
        .await
        .unwrap();
    let requests = server.requests();
    let kinds = [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ];
    for (request, kind) in requests.iter().zip(kinds) {
        assert_eq!(
            request.line,
            format!("PATCH {path}?fieldManager=harvester-node-agent HTTP/1.1")
        );
        assert_eq!(request.header("content-type"), Some(kind));
        assert_eq!(serde_json::from_str::<Value>(&request.body).unwrap(), body);
    }
    assert_eq!((requests.len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn a_write_that_was_done_is_done_though_its_answer_is_cut() {
    let server = Server::saying(vec![stream_head(), Step::Close]).await;
    let client = client(&server.url());
    client
        .create(
            &ObjectPath::all("/apis/events.k8s.io/v1", "events", None).within("default"),
            &json!({"a": 1}),
        )
        .await
        .unwrap();
    let request = server.request();
    assert!(
        request
            .line
            .starts_with("POST /apis/events.k8s.io/v1/namespaces/default/events?fieldManager=")
    );
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.body, r#"{"a":1}"#);
}

#[tokio::test]
async fn a_write_that_was_refused_is_an_error_and_is_sent_once() {
    for (code, kind) in [
        (409, Kind::Conflict),
        (422, Kind::Invalid),
        (429, Kind::Overloaded),
        (503, Kind::Overloaded),
    ] {
        let server = Server::saying(status(code, "no")).await;
        let client = client(&server.url());
        let error = client
            .patch::<Value>(&NODES.named("n"), PatchKind::MERGE, &json!({}))
            .await
            .unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(
            error
                .to_string()
                .starts_with("failed to patch `/api/v1/nodes/n` at http://"),
            "{error}"
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_access_review_asks_about_one_request_and_reports_the_answer() {
    let body =
        r#"{"status":{"allowed":false,"denied":true,"reason":"no\u001b[1m","evaluationError":""}}"#;
    let server = Server::saying(answer_json(201, body)).await;
    let attributes = ResourceAttributes {
        verb: "patch".into(),
        resource: "nodes".into(),
        subresource: Some("status".into()),
        ..ResourceAttributes::default()
    };
    let review = client(&server.url()).may(&attributes).await.unwrap();
    assert!(!review.allowed && review.denied);
    assert_eq!(review.reason.as_deref(), Some("no\\x1b[1m"));
    assert_eq!(review.evaluation_error, None);
    let sent: Value = serde_json::from_str(&server.request().body).unwrap();
    let expected =
        json!({"verb": "patch", "group": "", "resource": "nodes", "subresource": "status"});
    assert_eq!(sent["spec"]["resourceAttributes"], expected);
}

#[tokio::test]
async fn an_access_review_without_an_answer_is_not_a_yes() {
    let server = Server::saying(answer_json(201, r#"{"status":{}}"#)).await;
    let error = client(&server.url())
        .may(&ResourceAttributes::default())
        .await
        .unwrap_err();
    is(&error, Kind::Refused, "invalid response: ");
}

#[tokio::test]
async fn an_access_review_does_not_repeat_the_token() {
    let status = json!({"allowed": false, "reason": TOKEN, "evaluationError": TOKEN});
    let server = Server::saying(answer_json(201, &json!({"status": status}).to_string())).await;
    let client = client(&server.url());
    let review = client.may(&ResourceAttributes::default()).await.unwrap();
    let said = [review.reason.as_deref(), review.evaluation_error.as_deref()];
    assert_eq!(said, [Some("[token]"); 2]);
}

#[tokio::test]
async fn the_proxy_of_the_credential_is_used_and_gets_no_token() {
    let answer = [answer_json(502, "{}"), vec![Step::Close]].concat();
    let proxy = Server::saying(answer).await;
    let mut credential = credential("https://api.invalid:6443");
    credential.proxy = Some(proxy.url().parse().unwrap());
    let client = Client::new(&credential, LONG).unwrap();
    client.get::<Value>(&VERSION).await.unwrap_err();
    let request = proxy.request();
    assert_eq!(request.line, "CONNECT api.invalid:6443 HTTP/1.1");
    assert!(!format!("{request:?}").contains(TOKEN), "{request:?}");
}

#[test]
fn a_credential_that_cannot_work_makes_no_client() {
    let check = |problem: &str, change: &dyn Fn(&mut crate::access::Credential)| {
        let mut credential = credential("https://user:hunter2@127.0.0.1:6443/x?token=hunter2");
        change(&mut credential);
        let error = Client::new(&credential, LONG).unwrap_err();
        is(&error, Kind::Credential, problem);
        let printed = printed(&error);
        assert!(
            !printed.contains("hunter2") && !printed.contains("new\nline"),
            "{printed}"
        );
    };
    check("no readable CA certificate", &|credential| {
        credential.certificate_authorities.clear();
    });
    check("the server URL is neither https nor http", &|credential| {
        credential.server = "ftp://a.example/".parse().unwrap();
    });
    for token in ["new\nline", "", " "] {
        check("the token is empty or has", &|credential| {
            credential.token = Some(token.to_owned().into());
        });
    }
    check("the proxy URL is neither https nor http", &|credential| {
        credential.proxy = Some("socks5://user:hunter2@proxy:1".parse().unwrap());
    });
}

#[test]
fn a_client_prints_its_server_and_no_secret() {
    let client = client("http://user:hunter2@a.example:6443/k8s/clusters/local/?token=hunter2");
    assert_eq!(client.server(), "http://a.example:6443/k8s/clusters/local");
    let printed = format!("{client:?} {client:#?}");
    assert!(
        printed.contains("a.example") && !printed.contains(TOKEN) && !printed.contains("hunter2"),
        "{printed}"
    );
}

#[tokio::test]
async fn user_information_of_the_server_is_not_sent() {
    let server = Server::saying(answer_json(200, "{}")).await;
    let client = client(&server.url().replace("//", "//user:hunter2@"));
    client.get::<Value>(&VERSION).await.unwrap();
    assert_eq!(
        server.request().header("authorization"),
        Some(format!("Bearer {TOKEN}").as_str())
    );
}

#[test]
fn a_client_can_be_sent_to_another_task() {
    fn check<T: Send + Sync + Clone>(_: &T) {}
    check(&client("http://a.example"));
    fn sent<T: Send>(_: T) {}
    let client = Arc::new(client("http://a.example"));
    sent(async move { client.get::<Value>(&VERSION).await });
}

#[tokio::test]
async fn requests_are_counted_by_what_became_of_them() {
    let body = r#"{"kind":"Node","metadata":{"name":"n","uid":"u"}}"#;
    let server = Server::start(move |number, _| match number {
        0 => answer_json(200, body),
        _ => answer_json(404, "{}"),
    })
    .await;
    let tally = Tally::default();
    let client = Client::counting(
        &credential(&server.url()),
        LONG,
        tally.clone(),
        Backoff::default(),
    )
    .unwrap();
    client.get_metadata(&NODES.named("n")).await.unwrap();
    client.get_metadata(&NODES.named("n")).await.unwrap_err();
    let counts = tally.counts();
    assert_eq!((counts["ok"], counts["not-found"]), (1, 1));
}

/// The message of a real server is longer than the part that is shown.
#[tokio::test]
async fn a_kubelet_that_asks_for_another_node_learns_which_one_it_is() {
    let own = format!("worker-{}.example.com", "a".repeat(40));
    let text = format!(
        "nodes \"n2\" is forbidden: User \"system:node:{own}\" cannot get resource \"nodes\" in API group \"\" at the cluster scope: \
         node '{own}' cannot read 'n2', only its own Node object"
    );
    assert!(text.len() > 200);
    let server = Server::saying(status(403, &text)).await;
    let client = client(&server.url());
    let error = client.get_metadata(&NODES.named("n2")).await.unwrap_err();
    is(
        &error,
        Kind::OtherNode,
        &format!("is for Node `{own}` (403)"),
    );
}
