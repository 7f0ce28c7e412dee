// SPDX-License-Identifier: Apache-2.0
//! One agent's connections to one simulated API: at most one idle connection is kept, and each watch holds one, as the real client does.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::http::response::Builder;
use reqwest::Response;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::network::{Admission, Answer, Connection, NEVER, Network, Piece, Way, Wish};
use super::record::Kind;
use super::store::{Side, Wanted, number};
use crate::wire::kubeapi::Timeouts;
use crate::wire::kubeapi::testing::{Answering, Asked, Failed, Wire};

/// From one machine to another and back.
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// A request that repeats a failed one sooner than this, with no answer of the same API between, is a hurry.
const HURRY: Duration = Duration::from_millis(500);

/// The wire.
pub(super) struct Line {
    network: Arc<Network>,
    side: Side,
    agent: usize,
    idle: Arc<Mutex<Option<Connection>>>,
    /// When a request failed last.
    failed: Mutex<BTreeMap<String, Instant>>,
}

impl Line {
    /// A wire without a connection.
    pub(super) fn new(network: Arc<Network>, side: Side, agent: usize) -> Self {
        Self {
            network,
            side,
            agent,
            idle: Arc::default(),
            failed: Mutex::default(),
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let taken = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Of a connection that was reset or closed the client knows; of one whose packets are lost it does not.
        taken.filter(|connection| {
            self.network.is_lost(self.side) || self.network.is_open(self.side, *connection)
        })
    }

    async fn dial(&self, limit: Duration) -> Result<Connection, Failed> {
        self.network.arrive(self.agent, Kind::Dial);
        match self.network.dial(self.side) {
            Ok((connection, at)) if at <= Instant::now() + limit => {
                sleep_until(at + ROUND_TRIP).await;
                let is_open = self.network.is_open(self.side, connection);
                is_open.then_some(connection).ok_or(Failed::Refused)
            }
            Err(Way::Refused | Way::Open) => {
                sleep(ROUND_TRIP).await;
                Err(Failed::Refused)
            }
            Ok(_) | Err(Way::Lost) => {
                sleep(limit).await;
                Err(Failed::Connect)
            }
        }
    }

    async fn exchange(&self, asked: &Asked<'_>, timeouts: Timeouts) -> Result<Response, Failed> {
        let connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.dial(timeouts.connect).await?,
        };
        let (kind, work) = match asked.verb {
            "get" => (Kind::Get, 1.0),
            "list" => (Kind::List, 10.0),
            "watch" => (Kind::Watch, 2.0),
            "patch" => (Kind::Patch, 3.0),
            _ => (Kind::Create, 2.0),
        };
        self.network.arrive(self.agent, kind);
        self.network.note(self.side, asked);
        if self.network.is_lost(self.side) {
            sleep(timeouts.headers).await;
            return Err(Failed::Headers);
        }
        let response = match self.network.admit(self.side, connection, work) {
            Admission::Gone => return Err(Failed::Reset),
            Admission::Shed => {
                sleep(ROUND_TRIP).await;
                status(429, "TooManyRequests")
            }
            Admission::At(at) => {
                let answered = timeout(timeouts.headers, sleep_until(at + ROUND_TRIP)).await;
                answered.map_err(|_| Failed::Headers)?;
                if !self.network.is_open(self.side, connection) {
                    return Err(Failed::Reset);
                }
                match self.network.wrong_answer(self.side, asked) {
                    Some(Answer { status: NEVER, .. }) => {
                        sleep(timeouts.headers).await;
                        return Err(Failed::Headers);
                    }
                    Some(answer) => return Ok(wrong(answer)),
                    None => {}
                }
                if kind == Kind::Watch {
                    return Ok(self.watch(asked, connection));
                }
                self.respond(asked)
            }
        };
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        Ok(response)
    }

    fn respond(&self, asked: &Asked<'_>) -> Response {
        let wanted = Wanted::parse(self.side, asked.path);
        let found = match (asked.verb, wanted) {
            ("get", Wanted::Vmi(agent)) => self.network.read(|store| Some(store.vmi(agent))),
            ("get", Wanted::Host(host)) => self.network.read(|store| store.host(host)),
            ("get", Wanted::Node(agent)) => self
                .network
                .read(|store| Some(store.node(agent, asked.is_metadata_only))),
            ("list", Wanted::Namespace(space)) => {
                self.network.read(|store| Some(store.vmis(&space).0))
            }
            ("patch", Wanted::Node(agent) | Wanted::NodeStatus(agent)) => {
                if let Some(body) = asked.body {
                    self.network.patch(agent, body);
                }
                self.network.read(|store| Some(store.node(agent, false)))
            }
            ("create", Wanted::Events) => Some("{}".to_owned()),
            _ => None,
        };
        match found {
            Some(text) => json(200, text),
            None => status(404, "NotFound"),
        }
    }

    fn watch(&self, asked: &Asked<'_>, connection: Connection) -> Response {
        let value = |key: &str| {
            let found = asked.query.iter().find(|(name, _)| *name == key);
            found.map_or("", |(_, value)| value.as_str())
        };
        // Its own, or the VM that it has found to be its own.
        let watched = number(value("fieldSelector")).expect("an agent watches one object");
        let time = Duration::from_secs(value("timeoutSeconds").parse().unwrap_or(3600));
        let (sender, pieces) = unbounded_channel();
        let id = self.network.watch(
            self.side,
            watched,
            connection,
            Wish {
                from: value("resourceVersion").parse().unwrap_or_default(),
                is_metadata_only: asked.is_metadata_only,
                time,
            },
            sender,
        );
        let stream = Stream {
            pieces,
            network: Arc::clone(&self.network),
            side: self.side,
            id,
            connection,
            idle: Arc::clone(&self.idle),
        };
        response(200, reqwest::Body::wrap(stream))
    }
}

impl Wire for Line {
    fn answer<'a>(&'a self, asked: Asked<'a>, timeouts: Timeouts) -> Answering<'a> {
        Box::pin(async move {
            let key = format!("{} {}", asked.verb, asked.path);
            let failed = || self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            let last = failed().remove(&key);
            if last.is_some_and(|at| at.elapsed() < HURRY) {
                self.network.hurry(self.agent);
            }
            let answer = self.exchange(&asked, timeouts).await;
            let is_failure = answer
                .as_ref()
                .map_or(true, |response| response.status().as_u16() >= 410);
            match is_failure {
                true => {
                    failed().insert(key, Instant::now());
                }
                // The API answers again: what failed before may be repeated immediately.
                false => failed().clear(),
            }
            answer
        })
    }
}

/// The body of a watch.
struct Stream {
    pieces: UnboundedReceiver<Piece>,
    network: Arc<Network>,
    side: Side,
    id: u64,
    connection: Connection,
    idle: Arc<Mutex<Option<Connection>>>,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some(Piece::Line(line)) => Some(Ok(Frame::data(line))),
            Some(Piece::Reset) => Some(Err(std::io::ErrorKind::ConnectionReset.into())),
            None => {
                // A stream that ended in order leaves its connection to the next request.
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                idle.get_or_insert(self.connection);
                None
            }
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.network.unwatch(self.side, self.id);
    }
}

fn json(code: u16, text: String) -> Response {
    response(code, text.into())
}

fn status(code: u16, reason: &str) -> Response {
    json(
        code,
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"{reason}","code":{code}}}"#
        ),
    )
}

fn wrong(answer: Answer) -> Response {
    let (name, value) = answer.header;
    let body = match answer.body {
        Some(text) => text.into(),
        None => reqwest::Body::wrap(Endless),
    };
    let head = Builder::new().status(answer.status).header(name, value);
    head.body(body).expect("the head is valid").into()
}

/// A body of spaces that never ends.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 4096])))))
    }
}

fn response(code: u16, body: reqwest::Body) -> Response {
    let mut head = Builder::new()
        .status(code)
        .header(CONTENT_TYPE, "application/json");
    if code == 429 {
        // What kube-apiserver sends.
        head = head.header(RETRY_AFTER, "1");
    }
    head.body(body).expect("the head is valid").into()
}
