// SPDX-License-Identifier: Apache-2.0
//! The metrics for clients on this machine: one listening socket, off unless the configuration names it.
//!
//! It answers with the text of the last report and never makes the agent reconcile. While no one asks it costs nothing. Anyone who
//! asks is not trusted: a request may be short and quick only, and of those that ask at one time the last few are answered.

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

/// What reports call it.
const NAME: &str = "metrics";

/// From the first byte to the last of the answer. A scrape on one machine takes a millisecond.
const DEADLINE: Duration = Duration::from_secs(2);

/// Connections at one time. One more ends the oldest of them: who is slow makes room for who is quick.
const CONNECTIONS_MAX: usize = 4;

/// A request's head may be this long, in bytes: the least that the HTTP library takes. Prometheus sends less than 400.
const HEAD_MAX: usize = 8192;

/// Lines of a request's head. Prometheus sends six.
const HEADERS_MAX: usize = 32;

/// Until a socket is tried again that cannot be had, because another program listens there or no descriptor is left.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// The text that is reported, and where. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MetricsPage {
    inner: Arc<Mutex<ListenerState>>,
    /// It is to be reported somewhere else.
    moved: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ListenerState {
    listen: Option<Listen>,
    page: Arc<str>,
}

impl MetricsPage {
    /// Shows the parts of a page, one after the other, to clients at `listen`.
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

/// Answers, wherever the board is to be shown, until dropped.
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

/// Answers at one address; what is wrong with it is reported, and it is tried again.
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
        health.issue(
            NAME,
            Some(ObservationIssue::MetricsUnavailable { what, forbidden }),
        );
        sleep(TRY_AGAIN).await;
    }
}

/// Answers everybody, until the socket fails.
async fn answer_all(board: &MetricsPage, listener: &MetricsListener) -> ListenError {
    let mut last = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let page = board.page();
        let answered = async move {
            // Who went away, or was too slow, knows it.
            let _ = timeout(DEADLINE, answer(stream, page)).await;
        };
        last.push_back(Connection(tokio::spawn(answered)));
        if last.len() > CONNECTIONS_MAX {
            last.pop_front();
        }
        // Who has just come is heard before the next one is let in, and so is the rest of the agent.
        tokio::task::yield_now().await;
    }
}

/// A connection that is answered. Dropping it ends it.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Answers one request; then the connection ends.
async fn answer(stream: Stream, page: Arc<str>) -> hyper::Result<()> {
    let service = service_fn(|request| ready(Ok::<_, Infallible>(http::answer(&request, &page))));
    http1::Builder::new()
        .keep_alive(false)
        // Who has sent a request may close its own direction.
        .half_close(true)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
