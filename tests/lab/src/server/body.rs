// SPDX-License-Identifier: Apache-2.0
//! Bodies of answers: whole ones, streams of watches, and broken ones.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Sleep, sleep};

use super::Shared;
use super::log::WatchWrite;

/// Size of one piece of a body that never ends.
const ENDLESS_PIECE: usize = 64 * 1024;

/// A connection is cut at once, with what is still in its buffer; this is the time in which the buffer empties.
const PAUSE_BEFORE_CUT: Duration = Duration::from_millis(10);

/// A part of a streamed body.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes, with the record that they are to leave in the log.
    Bytes(Bytes, Option<WatchWrite>),
    /// The connection is cut.
    Abort,
}

/// A body.
#[derive(Debug)]
pub(crate) struct Body {
    content: Content,
    /// Runs between the last bytes and the cut, so that the bytes leave before it.
    before_cut: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum Content {
    Whole(Option<Bytes>),
    Stream(UnboundedReceiver<Piece>, Arc<Shared>),
    Cut(Option<Bytes>),
    Endless(Bytes),
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::of(Content::Whole(Some(bytes.into())))
    }

    pub(crate) fn stream(pieces: UnboundedReceiver<Piece>, shared: Arc<Shared>) -> Self {
        Self::of(Content::Stream(pieces, shared))
    }

    /// These bytes, then the connection is cut.
    pub(crate) fn cut(bytes: Bytes) -> Self {
        Self::of(Content::Cut(Some(bytes)))
    }

    pub(crate) fn endless() -> Self {
        Self::of(Content::Endless(Bytes::from(vec![b' '; ENDLESS_PIECE])))
    }

    fn of(content: Content) -> Self {
        Self {
            content,
            before_cut: None,
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = self.get_mut();
        if body.before_cut.is_none() {
            let bytes = match &mut body.content {
                Content::Whole(bytes) => return Poll::Ready(bytes.take().map(data)),
                Content::Endless(bytes) => Some(bytes.clone()),
                Content::Cut(bytes) => bytes.take(),
                Content::Stream(pieces, shared) => match ready!(pieces.poll_recv(context)) {
                    None => return Poll::Ready(None),
                    Some(Piece::Abort) => None,
                    Some(Piece::Bytes(bytes, write)) => {
                        if let Some(mut write) = write {
                            write.at = Instant::now();
                            shared.log.wrote(write);
                        }
                        Some(bytes)
                    }
                },
            };
            if let Some(bytes) = bytes {
                return Poll::Ready(Some(data(bytes)));
            }
        }
        let pause = body
            .before_cut
            .get_or_insert_with(|| Box::pin(sleep(PAUSE_BEFORE_CUT)));
        ready!(pause.as_mut().poll(context));
        let error = io::Error::from(io::ErrorKind::ConnectionAborted);
        Poll::Ready(Some(Err(error)))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            _ => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }
}

fn data(bytes: Bytes) -> Result<Frame<Bytes>, io::Error> {
    Ok(Frame::data(bytes))
}
