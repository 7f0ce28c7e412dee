// SPDX-License-Identifier: Apache-2.0
//! A server that records the requests and responds with the steps of a script.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// The same bytes in small chunks, until the client stops reading.
    Endless(Vec<u8>, Duration),
    /// Keeps the connection open and sends nothing more.
    Stay,
    Close,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Request {
    pub(super) line: String,
    head: String,
    pub(super) body: String,
    pub(super) sni: Option<String>,
    pub(super) client_certificates: usize,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

type Script = dyn Fn(usize, &Request) -> Vec<Step> + Send + Sync;

#[derive(Default)]
struct Seen {
    connections: usize,
    requests: Vec<Request>,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server that responds to the n-th request, from 0, with the steps that the script returns for it.
    pub(super) async fn start(
        script: impl Fn(usize, &Request) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self::listen(None, Arc::new(script)).await
    }

    /// Starts a server that sends the same response to every request.
    pub(super) async fn saying(steps: Vec<Step>) -> Self {
        Self::start(move |_, _| steps.clone()).await
    }

    pub(super) async fn with_tls(config: ServerConfig, steps: Vec<Step>) -> Self {
        Self::with_slow_tls(config, Duration::ZERO, steps).await
    }

    /// Starts a server that delays the handshake.
    pub(super) async fn with_slow_tls(
        config: ServerConfig,
        wait: Duration,
        steps: Vec<Step>,
    ) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::listen(Some((acceptor, wait)), Arc::new(move |_, _| steps.clone())).await
    }

    async fn listen(tls: Option<(TlsAcceptor, Duration)>, script: Arc<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, script, seen) = (tls.clone(), Arc::clone(&script), Arc::clone(&shared));
                tokio::spawn(connection(stream, tls, script, seen));
            }
        });
        Self {
            address,
            seen,
            task,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn https(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub(super) fn request(&self) -> Request {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<(TlsAcceptor, Duration)>,
    script: Arc<Script>,
    seen: Arc<Mutex<Seen>>,
) {
    seen.lock().unwrap().connections += 1;
    let mut about = Request::default();
    match tls {
        None => serve(stream, about, script, seen).await,
        Some((acceptor, wait)) => {
            tokio::time::sleep(wait).await;
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            about.sni = stream.get_ref().1.server_name().map(str::to_owned);
            about.client_certificates =
                stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
            serve(stream, about, script, seen).await;
        }
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    about: Request,
    script: Arc<Script>,
    seen: Arc<Mutex<Seen>>,
) {
    while let Some(request) = read_request(&mut stream, about.clone()).await {
        let position = {
            let mut seen = seen.lock().unwrap();
            seen.requests.push(request.clone());
            seen.requests.len() - 1
        };
        for step in script(position, &request) {
            match step {
                Step::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                Step::Pause(time) => tokio::time::sleep(time).await,
                Step::Endless(bytes, pause) => loop {
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                },
                Step::Stay => std::future::pending().await,
                Step::Close => {
                    let _ = stream.shutdown().await;
                    return;
                }
            }
        }
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin), about: Request) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head).unwrap();
    let (line, head) = text.split_once("\r\n").unwrap();
    let mut request = Request {
        line: line.to_owned(),
        head: head.to_owned(),
        ..about
    };
    let length = request
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.body = String::from_utf8(body).unwrap();
    Some(request)
}

/// Returns a whole response with a content type and any additional header lines.
pub(super) fn answer(status: u16, content_type: &str, further: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{further}\r\n"
    );
    vec![Step::Send((head + body).into_bytes())]
}

pub(super) fn json(status: u16, body: &str) -> Vec<Step> {
    answer(status, "application/json", "", body)
}

/// Returns a response with a `metav1.Status`.
pub(super) fn status(code: u16, message: &str) -> Vec<Step> {
    let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code});
    json(code, &body.to_string())
}

/// Returns the head of a response of unknown length.
pub(super) fn stream_head() -> Step {
    Step::Send(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec(),
    )
}

/// Returns one chunk of such a response.
pub(super) fn piece(text: impl AsRef<[u8]>) -> Step {
    let text = text.as_ref();
    Step::Send([format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat())
}

/// Returns the end of such a response.
pub(super) fn stream_end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}
