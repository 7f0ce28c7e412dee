// SPDX-License-Identifier: Apache-2.0

use std::net::Ipv4Addr;

use harvester_lab::world::{SOON, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// What `serve_at` shows.
const PAGE: &str = "\r\n\r\na 1\n";

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

/// Serves a page at this address, until the runtime of the test ends.
fn serve_at(address: SocketAddr) -> (MetricsPage, SourceBoard) {
    let (metrics, board) = (MetricsPage::default(), SourceBoard::default());
    tokio::spawn(serve(metrics.clone(), board.clone()));
    metrics.show(Some(address), "a 1\n", "");
    (metrics, board)
}

/// Returns a port that stays free: on the loopback address of this process, no other one uses it.
async fn free_port() -> SocketAddr {
    let [_, second, third, fourth] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, second, third, fourth);
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    listener.local_addr().unwrap()
}

/// Connects as soon as the port is open.
async fn connect(address: SocketAddr) -> TcpStream {
    let attempts = async {
        loop {
            if let Ok(stream) = TcpStream::connect(address).await {
                return stream;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, attempts).await.expect("it is open")
}

/// Sends a request and returns what is received up to the end of the connection.
async fn ask(mut stream: TcpStream, request: &[u8]) -> String {
    stream.write_all(request).await.unwrap();
    rest(&mut stream).await.unwrap()
}

/// Returns what is received up to the end of the connection.
async fn rest(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = String::new();
    let read = timeout(SOON, stream.read_to_string(&mut text)).await;
    read.unwrap().map(|_| text)
}

#[tokio::test]
async fn the_page_of_the_last_report_is_served_where_the_configuration_says_and_nowhere_else() {
    let (first, second) = (free_port().await, free_port().await);
    let (metrics, _) = serve_at(first);
    for (address, state, activity) in [
        (first, "a 1\n", "b 1\n"),
        (first, "a 2\n", "b 2\n"),
        (second, "a 3\n", ""),
    ] {
        metrics.show(Some(address), state, activity);
        let text = ask(connect(address).await, REQUEST).await;
        let end = format!("\r\n\r\n{state}{activity}");
        assert!(text.ends_with(&end), "{text}");
    }
    let is_closed = async || TcpStream::connect(first).await.is_err();
    eventually(SOON, "the first port is closed", is_closed).await;
    metrics.show(None, "", "");
    let is_closed = async || TcpStream::connect(second).await.is_err();
    eventually(SOON, "the port is closed", is_closed).await;
}

#[tokio::test]
async fn a_port_in_use_is_complained_about_until_another_is_configured() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let (metrics, board) = serve_at(address);
    timeout(SOON, board.changed()).await.unwrap();
    let findings = format!("{:?}", board.findings());
    let text = format!("failed to listen on `{address}`: Address already in use");
    assert!(findings.contains(&text), "{findings}");
    let free = free_port().await;
    metrics.show(Some(free), "a 1\n", "");
    assert!(ask(connect(free).await, REQUEST).await.ends_with("a 1\n"));
    assert_eq!(board.findings(), []);
}

#[tokio::test]
async fn who_is_slow_makes_room_for_who_is_quick_and_is_given_up_in_the_end() {
    let address = free_port().await;
    serve_at(address);
    let mut slow = Vec::new();
    for _ in 0..1000 {
        let mut stream = connect(address).await;
        stream.write_all(b"GET /met").await.unwrap();
        slow.push(stream);
    }
    // The clock stands far from their time limit, so the answer does not wait for it.
    let text = ask(connect(address).await, REQUEST).await;
    assert!(text.ends_with(PAGE), "{text}");
    // The first of them made room for the later ones.
    let mut first = slow.remove(0);
    let _ = rest(&mut first).await;
    // The last of them still had their time limit, and no more.
    let is_open = slow.last().unwrap().try_read(&mut [0]).is_err();
    assert!(is_open);
    tokio::time::pause();
    tokio::time::advance(DEADLINE).await;
    tokio::time::resume();
    for mut stream in slow {
        // Closed with unread data, or before that arrived.
        assert!(rest(&mut stream).await.unwrap_or_default().is_empty());
    }
}

#[tokio::test]
async fn rubbish_and_half_requests_get_an_answer_or_an_end_and_the_next_one_is_served() {
    let address = free_port().await;
    serve_at(address);
    let long = [b"GET /metrics HTTP/1.1\r\nX: ", [b'a'; HEAD_MAX].as_slice()].concat();
    let headers = "X: y\r\n".repeat(HEADERS_MAX + 1);
    let many = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
    for (request, status) in [
        (b"\x16\x03\x01\r\n\r\n".as_slice(), 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\xff\xfe\r\n\r\n", 400),
        (&long[..HEAD_MAX], 431),
        (many.as_bytes(), 431),
    ] {
        let text = ask(connect(address).await, request).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
    }
    // A client that continues to send may lose the response, and affects no other client.
    let body = [REQUEST, &[b'x'; 20 * HEAD_MAX]].concat();
    let mut stream = connect(address).await;
    let _ = stream.write_all(&body).await;
    let _ = rest(&mut stream).await;
    let mut half = connect(address).await;
    half.write_all(b"GET /").await.unwrap();
    half.shutdown().await.unwrap();
    assert_eq!(rest(&mut half).await.unwrap(), "");
    // Byte by byte is slow, but within the time limit.
    let mut slow = connect(address).await;
    for byte in REQUEST {
        slow.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(ask(slow, b"").await.ends_with(PAGE));
}

#[tokio::test]
async fn the_page_is_read_by_get_and_its_head_by_head_and_everything_else_is_refused() {
    let address = free_port().await;
    serve_at(address);
    let mut text = String::new();
    for request in [
        "GET /metrics HTTP/1.1",
        "HEAD /metrics HTTP/1.0",
        "GET /metrics?x=1 HTTP/1.1",
        "GET / HTTP/1.1",
        "GET /metrics/ HTTP/1.1",
        "POST /metrics HTTP/1.1",
        "get /metrics HTTP/1.1",
    ] {
        // Only HTTP/1.1 needs a host.
        let host = ["", "Host: here\r\n"][usize::from(request.ends_with("1.1"))];
        let whole = format!("{request}\r\n{host}\r\n");
        let reply = ask(connect(address).await, whole.as_bytes()).await;
        let mut lines: Vec<&str> = reply.split("\r\n").collect();
        lines.retain(|line| !line.starts_with("date: "));
        text += &format!("{request}\n\n{}\n\n", lines.join("\n"));
    }
    let file = "src/report/endpoint/replies.txt";
    harvester_lab::expected::is_expected(file, &text, str::to_owned);
    // A client that has closed its sending direction still gets the response.
    let mut stream = connect(address).await;
    stream.write_all(REQUEST).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(rest(&mut stream).await.unwrap().ends_with(PAGE));
}

#[test]
fn a_port_that_the_unit_denies_is_allowed_by_a_drop_in() {
    let denied = forbidden(SocketAddr::from((Ipv4Addr::LOCALHOST, 9879)));
    assert!(denied.remedy().contains("SocketBindAllow=tcp:9879"));
    let other = unavailable("failed to listen".to_owned());
    assert!(!other.remedy().contains("SocketBindAllow"));
}
