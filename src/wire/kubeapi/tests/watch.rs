// SPDX-License-Identifier: Apache-2.0
//! Tests valid and invalid watch streams.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, timeout};

use super::super::Timeouts;
use super::super::testing::{Answering, Asked, Text, Wire, response, simulate};
use super::super::{
    Client, Error, Kind, NODES, PartialObjectMetadata, Watch, WatchEvent, WatchRequest,
};
use super::server::{Server, Step, json, piece, status, stream_end, stream_head};
use super::{HOUR, TOKEN, VERSION, client, client_with, credential, is, printed};

fn event(kind: &str, version: &str) -> String {
    let object =
        format!(r#"{{"kind":"Node","metadata":{{"name":"n","resourceVersion":"{version}"}}}}"#);
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

async fn open(client: &Client) -> Watch<PartialObjectMetadata> {
    client.watch(&WatchRequest::new(&NODES)).await.unwrap()
}

/// Starts a server with one stream, and opens a watch on it.
async fn watching(steps: Vec<Step>) -> (Server, Watch<PartialObjectMetadata>) {
    let server = Server::saying([vec![stream_head()], steps].concat()).await;
    let watch = open(&client(&server.url())).await;
    (server, watch)
}

/// Returns the first result of a stream, which must be an error, and checks that the stream is then over.
async fn fault(steps: Vec<Step>) -> Error {
    let (_server, mut watch) = watching(steps).await;
    let error = watch.next().await.unwrap_err();
    assert_eq!(
        watch.next().await.unwrap(),
        WatchEvent::Ended,
        "a stream went on after {error:?}"
    );
    error
}

/// A network without sockets, for the paused clock.
#[derive(Clone)]
struct Simulated(Text);

impl Wire for Simulated {
    fn answer<'a>(&'a self, _: Asked<'a>, _: Timeouts) -> Answering<'a> {
        let response = response(200, reqwest::Body::wrap(self.0.clone()));
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// The silence limit on the paused clock.
const LIMIT: Duration = Duration::from_secs(90);

/// The time after it in which a stream must be over.
const MOMENT: Duration = Duration::from_secs(1);

/// A client with the default times on the paused clock, which reads what is written to the sender.
fn simulated() -> (UnboundedSender<String>, Client) {
    let (sender, text) = Text::new();
    simulate(Simulated(text));
    let credential = credential("http://simulated");
    (
        sender,
        Client::new(&credential, Timeouts::default()).unwrap(),
    )
}

/// Opens a watch on the paused clock, whose stream is what is written to the sender.
async fn written(
    silence_limit: Duration,
) -> (UnboundedSender<String>, Watch<PartialObjectMetadata>) {
    let (sender, client) = simulated();
    let request = WatchRequest {
        silence_limit,
        ..WatchRequest::new(&NODES)
    };
    (sender, client.watch(&request).await.unwrap())
}

/// Checks that the stream ends because it is silent, at the limit and not before.
async fn ends_silent(watch: &mut Watch<PartialObjectMetadata>) {
    let begin = Instant::now();
    let next = timeout(2 * LIMIT, watch.next()).await;
    let error = next.expect("it is followed for ever").unwrap_err();
    is(&error, Kind::Silent, "no data received for 90s");
    let silent = Instant::now() - begin;
    assert!((LIMIT..LIMIT + MOMENT).contains(&silent), "{silent:?}");
}

fn version(event: WatchEvent<PartialObjectMetadata>) -> String {
    match event {
        WatchEvent::Changed {
            resource_version, ..
        }
        | WatchEvent::Deleted {
            resource_version, ..
        }
        | WatchEvent::Bookmark { resource_version } => resource_version,
        WatchEvent::Foreign { what } => what,
        WatchEvent::Ended => "ended".to_owned(),
    }
}

#[tokio::test]
async fn a_watch_says_what_it_wants() {
    let server = Server::saying(vec![stream_head(), Step::Stay]).await;
    let client = client(&server.url());
    let request = WatchRequest {
        resource_version: "12".to_owned(),
        metadata_only: true,
        ..WatchRequest::new(&NODES.named("n"))
    };
    let watch = client
        .watch::<PartialObjectMetadata>(&request)
        .await
        .unwrap();
    drop(watch);
    let sent = server.request();
    let selector = "fieldSelector=metadata.name%3Dn";
    let query = format!(
        "watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&{selector}&resourceVersion=12"
    );
    assert_eq!(sent.line, format!("GET {NODES}?{query} HTTP/1.1"));
    assert!(
        sent.header("accept")
            .unwrap()
            .contains("as=PartialObjectMetadata")
    );
}

#[tokio::test]
async fn each_kind_of_event_arrives_as_what_it_is() {
    let events = [
        event("ADDED", "1"),
        event("MODIFIED", "2"),
        event("DELETED", "3"),
        event("BOOKMARK", "4"),
    ]
    .concat();
    let (_server, mut watch) = watching(vec![piece(events), stream_end()]).await;
    for expected in ["1", "2"] {
        let event = watch.next().await.unwrap();
        assert!(
            matches!(&event, WatchEvent::Changed { object, resource_version }
            if object.metadata.name.as_deref() == Some("n") && resource_version == expected)
        );
    }
    assert!(
        matches!(watch.next().await.unwrap(), WatchEvent::Deleted { resource_version, .. } if resource_version == "3")
    );
    assert_eq!(
        watch.next().await.unwrap(),
        WatchEvent::Bookmark {
            resource_version: "4".into()
        }
    );
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Ended);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Ended);
}

#[tokio::test]
async fn an_object_that_was_not_asked_for_is_named_and_the_stream_goes_on() {
    let ours = event("MODIFIED", "1");
    let events = [
        ours.replace(r#""n""#, r#""other""#),
        ours.replace("Node", "Pod"),
        ours.replace("Node", "PartialObjectMetadata"),
        ours,
    ]
    .concat();
    let server = Server::saying(vec![stream_head(), piece(events), stream_end()]).await;
    let request = WatchRequest::new(&NODES.named("n"));
    let client = client(&server.url());
    let mut watch = client.watch(&request).await.unwrap();
    for expected in [
        "Node `other` in the watch of Node `n`",
        "Pod `n` in the watch of Node `n`",
        "PartialObjectMetadata `n` in the watch of Node `n`",
        "1",
    ] {
        assert_eq!(version(watch.next().await.unwrap()), expected);
    }
}

#[tokio::test]
async fn a_bookmark_need_not_be_a_whole_object() {
    let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"7","creationTimestamp":null},"spec":{}}}"#;
    let server = Server::saying(vec![
        stream_head(),
        piece(format!("{bookmark}\n")),
        Step::Stay,
    ])
    .await;
    #[derive(Debug, serde::Deserialize)]
    struct Strict {
        #[serde(rename = "required")]
        _required: String,
    }
    let mut watch = client(&server.url())
        .watch::<Strict>(&WatchRequest::new(&NODES))
        .await
        .unwrap();
    assert!(matches!(
        watch.next().await.unwrap(),
        WatchEvent::Bookmark { .. }
    ));
}

#[tokio::test]
async fn events_are_found_however_the_network_cuts_them() {
    let text = [
        event("ADDED", "1"),
        event("MODIFIED", "2"),
        event("BOOKMARK", "3"),
    ]
    .concat();
    let mut steps: Vec<Step> = text.as_bytes().chunks(7).map(piece).collect();
    steps.push(stream_end());
    let (_server, mut watch) = watching(steps).await;
    for expected in ["1", "2", "3", "ended"] {
        assert_eq!(version(watch.next().await.unwrap()), expected);
    }
}

#[tokio::test]
async fn a_wait_that_is_dropped_again_and_again_loses_no_event() {
    let text: String = (1..=20)
        .map(|number| event("MODIFIED", &number.to_string()))
        .collect();
    let mut steps = Vec::new();
    for part in text.as_bytes().chunks(97) {
        steps.extend([piece(part), Step::Pause(Duration::from_millis(3))]);
    }
    steps.push(stream_end());
    let (_server, mut watch) = watching(steps).await;
    let mut seen = Vec::new();
    let mut dropped = 0;
    loop {
        tokio::select! {
            biased;
            event = watch.next() => match event.unwrap() {
                WatchEvent::Ended => break,
                event => seen.push(version(event)),
            },
            // The server runs only in such turns.
            () = tokio::task::yield_now() => dropped += 1,
        }
    }
    let expected: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    assert_eq!(seen, expected);
    assert!(dropped > 5, "the wait was dropped only {dropped} times");
}

#[tokio::test]
async fn an_event_that_is_cut_is_never_parsed() {
    let whole = event("MODIFIED", "2");
    // Also with only its line end missing, although it would parse.
    for length in [1, whole.len() / 2, whole.len() - 1] {
        let cut = whole.as_bytes()[..length].to_vec();
        for end in [stream_end(), Step::Close] {
            let (_server, mut watch) =
                watching(vec![piece(event("ADDED", "1")), piece(&cut), end]).await;
            assert_eq!(version(watch.next().await.unwrap()), "1");
            let error = watch.next().await.unwrap_err();
            assert_eq!(error.kind, Kind::Interrupted, "{length}: {error}");
        }
    }
}

#[tokio::test]
async fn a_version_that_is_too_old_is_gone_in_both_forms() {
    let server = Server::saying(status(410, "too old resource version: 1 (2)")).await;
    let result = client(&server.url())
        .watch::<Value>(&WatchRequest::new(&NODES))
        .await;
    is(
        &result.unwrap_err(),
        Kind::Gone,
        "(410): too old resource version",
    );
    for rest in [
        r#""code":410"#,
        r#""reason":"Expired""#,
        r#""reason":"Gone""#,
    ] {
        let line = format!(
            "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"message\":\"old\",{rest}}}}}\n"
        );
        let error = fault(vec![piece(line), piece(event("ADDED", "9")), Step::Stay]).await;
        is(&error, Kind::Gone, "(410): old");
    }
}

#[tokio::test]
async fn other_errors_in_a_stream_are_what_the_same_status_would_be() {
    let table = [
        (
            r#"{"kind":"Status","code":500,"message":"tunnel disconnect"}"#,
            Kind::Failed,
        ),
        (r#"{"kind":"Status","code":401}"#, Kind::Credential),
        (r#"{"kind":"Status","code":403}"#, Kind::Forbidden),
        (r#"{"kind":"Status","message":"no code"}"#, Kind::Failed),
        (
            r#"{"kind":"Status","code":504,"details":{"retryAfterSeconds":3}}"#,
            Kind::Failed,
        ),
        (r#"{"kind":"Pod"}"#, Kind::Refused),
    ];
    for (object, kind) in table {
        let line = format!("{{\"type\":\"ERROR\",\"object\":{object}}}\n");
        let error = fault(vec![piece(line), Step::Stay]).await;
        assert_eq!(error.kind, kind, "{object}");
        let asked = object
            .contains("retryAfterSeconds")
            .then(|| Duration::from_secs(3));
        assert_eq!(error.retry_after, asked);
    }
}

#[tokio::test]
async fn a_line_that_is_no_event_ends_the_stream() {
    let deep = format!(
        "{{\"type\":\"ADDED\",\"object\":{}{}}}",
        "[".repeat(64),
        "]".repeat(64)
    );
    for line in [
        "garbage",
        "{}",
        r#"{"type":"ADDED"}"#,
        r#"{"type":"NEWS","object":{"metadata":{"resourceVersion":"1"}}}"#,
        r#"{"type":"ADDED","object":{"metadata":{"name":"no version"}}}"#,
        r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"1","labels":{"a":"1","a":"2"}}}}"#,
        r#"{"type":"BOOKMARK","object":{}}"#,
        &deep,
    ] {
        let error = fault(vec![
            piece(format!("{line}\n")),
            piece(event("ADDED", "9")),
            Step::Stay,
        ])
        .await;
        assert_eq!(error.kind, Kind::Refused, "{line}: {error}");
    }
}

#[tokio::test]
async fn an_event_that_nests_too_deep_is_not_parsed() {
    // The event and its object are two levels.
    let line = |depth: usize| {
        let x = format!(r#""x":{}{}"#, "[".repeat(depth - 2), "]".repeat(depth - 2));
        event("MODIFIED", "2").replace(r#""kind""#, &format!(r#"{x},"kind""#))
    };
    let (_server, mut watch) = watching(vec![piece(line(64) + &line(65)), Step::Stay]).await;
    assert_eq!(version(watch.next().await.unwrap()), "2");
    let error = watch.next().await.unwrap_err();
    is(&error, Kind::Refused, "nests deeper than 64 levels");
}

#[tokio::test]
async fn a_token_that_comes_back_in_a_stream_stays_out_of_every_message() {
    for line in [
        format!(
            r#"{{"type":"ERROR","object":{{"kind":"Status","code":500,"message":"{TOKEN}"}}}}"#
        ),
        format!(r#"{{"type":"{TOKEN}","object":{{}}}}"#),
        format!(r#"{{"type":"MODIFIED","object":{{"kind":"Node","metadata":"{TOKEN}"}}}}"#),
    ] {
        let error = fault(vec![piece(line + "\n"), Step::Stay]).await;
        assert!(!printed(&error).contains(TOKEN), "{error:?}");
        assert!(error.to_string().contains("[token]"), "{error}");
    }
    let foreign = event("MODIFIED", "1").replace("Node", TOKEN);
    let (_server, mut watch) = watching(vec![piece(foreign), Step::Stay]).await;
    let what = version(watch.next().await.unwrap());
    assert!(what.contains("[token]") && !what.contains(TOKEN), "{what}");
}

#[tokio::test]
async fn a_line_without_end_is_given_up_at_its_cap() {
    let filler = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let error = fault(vec![Step::Endless(filler.into_bytes(), Duration::ZERO)]).await;
    is(&error, Kind::TooLarge, "more than 4194304 bytes");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_a_stream_alive() {
    let (sender, mut watch) = written(LIMIT).await;
    tokio::spawn(async move {
        for number in 0..5 {
            sender.send(event("BOOKMARK", &number.to_string())).unwrap();
            sleep(LIMIT * 2 / 3).await;
        }
    });
    for number in 0..5 {
        assert_eq!(version(watch.next().await.unwrap()), number.to_string());
    }
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_ends_and_bytes_without_a_line_do_not_count() {
    assert_eq!(Timeouts::default().watch_silence, LIMIT);
    for is_trickling in [false, true] {
        let (sender, mut watch) = written(LIMIT).await;
        sender.send(event("ADDED", "1")).unwrap();
        let trickle = tokio::spawn(async move {
            loop {
                sleep(LIMIT / 9).await;
                if is_trickling {
                    sender.send("x".to_owned()).unwrap();
                }
            }
        });
        assert_eq!(version(watch.next().await.unwrap()), "1");
        ends_silent(&mut watch).await;
        trickle.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn the_request_may_allow_more_silence_until_the_first_bookmark() {
    let (sender, mut watch) = written(LIMIT * 3).await;
    let (first, ()) = tokio::join!(watch.next(), async {
        sleep(LIMIT * 2).await;
        sender.send(event("BOOKMARK", "1")).unwrap();
    });
    assert_eq!(version(first.unwrap()), "1");
    ends_silent(&mut watch).await;
}

#[tokio::test(start_paused = true)]
async fn what_arrived_between_two_reads_is_not_silence() {
    let (sender, mut watch) = written(LIMIT).await;
    // The machine was paused for longer than the limit: the timer expires just before the data is here.
    let (event, ()) = tokio::join!(watch.next(), async {
        sleep(LIMIT + Duration::from_millis(200)).await;
        sender.send(event("ADDED", "1")).unwrap();
    });
    assert_eq!(version(event.unwrap()), "1");
    ends_silent(&mut watch).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_may_pause_for_ten_seconds_and_take_thirty() {
    for (pause, words) in [
        (
            11,
            "reading the next part of the response timed out after 10s",
        ),
        (9, "reading the response timed out after 30s"),
    ] {
        let (sender, client) = simulated();
        // It ends, so that without a limit this is another error.
        tokio::spawn(async move {
            for _ in 0..10 {
                sender.send(" ".to_owned()).unwrap();
                sleep(Duration::from_secs(pause)).await;
            }
        });
        let error = client.get::<Value>(&VERSION).await.unwrap_err();
        is(&error, Kind::TimedOut, words);
    }
}

#[tokio::test]
async fn a_request_and_a_watch_take_two_connections() {
    let server = Server::start(|_, request| match request.line.contains("watch=true") {
        true => vec![stream_head(), Step::Stay],
        false => json(200, "{}"),
    })
    .await;
    let client = client(&server.url());
    client.get::<Value>(&VERSION).await.unwrap();
    let watch = open(&client).await;
    for _ in 0..3 {
        client.get::<Value>(&VERSION).await.unwrap();
    }
    assert_eq!(server.connections(), 2);
    drop(watch);
    let _watch = open(&client).await;
    client.get::<Value>(&VERSION).await.unwrap();
    assert!(server.connections() <= 4, "{}", server.connections());
}

#[tokio::test]
async fn a_third_watch_is_refused_while_one_replaces_the_other() {
    let server = Server::saying(vec![stream_head(), Step::Stay]).await;
    let client = client_with(&server.url(), |timeouts| timeouts.connect = HOUR / 2);
    let first = open(&client).await;
    let _second = open(&client).await;
    tokio::time::pause();
    let error = client
        .watch::<Value>(&WatchRequest::new(&NODES))
        .await
        .unwrap_err();
    is(&error, Kind::TimedOut, "waiting for the previous watch");
    tokio::time::resume();
    drop(first);
    open(&client).await;
}

#[tokio::test]
async fn a_stream_that_is_over_frees_the_way_for_the_next_even_while_it_is_held() {
    let server = Server::saying(vec![stream_head(), stream_end()]).await;
    let client = client(&server.url());
    let mut first = open(&client).await;
    assert_eq!(first.next().await.unwrap(), WatchEvent::Ended);
    let mut second = open(&client).await;
    assert_eq!(second.next().await.unwrap(), WatchEvent::Ended);
    assert_eq!(server.connections(), 1);
    drop(first);
}

#[tokio::test]
async fn the_end_of_the_initial_events_is_a_bookmark_as_any_other() {
    let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{},"status":{"nodeInfo":{"machineID":""}}}}"#;
    let lines = format!(
        "{}{bookmark}\n{}",
        event("ADDED", "7"),
        event("MODIFIED", "12")
    );
    let (_server, mut watch) = watching(vec![piece(lines), stream_end()]).await;
    let mut versions = Vec::new();
    for _ in 0..3 {
        versions.push(version(watch.next().await.unwrap()));
    }
    assert_eq!(versions, ["7", "9", "12"]);
}

#[tokio::test]
async fn a_storage_without_watch_progress_is_distinguished_from_an_overloaded_server() {
    let event = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled","reason":"InternalError","code":500}}"#;
    let error = fault(vec![piece(format!("{event}\n")), stream_end()]).await;
    is(&error, Kind::NoWatchProgress, "has no watch progress (500)");
    assert!(!error.is_of_version() && !error.is_of_whole_api() && !error.is_failure_of_api());
}

#[tokio::test]
async fn a_watch_can_do_without_bookmarks() {
    let server = Server::saying(vec![stream_head(), Step::Stay]).await;
    let request = WatchRequest {
        bookmarks: false,
        ..WatchRequest::new(&NODES)
    };
    let client = client(&server.url());
    let watch = client
        .watch::<PartialObjectMetadata>(&request)
        .await
        .unwrap();
    drop(watch);
    let line = format!("GET {NODES}?watch=true&timeoutSeconds=3600&resourceVersion=0 HTTP/1.1");
    assert_eq!(server.request().line, line);
}
