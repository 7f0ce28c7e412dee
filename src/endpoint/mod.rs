// SPDX-License-Identifier: Apache-2.0
//! The metrics for whoever asks on this machine: one listening socket, off unless the configuration names it.
//!
//! It answers with the text of the last report and never makes the agent look. While nobody asks it costs nothing. Whoever
//! asks is not trusted: a request may be short and quick only, and of those that ask at one time the last few are answered.

mod http;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::config::Listen;
use crate::escape::chain;
use crate::facts::who::Remark;
use crate::root::Root;
use crate::triggers::health::Health;
use socket::{ListenError, Listener, Stream};

/// What reports call it.
const NAME: &str = "metrics";

/// From the first byte to the last of the answer. A scrape on one machine takes a millisecond.
const DEADLINE: Duration = Duration::from_secs(2);

/// Connections at one time. One more ends the oldest of them: who is slow makes room for who is quick.
const CONNECTIONS_MAX: usize = 4;

/// Reads of what follows a request's head, at most: more than any head that a program sends by mistake.
const REST_MAX: usize = 64;

/// Until a socket is tried again that cannot be had, because another program listens there or no descriptor is left.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// The text that is told, and where. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Board {
    inner: Arc<Mutex<Shown>>,
    /// It is to be told somewhere else.
    moved: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Shown {
    listen: Option<Listen>,
    page: Arc<str>,
}

impl Board {
    /// Shows the parts of a page, one after the other, to whoever asks at `listen`.
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

    fn lock<T>(&self, act: impl FnOnce(&mut Shown) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Answers, wherever the board is to be shown, until dropped.
pub async fn serve(board: Board, root: Root, health: Health) {
    loop {
        let listen = board.lock(|shown| shown.listen.clone());
        let hold = async {
            match &listen {
                Some(listen) => hold(&board, &root, listen, &health).await,
                None => {
                    health.remark(NAME, None);
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

/// Answers at one address; what is wrong with it is complained about, and it is tried again.
async fn hold(board: &Board, root: &Root, listen: &Listen, health: &Health) {
    loop {
        let error = match Listener::bind(root, listen) {
            Ok(listener) => {
                health.remark(NAME, None);
                answer_all(board, &listener).await
            }
            Err(error) => error,
        };
        let what = chain(&error);
        let forbidden = match &error {
            ListenError::Forbidden(address) => Some(address.port()),
            _ => None,
        };
        health.remark(NAME, Some(Remark::MetricsUnavailable { what, forbidden }));
        sleep(TRY_AGAIN).await;
    }
}

/// Answers everybody, until the socket fails.
async fn answer_all(board: &Board, listener: &Listener) -> ListenError {
    let mut last = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let page = board.page();
        let answered = async move {
            // Who went away, or was too slow, knows it.
            let _ = timeout(DEADLINE, answer(stream, &page)).await;
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

async fn answer(mut stream: Stream, page: &str) -> io::Result<()> {
    let mut room = [0; http::HEAD_MAX];
    let mut head = ReadBuf::new(&mut room);
    let answer = loop {
        let before = head.filled().len();
        poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut head)).await?;
        if let Some(answer) = http::answer(head.filled(), page) {
            break answer;
        }
        if head.filled().len() == before {
            return Ok(());
        }
    };
    let mut left = answer.as_slice();
    while !left.is_empty() {
        let count = poll_fn(|context| Pin::new(&mut stream).poll_write(context, left)).await?;
        left = left.get(count..).unwrap_or_default();
    }
    poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await?;
    // Who still sends would lose the answer with the connection, if that ended with something unread: RFC 9112, 9.6.
    for _ in 0..REST_MAX {
        let mut rest = ReadBuf::new(&mut room);
        poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut rest)).await?;
        if rest.filled().is_empty() {
            break;
        }
    }
    Ok(())
}
