// SPDX-License-Identifier: Apache-2.0
//! The metrics for clients on this machine: one listening socket on a loopback address, disabled unless it is configured.
//!
//! It serves the text of the last report and never triggers a reconcile. Without requests it costs nothing. Clients are not
//! trusted: a request must be short and fast, and of simultaneous requests only the last few are answered.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::agent::source_board::SourceBoard;
use crate::catalog::{Code, Finding};

/// The name in reports.
const NAME: &str = "metrics";

/// The only path.
const PATH: &str = "/metrics";

const PLAIN: &str = "text/plain; charset=utf-8";

/// The content type; Prometheus rejects a page of an unknown type.
const PAGE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The time limit from the first byte of the request to the last byte of the response. A local scrape takes a millisecond.
/// Tests move the clock.
const DEADLINE: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 2 });

/// The maximum number of simultaneous connections. One more closes the oldest: a slow client must not block a fast one.
const CONNECTIONS_MAX: usize = 4;

/// The maximum size of the request head, in bytes: the minimum of the HTTP library. Prometheus sends less than 400.
const HEAD_MAX: usize = 8192;

/// The maximum number of headers of a request. Prometheus sends six.
const HEADERS_MAX: usize = 32;

/// The delay before a socket is retried that cannot be opened, because another program uses it or no descriptor is left.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// The text to serve, and its address. Clones share both.
#[derive(Debug, Clone, Default)]
pub struct MetricsPage(watch::Sender<Shown>);

#[derive(Debug, Default)]
struct Shown {
    listen: Option<SocketAddr>,
    page: Arc<str>,
}

impl MetricsPage {
    /// Sets the two parts of the page, and the address `listen` at which they are served.
    pub fn show(&self, listen: Option<SocketAddr>, state: &str, activity: &str) {
        self.0.send_if_modified(|shown| {
            shown.page = [state, activity].concat().into();
            // The server must know of a new address only: each connection reads the page.
            mem::replace(&mut shown.listen, listen) != listen
        });
    }
}

/// Serves the page at the configured address until dropped.
pub async fn serve(metrics: MetricsPage, board: SourceBoard) {
    let mut shown = metrics.0.subscribe();
    loop {
        let listen = shown.borrow_and_update().listen;
        let hold = async {
            match listen {
                Some(address) => hold(&metrics, address, &board).await,
                None => {
                    board.report(NAME, None);
                    pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = hold => {}
            _ = shown.changed() => {}
        }
    }
}

/// Serves one address; an error is reported, and the address is retried.
async fn hold(metrics: &MetricsPage, address: SocketAddr, board: &SourceBoard) {
    loop {
        let finding = match bind(address) {
            Ok(listener) => {
                board.report(NAME, None);
                let error = answer_all(metrics, &listener).await;
                unavailable(format!("failed to accept a connection: {error}"))
            }
            // The sandbox of the unit denies it (`SocketBindDeny=`). A port below 1024 without the capability gives EACCES.
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => forbidden(address),
            Err(error) => unavailable(format!("failed to listen on `{address}`: {error}")),
        };
        board.report(NAME, Some(finding));
        sleep(TRY_AGAIN).await;
    }
}

/// Returns the finding that no client can read the metrics.
fn unavailable(what: String) -> Finding {
    Finding::new(Code::MetricsUnavailable, what).of_source(NAME)
}

/// Returns the finding for an address whose port the unit denies.
fn forbidden(address: SocketAddr) -> Finding {
    let port = address.port();
    let what = format!("failed to listen on `{address}`: the unit does not allow it");
    unavailable(what)
        .with_remedy(format!(
            "allow the port with a drop-in: systemctl edit harvester-node-agent, lines [Service] and SocketBindAllow=tcp:{port}; \
             then systemctl restart harvester-node-agent"
        ))
        .with_commands(vec!["systemctl edit harvester-node-agent".to_owned()])
}

/// Binds without `await`: the address is a number, and no name is resolved.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves all clients until the socket fails.
async fn answer_all(metrics: &MetricsPage, listener: &TcpListener) -> io::Error {
    let mut last = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // The client has disconnected: accept(2).
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return error,
        };
        let page = Arc::clone(&metrics.0.borrow().page);
        let answered = async move {
            // A client that disconnected or timed out needs no report.
            let _ = timeout(DEADLINE, answer(stream, page)).await;
        };
        last.push_back(Connection(tokio::spawn(answered)));
        if last.len() > CONNECTIONS_MAX {
            last.pop_front();
        }
        // The new connection runs before the next one is accepted, and so do the other tasks of the agent.
        tokio::task::yield_now().await;
    }
}

/// An open connection. Dropping it closes it.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Answers one request and closes the connection.
async fn answer(stream: TcpStream, page: Arc<str>) -> hyper::Result<()> {
    let service = service_fn(|request| ready(Ok::<_, Infallible>(response(&request, &page))));
    http1::Builder::new()
        .keep_alive(false)
        // A client may close its sending direction after its request.
        .half_close(true)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Returns the response. The HTTP library parses the request, rejects an invalid one, and sends no body for a HEAD request.
pub fn response<B>(request: &Request<B>, page: &str) -> Response<String> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let (status, kind, text) = match request.uri().path() {
        PATH if is_read => (StatusCode::OK, PAGE, page),
        PATH => (
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "metrics are read-only\n",
        ),
        _ => (
            StatusCode::NOT_FOUND,
            PLAIN,
            "the metrics are at /metrics\n",
        ),
    };
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests;
