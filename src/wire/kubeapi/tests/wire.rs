// SPDX-License-Identifier: Apache-2.0
//! Tests responses that no API server should send.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::{Client, Error, Kind, NODES};
use super::server::{Server, Step, answer, json, piece, status, stream_end, stream_head};
use super::{HOUR, LONG, TOKEN, VERSION, client, client_with, is, pause_after, printed};

const SHORT: Duration = Duration::from_millis(200);

async fn get(client: &Client) -> Result<Value, Error> {
    client.get::<Value>(&VERSION).await
}

async fn error_of(steps: Vec<Step>) -> Error {
    let server = Server::saying(steps).await;
    let error = get(&client(&server.url())).await.unwrap_err();
    assert!(!printed(&error).contains(TOKEN), "{error:?}");
    error
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_token_stays_here() {
    for code in [300, 301, 302, 303, 307, 308] {
        let elsewhere = Server::saying(json(200, "{}")).await;
        let location = format!("Location: {}/\u{1b}[2J\r\n", elsewhere.url()).replace('\u{1b}', "");
        let server = Server::saying(answer(code, "application/json", &location, "{}")).await;
        let error = get(&client(&server.url())).await.unwrap_err();
        let words = format!("redirected ({code}) to `{}", elsewhere.url());
        is(&error, Kind::Refused, &words);
        assert_eq!((server.requests().len(), elsewhere.connections()), (1, 0));
    }
}

#[tokio::test]
async fn a_compressed_answer_is_refused_unread() {
    for encoding in ["gzip", "br", "zstd", "identity, gzip", "\x1b[31m"] {
        let header = format!("Content-Encoding: {encoding}\r\n");
        let error = error_of(answer(
            200,
            "application/json",
            &header.replace('\x1b', "x"),
            "{}",
        ))
        .await;
        is(
            &error,
            Kind::Refused,
            "the response has the content encoding",
        );
    }
    let server = Server::saying(answer(
        200,
        "application/json",
        "Content-Encoding: identity\r\n",
        "{}",
    ))
    .await;
    get(&client(&server.url())).await.unwrap();
}

#[tokio::test]
async fn an_object_beyond_its_cap_is_not_read() {
    let announced =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2097153\r\n\r\n";
    let blanks = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    // The first two end, so that without the limit they are another error.
    for steps in [
        vec![Step::Send(announced.to_vec()), Step::Close],
        vec![
            stream_head(),
            piece(" ".repeat(2 * 1024 * 1024 + 1)),
            stream_end(),
        ],
        vec![
            stream_head(),
            Step::Endless(blanks.into_bytes(), Duration::ZERO),
        ],
    ] {
        let error = error_of(steps).await;
        is(&error, Kind::TooLarge, "more than 2097152 bytes");
    }
}

#[tokio::test]
async fn an_object_as_large_as_the_cap_is_read() {
    let body = format!("{{}}{}", " ".repeat(2 * 1024 * 1024 - 2));
    let server = Server::saying(json(200, &body)).await;
    get(&client(&server.url())).await.unwrap();
}

#[tokio::test]
async fn a_head_beyond_its_cap_is_refused_be_it_long_or_endless() {
    let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
    let error = error_of(answer(200, "application/json", &line.repeat(70), "{}")).await;
    is(&error, Kind::TooLarge, "more than 65536 bytes");
    let endless = vec![
        Step::Send(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Step::Endless(line.into_bytes(), Duration::ZERO),
    ];
    let error = error_of(endless).await;
    is(&error, Kind::TooLarge, "more than 65536 bytes");
    let server = Server::saying(answer(
        200,
        "application/json",
        &format!("X: {}\r\n", "x".repeat(60_000)),
        "{}",
    ))
    .await;
    get(&client(&server.url())).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_nests_too_deep_is_not_parsed() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let server = Server::saying(json(200, &nested(64))).await;
    get(&client(&server.url())).await.unwrap();
    let error = error_of(json(200, &nested(65))).await;
    is(&error, Kind::Refused, "nests deeper than 64 levels");
}

#[tokio::test]
async fn text_that_is_not_json_is_a_fault_of_the_protocol() {
    for body in ["", "{", "nope", "{}{}", "NaN", "\"\\ud800\"", "\u{0}"] {
        let error = error_of(json(200, body)).await;
        is(&error, Kind::Refused, "invalid response: ");
    }
}

#[tokio::test]
async fn an_html_page_is_not_a_successful_response() {
    let error = error_of(answer(200, "text/html; charset=utf-8", "", "{}")).await;
    is(&error, Kind::Refused, "text/html");
}

#[tokio::test]
async fn garbage_instead_of_http_is_a_fault_of_the_protocol() {
    let error = error_of(vec![
        Step::Send(b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec()),
        Step::Close,
    ])
    .await;
    is(&error, Kind::Refused, "the response is not HTTP");
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_request_in_time() {
    let server = Server::saying(vec![Step::Stay]).await;
    let client = client_with(&server.url(), |timeouts| timeouts.headers = HOUR / 2);
    let (result, paused) = tokio::join!(get(&client), pause_after(&server, 1));
    is(
        &result.unwrap_err(),
        Kind::TimedOut,
        "headers timed out after 1800s",
    );
    assert!(
        Instant::now() < paused + HOUR,
        "the time for connecting was added"
    );
}

#[tokio::test]
async fn a_kept_connection_that_died_gets_the_time_for_the_head_and_no_more() {
    let server = Server::start(|position, _| {
        if position == 0 {
            json(200, "{}")
        } else {
            vec![Step::Stay]
        }
    })
    .await;
    let client = client_with(&server.url(), |timeouts| timeouts.headers = HOUR / 2);
    get(&client).await.unwrap();
    let (result, _) = tokio::join!(get(&client), pause_after(&server, 2));
    let error = result.unwrap_err();
    is(
        &error,
        Kind::TimedOut,
        "reading the response headers timed out",
    );
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_head_of_one_byte_at_a_time_ends_the_request_in_time() {
    let server = Server::saying(vec![
        Step::Send(b"HTTP/1.1 200 OK\r\nX: ".to_vec()),
        Step::Endless(b"x".to_vec(), Duration::from_millis(20)),
    ])
    .await;
    let client = client_with(&server.url(), |timeouts| timeouts.headers = SHORT);
    let error = get(&client).await.unwrap_err();
    is(
        &error,
        Kind::TimedOut,
        "reading the response headers timed out",
    );
}

#[tokio::test]
async fn a_body_that_stalls_and_a_body_that_trickles_both_end_in_time() {
    let server = Server::saying(vec![stream_head(), piece("{"), Step::Stay]).await;
    let client = client_with(&server.url(), |timeouts| timeouts.body_progress = SHORT);
    let error = get(&client).await.unwrap_err();
    is(
        &error,
        Kind::TimedOut,
        "the next part of the response timed out",
    );

    let server = Server::saying(vec![
        stream_head(),
        Step::Endless(b"1\r\n \r\n".to_vec(), Duration::from_millis(20)),
    ])
    .await;
    let client = client_with(&server.url(), |timeouts| timeouts.body = SHORT);
    let error = get(&client).await.unwrap_err();
    is(&error, Kind::TimedOut, "reading the response timed out");
}

#[tokio::test]
async fn a_handshake_that_does_not_come_counts_as_connecting() {
    // Accepts the connection and waits for a request, while the client waits for TLS.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let credential = super::credential(&format!("https://{}", listener.local_addr().unwrap()));
    let timeouts = super::Timeouts {
        connect: SHORT,
        ..LONG
    };
    let error = get(&Client::new(&credential, timeouts).unwrap())
        .await
        .unwrap_err();
    is(
        &error,
        Kind::Unreachable,
        "connecting timed out after 200ms",
    );
}

#[tokio::test]
async fn a_connection_may_take_five_seconds_and_a_head_ten() {
    let defaults = super::Timeouts::default();
    let silent = Server::saying(vec![Step::Stay]).await;
    let client = client_with(&silent.url(), |timeouts| {
        timeouts.headers = defaults.headers;
    });
    let (result, paused) = tokio::join!(get(&client), pause_after(&silent, 1));
    is(
        &result.unwrap_err(),
        Kind::TimedOut,
        "headers timed out after 10s",
    );
    assert!(Instant::now() <= paused + defaults.headers);
    // The clock is paused from here on, and a handshake that does not come leaves only the timeout.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let credential = super::credential(&format!("https://{}", listener.local_addr().unwrap()));
    let began = Instant::now();
    let error = get(&Client::new(&credential, defaults).unwrap()).await;
    let words = "connecting timed out after 5s";
    is(&error.unwrap_err(), Kind::Unreachable, words);
    assert_eq!((Instant::now() - began).as_secs(), 5);
}

#[tokio::test]
async fn a_closed_port_is_no_connection() {
    // Taken, so that no other program listens there.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let error = get(&client(&format!("http://{address}")))
        .await
        .unwrap_err();
    is(&error, Kind::Unreachable, ": connection refused");
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_distinguished_from_a_server_that_is_away() {
    let error = get(&client("http://nowhere.invalid:6443"))
        .await
        .unwrap_err();
    is(&error, Kind::Unreachable, "cannot resolve the server name");
}

#[tokio::test]
async fn an_answer_that_is_cut_is_no_answer() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}"
        .to_vec();
    let error = error_of(vec![Step::Send(cut), Step::Close]).await;
    is(&error, Kind::Interrupted, "connection interrupted");
    let error = error_of(vec![stream_head(), piece("{}"), Step::Close]).await;
    is(&error, Kind::Interrupted, "connection interrupted");
    let error = error_of(vec![Step::Close]).await;
    is(&error, Kind::Interrupted, "connection interrupted");
}

#[tokio::test]
async fn the_words_of_a_status_reach_the_message_escaped_and_cut() {
    let said = format!("User \"u\" cannot get\n\u{1b}[31m{}", "x".repeat(5000));
    let error = error_of(status(403, &said)).await;
    assert_eq!(error.kind, Kind::Forbidden, "{error}");
    let text = error.to_string();
    assert!(text.contains("cannot get\\n\\x1b[31mxxx"), "{text}");
    assert!(
        text.contains("get `/version` at http://127.0.0.1"),
        "{text}"
    );
    assert!(
        text.len() < 400 && !text.contains(char::is_control),
        "{text}"
    );
}

#[tokio::test]
async fn the_status_counts_and_a_page_for_people_is_never_parsed() {
    let page = r#"{"kind":"Status","message":"from a page","code":401}"#;
    let error = error_of(answer(503, "text/html", "Retry-After: 7\r\n", page)).await;
    assert_eq!(error.kind, Kind::Overloaded);
    assert!(error.to_string().ends_with("(503)"), "{error}");
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    let error = error_of(json(403, r#"{"kind":"Status","message":"m","code":404}"#)).await;
    is(&error, Kind::Forbidden, "forbidden (403): m");
    let error = error_of(json(500, r#"{"kind":"Pod","message":"m"}"#)).await;
    assert_eq!(error.kind, Kind::Failed);
    assert!(error.to_string().ends_with("(500)"), "{error}");
}

#[tokio::test]
async fn a_status_stands_though_its_body_never_ends() {
    let server = Server::saying(vec![
        Step::Send(
            b"HTTP/1.1 401 X\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
                .to_vec(),
        ),
        Step::Stay,
    ])
    .await;
    let client = client_with(&server.url(), |timeouts| timeouts.body_progress = SHORT);
    let error = get(&client).await.unwrap_err();
    is(&error, Kind::Credential, "unauthorized (401)");
}

#[tokio::test]
async fn a_status_beyond_its_cap_or_its_depth_stands_without_its_message() {
    let long = |length: usize| {
        let body = r#"{"kind":"Status","message":"m"}"#;
        format!("{body}{}", " ".repeat(length - body.len()))
    };
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        format!(r#"{{"kind":"Status","message":"m","x":{open}{close}}}"#)
    };
    for (body, ending) in [
        (long(65_536), "forbidden (403): m"),
        (long(65_537), "forbidden (403)"),
        (deep(64), "forbidden (403): m"),
        (deep(65), "forbidden (403)"),
    ] {
        let error = error_of(json(403, &body)).await;
        assert_eq!(error.kind, Kind::Forbidden, "{error}");
        assert!(error.to_string().ends_with(ending), "{error}");
    }
    let head =
        "HTTP/1.1 401 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let blanks = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let endless = Step::Endless(blanks.into_bytes(), Duration::ZERO);
    let error = error_of(vec![Step::Send(head.as_bytes().to_vec()), endless]).await;
    is(&error, Kind::Credential, "unauthorized (401)");
}

#[tokio::test]
async fn only_a_status_confirms_that_an_object_is_not_there() {
    let absent = |kind: &str| {
        json(
            404,
            &format!(r#"{{"kind":"Status","code":404,"details":{{"name":"n","kind":"{kind}"}}}}"#),
        )
    };
    for (kind, expected) in [("nodes", Kind::Absent), ("clusters", Kind::NotFound)] {
        let server = Server::saying(absent(kind)).await;
        let path = NODES.named("n");
        let proxy = format!("{}/k8s/clusters/c", server.url());
        let error = client(&proxy).get::<Value>(&path).await.unwrap_err();
        is(&error, expected, "not found (404)");
    }
    for unsure in [
        absent("nodes"),
        status(404, "cluster not found"),
        answer(404, "text/plain", "", "404 page not found\n"),
        json(404, "{}"),
        // For a kind that the server does not serve.
        status(404, "the server could not find the requested resource"),
    ] {
        let error = error_of(unsure).await;
        is(&error, Kind::NotFound, "not found (404)");
    }
}

#[tokio::test]
async fn a_token_that_comes_back_stays_out_of_every_message() {
    let echo = format!("bad token {TOKEN}");
    let location = format!("Location: http://x/?t={TOKEN}\r\n");
    let encoding = format!("Content-Encoding: {TOKEN}\r\n");
    for steps in [
        status(401, &echo),
        answer(302, "application/json", &location, "{}"),
        answer(200, "application/json", &encoding, "{}"),
        answer(200, &format!("text/{TOKEN}"), "", "{}"),
    ] {
        // `error_of` checks for the token.
        let error = error_of(steps).await;
        assert!(error.to_string().contains("[token]"), "{error}");
    }
    let server = Server::saying(json(200, &format!("\"{TOKEN}\""))).await;
    let error = client(&server.url()).get::<u8>(&VERSION).await.unwrap_err();
    assert!(
        !printed(&error).contains(TOKEN) && error.to_string().contains("[token]"),
        "{error:?}"
    );
    // Behind other text, at whose end the message is cut.
    for length in [150, 180] {
        let name = format!("{}{TOKEN}", "x".repeat(length));
        let object = format!(r#"{{"kind":"Node","metadata":{{"name":"{name}"}}}}"#);
        let server = Server::saying(json(200, &object)).await;
        let client = client(&server.url());
        let error = client.get::<Value>(&NODES.named("n")).await.unwrap_err();
        is(&error, Kind::UnexpectedObject, "xxx");
        assert!(!printed(&error).contains(&TOKEN[..5]), "{error:?}");
    }
}

#[tokio::test]
async fn a_request_reaches_its_server_directly() {
    let server = Server::saying(json(200, "{}")).await;
    get(&client(&server.url())).await.unwrap();
    assert_eq!(server.request().line, "GET /version HTTP/1.1");
}

/// The environment of a process cannot be changed safely from within, so the test above runs again in another process.
#[test]
fn proxies_of_the_environment_are_ignored() {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([
        "--exact",
        "wire::kubeapi::tests::wire::a_request_reaches_its_server_directly",
    ]);
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        again.env(name, "http://127.0.0.1:1");
    }
    let output = again
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// The library hides its sockets, so their options are read in a trace of that test.
#[test]
fn tcp_gives_up_a_dead_peer_after_a_minute() {
    match Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .output()
    {
        Ok(output) if output.status.success() => {}
        other => {
            let name = "tcp_gives_up_a_dead_peer_after_a_minute";
            return harvester_lab::skip(name, format_args!("strace: {other:?}"));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("trace");
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-qq", "-e", "trace=setsockopt", "-o"])
        .arg(&log);
    traced.arg(std::env::current_exe().unwrap());
    let test = "wire::kubeapi::tests::wire::a_request_reaches_its_server_directly";
    let output = traced.args(["--exact", test]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    let trace = std::fs::read_to_string(&log).unwrap();
    for option in [
        "SO_KEEPALIVE, [1]",
        "TCP_KEEPIDLE, [30]",
        "TCP_KEEPINTVL, [10]",
        "TCP_KEEPCNT, [3]",
        "TCP_USER_TIMEOUT, [60000]",
    ] {
        assert!(trace.contains(option), "{option}: {trace}");
    }
}

#[tokio::test]
async fn an_unusual_end_of_a_stream_is_still_an_answer() {
    let server = Server::saying(vec![
        stream_head(),
        piece("{\"a\""),
        piece(":1}"),
        stream_end(),
    ])
    .await;
    assert_eq!(get(&client(&server.url())).await.unwrap()["a"], 1);
}
