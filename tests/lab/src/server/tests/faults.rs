// SPDX-License-Identifier: Apache-2.0
//! Each fault as a client sees it.

use std::pin::pin;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::client::{Client, Line};
use crate::faults::{Fault, Matcher, ServerCertificate};
use crate::server::{Server, ServerOptions};
use crate::world::{SOON, eventually};

const NODE: &str = "/api/v1/nodes/n1";
const SHORT: Duration = Duration::from_millis(200);

async fn start() -> (Server, Client) {
    let server = Server::start(ServerOptions::guest()).await;
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "b"}}}));
    let admin = Client::admin(&server);
    (server, admin)
}

#[tokio::test]
async fn a_refused_port_is_served_again_later() {
    let (server, admin) = start().await;
    let mut open = admin.connect().await.unwrap();
    server.refuse_connections().await;
    let refused = admin.connect().await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let response = open
        .send_request(admin.request("GET", NODE, "", ""))
        .await
        .unwrap();
    assert_eq!(response.status(), 200, "an open connection stays");
    drop(response);
    server.drop_connections();
    let request = admin.request("GET", NODE, "", "");
    assert!(
        timeout(SOON, open.send_request(request))
            .await
            .expect("closed, not silent")
            .is_err()
    );
    server.serve_again().await;
    assert_eq!(admin.get(NODE).await.status, 200);
}

#[tokio::test]
async fn a_silent_port_accepts_and_says_nothing() {
    let (server, admin) = start().await;
    server.stay_silent().await;
    assert!(timeout(SHORT, admin.connect()).await.is_err());
    server.serve_again().await;
    assert_eq!(admin.get(NODE).await.status, 200);
}

#[tokio::test]
async fn a_half_open_connection_is_neither_answered_nor_closed() {
    let (server, admin) = start().await;
    let mut old = admin.connect().await.unwrap();
    let mut watch = admin.watch("/api/v1/nodes?watch=true").await;
    assert_eq!(watch.brief().await, "ADDED n1");
    server.half_open();
    let mut lost = pin!(old.send_request(admin.request("GET", NODE, "", "")));
    assert!(timeout(SHORT, &mut lost).await.is_err());
    server.update(NODE, |node| node["metadata"]["labels"]["a"] = json!("c"));
    assert_eq!(admin.get(NODE).await.status, 200, "a new one works");
    assert!(watch.is_quiet().await);
    assert!(timeout(Duration::ZERO, lost).await.is_err());
    assert_eq!(server.requests().len(), 2, "the lost request never arrived");
}

#[tokio::test]
async fn answers_can_be_late_or_never_come() {
    let (server, admin) = start().await;
    server
        .faults()
        .inject(Matcher::path(NODE).once(), Fault::NeverAnswer);
    server
        .faults()
        .inject(Matcher::path(NODE), Fault::DelayHeaders(SHORT));
    let mut connection = admin.connect().await.unwrap();
    let request = admin.request("GET", NODE, "", "");
    let mut never = pin!(connection.send_request(request));
    assert!(timeout(SHORT, &mut never).await.is_err());
    let begun = Instant::now();
    assert_eq!(admin.get(NODE).await.status, 200);
    assert!(Instant::now() >= begun + SHORT);
    assert!(timeout(Duration::ZERO, never).await.is_err());
    server.faults().clear();
    assert_eq!(admin.get(NODE).await.status, 200);
}

#[tokio::test]
async fn whole_answers_replace_the_right_one_and_have_no_effect() {
    let (server, admin) = start().await;
    let cases = [
        (Fault::html(502), 502, "text/html"),
        (Fault::unauthorized(), 401, "application/json"),
        (Fault::forbidden("no"), 403, "application/json"),
        (Fault::gone(), 410, "application/json"),
    ];
    for (fault, status, media) in cases {
        server.faults().inject(Matcher::any().once(), fault);
        let answer = admin
            .merge(NODE, &json!({"metadata": {"labels": {"a": "c"}}}))
            .await;
        assert_eq!(
            (
                answer.status,
                answer.headers["content-type"].to_str().unwrap()
            ),
            (status, media)
        );
        assert_eq!(server.requests().pop().unwrap().status, status);
    }
    assert_eq!(server.get(NODE).unwrap()["metadata"]["labels"]["a"], "b");
    server.faults().inject(
        Matcher::any().once(),
        Fault::too_many_requests("Wed, 21 Oct"),
    );
    let answer = admin.get(NODE).await;
    assert_eq!(
        (
            answer.status,
            answer.headers["retry-after"].to_str().unwrap()
        ),
        (429, "Wed, 21 Oct")
    );
    server.faults().inject(
        Matcher::any().once(),
        Fault::redirect(307, "https://other.example/x"),
    );
    let answer = admin.get(NODE).await;
    assert_eq!(
        (answer.status, answer.headers["location"].to_str().unwrap()),
        (307, "https://other.example/x")
    );
}

#[tokio::test]
async fn bodies_can_be_spoilt() {
    let (server, admin) = start().await;
    let faults = server.faults();
    faults.inject(Matcher::any().once(), Fault::Gzip);
    let answer = admin.get(NODE).await;
    assert_eq!(answer.headers["content-encoding"], "gzip");
    assert_eq!(answer.body[..2], [0x1f, 0x8b]);
    faults.inject(Matcher::any().once(), Fault::DeepJson(500));
    let answer = admin.get(NODE).await;
    assert!(
        answer
            .body
            .windows(500)
            .any(|window| window.iter().all(|byte| *byte == b'['))
    );
    faults.inject(Matcher::any().once(), Fault::DuplicateKeys);
    let answer = admin.get(NODE).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(
        text.contains(r#""labels":{"a":"duplicate","a":"b"}"#),
        "{text}"
    );
    faults.inject(Matcher::any().once(), Fault::TruncatedBody);
    let cut = admin.try_send("GET", NODE, "", "").await.unwrap_err();
    assert_ne!(cut, "timeout");
    faults.inject(Matcher::any().once(), Fault::EndlessBody);
    let mut connection = admin.connect().await.unwrap();
    let response = connection
        .send_request(admin.request("GET", NODE, "", ""))
        .await
        .unwrap();
    let mut body = response.into_body();
    let mut total = 0;
    while total < 20_000_000 {
        total += body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap()
            .len();
    }
}

#[tokio::test]
async fn an_endless_head_never_gets_to_its_end() {
    let (server, _) = start().await;
    server
        .faults()
        .inject(Matcher::any().once(), Fault::EndlessHeader);
    let mut stream = raw_tls(&server).await;
    stream
        .write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut head = vec![0; 1_000_000];
    stream.read_exact(&mut head).await.unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(!head.windows(4).any(|window| window == b"\r\n\r\n"));
}

#[tokio::test]
async fn a_trickle_is_slow_from_its_first_byte_and_for_one_answer_only() {
    let (server, admin) = start().await;
    let interval = Duration::from_millis(20);
    server
        .faults()
        .inject(Matcher::any().once(), Fault::Trickle(interval));
    let mut stream = raw_tls(&server).await;
    let begun = Instant::now();
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut bytes = [0; 20];
    stream.read_exact(&mut bytes).await.unwrap();
    assert!(Instant::now() >= begun + interval * 19);
    assert!(bytes.starts_with(b"HTTP/1.1 200"));
    // Another answer comes at once, where one of these would take hours.
    let slow = server
        .faults()
        .inject(Matcher::any().once(), Fault::Trickle(SOON));
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    eventually(SOON, "the slow one is asked", async || slow.hits() == 1).await;
    assert_eq!(admin.get(NODE).await.status, 200);
}

#[tokio::test]
async fn open_watches_can_be_cut_polluted_and_expired() {
    let (server, admin) = start().await;
    let change = |value: u32| {
        server.update(NODE, |node| {
            node["metadata"]["labels"]["a"] = json!(value.to_string())
        });
    };
    let open = || async {
        let path = format!(
            "/api/v1/nodes?watch=true&resourceVersion={}",
            server.revision()
        );
        admin.watch(&path).await
    };
    let faults = server.faults();
    let once = || Matcher::path("/nodes").verb("watch").once();

    let mut watch = open().await;
    faults.inject(once(), Fault::WatchCutLine);
    change(1);
    let Line::Cut(part) = watch.next().await else {
        panic!("the line is cut");
    };
    assert!(
        part.starts_with("{\"type\":\"MODIFIED\"") && serde_json::from_str::<Value>(&part).is_err()
    );

    let mut watch = open().await;
    faults.inject(once(), Fault::WatchGarbage("<html>".to_owned()));
    change(2);
    assert_eq!(watch.next().await, Line::Whole("<html>".to_owned()));
    assert_eq!(watch.brief().await, "MODIFIED n1");
    faults.inject(
        once(),
        Fault::WatchWrongObject(json!({"metadata": {"name": "stranger"}})),
    );
    change(3);
    assert_eq!(watch.brief().await, "MODIFIED stranger");
    assert_eq!(watch.brief().await, "MODIFIED n1");
    let gone = faults.inject(once(), Fault::WatchGone);
    change(4);
    assert_eq!(watch.event().await.1["code"], 410);
    assert_eq!(watch.next().await, Line::End(String::new()));
    assert_eq!(gone.hits(), 1);

    let mut watch = open().await;
    faults.inject(once(), Fault::WatchAbort);
    change(5);
    assert_eq!(watch.next().await, Line::Cut(String::new()));
}

#[tokio::test]
async fn wrong_certificates_fail_the_handshake_each_in_its_own_way() {
    let (server, admin) = start().await;
    let cases = [
        (ServerCertificate::OtherAuthority, "BadSignature"),
        (ServerCertificate::OtherName, "not valid for name"),
        (ServerCertificate::Expired, "expired"),
        (ServerCertificate::NotYetValid, "not valid yet"),
    ];
    for (certificate, text) in cases {
        server.present(certificate);
        let error = admin.connect().await.unwrap_err().to_string();
        assert!(error.contains(text), "{certificate:?}: {error}");
    }
    server.present(ServerCertificate::Right);
    assert_eq!(admin.get(NODE).await.status, 200);
}

async fn raw_tls(server: &Server) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    let endpoint = server.endpoint();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(endpoint.authority_pem.as_bytes()).unwrap())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = endpoint.url.strip_prefix("https://").unwrap().to_owned();
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    connector
        .connect(ServerName::try_from("127.0.0.1").unwrap(), socket)
        .await
        .unwrap()
}
