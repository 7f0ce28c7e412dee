// SPDX-License-Identifier: Apache-2.0
//! The metrics for clients on this machine: one listening socket, disabled unless it is configured.
//!
//! It serves the text of the last report and never triggers a reconcile. Without requests it costs nothing. Clients are not
//! trusted: a request must be short and fast, and of simultaneous requests only the last few are answered.

pub(crate) mod http;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::agent::signal_board::SignalBoard;
use crate::config::Listen;
use crate::facts::observation::ObservationIssue;
use crate::sys::escape::chain;
use crate::sys::root::Root;
use socket::{ListenError, MetricsListener, Stream};

/// The name in reports.
const NAME: &str = "metrics";

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
pub struct MetricsPage {
    inner: Arc<Mutex<ListenerState>>,
    /// Notified when the address changes.
    moved: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ListenerState {
    listen: Option<Listen>,
    page: Arc<str>,
}

impl MetricsPage {
    /// Sets the two parts of the page, and the address `listen` at which they are served.
    pub fn show(&self, listen: Option<&Listen>, state: &str, activity: &str) {
        let is_elsewhere = self.lock(|shown| {
            shown.page = [state, activity].concat().into();
            let is_elsewhere = shown.listen.as_ref() != listen;
            shown.listen = listen.cloned();
            is_elsewhere
        });
        if is_elsewhere {
            self.moved.notify_one();
        }
    }

    fn page(&self) -> Arc<str> {
        self.lock(|shown| Arc::clone(&shown.page))
    }

    fn lock<T>(&self, act: impl FnOnce(&mut ListenerState) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Serves the page at the configured address until dropped.
pub async fn serve(board: MetricsPage, root: Root, health: SignalBoard) {
    loop {
        let listen = board.lock(|shown| shown.listen.clone());
        let hold = async {
            match &listen {
                Some(listen) => hold(&board, &root, listen, &health).await,
                None => {
                    health.issue(NAME, None);
                    pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = hold => {}
            () = board.moved.notified() => {}
        }
    }
}

/// Serves one address; an error is reported, and the address is retried.
async fn hold(board: &MetricsPage, root: &Root, listen: &Listen, health: &SignalBoard) {
    loop {
        let error = match MetricsListener::bind(root, listen) {
            Ok(listener) => {
                health.issue(NAME, None);
                answer_all(board, &listener).await
            }
            Err(error) => error,
        };
        let what = chain(&error);
        let forbidden = match &error {
            ListenError::Forbidden(address) => Some(address.port()),
            _ => None,
        };
        let issue = ObservationIssue::MetricsUnavailable {
            source: NAME,
            what,
            forbidden,
        };
        health.issue(NAME, Some(issue));
        sleep(TRY_AGAIN).await;
    }
}

/// Serves all clients until the socket fails.
async fn answer_all(board: &MetricsPage, listener: &MetricsListener) -> ListenError {
    let mut last = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let page = board.page();
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
async fn answer(stream: Stream, page: Arc<str>) -> hyper::Result<()> {
    let service = service_fn(|request| ready(Ok::<_, Infallible>(http::answer(&request, &page))));
    http1::Builder::new()
        .keep_alive(false)
        // A client may close its sending direction after its request.
        .half_close(true)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
